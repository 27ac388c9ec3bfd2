from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bad_releases import BAD_RELEASES, tabulate

import kanab as kb
from kanab.errors import LedgerError, PlanError, PrivacyError
from kanab.inspection.attack.known_people import KnownPeople, independent_rows, place_people
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.inspection.attack.run import play_attacker
from kanab.privacy.ledger import read_ledger
from kanab.scan.count.pair_counting import count_pairs
from kanab.scan.pair_tables import Pairs
from kanab.scan.scan import scan_interactions, scan_segments
from kanab.scan.scan_gate import (
    Spent,
    ask_pairs,
    differ_little,
    fewest_off,
    find_copies,
    pair_numbers,
    rests_on_several,
    select_experiments,
    share_pairs,
)
from kanab.scan.scan_readout import PairReadout
from kanab.tally.metric import Metric

MEAN = kb.Mean("y", bounds=(-50, 100), resolution=0.01)


def people(n: int = 4_000, tests: int = 4, seed: int = 1, **more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], n) for i in range(tests)}
    rows |= {"y": np.round(rng.normal(20, 5, n), 2), "d": (rng.random(n) < 0.3).astype(int)}
    return rows | {"c": rng.choice(["x", "z"], n)} | more


def flipped(arm: Any, *who: int) -> Any:
    """Return an experiment with somebody in the other arm."""
    other = arm.copy()
    other[list(who)] = np.where(arm[list(who)] == "on", "off", "on")
    return other


def counted(rows: dict[str, Any]) -> Pairs:
    return count_pairs(rows, "t*", ["y", "d"], bounds={"y": (-50, 100)}, resolution={"y": 0.01})


def solved(rows: dict[str, Any], scans: list[PairReadout]) -> int:
    """Count the people whose 0/1 value follows from the sums of all tested pairs, for somebody who knows the arms."""
    tested = [(row.a, row.b) for found in scans for row in found.scan.rows if row.F is not None]
    classes = [
        (rows[one] == a) & (rows[two] == b)
        for one, two in tested
        for a in np.unique(rows[one].astype(str))
        for b in np.unique(rows[two].astype(str))
    ]
    if not classes:
        return 0
    design = np.array(classes, dtype=float)
    gram = design @ design.T
    inverse = np.linalg.pinv(gram, rcond=1e-10, hermitian=True)
    leverage = np.einsum("ij,ik,kj->j", design, inverse, design, optimize=True)
    values = design.T @ (inverse @ (design @ rows["d"]))
    return int(np.sum((leverage > 1 - 1e-6) & (np.abs(values - rows["d"]) < 1e-4)))


# ── two faults ─────────────────────────────────────────────────────────────────────────────────


def test_of_two_experiments_whose_arms_differ_in_one_person_the_later_is_a_copy(tmp_path: Path) -> None:
    rows = people(2_000, 3)
    rows["t2"] = flipped(rows["t0"], 5)
    names = ["t0", "t1", "t2"]
    assert solved(rows, [scan_interactions(rows, names, ["d"])]) == 1  # internal: nothing is withheld
    shared = scan_interactions(rows, names, ["d"], ledger=tmp_path / "ledger", new_ledger=True)
    assert solved(rows, [shared]) == 0
    assert shared.scan.experiments == ("t0", "t1")
    assert shared.notes == ("t2 is left out: it is a copy of t0, for their arms differ in fewer than k = 10 people",)


@pytest.mark.slow
def test_25_scans_of_one_table_that_are_each_within_the_budget_solve_everybody_and_a_ledger_lets_one_through(
    tmp_path: Path,
) -> None:
    rows = people(300, 5 * 25)
    parts = [[f"t{5 * part + i}" for i in range(5)] for part in range(25)]
    alone, shared = [], []
    for at, names in enumerate(parts):
        alone.append(scan_interactions(rows, names, ["d"], ledger=tmp_path / f"{at}", new_ledger=True))
        try:
            shared.append(scan_interactions(rows, names, ["d"], ledger=tmp_path / "ledger", new_ledger=True))
        except PrivacyError as problem:
            assert "d is left out: with earlier scans there would be too many numbers" in str(problem)
    assert solved(rows, alone) == 300
    assert len(shared) == 1
    assert solved(rows, shared) == 0
    assert len(read_ledger(tmp_path / "ledger").notes) == 1


