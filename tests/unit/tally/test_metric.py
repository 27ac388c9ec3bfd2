import math
from typing import Any

import numpy as np
import pytest

from kanab import Metric
from kanab.errors import GridError
from kanab.tally.metric import GRID_LIMIT, implied_scale


def steps(metric: Metric, *values: float) -> list[int]:
    return metric.to_grid(np.array(values, dtype=np.float64)).tolist()


CENTS = [0.29, 1.005, 1.115, 0.285, -0.285, 4.35, 8.41, 1e9 + 0.005, -1e9 - 0.005]


@pytest.mark.parametrize(
    ("metric", "values", "expected"),
    [
        (Metric("y"), [0.5, 1.5, 2.5, -0.5, -1.5, -2.5], [1, 2, 3, 0, -1, -2]),  # ties go up
        (Metric("y"), [0.49, 0.51, -0.49, -0.51, 7.0, -7.0], [0, 1, 0, -1, 7, -7]),
        (Metric("y", 100), CENTS, [math.floor(value * 100.0 + 0.5) for value in CENTS]),
        (Metric("y", 100), [19.505], [1951]),  # divided by 0.01 it would be 1950
        (Metric("y"), [2.0**52 - 1, 1 - 2.0**52], [2**52 - 1, 1 - 2**52]),  # the largest of all
        (Metric("y", 10, (-1, 2.5)), [-9, -1, 0, 2.5, 2.6, 1e9], [-10, -10, 0, 25, 25, 25]),
        (Metric("y", 100, (0, 5)), [1e308, -1e308], [500, 0]),  # overflows when scaled
        (Metric("y"), [], []),
    ],
)
def test_the_grid_rule_is_multiply_add_one_half_floor_and_bounds_clamp(
    metric: Metric, values: list[float], expected: list[int]
) -> None:
    assert steps(metric, *values) == expected


@pytest.mark.parametrize("value", [2.0**52, -(2.0**52), 1e300, math.inf, -math.inf, math.nan])
def test_a_value_beyond_the_grid_is_refused(value: float) -> None:
    with pytest.raises(GridError, match=r"values of 'y' are infinite or too large for its grid. Declare bounds"):
        steps(Metric("y"), 1.0, value)


@pytest.mark.parametrize(
    ("resolution", "scale"),
    [(1, 1), (True, 1), (0.5, 2), (0.01, 100), (0.001, 1000), (1e-9, 10**9), (1 / 3, 3), (np.float32(0.25), 4)],
)
def test_a_resolution_is_one_divided_by_a_whole_number(resolution: float, scale: int) -> None:
    metric = Metric.declare("y", resolution=resolution)
    assert metric.scale == scale
    assert metric.resolution == 1 / scale


@pytest.mark.parametrize("resolution", [0, -1, 2, 0.3, 1.5, math.nan, math.inf, 1e-320, "fine", [1], 0.7, -0.01])
def test_any_other_resolution_is_refused(resolution: Any) -> None:
    with pytest.raises(GridError, match=r"the resolution of 'y' must be 1 divided by a whole number. For example"):
        Metric.declare("y", resolution=resolution)


def test_a_resolution_finer_than_doubles_is_refused() -> None:
    with pytest.raises(GridError, match="the grid of 'y' must have a whole number of steps per unit"):
        Metric.declare("y", resolution=1e-16)


@pytest.mark.parametrize("scale", [0, -1, 1.0, True, "1", None, 2**52, np.int64(3)])
def test_a_scale_is_a_python_integer_from_1_to_below_2_to_the_52(scale: Any) -> None:
    with pytest.raises(GridError, match=r"whole number of steps per unit. Use a resolution such as"):
        Metric("y", scale)


@pytest.mark.parametrize("name", ["", "  ", None, 5, b"y"])
def test_a_metric_needs_a_name(name: Any) -> None:
    with pytest.raises(GridError, match=r"a metric needs a name. Give it a non-empty text"):
        Metric(name)


@pytest.mark.parametrize("missing", ["level", "drop", None, [], 0])
def test_missing_values_are_zero_or_excluded(missing: Any) -> None:
    with pytest.raises(GridError, match=r"unknown rule for missing values of 'y'. Use missing='zero'"):
        Metric("y", missing=missing)


@pytest.mark.parametrize(
    "bounds",
    [(1, 1), (2, 1), (0, math.inf), (math.nan, 1), (0,), (0, 1, 2), 5, ("a", "b"), (None, 1), (0, 10**400), "19"],
)
def test_bounds_are_two_finite_numbers_the_lower_one_first(bounds: Any) -> None:
    with pytest.raises(GridError, match=r"the bounds of 'y' must be two finite numbers, the lower one first. For exa"):
        Metric("y", 1, bounds)


@pytest.mark.parametrize("bounds", [(0, 2.0**52), (-(2.0**52), 0)])
def test_bounds_beyond_the_grid_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(GridError, match=r"the bounds of 'y' do not fit its grid. Choose a coarser resolution"):
        Metric("y", 1, bounds)
    with pytest.raises(GridError, match="do not fit its grid"):
        Metric.declare("y", bounds=(0, 1e10), resolution=1e-9)


def test_bounds_are_kept_as_floats_and_read_as_steps() -> None:
    metric = Metric("y", 100, (-1, 500))
    assert metric.bounds == (-1.0, 500.0)
    assert metric.grid_bounds == (-100, 50_000)
    assert Metric("y").grid_bounds is None


def test_declared_with_bounds_the_grid_is_the_one_they_imply() -> None:
    metric = Metric.declare("y", bounds=(0, 500), missing="exclude")
    assert (metric.scale, metric.bounds, metric.missing) == (2**22, (0.0, 500.0), "exclude")
    assert Metric.declare("y") == Metric("y", 1, None, "zero")


@pytest.mark.parametrize(
    ("low", "high", "scale"),
    [
        (0, 1, 2**31),
        (0, 500, 2**22),
        (-1, 1, 2**30),
        (0, 2**31, 1),
        (0, 2**32, 1),
        (1e9, 1e9 + 1, 2**21),  # the size of the values limits it, not their range
        (0, 1e13, 1),
        (0, 1e-9, 2**51),  # never finer than the grid can hold
    ],
)
def test_the_implied_grid_follows_range_and_size(low: float, high: float, scale: int) -> None:
    assert implied_scale(low, high) == scale
    wanted = max((high - low) / 2**31, max(abs(low), abs(high)) / 2**51, 2.0**-51)
    assert 1 / scale == min(1.0, 2.0 ** math.ceil(math.log2(wanted)))
    assert max(abs(low), abs(high)) * scale < GRID_LIMIT


def test_only_0_and_1_on_the_whole_grid_are_binary() -> None:
    assert Metric("y", 1, (0, 1)).binary
    assert not Metric("y", 2, (0, 1)).binary
    assert not Metric("y", 1, (0, 2)).binary
    assert not Metric("y").binary


def test_values_are_beyond_bounds_where_their_step_is() -> None:
    spend = Metric("spend", 10, (0, 5))
    values = np.array([-0.06, -0.05, 0.0, 5.04, 5.05])
    assert spend.beyond_bounds(values).tolist() == [True, False, False, False, True]
    assert not Metric("spend", 10).beyond_bounds(values).any()
