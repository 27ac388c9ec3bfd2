from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kanab as kb
from kanab.inspection.attack.background import Background, independent_rows, place_people
from kanab.inspection.attack.examples.catalogue import example
from kanab.inspection.attack.examples.making import tabulate
from kanab.inspection.attack.findings import AttackReport
from kanab.inspection.attack.published import AttackedRelease, Axis, published_from_dict
from kanab.inspection.attack.run import play_attacker
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.budget import WHY, Spent, enough_unusual, fewest_off, pair_numbers
from kanab.privacy.release import Release
from kanab.privacy.release_json import release_to_dict
from kanab.tally.metric import Metric

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))


def pairs(arms: dict[str, Any], bought: Any, spend: Any) -> tuple[AttackedRelease, Background]:
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
    release = AttackedRelease("pairs", tables)
    return release, place_people(arms, [release])


def test_a_hundred_two_arm_experiments_hold_5051_numbers() -> None:
    assert pair_numbers([2] * 100) == 1 + 100 + 100 * 99 // 2 == 5_051
    assert pair_numbers([]) == 1
    assert pair_numbers([2]) == 2
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


def test_both_halves_of_the_budget_are_needed() -> None:
    assert Spent.on([(210, 18 * 210, 2 * 210)], 10).within(10)
    assert not Spent.on([(210, 18 * 210 - 1, 2 * 210)], 10).within(10)
    assert not Spent.on([(210, 18 * 210, 2 * 210 - 1)], 10).within(10)
    assert (enough_unusual(420, 210), enough_unusual(419, 210)) == (True, False)


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
@pytest.mark.parametrize("name", ["pair-scan", "pair-scan-sparse"])
def test_the_bad_pair_scans_are_over_budget(name: str) -> None:
    bad = example(name)
    assert bad.background is not None
    (one,) = bad.background.equations
    experiments = sum(key.startswith("experiment") for key in bad.people)
    numbers = pair_numbers([2] * experiments)
    assert len(one.independent[1]) == min(numbers, len(bad.background.people))
    off = int((bad.people[one.metric.name] > 0).sum())
    assert not Spent.on([(numbers, len(bad.background.who), off)], 10).within(10)


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
    release, known = pairs(arms, bought, spend)
    assert not play_attacker([release], known).broken


# ── what the gate lets through ─────────────────────────────────────────────────────────────────


def attack(rows: dict[str, Any], plan: Plan) -> tuple[Release, AttackReport]:
    """The release, and what somebody learns from it who knows everybody's arms and covariates."""
    made = kb.release(kb.count(rows, plan))
    published = published_from_dict(release_to_dict(made), "release")
    axes = {name: rows[name] for name in (*plan.experiment_names, *plan.covariates_in_use)}
    return made, play_attacker([published], place_people(axes, [published]))


def tables_with(made: Release, metric: str) -> list[str]:
    return [name for name, table in made.tables.items() if metric in table.metric_names]


def crossed(metric: MetricPlan, covariates: int = 8) -> Plan:
    names = tuple(f"c{i}" for i in range(covariates))
    experiment = ExperimentPlan("arm", segments=names)
    return Plan((metric,), (experiment,), tuple(CovariatePlan(name) for name in names))


def crowd(rng: np.random.Generator, n: int = 2_000, covariates: int = 8) -> dict[str, Any]:
    levels = {f"c{i}": rng.integers(0, 3, n) for i in range(covariates)}
    return {"arm": rng.choice(["A", "B"], n), **levels}


def test_a_metric_that_one_person_of_an_arm_has_is_in_one_table_only() -> None:
    rng = np.random.default_rng(1)
    rows = crowd(rng)
    rows["y"] = ((rows["arm"] == "B") & (rng.random(2_000) < 0.3)).astype(int)
    rows["y"][np.flatnonzero(rows["arm"] == "A")[0]] = 1
    made, report = attack(rows, crossed(MetricPlan("y", binary=True)))
    assert not report.broken, str(report)
    assert tables_with(made, "y") == ["arm/c0"]
    assert made.receipt.left_out["arm/c1: y"] == f"y is withheld in arm/c1: {WHY}"


def test_a_metric_that_nobody_of_an_arm_has_is_in_all_tables() -> None:
    rng = np.random.default_rng(1)
    rows = crowd(rng)
    rows["y"] = ((rows["arm"] == "B") & (rng.random(2_000) < 0.3)).astype(int)
    made, report = attack(rows, crossed(MetricPlan("y", binary=True)))
    assert len(tables_with(made, "y")) == 8
    assert not report.broken


def test_arm_totals_of_many_experiments_are_withheld_in_the_later_ones() -> None:
    rng = np.random.default_rng(2)
    rows: dict[str, Any] = {f"e{i}": rng.choice(["A", "B"], 1_000) for i in range(25)}
    rows["y"] = np.zeros(1_000, dtype=int)
    rows["y"][rng.permutation(1_000)[:20]] = 1
    plan = Plan((MetricPlan("y", binary=True),), tuple(ExperimentPlan(f"e{i}") for i in range(25)))
    made, report = attack(rows, plan)
    assert not report.broken, str(report)
    assert tables_with(made, "y") == [f"e{i}" for i in range(9)]  # 1 + 9 numbers, 20 people
    assert made.receipt.left_out["e9: y"] == f"y is withheld altogether: {WHY}"


@pytest.mark.parametrize(
    ("usual", "unusual", "bounds"), [(9.99, [4.99, 19.99], (0, 50)), (1, [2, 3], (0, 20)), (0, [-1, 1], (-1, 1))]
)
def test_people_off_a_commonest_value_between_the_bounds_count(
    usual: float, unusual: list[float], bounds: tuple[int, int]
) -> None:
    rng = np.random.default_rng(3)
    rows = crowd(rng, 3_000)
    rows["y"] = np.where(rng.random(3_000) < 0.007, rng.choice(unusual, 3_000), usual)
    made, report = attack(rows, crossed(MetricPlan("y", bounds, 0.01 if usual > 1 else 1)))
    assert not report.broken, str(report)
    assert len(tables_with(made, "y")) <= 2


@pytest.mark.slow
def test_odd_cents_among_whole_amounts_are_rare_values() -> None:
    rng = np.random.default_rng(4)
    rows = crowd(rng)
    rows["y"] = rng.integers(1, 400, 2_000).astype(float)
    plan = crossed(MetricPlan("y", (0, 500), 0.01))
    made, _ = attack(rows, plan)
    assert len(tables_with(made, "y")) == 8
    rows["y"][7] += 0.37
    made, report = attack(rows, plan)
    assert tables_with(made, "y") == ["arm/c0"]
    assert not report.broken, str(report)


def test_a_table_that_was_released_before_counts_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    rows = crowd(rng, covariates=3)
    rows["y"] = (rng.random(2_000) < 0.03).astype(int)
    plan = crossed(MetricPlan("y", binary=True), 3)
    first = kb.release(kb.count(rows, plan), ledger=tmp_path / "ledger", new_ledger=True)
    again = kb.release(kb.count(rows, plan, earlier=[plan]), ledger=tmp_path / "ledger")
    assert tables_with(first, "y") == tables_with(again, "y") == ["arm/c0", "arm/c1", "arm/c2"]