# ── copies ─────────────────────────────────────────────────────────────────────────────────────


def test_an_experiment_is_a_copy_up_to_k_people_and_none_from_k_on() -> None:
    rows = people(tests=3)
    for differ, copies in ((0, {2: 0}), (1, {2: 0}), (9, {2: 0}), (10, {}), (2_000, {})):
        found = counted(rows | {"t2": flipped(rows["t0"], *range(differ))})
        assert find_copies(found, range(3), 10) == copies, differ


def test_somebody_who_is_in_one_of_two_experiments_alone_makes_them_copies() -> None:
    rows = people()
    almost = rows["t1"].astype(object)
    almost[17] = None
    kept, left_out = share_pairs(counted(rows | {"t1": almost}), 10)
    assert [factor.name for factor in kept.experiments] == ["t0", "t2", "t3"]
    assert left_out == ["t1 is left out: it is a copy of t0, for their arms differ in fewer than k = 10 people"]
    almost[:200] = None
    assert len(share_pairs(counted(rows | {"t1": almost}), 10)[0].experiments) == 4


def test_arms_that_are_split_in_another_experiment_are_compared_together() -> None:
    rng = np.random.default_rng(2)
    first = rng.choice(["A", "B"], 4_000)
    split = np.char.add(first, rng.choice(["1", "2"], 4_000))
    for differ, few in ((0, False), (1, True), (9, True), (10, False)):
        rows = people(tests=2) | {"t0": first, "t1": split.copy()}
        rows["t1"][:differ] = np.char.add(np.where(first[:differ] == "A", "B", "A"), "1")
        found = counted(rows)
        assert differ_little(found, 0, 1, 10) is few, differ
        assert (find_copies(found, range(2), 10) == {1: 0}) is few


def test_independent_experiments_and_those_that_exclude_each_other_are_no_copies() -> None:
    rows = people()
    half = np.arange(4_000) < 2_000
    rows["t2"], rows["t3"] = (np.where(side, rows[name], None) for name, side in (("t2", half), ("t3", ~half)))
    pairs = counted(rows)
    assert find_copies(pairs, range(4), 10) == {}
    assert not any(differ_little(pairs, one, two, 10) for one, two in combinations(range(4), 2))


def test_an_experiment_with_an_arm_below_k_is_left_out_without_a_count() -> None:
    few = np.where(np.arange(4_000) < 7, "on", "off")
    kept, left_out = share_pairs(counted(people(t2=few)), 10)
    assert [factor.name for factor in kept.experiments] == ["t0", "t1", "t3"]
    assert left_out == ["t2 is left out: an arm holds fewer than k = 10 people"]
    with pytest.raises(PrivacyError, match="fewer than two experiments have k = 10 people in every arm"):
        share_pairs(counted(people(tests=2, t1=few)), 10)


def test_selecting_experiments_is_counting_them_alone() -> None:
    pairs = counted(people())
    assert select_experiments(pairs, [0, 3]).tally(0, 1) == pairs.tally(0, 3)
    assert select_experiments(pairs, [0, 1, 2, 3]) is pairs


# ── the budget ─────────────────────────────────────────────────────────────────────────────────


def test_a_scan_spends_its_numbers_on_everybody_and_on_every_arm() -> None:
    asked = ask_pairs(counted(people()), 10)
    off = int(people()["d"].sum()) // 10 * 10
    assert asked["d"].spends.per_person == 11 / 4_000
    assert asked["d"].spends.per_unusual == 11 / off
    nearly = people(d=((np.arange(4_000) % 2 == 0) & (people()["t0"] == "on")).astype(int))
    nearly["d"][np.flatnonzero(nearly["t0"] == "off")[:20]] = 1  # 20 people of one arm: four numbers about them
    assert ask_pairs(counted(nearly), 10)["d"].spends.per_unusual == 4 / 20


def test_people_off_a_commonest_value_between_the_bounds_are_an_arms_share_of_all_at_most() -> None:
    rare = np.random.default_rng(3).permutation(np.where(np.arange(4_000) < 200, 35.0, 20.0))
    tenth = np.where(np.arange(4_000) % 10 == 0, "on", "off")
    assert ask_pairs(counted(people(y=rare, t0=tenth)), 10)["y"].spends.per_unusual == 4 / 20


