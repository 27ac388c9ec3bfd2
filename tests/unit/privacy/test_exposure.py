"""Rule 3 on one design: contributors, dominance, and squares."""

from __future__ import annotations

import numpy as np
import pytest

from kanab.counted import SignatureValues
from kanab.privacy.exposure import excess, within


def values(*groups: list[float]) -> SignatureValues:
    """What is known of signatures whose people are so far off the commonest value."""
    ordered = [[*sorted(map(abs, group), reverse=True), 0.0, 0.0] for group in groups]
    return SignatureValues(
        0,
        np.array([sum(value > 0 for value in group) for group in ordered]),
        np.array([sum(value**2 for value in group) for group in ordered]),
        np.array([group[0] for group in ordered]),
        np.array([group[1] for group in ordered]),
    )


def most(columns: list[list[int]], people: SignatureValues, squared: list[list[int]] | None = None) -> float:
    return float(excess([np.array(c) for c in columns], [np.array(c) for c in squared or []], people).max())


def test_three_people_behind_a_sum_are_enough_and_two_are_not() -> None:
    assert most([[0]], values([5, 5, 5])) == pytest.approx(1)
    assert most([[0]], values([5, 5])) == pytest.approx(1.5)


def test_one_person_may_be_nine_tenths_of_a_sum_in_squares() -> None:
    assert within(excess([np.array([0])], [], values([3, 0.6, 0.6, 0.6])))  # 9 of 10.08
    assert not within(excess([np.array([0])], [], values([3, 0.5, 0.5, 0.5])))  # 9 of 9.75


def test_somebody_who_knows_the_second_largest_value_learns_nothing_of_the_largest() -> None:
    # 500, 400 and 1: whoever paid 400 sees 501 for the other two.
    assert most([[0]], values([500, 400, 1])) > 1
    assert most([[0]], values([500, 400, 60])) <= 1


def test_of_published_squares_one_person_is_not_the_root() -> None:
    people = values([9_000, *[50.0] * 1_000])  # √(9,000² + 1,000 · 50²) is 9,138
    assert most([[0]], people) > 1
    ordinary = values([100, *[40.0] * 100])
    assert most([[0]], ordinary, [[0]]) <= 1
    assert most([[0]], values([100, 30, 25]), [[0]]) > 1  # 10,000 of 11,525: the root is 107.4
    assert most([[0]], values([100, 30, 25])) <= 1


def test_a_difference_of_two_tables_is_a_sum_too() -> None:
    # The second table moves one buyer from one class to the other.
    assert most([[0, 0, 1]], values([5] * 9, [5], [5] * 9)) <= 1
    assert most([[0, 0, 1], [0, 1, 1]], values([5] * 9, [5], [5] * 9)) == pytest.approx(3)


def test_three_tables_of_which_one_is_the_exclusive_or_of_two_single_nobody_out_by_counts_but_by_buyers() -> None:
    # Signatures by a, b and a xor b; everybody of (1, 1) but one bought nothing.
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    columns = [a, b, [x ^ y for x, y in zip(a, b, strict=True)]]
    assert most(columns, values([7] * 20, [7] * 20, [7] * 20, [7] * 20)) <= 1
    assert most(columns, values([7] * 20, [7] * 20, [7] * 20, [7])) > 1


def test_people_at_the_commonest_value_are_not_asked_about() -> None:
    assert most([[0, 1]], values([0, 0], [0])) == 0


def test_what_was_released_before_does_not_forbid_what_adds_nothing() -> None:
    before = np.array([2.0, 0.5])
    assert within(np.array([2.0, 0.9]), before)
    assert not within(np.array([2.1, 0.9]), before)
    assert not within(np.array([2.0, 1.1]), before)


def test_a_lone_buyer_of_five_cents_among_large_sums_is_no_rounding_error() -> None:
    rng = np.random.default_rng(3)
    groups = [[*rng.lognormal(8, 1, 2_000)] for _ in range(6)]
    first, second = [0, 0, 0, 1, 1, 1, 0], [0, 1, 2, 0, 1, 2, 3]
    people = values(*groups, [0.05])
    assert most([first, second], people) == pytest.approx(3)
