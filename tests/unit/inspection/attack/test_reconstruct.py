import re
from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bad_releases import BOUGHT, SPEND, products_by_arm, tabulate, whole_numbers

from kanab.inspection.attack.known_people import Background, KnownPeople, independent_rows, place_people, solve
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.inspection.attack.reconstruct import find_by_least_squares, find_contributors, find_leverage, several_metrics
from kanab.inspection.attack.run import play_attacker
from kanab.inspection.attack.whole_numbers import find_whole_numbers
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric

RATING = Metric("rating", 1, (1.0, 5.0))
ARM = Axis("arm", ("A", "B"), "arm")


def tables(people: dict[str, Any], values: dict[Metric, Any], *links: tuple[str, ...]) -> AttackedRelease:
    def side(name: str) -> Axis:
        return ARM if name == "arm" else Axis(name, tuple(sorted(set(people[name]))))

    made = [tabulate("/".join(link), people, [side(name) for name in link], values, []) for link in links]
    return AttackedRelease("r", tuple(made))


def knows(people: dict[str, Any], values: dict[Metric, Any], *links: tuple[str, ...]) -> Background:
    return place_people(KnownPeople(people), [tables(people, values, *links)])


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
    (known,) = knows(people, {BOUGHT: np.zeros(4, dtype=np.int64)}, ("arm", "tier"), ("tier",)).designs
    assert known.title == "r, arm/tier and 1 more"
    assert known.classes.cells.tolist() == [[0, 0], [2, 0], [1, 1]]
    assert known.people.tolist() == [2, 1, 1]
    assert known.classes.who.tolist() == [0, 1, 2]
    assert known.classes.of_everybody.tolist() == [0, 1, 2, 0]
    assert known.name(0) == "the 2 people who are like person 1 in every table"
    assert known.name(2) == "person 3"


def test_merged_levels_and_people_outside_a_table_are_placed() -> None:
    people = {"arm": ["A", "B", "A", "C"], "tier": [1, 2, 3, 1]}
    axis = Axis("tier", (1, "2 … 3"), "covariate", LevelMap("tier", ((1, (1,)), ("2 … 3", (2, 3))), {}))
    inside = {key: values[:3] for key, values in people.items()}
    plain = tabulate("arm/tier", inside, [ARM, Axis("tier", (1, 2, 3))], {}, [])
    known = place_people(KnownPeople(people), [AttackedRelease("r", (plain.folded(axis, [0, 1, 1]),))])
    assert [places.tolist() for places in known.places] == [[0, 3, 1, -1]]


def test_tables_about_other_people_or_with_unknown_axes_are_left_out() -> None:
    people = crowd(50)
    release = tables(people, {}, *LINKS)
    assert len(place_people(KnownPeople(people), [release]).tables) == 2
    assert len(place_people(KnownPeople({key: people[key] for key in ("arm", "tier")}), [release]).tables) == 1
    fewer = {key: values[:-1] for key, values in people.items()}
    assert place_people(KnownPeople(fewer), [release]).tables == ()
    assert place_people(KnownPeople({}), [release]).tables == ()


def test_metrics_that_some_people_lack_are_solved_for_only_if_it_is_known_who() -> None:
    people = {"arm": ["A", "A", "B"]}
    (table,) = tables(people, {RATING: np.array([3, 4, 5])}, ("arm",)).tables
    (part,) = table.moments
    gap = type(part)(part.metric, part.counts - np.array([1, 0], dtype=object), part.sums, {})
    gone = AttackedTable(table.name, table.axes, table.people, table.hidden, (gap,))
    release = AttackedRelease("r", (gone,))
    assert place_people(KnownPeople(people), [release]).designs == ()
    assert place_people(KnownPeople(people, {"rating": np.array([3.0, 4, np.nan])}), [release]).designs == ()
    (design,) = place_people(KnownPeople(people, {"rating": np.array([np.nan, 4, 5])}), [release]).designs
    assert design.classes.cells.ravel().tolist() == [-1, 0, 1]


# ── leverage ───────────────────────────────────────────────────────────────────────────────────


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