def test_people_who_lack_a_value_are_rare_like_those_who_have_another() -> None:
    y = people()["y"].astype(object)
    y[:60] = None
    assert ask_pairs(counted(people(y=y)), 10)["y"].spends.per_unusual > 11 / 60
    y[:] = people()["y"]
    y[:3] = None
    assert not ask_pairs(counted(people(y=y)), 10)["y"].spends.within(10)


def test_a_metric_that_few_people_have_is_left_out_and_the_others_are_shared(tmp_path: Path) -> None:
    rows = people(rare=(np.arange(4_000) % 200 == 0).astype(int))
    choices: dict[str, Any] = {"ledger": tmp_path / "ledger", "new_ledger": True, "tolerance": {"rare": 0.1}}
    found = scan_interactions(rows, "t*", [MEAN, "rare"], **choices)
    assert [metric.name for metric in found.scan.metrics] == ["y"]
    assert found.notes[0].startswith("rare is left out: with earlier scans there would be too many numbers for so few")
    with pytest.raises(PrivacyError, match=r"rare is left out.*Share the earlier scan, scan fewer experiments"):
        scan_interactions(rows, "t*", ["rare"], **choices)


def test_a_shared_scan_is_not_marked_and_an_internal_one_is(tmp_path: Path) -> None:
    shared = scan_interactions(people(), "t*", ["d"], ledger=tmp_path / "ledger", new_ledger=True)
    internal = scan_interactions(people(), "t*", ["d"])
    assert "scope" not in shared.to_dict()
    assert shared.to_dict()["privacy"] == {"k": 10, "chained": True}
    assert internal.to_dict()["scope"] == "own-rows"
    assert "Internal: computed" not in str(shared)
    for text in (str(internal), internal.to_html()):
        assert "Internal: computed on personal data you may already read. Not k-anonymous" in " ".join(text.split())
    assert [row.to_dict() for row in shared.scan] == [row.to_dict() for row in internal.scan]


def test_the_same_scan_spends_once_and_another_of_the_same_experiments_is_refused(tmp_path: Path) -> None:
    path, rows = tmp_path / "ledger", people()
    first = scan_interactions(rows, "t*", ["d"], ledger=path, new_ledger=True)
    again = scan_interactions(rows, "t*", ["d"], ledger=path)
    assert first.to_dict() == again.to_dict()
    assert len(read_ledger(path).notes) == 1
    one_more = {name: np.append(column, column[0]) for name, column in rows.items()}
    with pytest.raises(PrivacyError, match=r"t0, t1, t2, … \(4 in all\) were scanned for it before"):
        scan_interactions(one_more, "t*", ["d"], ledger=path)
    scan_interactions(one_more, "t*", [MEAN], ledger=path)  # of another metric nothing was told
    assert [note.kind for note in read_ledger(path).notes] == ["scanned", "scanned"]


