from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bad_releases import BAD_RELEASES, tabulate

from kanab.inspection.attack.background import KnownPeople, independent_rows, place_people
from kanab.inspection.attack.published import AttackedRelease, Axis
from kanab.inspection.attack.run import play_attacker
from kanab.scan.budget import Spent, fewest_off, pair_numbers
from kanab.tally.metric import Metric

BOUGHT = Metric("bought", 1, (0.0, 1.0))
SPEND = Metric("spend", 100, (0.0, 500.0))


def pairs(arms: dict[str, Any], bought: Any, spend: Any) -> AttackedRelease:
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
    assert not play_attacker([pairs(arms, bought, spend)], KnownPeople(arms)).broken
