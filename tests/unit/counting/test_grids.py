"""The grid that nobody declared, squares that outgrow 64 bits, and levels out of too many values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.grids import (
    HALF,
    Products,
    plan_products,
    plan_squares,
    widen_range,
)
from kanab.counting.levels import Bins, choose_bins, common_levels, declare_levels
from kanab.plan.model import CovariatePlan
from kanab.tally.factor import Factor

steps = st.integers(-(2**52) + 1, 2**52 - 1)


@given(st.lists(steps, min_size=1, max_size=20))
def test_squares_are_exact_and_every_term_fits_64_bits(values: list[int]) -> None:
    products = plan_squares(min(values), max(values))
    moved = [value - products.centre for value in values]
    if products.halves:
        halves = [divmod(value, HALF) for value in moved]
        terms = [(a * a, 2 * a * b, b * b) for a, b in halves]
    else:
        terms = [(value * value,) for value in moved]
    assert all(abs(part) < 2**63 for term in terms for part in term)
    partial = tuple(sum(parts) for parts in zip(*terms, strict=True))
    assert products.total(partial, len(values), sum(values)) == sum(value**2 for value in values)


def test_products_are_cut_only_where_they_must_be() -> None:
    assert plan_products((0, 2**31), (0, 2**31)) == Products()
    assert plan_products((-(2**32), 0), (0, 2**31)).halves


@pytest.mark.parametrize(
    ("steps", "scale", "widened"),
    [
        ((0, 0), 100, (0, 0)),
        ((0, 9_999), 100, (0, 10_000)),
        ((0, 10_000), 100, (0, 10_000)),
        ((0, 10_001), 100, (0, 20_000)),
        ((1, 3), 100, (1, 5)),
        ((-7, 51), 1, (-10, 100)),
        ((70, 400), 1, (50, 500)),
        ((-400, -70), 1, (-500, -50)),
        ((1, 2**20), 2**22, (0, 2**21)),  # 0.25 units become 0.5; the smallest round number is less than a step
        ((0, 600_000), 2**22, (0, 838_861)),  # 0.2 units lie between two steps
        ((-(2**52) + 1, 2**52 - 1), 1, (-(2**52) + 1, 2**52 - 1)),
    ],
)
def test_a_range_moves_outwards_to_round_numbers(steps: tuple[int, int], scale: int, widened: tuple[int, int]) -> None:
    assert widen_range(*steps, scale) == widened


@given(st.lists(steps, min_size=1, max_size=5), st.sampled_from([1, 100, 10_000, 3, 2**22]))
def test_a_widened_range_holds_everything_and_is_that_of_its_widest_part(values: list[int], scale: int) -> None:
    low, high = widen_range(min(values), max(values), scale)
    assert all(low <= value <= high for value in values)
    parts = [widen_range(value, value, scale) for value in values]
    assert (low, high) == (min(part[0] for part in parts), max(part[1] for part in parts))


def test_bins_are_named_by_their_edges_and_close_on_the_left() -> None:
    bins = Bins("age", (12.5, 30.0))
    assert bins.labels == ("< 12.5", "12.5 – 30", "≥ 30")
    assert bins.place(np.array([-1e9, 12.4, 12.5, 29.9, 30.0, 1e9])).tolist() == [0, 0, 1, 1, 2, 2]
    assert Bins("age", ()).labels == ("any",)
    assert Bins("age", (1_234_567.0, 0.1 + 0.2)).labels[0] == "< 1234567"


@pytest.mark.parametrize(
    ("quantiles", "low", "high", "edges"),
    [
        ([12.3456, 250.4], 0, 900, (12.3, 250.0)),
        ([12.34, 12.341, 12.29], 0, 900, (12.3,)),
        ([112.5, np.nextafter(112.5, 200)], 0, 900, (112.0,)),  # the last bit decides nothing
        ([np.nextafter(113.5, 0), 113.5], 0, 900, (114.0,)),
        ([0.0, -0.00012345], -1, 1, (-0.000123, 0.0)),
        ([2003.75, 2011.5], 1999, 2024, (2003.8, 2011.5)),  # years: three digits of their range
        ([7.0, 7.0], 7, 7, (7.0,)),
        ([1.0e9 + 0.126], 1.0e9, 1.0e9 + 1, (1.0e9 + 0.13,)),
    ],
)
def test_quantiles_are_rounded_to_three_digits(
    quantiles: list[float], low: float, high: float, edges: tuple[float, ...]
) -> None:
    assert choose_bins(CovariatePlan("x", bins=4), quantiles, low, high).edges == pytest.approx(edges, rel=1e-12)
    assert len(choose_bins(CovariatePlan("x", bins=4), quantiles, low, high).edges) == len(edges)


def test_a_bin_is_scored_by_the_exact_mean_of_its_people() -> None:
    factor = Bins("x", (10.0, 20.0)).factor([3, 0, 7], [100, 0, 2**60], 100, missing=True)
    assert factor == Factor("x", ("< 10", "≥ 20", None), "covariate", (100 / 300, 2**60 / 700, None))
    assert Bins("x", ()).factor([0], [0], 1, missing=True) == Factor("x", (None,), "covariate")


def test_equally_common_levels_are_taken_in_sorted_order() -> None:
    assert common_levels({"d": 5, "c": 5, "b": 9, "a": 1, None: 99}, 2) == ("b", "c")
    assert common_levels({10: 3, 9: 3, 8: 1}, 1) == (9,)
    assert common_levels({None: 4}, 3) == ()


def test_the_rest_is_other_and_other_is_one_level() -> None:
    assert declare_levels("x", ("a", "b"), rest=False).levels == ("a", "b")
    assert declare_levels("x", ("a", "other"), rest=True).levels == ("a", "other")
    assert declare_levels("x", ("a", "other"), rest=False).levels == ("a", "other")