def test_a_note_holds_no_count_and_follows_the_entry_before_it(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    scan_interactions(people(4_003), ["t0", "t1"], ["d"], ledger=path, new_ledger=True)
    scan_interactions(people(4_003), ["t2", "t3"], ["d"], ledger=path)
    book = read_ledger(path)
    assert [note.previous for note in book.notes] == ["", book.hashes[0]]
    per_person, per_unusual, _ = book.notes[0].asked["d"].split()
    assert (2 / float(per_person)) % 10 == (4 / float(per_unusual)) % 10 == 0
    path.write_text(path.read_text().replace(per_person, "0.0", 1))
    with pytest.raises(LedgerError, match="entry 1 of ledger has been changed"):
        scan_interactions(people(4_003), ["t0", "t2"], ["d"], ledger=path)


def test_pairs_and_segments_of_one_ledger_share_the_budget(tmp_path: Path) -> None:
    rows = people(900, 8)
    tests = [f"t{i}" for i in range(8)]
    scan_segments(rows, tests, ["d"], ["c"], ledger=tmp_path / "alone", new_ledger=True)
    scan_interactions(rows, tests, ["d"], ledger=tmp_path / "ledger", new_ledger=True)
    with pytest.raises(PrivacyError, match="d is left out: with earlier scans"):
        scan_segments(rows, tests, ["d"], ["c"], ledger=tmp_path / "ledger")


def test_segments_spend_people_off_the_commonest_value_of_every_arm(tmp_path: Path) -> None:
    rows = people(tests=1, d=(np.arange(4_000) % 40 == 0).astype(int))
    rows["y"] = np.where(rows["d"] == 1, 60.0, 0.0)
    on = int(((rows["t0"] == "on") & (rows["d"] == 1)).sum())
    fewest = min(on, 100 - on) // 10 * 10
    choices: dict[str, Any] = {"ledger": tmp_path / "ledger", "new_ledger": True}
    scan_segments(rows, "t0", [kb.Mean("y", bounds=(0, 100), resolution=1), "d"], ["c"], **choices)
    spent = [note.asked[name].split()[1] for note in read_ledger(tmp_path / "ledger").notes for name in ("y", "d")]
    assert [float(text) for text in spent] == [2 / fewest, 2 / fewest]


def test_a_copy_is_left_out_of_segments_too(tmp_path: Path) -> None:
    rows = people(2_000, 2)
    rows["t2"] = flipped(rows["t0"], 5)
    shared = scan_segments(rows, ["t0", "t1", "t2"], ["d"], ["c"], ledger=tmp_path / "ledger", new_ledger=True)
    assert {row.experiment for row in shared.scan} == {"t0", "t1"}
    assert shared.notes == ("t2 is left out: it is a copy of t0, for their arms differ in fewer than k = 10 people",)
    assert {row.experiment for row in scan_segments(rows, ["t0", "t1", "t2"], ["d"], ["c"]).scan} == {"t0", "t1", "t2"}


def test_means_that_may_rest_on_one_or_two_people_are_not_shared(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = people(tests=2)
    both = (rows["t0"] == "on") & (rows["t1"] == "on")
    rows["y"] = np.where(both, rng.integers(5, 15, 4_000), rng.integers(0, 3, 4_000)).astype(float)
    for bounds, effects in (((0, 20), 1), ((0, 5_000), 0)):
        mean, ledger = kb.Mean("y", bounds=bounds, resolution=1), tmp_path / str(bounds)
        shared = scan_interactions(rows, "t*", [mean], ledger=ledger, new_ledger=True)
        assert len(shared.effects) == effects
        assert len(shared.scan.flagged) == 1
    table = kb.count_columns(rows, arm="t0", metrics=["y", "d"], covariates=["c"])
    assert rests_on_several(table.moments_of("d"))
    assert not rests_on_several(table.moments_of("y"))  # without bounds nobody knows


def test_a_scan_goes_into_a_ledger_that_is_there_and_has_no_noise(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="there is no ledger"):
        scan_interactions(people(), "t*", ["d"], ledger=tmp_path / "ledger")
    noisy: dict[str, Any] = {"epsilon": 1.0, "ledger": tmp_path / "noisy", "new_ledger": True}
    two = kb.count(people(), arm="t0", metrics=[kb.Mean("d", bounds=(0, 1))], arms={"off": 1, "on": 1})
    kb.release(two, **noisy)
    with pytest.raises(PrivacyError, match="the ledger holds releases with ε"):
        scan_interactions(people(), "t*", ["d"], ledger=tmp_path / "noisy")
    released = kb.release(kb.count(people(), arm="t0", metrics=["d"]))
    with pytest.raises(PlanError, match="releases already say what was counted"):
        scan_interactions(released, ledger=tmp_path / "ledger")


def test_k_below_5_needs_a_reason() -> None:
    with pytest.raises(PrivacyError, match="below 5"):
        scan_interactions(people(), "t*", ["d"], k=3)
    assert scan_interactions(people(), "t*", ["d"], k=3, override="made-up people").notes == ("k = 3: made-up people",)


# ── the budget ─────────────────────────────────────────────────────────────────────────────────

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))


def tables_of_pairs(arms: dict[str, Any], bought: Any, spend: Any) -> AttackedRelease:
    tables = tuple(
        tabulate(
            f"{one}/{two}",
            arms,
            [Axis(one, ("A", "B"), "arm"), Axis(two, ("A", "B"), "arm")],
            {BOUGHT: bought, SPEND: spend},
            [(one,), (two,)],
        )
        for one, two in combinations(arms, 2)
    )
    return AttackedRelease("pairs", tables, sensitive=frozenset({"bought"}))


