from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanab.inspection.attack import background, reconstruct
from kanab.inspection.attack.background import Background, independent_rows, place_people, solve
from kanab.inspection.attack.examples.making import tabulate
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.inspection.attack.reconstruct import find_by_least_squares, find_leverage, find_sparse_values
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))
RATING = Metric("rating", 1, (1.0, 5.0))
BALANCE = Metric("balance", 1, (-50.0, 50.0))
ARM = Axis("arm", ("A", "B"), "arm")


def tables(people: dict[str, Any], values: dict[Metric, Any], *links: tuple[str, ...]) -> AttackedRelease:
    def side(name: str) -> Axis:
        return ARM if name == "arm" else Axis(name, tuple(sorted(set(people[name]))))

    made = [tabulate("/".join(link), people, [side(name) for name in link], values, []) for link in links]
    return AttackedRelease("r", tuple(made))


def knows(people: dict[str, Any], values: dict[Metric, Any], *links: tuple[str, ...]) -> Background:
    return place_people(people, [tables(people, values, *links)])


def crowd(n: int, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "arm": rng.choice(["A", "B"], n).tolist(),
        "tier": rng.integers(1, 4, n).tolist(),
        "town": rng.choice(["x", "y", "z"], n).tolist(),
    }


LINKS = (("arm", "tier"), ("arm", "town"))


# ── what is known ──────────────────────────────────────────────────────────────────────────────


def test_people_are_placed_in_every_table_and_counted_by_signature() -> None:
    people = {"arm": ["A", "B", "A", "A"], "tier": [1, 1, 2, 1]}
    known = knows(people, {}, ("arm", "tier"), ("tier",))
    assert known.titles == ("r, arm/tier", "r, tier")
    assert known.cells.tolist() == [[0, 0], [2, 0], [1, 1]]
    assert known.people.tolist() == [2, 1, 1]
    assert known.who.tolist() == [0, 1, 2]
    assert known.name(0) == "the 2 people who are like person 1 in every table"
    assert known.name(2) == "person 3"


def test_merged_levels_and_people_outside_a_table_are_placed() -> None:
    people = {"arm": ["A", "B", "A", "C"], "tier": [1, 2, 3, 1]}
    axis = Axis("tier", (1, "2 … 3"), "covariate", LevelMap("tier", ((1, (1,)), ("2 … 3", (2, 3))), {}))
    inside = {key: values[:3] for key, values in people.items()}
    plain = tabulate("arm/tier", inside, [ARM, Axis("tier", (1, 2, 3))], {}, [])
    known = place_people(people, [AttackedRelease("r", (plain.folded(axis, [0, 1, 1]),))])
    assert known.cells.ravel().tolist() == [0, 3, 1, -1]


def test_tables_about_other_people_or_with_unknown_axes_are_left_out() -> None:
    people = crowd(50)
    release = tables(people, {}, *LINKS)
    assert len(place_people(people, [release]).tables) == 2
    assert len(place_people({key: people[key] for key in ("arm", "tier")}, [release]).tables) == 1
    fewer = {key: values[:-1] for key, values in people.items()}
    assert place_people(fewer, [release]).tables == ()
    assert place_people({}, [release]).tables == ()


def test_metrics_that_some_people_lack_are_not_solved_for() -> None:
    people = {"arm": ["A", "A", "B"]}
    (table,) = tables(people, {RATING: np.array([3, 4, 5])}, ("arm",)).tables
    (part,) = table.moments
    gap = type(part)(part.metric, part.counts - np.array([1, 0], dtype=object), part.sums, {})
    gone = AttackedTable(table.name, table.axes, table.people, table.hidden, (gap,))
    assert place_people(people, [AttackedRelease("r", (gone,))]).equations == ()


# ── leverage ───────────────────────────────────────────────────────────────────────────────────


@given(st.integers(0, 10_000), st.integers(20, 120))
@settings(max_examples=25)
def test_leverage_is_that_of_the_hat_matrix(seed: int, n: int) -> None:
    people = crowd(n, seed)
    known = knows(people, {SPEND: np.arange(n)}, *LINKS)
    keys = [[(name, a, x) for a, x in zip(people["arm"], people[name], strict=True)] for name in ("tier", "town")]
    classes = sorted({key for column in keys for key in column}, key=str)
    X = np.array([[float(one in pair) for one in classes] for pair in zip(*keys, strict=True)])
    hat = np.diag(X @ np.linalg.pinv(X.T @ X) @ X.T)
    for k in (2, 3, 5, 10):
        found = find_leverage(known, k)
        exposed = int((hat > (1 + 1e-6) / k).sum())
        assert bool(found) == (exposed > 0)
        if found:
            assert found[0].people == max(1, int(1 / hat.max() + 1e-6))
            assert f"so exposed {'is one person' if exposed == 1 else f'are {exposed} people'}" in found[0].learnt


