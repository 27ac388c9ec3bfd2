from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counted import SignatureValues
from kanab.counting.columns import MetricSteps
from kanab.counting.signature_groups import (
    Membership,
    among,
    bound_second,
    commonest_step,
    counts_things,
    make_signatures,
    spread,
    values_of,
)
from kanab.tally.metric import Metric

CELLS = st.integers(-1, 3)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, st.booleans(), st.integers(0, 5)), min_size=1, max_size=40)


def seen(rows: list[tuple[Any, ...]]) -> list[Membership]:
    first, second, third, has, _ = (np.array(column) for column in zip(*rows, strict=True))
    return [
        Membership({"a": first, "b": second}, {"a": 4, "b": 4}, {}),
        Membership({"c": third, "a": first}, {"c": 4, "a": 4}, {"y": has}),
    ]


def listed(rows: list[tuple[Any, ...]], people: Any = None) -> list[Any]:
    first, second = make_signatures(seen(rows), people)
    assert first.people is second.people
    assert (first.tables, second.tables, first.metrics, second.metrics) == (("a", "b"), ("c", "a"), (), ("y",))
    return [
        (*first.cells[i].tolist(), *second.cells[i].tolist(), bool(second.present[i, 0]), int(n))
        for i, n in enumerate(first.people)
    ]


@pytest.mark.slow
@given(ROWS)
def test_people_are_grouped_by_everything_that_is_seen_of_them(rows: list[tuple[Any, ...]]) -> None:
    wanted = Counter((a, b, c, a, has) for a, b, c, has, _ in rows)
    assert listed(rows) == [(*key, n) for key, n in sorted(wanted.items())]


@given(ROWS)
def test_groups_of_people_are_added_up_to_the_same(rows: list[tuple[Any, ...]]) -> None:
    weights = np.array([row[-1] for row in rows], dtype=np.int64)
    wanted: Counter[Any] = Counter()
    for a, b, c, has, n in rows:
        wanted[a, b, c, a, has] += n
    assert listed(rows, weights) == [(*key, n) for key, n in sorted(wanted.items())]


@given(ROWS)
def test_sorting_and_counting_in_place_agree(rows: list[tuple[Any, ...]]) -> None:
    weights = np.array([row[-1] for row in rows], dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        direct = listed(rows), listed(rows, weights)
        patch.setattr("kanab.counting.signature_groups._DIRECT", 0)
        assert (listed(rows), listed(rows, weights)) == direct


def test_more_people_than_the_plan_is_about_have_no_class_and_no_value() -> None:
    wide = Membership({"a": np.array([2, 0])}, {"a": 3}, {"y": np.array([True, False])}).among(
        np.array([False, True, True, False])
    )
    assert wide.cells["a"].tolist() == [-1, 2, 0, -1]
    assert wide.present["y"].tolist() == [False, True, False, False]
    same = Membership({"a": np.array([2, 0])}, {"a": 3}, {})
    assert same.among(np.array([True, True])) is same


CENTS = Metric.declare("spend", bounds=(0, 500), resolution=0.01)
PEOPLE = st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5), st.booleans()), min_size=1, max_size=40)


def lists(values: SignatureValues) -> list[Any]:
    return [getattr(values, word).tolist() for word in ("off", "squares", "largest", "second")]


def test_a_value_that_a_tenth_of_the_people_share_is_the_commonest() -> None:
    others = np.arange(1, 91)
    assert commonest_step(CENTS, np.r_[others, np.full(10, 490)]) == 490
    assert commonest_step(CENTS, np.r_[others, np.full(9, 490)]) == 0


def test_where_no_value_is_common_zero_or_the_bound_next_to_it_stands_in() -> None:
    apart = np.arange(200, 300)
    for bounds, instead in (((0, 500), 0), ((1, 5), 100), ((-9, -2), -200), ((-9, 9), 0)):
        assert commonest_step(Metric.declare("y", bounds=bounds, resolution=0.01), apart) == instead
    assert commonest_step(Metric("y"), apart) == 0
    assert commonest_step(CENTS, np.array([700])) == 0  # one person is not a crowd
    assert commonest_step(CENTS, np.empty(0, dtype=np.int64)) == 0


def test_values_that_are_far_apart_are_sorted_instead_of_counted_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = np.array([2**50, -3, 2**50, 7, -3, 2**50])
    assert commonest_step(Metric("y"), steps) == 2**50
    monkeypatch.setattr("kanab.counting.signature_groups._DIRECT", 0)
    assert commonest_step(Metric("y"), np.array([4, 9, 9, 1])) == 9


def test_whole_numbers_up_to_twenty_are_counts_of_things() -> None:
    assert counts_things(Metric("orders"), 0, 20)
    assert counts_things(Metric("bought", 1, (0, 1)), 0, 1)
    assert not counts_things(Metric("orders"), 0, 21)
    assert not counts_things(Metric("balance"), -1, 5)
    assert not counts_things(Metric("spend", 100), 0, 20)


def test_everybody_is_as_far_off_as_their_value_and_nobody_without_one() -> None:
    fee = MetricSteps(Metric("fee", 100), np.array([490, 490, 990, 0, 0]), np.array([True, True, True, True, False]))
    values = values_of(fee)
    assert values.commonest == 490
    assert lists(values) == [
        [0, 0, 1, 1, 0], [0, 0, 500**2, 490**2, 0], [0, 0, 500, 490, 0], [0, 0, 0, 0, 0],
    ]  # fmt: skip


@given(PEOPLE)
def test_groups_add_up_to_what_their_people_have_in_one_step_or_two(rows: list[tuple[int, int, bool]]) -> None:
    group, steps, has = (np.array(column) for column in zip(*rows, strict=True))
    own = values_of(MetricSteps(Metric("y"), steps, has))
    wanted = []
    for number in range(4):
        away = sorted((abs(y - own.commonest) for g, y, there in rows if g == number and there), reverse=True)
        first, second = [*away, 0, 0][:2]
        wanted.append([sum(y > 0 for y in away), sum(y * y for y in away), first, second])
    added = own.added_up(group, 4)
    assert [list(row) for row in zip(*lists(added), strict=True)] == wanted
    halves = own.added_up(group * 2 + np.arange(len(group)) % 2, 8)
    assert lists(halves.added_up(np.arange(8) // 2, 4)) == lists(added)


@given(st.lists(st.integers(0, 2**40), max_size=30))
def test_fourth_powers_never_understate_the_second_largest_nor_pass_the_largest(away: list[int]) -> None:
    first, second = [*sorted(away, reverse=True), 0, 0][:2]
    off, fourth = sum(y > 0 for y in away), float(sum(float(y) ** 4 for y in away))
    (bound,) = bound_second(np.array([off]), np.array([float(first)]), np.array([fourth]))
    assert second <= bound <= first
    if off <= 2:
        assert bound <= second + 1e-3 * first * 1.01


def test_groups_that_are_not_meant_and_people_of_other_plans_are_off_nothing() -> None:
    values = SignatureValues(7, np.array([1, 2]), np.array([9.0, 5.0]), np.array([3.0, 2.0]), np.array([0.0, 1.0]))
    assert lists(among(values, np.array([True, False]))) == [[1, 0], [9, 0], [3, 0], [0, 0]]
    wider = spread(values, np.array([False, True, False, True]))
    assert (wider.commonest, lists(wider)) == (7, [[0, 1, 0, 2], [0, 9, 0, 5], [0, 3, 0, 2], [0, 0, 0, 1]])
