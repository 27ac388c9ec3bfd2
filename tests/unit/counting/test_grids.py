"""The grid that nobody declared, and squares that outgrow 64 bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.grids import (
    HALF,
    Products,
    Profile,
    check_range,
    choose_metric,
    plan_products,
    plan_squares,
    profile_values,
    widen_range,
)
from kanab.errors import GridError
from kanab.plan.model import MetricPlan
from kanab.tally.metric import Metric

steps = st.integers(-(2**52) + 1, 2**52 - 1)


@pytest.mark.parametrize(
    ("values", "scale", "binary"),
    [
        ([], 1, True),
        ([0.0, 1.0], 1, True),
        ([-1.0, 0.0], 1, False),
        ([0.29, 19.99], 100, False),
        ([0.125], 1_000, False),
        ([0.0625], 10_000, False),
        ([1 / 3, 500.0], 2**42, False),
    ],
)
def test_the_simplest_grid_that_holds_all_values(values: list[float], scale: int, binary: bool) -> None:
    metric = choose_metric(MetricPlan("y", missing="exclude"), profile_values(np.array(values)))
    assert metric == Metric("y", scale, (0.0, 1.0) if binary else None, "exclude")


@pytest.mark.parametrize("value", [2.0**52, -(2.0**52), float("inf"), float("-inf"), 2.0**52 - 0.5])
def test_values_beyond_the_grid_are_refused_unless_bounds_clamp_them(value: float) -> None:
    profile = Profile(min(value, 0.0), max(value, 0.0))
    with pytest.raises(GridError, match="too large for its grid"):
        check_range(Metric("y"), profile)
    check_range(Metric("y", 1, (0, 5)), profile)
    check_range(Metric("y"), Profile(-(2.0**52) + 1, 2.0**52 - 1))  # the last that fit


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