def test_numbers_of_pairs_are_those_of_single_arms_and_of_two() -> None:
    assert [pair_numbers(arms) for arms in ([], [2])] == [1, 2]
    assert pair_numbers([3, 4, 2]) == 1 + (2 + 3 + 1) + (2 * 3 + 2 * 1 + 3 * 1)


@pytest.mark.slow
@given(st.lists(st.integers(2, 4), min_size=2, max_size=5), st.integers(0, 1_000))
def test_the_numbers_are_the_rank_of_all_pair_tables(arms: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    people = [rng.integers(0, count, 1_500) for count in arms]
    rows = [
        ((one == a) & (two == b)).astype(np.float64)
        for (one, first), (two, second) in combinations(list(zip(people, arms, strict=True)), 2)
        for a in range(first)
        for b in range(second)
    ]
    matrix = np.array(rows)
    assert np.linalg.matrix_rank(matrix) == pair_numbers(arms)
    assert len(independent_rows(matrix)) == pair_numbers(arms)


@given(st.lists(st.integers(-3, 5), min_size=1, max_size=12), st.integers(0, 3), st.integers(1, 3))
def test_nobody_counts_as_off_the_commonest_value_who_need_not_be(values: list[int], below: int, above: int) -> None:
    low, high = min(values) - below, max(values) + above
    found = fewest_off(len(values), sum(values), sum(value**2 for value in values), low, high)
    kinds = {low, high, min(max(0, low), high)}
    assert found <= min(sum(value != kind for value in values) for kind in kinds)


@given(st.lists(st.integers(0, 1), min_size=1, max_size=30))
def test_of_a_0_1_metric_the_people_off_the_commonest_value_are_known(values: list[int]) -> None:
    n, s = len(values), sum(values)
    assert fewest_off(n, s, s, 0, 1) == min(s, n - s)


def test_what_several_scans_spend_adds_up() -> None:
    half = Spent.on([(105, 18 * 210, 2 * 210)], 10)
    assert (half + half).within(10)
    assert not (half + half + Spent.on([(1, 10**6, 10**5)], 10)).within(10)
    assert Spent.on([(4, 4_000, 0), (2, 2_000, 100)], 10) == Spent(0.001, 0.02)
    assert not Spent.on([(4, 4_000, 9)], 10).within(10)  # fewer than k are not told from none


@pytest.mark.parametrize(("experiments", "people"), [(8, 6_000), (14, 12_000)])
def test_independent_assignments_put_about_1_2_times_the_average_leverage_on_one_person(
    experiments: int, people: int
) -> None:
    rng = np.random.default_rng(experiments)
    sides = rng.choice([-1.0, 1.0], (people, experiments))
    columns = [np.ones(people), *sides.T, *(a * b for a, b in combinations(sides.T, 2))]
    X = np.column_stack(columns)
    m = X.shape[1]
    assert m == pair_numbers([2] * experiments)
    h = ((X @ np.linalg.inv(X.T @ X)) * X).sum(axis=1)
    assert h.mean() == pytest.approx(m / people)
    assert 1.05 < h.max() / (m / people) < 1.45


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pair_scan", "pair_scan_sparse"])
def test_the_bad_pair_scans_are_over_budget(name: str) -> None:
    bad = BAD_RELEASES[name]()
    assert bad.known is not None
    (design,) = place_people(bad.known, bad.releases).designs
    experiments = sum(key.startswith("experiment") for key in bad.people)
    numbers = pair_numbers([2] * experiments)
    assert len(design.rows[1]) == min(numbers, len(design.people))
    off = int((bad.people[design.metric.name] > 0).sum())
    assert not Spent.on([(numbers, len(design.people), off)], 10).within(10)


@pytest.mark.parametrize("seed", range(4))
def test_within_budget_the_attacker_learns_nothing_about_fewer_than_k(seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = pair_numbers([2] * 5)
    people = 18 * numbers + 10
    bought = np.zeros(people, dtype=np.int64)
    bought[rng.permutation(people)[: 2 * numbers + 10]] = 1
    spend = bought * rng.integers(100, 5_000, people)
    arms = {f"experiment {i}": rng.choice(["A", "B"], people) for i in range(5)}
    assert Spent.on([(numbers, people, int(bought.sum()))], 10).within(10)
    assert not play_attacker([tables_of_pairs(arms, bought, spend)], KnownPeople(arms)).broken