def test_one_person_who_moved_between_two_tables_is_all_that_a_combination_rests_on() -> None:
    people = {"arm": ["A"] * 40 + ["B"] * 60, "tier": [1] * 39 + [2] * 61}
    spend = np.arange(100) * 7
    known = knows(people, {SPEND: spend}, ("arm",), ("tier",))
    (found,) = find_leverage(known, 10)
    assert found.people == 1
    assert "rests on 1 person only (person 40); so exposed is one person" in found.learnt
    (value,) = find_by_least_squares(known, 10)
    assert (value.people, value.metric, value.learnt) == (1, "spend", "person 40 has spend = 2.73")


# ── least squares ──────────────────────────────────────────────────────────────────────────────


def test_people_who_are_alike_in_every_table_keep_their_sum_only() -> None:
    people = {"arm": ["A"] * 40 + ["B"] * 60, "tier": [1] * 38 + [2] * 62}
    known = knows(people, {SPEND: np.full(100, 150)}, ("arm",), ("tier",))
    (value,) = find_by_least_squares(known, 10)
    assert value.people == 2
    assert value.learnt == "the 2 people who are like person 39 in every table have spend = 3 between them"
    assert find_by_least_squares(known, 2) == []


@given(st.integers(0, 10_000), st.integers(8, 40))
@settings(max_examples=30)
def test_what_least_squares_determines_is_true(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    arms = {f"e{i}": rng.choice(["A", "B"], n).tolist() for i in range(6)}
    spend = rng.integers(0, 50_000, n)
    known = knows(arms, {SPEND: spend}, *combinations(arms, 2))
    (one,) = known.equations
    totals, determined = one.solved
    places = [tuple(row) for row in known.cells.tolist()]
    truth = np.zeros(len(places))
    for place, value in zip(_places(known, arms), spend, strict=True):
        truth[places.index(place)] += value
    assert np.allclose(totals[determined], truth[determined], atol=1e-3)
    matrix, _ = one.rows
    for place in np.flatnonzero(~determined):
        unit = np.eye(matrix.shape[1])[place]
        assert np.linalg.matrix_rank(np.vstack([matrix, unit])) > np.linalg.matrix_rank(matrix)


def _places(known: Background, columns: dict[str, Any]) -> list[tuple[int, ...]]:
    everyone = zip(*columns.values(), strict=True)
    names = list(columns)
    found = []
    for person in everyone:
        own = dict(zip(names, person, strict=True))
        row = []
        for table in known.tables:
            place = 0
            for axis in table.axes:
                place = place * len(axis.levels) + axis.levels.index(own[axis.name])
            row.append(place)
        found.append(tuple(row))
    return found


def test_nothing_published_determines_nothing() -> None:
    totals, determined = solve(np.empty((0, 3)), np.empty(0))
    assert totals.tolist() == [0, 0, 0]
    assert not determined.any()
    assert independent_rows(np.empty((0, 3))).tolist() == []


def test_matrices_beyond_the_limit_are_not_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    people = {"arm": ["A"] * 40 + ["B"] * 60, "tier": [1] * 39 + [2] * 61}
    known = knows(people, {BOUGHT: np.arange(100) % 2}, ("arm",), ("tier",))
    monkeypatch.setattr(background, "MOST_ENTRIES", 10)
    assert find_by_least_squares(known, 10) == []
    assert find_sparse_values(known, 10) == []


# ── few people off the commonest value ─────────────────────────────────────────────────────────


def test_a_lone_buyer_is_named_where_the_tables_cross() -> None:
    people = crowd(60, 2)
    alone = somebody_alone(people)
    bought = np.zeros(60, dtype=np.int64)
    bought[alone] = 1
    known = knows(people, {BOUGHT: bought}, *LINKS)
    assert find_by_least_squares(known, 5) == []
    (found,) = find_sparse_values(known, 5)
    assert (found.attack, found.people) == ("sparse values", 1)
    assert found.learnt == f"person {alone + 1} has bought = 1"


def test_the_lone_person_who_did_not_buy_is_named_as_well() -> None:
    people = crowd(60, 2)
    alone = somebody_alone(people)
    bought = np.ones(60, dtype=np.int64)
    bought[alone] = 0
    (found,) = find_sparse_values(knows(people, {BOUGHT: bought}, *LINKS), 5)
    assert found.learnt == f"person {alone + 1} has bought = 0"


def somebody_alone(people: dict[str, Any]) -> int:
    """Who is like nobody else."""
    rows = [_row(people, i) for i in range(60)]
    return next(i for i, row in enumerate(rows) if rows.count(row) == 1)


def _row(people: dict[str, Any], i: int) -> tuple[Any, ...]:
    return tuple(values[i] for values in people.values())


def test_a_class_in_which_everyone_bought_is_no_reconstruction() -> None:
    people = crowd(60, 2)
    bought = np.array([a == "A" and t == 1 for a, t in zip(people["arm"], people["tier"], strict=True)], dtype=np.int64)
    assert 0 < bought.sum() < 30
    assert find_sparse_values(knows(people, {BOUGHT: bought}, *LINKS), 5) == []


def test_many_buyers_hide_each_other() -> None:
    rng = np.random.default_rng(5)
    people = crowd(400, 3)
    bought = (rng.random(400) < 0.3).astype(np.int64)
    assert find_sparse_values(knows(people, {BOUGHT: bought}, *LINKS), 10) == []


@pytest.mark.parametrize(
    ("metric", "commonest", "others"), [(RATING, 1, (4, 5)), (RATING, 5, (1, 4)), (BALANCE, 0, (-7, 20))]
)
def test_other_commonest_values_are_solved_for_too(metric: Metric, commonest: int, others: tuple[int, int]) -> None:
    rng = np.random.default_rng(8)
    arms = {f"e{i}": rng.choice(["A", "B"], 120).tolist() for i in range(10)}
    values = np.full(120, commonest)
    values[[17, 88]] = others
    found = find_sparse_values(knows(arms, {metric: values}, *combinations(arms, 2)), 10)
    assert [one.learnt for one in found] == [
        f"person 18 has {metric.name} = {others[0]}",
        f"person 89 has {metric.name} = {others[1]}",
    ]


def test_in_large_systems_few_people_off_a_value_between_bounds_are_found_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MANY_ENTRIES", 0)
    test_other_commonest_values_are_solved_for_too(BALANCE, 0, (-7, 20))


def test_sums_that_nobody_can_have_name_nobody() -> None:
    people = crowd(60, 2)
    made = tables(people, {BOUGHT: np.zeros(60, dtype=np.int64)}, *LINKS)
    (part,) = made.tables[0].moments
    wrong = type(part)(part.metric, part.counts, part.counts * 2, {})
    first = made.tables[0]
    broken = AttackedTable(first.name, first.axes, first.people, first.hidden, (wrong,))
    assert find_sparse_values(place_people(people, [AttackedRelease("r", (broken, made.tables[1]))]), 5) == []


def test_metrics_without_bounds_are_not_tried() -> None:
    people = crowd(60, 2)
    assert find_sparse_values(knows(people, {Metric("free"): np.zeros(60, dtype=np.int64)}, *LINKS), 5) == []


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
@settings(max_examples=25)
def test_whoever_is_named_has_that_value(seed: int, buyers: int, mostly: bool) -> None:
    rng = np.random.default_rng(seed)
    people = crowd(80, seed)
    bought = np.zeros(80, dtype=np.int64)
    bought[rng.permutation(80)[:buyers]] = 1
    bought = 1 - bought if mostly else bought
    known = knows(people, {BOUGHT: bought}, *LINKS)
    rows = [_row(people, i) for i in range(80)]
    for found in find_sparse_values(known, 80):
        first = int(found.learnt.split("person ")[1].split()[0]) - 1
        total = int(found.learnt.split(" = ")[1].split()[0])
        alike = [i for i in range(80) if rows[i] == rows[first]]
        assert found.people == len(alike)
        assert total == bought[alike].sum()


def test_where_everybody_can_have_more_and_less_no_program_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    people = {"arm": rng.choice(["A", "B"], 3_000), **{f"x{i}": rng.integers(0, 20, 3_000) for i in range(8)}}
    bought = (rng.random(3_000) < 0.3).astype(np.int64)
    release = tables(people, {BOUGHT: bought}, *(("arm", f"x{i}") for i in range(8)))
    monkeypatch.setattr(reconstruct, "minimize_linear", None)
    assert find_sparse_values(place_people(people, [release]), 10) == []


@pytest.mark.slow
def test_in_large_systems_no_program_is_solved_where_many_are_off_every_value(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    people = {"arm": rng.choice(["A", "B"], 2_000), **{f"x{i}": rng.integers(0, 20, 2_000) for i in range(6)}}
    balance = rng.integers(-9, 30, 2_000)
    release = tables(people, {BALANCE: balance}, *(("arm", f"x{i}") for i in range(6)))
    monkeypatch.setattr(background, "MANY_ENTRIES", 0)
    monkeypatch.setattr(reconstruct, "minimize_linear", None)
    assert find_sparse_values(place_people(people, [release]), 10) == []
