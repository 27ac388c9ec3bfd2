"""When the largest values of a class are looked up, and what they are."""

from __future__ import annotations

import numpy as np
import pytest

from kanab.counting.columns import MetricSteps
from kanab.counting.largest import find_largest, merge_largest, metrics_with_small_sums
from kanab.counting.rows import count_rows
from kanab.plan.model import make_plan
from kanab.tally.metric import Metric

ROWS = {
    "variant": ["A", "A", "A", "A", "B", "B", "B", "B"],
    "tier": [1, 1, 2, 2, 1, 1, 2, 2],
    "spend": [9, -4, 3, 3, 0, 0, None, 12],
}


def lists(largest: object) -> list[list[object]]:
    return [getattr(largest, name).tolist() for name in ("largest", "second", "total")]


def test_the_two_largest_of_every_class_and_the_sum_of_all_without_signs() -> None:
    plan = make_plan("variant", ["spend"], adjust=["tier"], bounds={"spend": (-10, 10)}, resolution={"spend": 1})
    largest = count_rows(ROWS, plan).largest["variant/tier"]["spend"]
    assert lists(largest) == [[[9, 3], [0, 10]], [[4, 3], [0, 0]], [[13, 6], [0, 10]]]  # 12 is clamped


def test_people_without_a_value_are_nobody_where_they_are_left_out() -> None:
    plan = make_plan("variant", ["spend"], missing={"spend": "exclude"})
    counted = count_rows(ROWS | {"spend": [None, None, None, None, 1, 5, 2, None]}, plan)
    assert lists(counted.largest["variant"]["spend"]) == [[0, 5], [0, 2], [0, 8]]


@pytest.mark.parametrize(
    ("spend", "looked_up"),
    [
        ([5, 5, 5, 10, 10, 5, 5, 5], True),  # 25 is less than three times the bound of 10
        ([5, 5, 10, 10, 10, 10, 5, 5], False),  # 30 in both arms
        ([0, 0, 0, 0, 0, 0, 0, 0], False),  # nothing to dominate
        ([-5, -5, -10, -10, 10, 10, 5, 5], False),
    ],
)
def test_large_sums_prove_that_nobody_dominates(spend: list[int], looked_up: bool) -> None:
    plan = make_plan("variant", ["spend"], bounds={"spend": (-10, 10)}, resolution={"spend": 1})
    assert bool(count_rows(ROWS | {"spend": spend}, plan).largest) is looked_up


def test_a_metric_without_bounds_is_judged_by_its_widened_range() -> None:
    counted = count_rows(ROWS | {"spend": [2, 2, 2, 2, 3, 2, 2, 2]}, make_plan("variant", ["spend"]))
    assert counted.ranges == {"spend": (2, 5)}
    assert list(counted.largest) == ["variant"]  # 8 and 9 are less than 15
    small = metrics_with_small_sums(counted.tallies, {"spend": (2, 2)})
    assert small == {}


def test_conversions_and_empty_classes_need_no_largest_values() -> None:
    assert count_rows(ROWS | {"spend": [0, 1] * 4}, make_plan("variant", ["spend"])).largest == {}
    rows = {"variant": ["A"] * 8 + ["B"] * 8, "tier": ([1] * 4 + [2] * 4) + [1] * 8, "spend": [2] * 16}
    plan = make_plan("variant", ["spend"], adjust=["tier"], bounds={"spend": (0, 2)}, resolution={"spend": 1})
    assert count_rows(rows, plan).largest == {}  # nobody is in B and 2


def test_steps_of_52_bits_add_up_exactly() -> None:
    top = 2**52 - 1
    measured = MetricSteps(Metric("y"), np.array([top, -top, 1]), np.ones(3, dtype=bool))
    assert lists(find_largest(measured, np.zeros(3, dtype=np.intp), (1,))) == [[top], [top], [2 * top + 1]]


def test_groups_of_one_class_are_merged_with_their_two_largest() -> None:
    merged = merge_largest((2,), [((0,), 5, 4, 9), ((1,), 3, 0, 3), ((0,), 5, 0, 5)])
    assert lists(merged) == [[5, 3], [5, 0], [14, 3]]
