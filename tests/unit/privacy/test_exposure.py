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
