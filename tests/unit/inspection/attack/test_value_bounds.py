from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bad_releases import tabulate

from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.inspection.attack.value_bounds import find_exposed_values, find_few_contributors, reachers
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments

MINUTES = Metric("minutes", 100, (0.0, 100.0))
SPEND = Metric("spend", 100, (0.0, 500.0))
BOUGHT = Metric("bought", 1, (0.0, 1.0))
ORDERS = Metric("orders", 1, (0.0, 20.0))
ARM = Axis("arm", ("A", "B"), "arm")


def one_arm(values: list[int], metric: Metric = SPEND, *, squares: bool = True) -> AttackedRelease:
    """The values in arm A; arm B has plenty of everything."""
    rng = np.random.default_rng(1)
    low, high = metric.grid_bounds or (0, 100)
    everyone = np.array([*values, *rng.integers(low, high + 1, 200).tolist()])
    arms = ["A"] * len(values) + ["B"] * 200
    table = tabulate("arm", {"arm": arms}, [ARM], {metric: everyone}, [("arm",)] if squares else [])
    return AttackedRelease("r", (table,))


def learnt(release: AttackedRelease, k: int = 10) -> list[str]:
    by_class, others = find_exposed_values([release], k)
    return [finding.learnt for finding in (*by_class, *others)]


def test_the_papers_attack_pins_the_value_to_its_cent() -> None:
    by_class, (found,) = find_exposed_values([one_arm([217, 0, 0], MINUTES)], 3)
    assert by_class == []  # squares of an arm are no squares by class: for information
    assert found.people == 1
    assert found.metric == "minutes"
    assert found.learnt == "the largest minutes of arm = A lies in [2.17, 2.17], and one person has it"


TWO = "at most 2 people have"
LARGEST = "the largest {} of arm = A lies in [{}], and one person has it"


@pytest.mark.parametrize(
    ("values", "metric", "k", "sentences"),
    [
        ([50_000, *[0] * 30], SPEND, 10, []),  # at the bound
        ([1] * 3 + [0] * 30, ORDERS, 10, []),  # within a step of it
        ([20] * 30 + [19] * 3, ORDERS, 10, []),
        ([3, *[20] * 30], ORDERS, 10, ["the smallest orders of arm = A lies in [3, 3], and one person has it"]),
        ([2, 1, 1, *[0] * 12], ORDERS, 10, [LARGEST.format("orders", "2, 2")]),  # whole numbers are tried out
        ([2, 2, 1, *[0] * 30], ORDERS, 2, []),  # k people have it
        (
            [2, 2, 1, *[0] * 30],
            ORDERS,
            3,
            ["the largest orders of arm = A lies in [2, 2], and at most 2 people have it"],
        ),
        ([217], MINUTES, 3, []),  # one person alone is left to the small classes
        ([90, *[0] * 30], Metric("free"), 10, [LARGEST.format("free", "90, 90")]),  # taken not to be negative
        ([90, *[0] * 30, -91], Metric("free"), 10, []),
    ],
)
def test_extremes_that_few_people_can_have_are_found(
    values: list[int], metric: Metric, k: int, sentences: list[str]
) -> None:
    assert learnt(one_arm(values, metric), k) == sentences
    assert learnt(one_arm(values, metric, squares=False), k) == []


def test_one_heavy_user_among_fifty_is_bracketed() -> None:
    (text,) = learnt(one_arm([20_000, *[100] * 49]))
    low, high = (float(part) for part in text.split("[")[1].split("]")[0].split(", "))
    assert low <= 200 <= high
    assert high - low < 0.25 * (high - 4.98)


def test_squares_on_a_margin_pin_a_class_whose_neighbours_are_empty_handed() -> None:
    people = {"arm": ["A"] * 40, "tier": [1] * 20 + [2] * 20}
    values = np.array([7_700, *[0] * 39])
    sides = [Axis("arm", ("A",), "arm"), Axis("tier", (1, 2))]
    release = AttackedRelease("r", (tabulate("arm/tier", people, sides, {SPEND: values}, [("arm",)]),))
    assert learnt(release) == [
        "the largest spend of arm = A, tier = 1 lies in [77, 77], and one person has it",
        "the largest spend of arm = A lies in [77, 77], and one person has it",
    ]


def test_a_lone_contributors_value_is_the_sum() -> None:
    people = {"arm": ["A"] * 30 + ["B"] * 30}
    bought = np.array([1] + [0] * 29 + [1] * 2 + [0] * 28)
    spend = bought * 1_500
    table = tabulate("arm", people, [ARM], {BOUGHT: bought, SPEND: spend}, [])
    found = find_few_contributors([AttackedRelease("r", (table,), contributors={"spend": "bought"})])
    assert [(one.people, one.learnt) for one in found] == [
        (1, "one person of arm = A alone has spend = 15"),
        (2, "2 people of arm = B have between them spend = 30"),
    ]
    assert find_few_contributors([AttackedRelease("r", (table,))]) == []
    assert find_few_contributors([AttackedRelease("r", (table,), contributors={"spend": "spend"})]) == []


def test_that_one_person_ordered_twice_is_no_amount_unless_it_is_sensitive() -> None:
    people, bought = {"arm": ["A"] * 30 + ["B"] * 30}, np.array(([1] + [0] * 29) * 2)
    table = tabulate("arm", people, [ARM], {BOUGHT: bought, ORDERS: 2 * bought}, [])
    release = AttackedRelease("r", (table,), contributors={"orders": "bought"})
    assert find_few_contributors([release]) == []
    marked = AttackedRelease("r", (table,), contributors={"orders": "bought"}, sensitive=frozenset({"orders"}))
    assert len(find_few_contributors([marked])) == 2


def test_blacked_out_and_impossible_tables_are_nothing_to_reason_from() -> None:
    (table,) = one_arm([217, 0, 0], MINUTES).tables
    hidden = AttackedTable(table.name, table.axes, table.people, np.array([False, True]), table.moments)
    assert learnt(AttackedRelease("r", (hidden,)), 3) == []
    (part,) = table.moments
    wrong = Moments(part.metric, part.counts, part.sums, {("arm",): part.squares[("arm",)] * 0})
    broken = AttackedTable(table.name, table.axes, table.people, table.hidden, (wrong,))
    assert learnt(AttackedRelease("r", (broken,)), 3) == []


@pytest.mark.slow
@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.integers(1, 5))
@settings(max_examples=150)
def test_no_more_people_reach_a_value_than_are_said(values: list[int], at: int) -> None:
    n, s, q = len(values), sum(values), sum(value**2 for value in values)
    groups = [
        group
        for group in combinations_with_replacement(range(6), n)
        if sum(group) == s and sum(value**2 for value in group) == q
    ]
    reach = max(sum(value >= at for value in group) for group in groups)
    if reach:
        assert reach <= reachers(n, s, q, at, 10) <= n


@given(st.lists(st.integers(0, 20), min_size=2, max_size=12))
@settings(max_examples=80)
def test_exposed_intervals_hold_the_true_extremes(values: list[int]) -> None:
    for found in find_exposed_values([one_arm(values, ORDERS)], 10_000)[1]:
        if "arm = A" in found.learnt:
            low, high = (float(part) for part in found.learnt.split("[")[1].split("]")[0].split(", "))
            extreme: Any = max(values) if "largest" in found.learnt else min(values)
            assert low <= extreme <= high
            assert found.people >= sum(value == extreme for value in values)
