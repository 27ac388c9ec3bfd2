from __future__ import annotations

import numpy as np
from tests.unit.privacy.closed_forms import extremes, extremes_by_marginal

import kanab as kb
from kanab.privacy.enumeration import (
    WORK,
    Achievable,
    SmallClass,
    enumerate_classes,
    share,
)
from kanab.tally.moments import Moments


def members(bits: int) -> list[int]:
    return [place for place in range(bits.bit_length()) if bits >> place & 1]


def test_achievable_squares_are_those_of_all_groups() -> None:
    assert members(Achievable().squares(3, 4, 4)) == [6, 8, 10, 16]  # 2+1+1, 2+2, 3+1, 4
    assert members(Achievable().squares(3, 4, 2)) == [6, 8]
    assert Achievable().squares(3, 10, 3) == 0
    assert Achievable().squares(3, 0, 3) == 1


def test_squares_can_fix_every_value() -> None:
    assert extremes(10, 3, 3, 0, None) == ((0, 0), (1, 1))
    assert extremes(10, 3, 5, 0, None) == ((0, 0), (2, 2))
    assert extremes(10, 3, 9, 0, None) == ((0, 0), (3, 3))


def test_an_interval_stays_where_several_groups_fit() -> None:
    assert extremes(10, 12, 42, 0, None) == ((0, 0), (4, 6))  # 6 and six ones; 4, 4, 3 and a one


def test_values_far_from_zero_are_counted_from_the_nearer_bound() -> None:
    low = SmallClass.of(10, 1003, 100, 200)
    high = SmallClass.of(10, 1997, 100, 200)
    assert low == SmallClass(10, 3, 100, 100, downwards=False)
    assert high == SmallClass(10, 3, 100, 200, downwards=True)
    squares = 9 * 200**2 + 197**2
    assert extremes(10, 1997, squares, 100, 200) == ((197, 197), (200, 200))


def test_ten_poisson_counts_are_nearly_always_fixed_by_their_sum_and_squares() -> None:
    """privacy.md: in about 98 of 100 cases. Take the largest away while it is known."""
    groups = np.random.default_rng(3).poisson(0.3, (1_500, 10))
    fixed = 0
    seen: dict[tuple[int, int, int], tuple[int, int]] = {}
    for y in groups.tolist():
        n, s, q = len(y), sum(y), sum(value**2 for value in y)
        known = True
        while n > 1 and known:
            if (n, s, q) not in seen:
                seen[n, s, q] = extremes(n, s, q, 0, None)[1]
            low, high = seen[n, s, q]
            known, n, s, q = low == high, n - 1, s - low, q - low**2
        fixed += known
    assert 0.97 < fixed / len(groups) < 0.99


def test_classes_of_a_margin_share_its_squares() -> None:
    both = extremes_by_marginal([10, 10], [3, 3], 10, 0, None)  # 5 + 5, since 3 + 7 and 9 + 1 do not exist
    assert both == [((0, 0), (2, 2))] * 2
    either = extremes_by_marginal([10, 10], [3, 3], 12, 0, None)  # 3 + 9 or 9 + 3
    assert either == [((0, 0), (1, 3))] * 2


def test_what_one_class_has_the_others_have_not() -> None:
    five_or_nine = 1 << 2 | 1 << 6
    assert share([five_or_nine, 1], [6, 0], 6) == [1 << 6, 1]
    assert share([five_or_nine, None], [6, 4], 6) == [five_or_nine, None]  # the unknown one can make up 4, or 0


def test_large_excesses_are_shared_by_their_ends_alone() -> None:
    even = sum(1 << place for place in range(0, 41, 2))
    total = 10**12
    found = share([even, None], [40, total - 10], total)
    assert members(found[0] or 0) == list(range(10, 41, 2))
    assert found[1] is None


def test_margins_that_no_people_have_are_left_alone() -> None:
    assert share([1, None], [0, 4], -2) == [1, None]


def test_beyond_the_budget_nothing_is_enumerated() -> None:
    assert SmallClass.of(1_000, 30_000, 0, 500) is None
    assert extremes(1_000, 30_000, 1_000_000, 0, 500) is None
    assert extremes(10**9, 3, 5, 0, None) == ((0, 0), (2, 2))  # many people are no work, large sums are
    assert 36 * (36 * 36) ** 2 <= WORK < 40 * (40 * 40) ** 2


def test_sums_alone_can_fix_a_value() -> None:
    part = Moments(kb.Metric("y"), np.array([[5, 1, 0]], dtype=object), np.array([[1, 7, 0]], dtype=object), {})
    low, high = np.array([[0, 7, 0]], dtype=object), np.array([[9, 7, 0]], dtype=object)
    assert enumerate_classes(part, ("arm", "level"), low, high) == [((0, 0), (1, 1)), None, None]


def test_crossed_margins_narrow_each_other() -> None:
    part = Moments(
        kb.Metric("y"),
        np.full((2, 2), 10, dtype=object),
        np.array([[3, 3], [3, 0]], dtype=object),
        {("arm",): np.array([12, 3], dtype=object), ("level",): np.array([6, 9], dtype=object)},
    )
    low, high = np.full((2, 2), 0, dtype=object), np.full((2, 2), 3, dtype=object)
    found = enumerate_classes(part, ("arm", "level"), low, high)
    assert [largest for _, largest in found] == [(1, 1), (3, 3), (1, 1), (0, 0)]