@given(st.integers(0, 10_000), st.integers(8, 40))
@settings(max_examples=30)
def test_what_least_squares_determines_is_true(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    arms = {f"e{i}": rng.choice(["A", "B"], n).tolist() for i in range(6)}
    spend = rng.integers(0, 50_000, n)
    known = knows(arms, {SPEND: spend}, *combinations(arms, 2))
    (one,) = known.designs
    totals, determined = one.solved
    truth = np.bincount(one.classes.of_everybody, weights=spend)
    assert np.allclose(totals[determined], truth[determined], atol=1e-3)
    matrix, _ = one.rows
    for place in np.flatnonzero(~determined):
        unit = np.eye(matrix.shape[1])[place]
        assert np.linalg.matrix_rank(np.vstack([matrix, unit])) > np.linalg.matrix_rank(matrix)


# ── products ───────────────────────────────────────────────────────────────────────────────────


def test_products_with_a_known_0_1_metric_are_sums_over_those_who_have_it() -> None:
    people = {"arm": ["A"] * 50 + ["B"] * 50}
    bought, spend = np.array(([1] * 49 + [0]) * 2), np.arange(100) * 10
    plain = tabulate("arm", people, [ARM], {SPEND: spend, BOUGHT: bought}, [])
    arms = np.array(people["arm"])
    table = replace(plain, crosses=(products_by_arm(plain, arms, {SPEND: spend, BOUGHT: bought}),))
    release = AttackedRelease("r", (table,))
    assert find_leverage(place_people(KnownPeople(people), [release]), 10) == []
    known = place_people(KnownPeople(people, {"bought": bought.astype(float)}), [release])
    assert [finding.learnt for finding in find_by_least_squares(known, 10) if finding.metric == "spend"] == [
        "person 50 has spend = 4.9",
        "person 100 has spend = 9.9",
    ]
    others = KnownPeople(people, {"bought": 1.0 - bought})
    assert find_by_least_squares(place_people(others, [release]), 10) == []


# ── contributors ───────────────────────────────────────────────────────────────────────────────


def paying(people: dict[str, Any], spend: Any, *links: tuple[str, ...], metric: Metric = SPEND) -> Background:
    values = {metric.name: spend / metric.scale}
    return place_people(KnownPeople(people, values), [tables(people, {metric: spend}, *links)])


def test_two_people_behind_an_amount_of_a_class_are_found_and_three_alike_are_not() -> None:
    people = {"arm": ["A"] * 50 + ["B"] * 50}
    spend = np.zeros(100, dtype=np.int64)
    spend[[1, 2, 3, 60, 61, 62]] = 1_000
    assert find_contributors(paying(people, spend, ("arm",)), 10) == []
    spend[3] = 0
    (finding,) = find_contributors(paying(people, spend, ("arm",)), 10)
    assert (finding.people, finding.metric) == (2, "spend")
    assert "rests on 2 of those who have any" in finding.learnt


def test_contributors_of_a_difference_of_two_tables_are_found() -> None:
    people = {"arm": ["A"] * 60 + ["B"] * 60, "tier": [1] * 40 + [2] * 80}
    spend = np.where(np.arange(120) % 3, 0, 500)
    assert find_contributors(paying(people, spend, ("arm",), ("tier",)), 10) == []
    spend[40:60] = 0
    spend[45] = 700  # the only one with any in A without tier 1
    (finding,) = find_contributors(paying(people, spend, ("arm",), ("tier",)), 10)
    assert finding.people == 1
    assert "rests on 1 of those who have any (the 20 people who are like person 41 in every table)" in finding.learnt


def test_one_buyer_of_9_000_among_hundreds_is_mostly_the_sum() -> None:
    people = {"arm": ["A"] * 300 + ["B"] * 300}
    wide = Metric("spend", 100, (0.0, 10_000.0))
    spend = np.where(np.arange(600) % 3 == 0, 2_000, 0)
    assert find_contributors(paying(people, spend, ("arm",), metric=wide), 10) == []
    spend[3] = 900_000
    (finding,) = find_contributors(paying(people, spend, ("arm",), metric=wide), 10)
    assert finding.people == 1
    assert "is mostly one person's (the 300 people who are like person 1" in finding.learnt


def test_counts_of_things_are_no_amounts_unless_they_are_sensitive() -> None:
    people = {"arm": ["A"] * 50 + ["B"] * 50}
    orders = np.zeros(100, dtype=np.int64)
    orders[7] = 2
    metric = Metric("orders", 1, (0.0, 50.0))
    known = KnownPeople(people, {"orders": orders.astype(float)})
    release = tables(people, {metric: orders}, ("arm",))
    assert find_contributors(place_people(known, [release]), 10) == []
    marked = replace(release, sensitive=frozenset({"orders"}))
    assert len(find_contributors(place_people(known, [marked]), 10)) == 1


def test_experiments_of_a_collector_are_not_combined_with_each_other() -> None:
    people = {"e": ["A", "B"] * 50, "f": ["A", "B"] * 49 + [None, "B"]}
    inside = {name: values[:98] + values[99:] for name, values in people.items()}
    spend = np.arange(100) * 10
    tables_of = (
        tabulate("e", people, [Axis("e", ("A", "B"), "arm")], {SPEND: spend}, []),
        tabulate("f", inside, [Axis("f", ("A", "B"), "arm")], {SPEND: np.delete(spend, 98)}, []),
    )
    rows = AttackedRelease("r", tables_of)
    assert len(find_leverage(place_people(KnownPeople(people), [rows]), 10)) == 1
    assert find_leverage(place_people(KnownPeople(people), [replace(rows, collected=True)]), 10) == []


# ── several metrics ────────────────────────────────────────────────────────────────────────────


def test_one_refund_is_what_gross_and_net_together_tell() -> None:
    people = {"arm": ["A"] * 50 + ["B"] * 50}
    gross = np.arange(100) * 100
    net = gross.copy()
    values = {Metric("gross", 100, (0.0, 500.0)): gross, Metric("net", 100, (0.0, 500.0)): net}
    for refund, sentences in ((0, 0), (400, 1)):
        net[70] = gross[70] - refund
        known = KnownPeople(people, {"gross": gross / 100, "net": net / 100})
        said = several_metrics(place_people(known, [tables(people, values, ("arm",))]))
        assert len(said) == sentences
    assert said[0].endswith("100 % of the result, in squares, is person 71's.")


def test_nothing_published_determines_nothing() -> None:
    totals, determined = solve(np.empty((0, 3)), np.empty(0))
    assert totals.tolist() == [0, 0, 0]
    assert not determined.any()
    assert independent_rows(np.empty((0, 3))).tolist() == []


# ── whole numbers ────────────────────────────────────────────────────────────────────────────────

ORDERS = Metric("orders", 1, (0.0, 3.0))


def solved_by(people: dict[str, Any], metric: Metric, values: Any, *links: tuple[str, ...]) -> Background:
    made = [
        tabulate("/".join(link), people, [Axis(name, tuple(sorted(set(people[name])))) for name in link],
                 {metric: np.asarray(values)}, [])
        for link in links
    ]  # fmt: skip
    return place_people(KnownPeople(people), [AttackedRelease("r", tuple(made))])


def test_the_bad_release_gives_people_away_and_every_total_is_right() -> None:
    bad = whole_numbers()
    assert bad.known is not None
    findings = find_whole_numbers(place_people(bad.known, bad.releases), 10, sensitive=True).findings
    assert sum(finding.people for finding in findings) >= 10
    table = np.column_stack([bad.people[name] for name in ("variant", "tier", "device", "region")])
    for finding in findings:
        person = int(re.findall(r"person (\d+)", finding.learnt)[0]) - 1
        like = (table == table[person]).all(axis=1)
        total = int(re.findall(r"bought = (\d+)", finding.learnt)[0])
        assert (int(like.sum()), int(bad.people["bought"][like].sum())) == (finding.people, total)


def test_only_of_sensitive_metrics_it_breaks_the_promise() -> None:
    bad = whole_numbers()
    plain = AttackedRelease("shop", bad.releases[0].tables)
    report = play_attacker([plain], bad.known)
    assert not report.broken
    assert len(report.beyond) > 0
    assert "whole numbers: LEARNT" in str(report)
    assert "which k does not cover" in str(report)
    assert f"Beyond that, something was, {len(report.beyond)} times; ε prevents it." in str(report)
    assert play_attacker(bad.releases, bad.known).broken


def test_large_systems_are_too_much_work_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = whole_numbers()
    monkeypatch.setattr("kanab.inspection.attack.whole_numbers.MOST_ENTRIES", 10)
    assert find_whole_numbers(place_people(bad.known or KnownPeople({}), bad.releases), 10, sensitive=True).unsettled


def test_a_class_in_which_everybody_is_at_a_bound_is_no_search() -> None:
    people = {"arm": ["A"] * 20 + ["B"] * 20, "tier": ([1] * 10 + [2] * 10) * 2}
    bought = np.array([0] * 20 + [1, 0] * 10)
    findings = find_whole_numbers(solved_by(people, BOUGHT, bought, ("arm",), ("tier",)), 11, sensitive=False).findings
    assert [finding.learnt.split(" in every")[0] for finding in findings] == [
        "the 10 people who are like person 21",
        "the 10 people who are like person 31",
    ]


@pytest.mark.slow
@given(st.integers(0, 10**6), st.sampled_from([BOUGHT, ORDERS]))
@settings(max_examples=40)
def test_whoever_is_named_can_have_no_other_total_by_brute_force(seed: int, metric: Metric) -> None:
    rng = np.random.default_rng(seed)
    people = {name: rng.choice(["x", "y"], 7).tolist() for name in ("a", "b", "c")}
    high = 1 if metric is BOUGHT else 3
    values = (rng.random(7) < rng.uniform(0.1, 0.9)) * rng.integers(1, high + 1, 7)
    links = (("a", "b"), ("b", "c"), ("a", "c"))
    background = solved_by(people, metric, values, *links)
    (design,) = background.designs
    matrix, sums = design.rows
    fits = [
        totals
        for totals in product(*(range(high * n + 1) for n in design.people.tolist()))
        if np.array_equal(matrix @ totals, sums)
    ]
    pinned = {place: totals for place, totals in enumerate(zip(*fits, strict=True)) if len(set(totals)) == 1}
    for finding in find_whole_numbers(background, 7, sensitive=False).findings:
        place = [design.name(place) for place in range(len(design.people))].index(finding.learnt.split(" ha")[0])
        assert finding.learnt.split(" = ")[1].split()[0] == str(pinned[place][0])
