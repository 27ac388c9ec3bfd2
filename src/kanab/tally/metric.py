"""Metrics, and the grids of whole numbers on which their values are added exactly.

Floating-point sums of squares lose the variance of a metric with a large mean. Every metric
therefore lives on a grid: its values are whole numbers of steps, ``scale`` steps to one unit, so
that sums and sums of squares are exact integers that do not depend on the order of addition.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args, overload

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.errors import GridError

Missing = Literal["zero", "exclude"]

DOUBLE_LIMIT = 2**53
"""Doubles hold every whole number up to this, and add and multiply them without rounding."""
GRID_LIMIT = DOUBLE_LIMIT // 2
"""Grid values stay below this, so that a double holds each of them exactly."""


@check_arguments(skip=("name", "scale", "bounds"))
@dataclass(frozen=True)
class Metric:
    """One metric: its name, its grid, its bounds and what a missing value means.

    ``missing="zero"``: no event means 0. ``missing="exclude"``: people without a value are left
    out of this metric, which then has its own count in every class.

    >>> spend = Metric.declare("spend", bounds=(0, 500), resolution=0.01)
    >>> spend.scale, spend.resolution, spend.binary
    (100, 0.01, False)
    >>> spend.to_grid(np.array([0.29, 12.5, 9_999.0]))     # the last is clamped to its bound
    array([   29,  1250, 50000])
    """

    name: str
    scale: int = 1
    bounds: tuple[float, float] | None = None
    missing: Missing = "zero"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise GridError("a metric needs a name", "Give it a non-empty text.")
        if type(self.scale) is not int or not 1 <= self.scale < GRID_LIMIT:
            raise GridError(
                f"the grid of {self.name!r} must have a whole number of steps per unit",
                "Use a resolution such as 1, 0.01 or 0.001.",
            )
        if self.missing not in get_args(Missing):
            raise GridError(
                f"unknown rule for missing values of {self.name!r}",
                "Use missing='zero' (no event means 0) or missing='exclude'. "
                "Missing covariates need no rule: they are a level of their own.",
            )
        if self.bounds is not None:
            self._check_bounds(self.bounds)

    def _check_bounds(self, bounds: tuple[float, float]) -> None:
        low, high = math.nan, math.nan
        if isinstance(bounds, (tuple, list)) and len(bounds) == 2:
            with suppress(TypeError, ValueError, OverflowError):
                low, high = (math.nan if isinstance(bound, str) else float(bound) for bound in bounds)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise GridError(
                f"the bounds of {self.name!r} must be two finite numbers, the lower one first",
                "For example bounds=(0, 500).",
            )
        object.__setattr__(self, "bounds", (low, high))
        if max(abs(low), abs(high)) * self.scale >= GRID_LIMIT:
            raise GridError(
                f"the bounds of {self.name!r} do not fit its grid",
                "Choose a coarser resolution or narrower bounds.",
            )

    @classmethod
    def declare(
        cls,
        name: str,
        *,
        bounds: tuple[float, float] | None = None,
        resolution: float | None = None,
        missing: Missing = "zero",
    ) -> Metric:
        """Return a metric with the given resolution, or with the one that its bounds imply.

        Raises `GridError` where bounds and resolution do not make a grid.
        """
        if resolution is not None:
            return cls(name, _scale_of(resolution, name), bounds, missing)
        scale = 1 if bounds is None else implied_scale(*cls(name, 1, bounds).bounds)  # type: ignore[misc]
        return cls(name, scale, bounds, missing)

    @property
    def resolution(self) -> float:
        """The size of one step of the grid."""
        return 1 / self.scale

    @property
    def binary(self) -> bool:
        """Whether it is a 0/1 metric: then y² = y, and squares need not be stored."""
        return self.scale == 1 and self.bounds == (0.0, 1.0)

    @cached_property
    def grid_bounds(self) -> tuple[int, int] | None:
        """The bounds as grid values."""
        if self.bounds is None:
            return None
        low, high = self.bounds
        return int(grid_steps(low, self.scale)), int(grid_steps(high, self.scale))

    @property
    def bounds_on_grid(self) -> bool:
        """Whether the bounds fall on steps, so that a finer grid has the same ones."""
        return self.bounds is None or all(float(bound * self.scale).is_integer() for bound in self.bounds)

    def to_grid(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the grid values of finite numbers: ``grid_steps``, clamped to the bounds.

        Raises `GridError` where a value is infinite or too large for the grid, and no bounds clamp it.
        """
        steps = grid_steps(values.astype(np.float64), self.scale)
        if self.grid_bounds is not None:
            steps = np.clip(steps, *self.grid_bounds)
        if not np.all(np.abs(steps) < GRID_LIMIT):
            raise GridError(
                f"values of {self.name!r} are infinite or too large for its grid",
                "Declare bounds, or a coarser resolution.",
            )
        return steps.astype(np.int64)

    def beyond_bounds(self, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which numbers ``to_grid`` clamps."""
        if self.grid_bounds is None:
            return np.zeros(len(values), dtype=bool)
        low, high = self.grid_bounds
        steps = grid_steps(values, self.scale)
        return (steps < low) | (steps > high)


@overload
def grid_steps(values: float, scale: int) -> float: ...
@overload
def grid_steps(values: NDArray[np.float64], scale: int) -> NDArray[np.float64]: ...
def grid_steps(values: Any, scale: int) -> Any:
    """Return the whole grid steps of a number or of an array, not yet clamped, as doubles.

    The rule is times ``scale``, plus one half, floor, and the same in every engine and client, digit
    for digit: ROUND differs between engines on ties, and dividing by 0.01 differs from multiplying
    by 100. Engines have it as ``kanab.counting.engine.measures.grid_steps``.
    """
    with np.errstate(over="ignore"):
        return np.floor(values * float(scale) + 0.5)


def implied_scale(low: float, high: float) -> int:
    """Return the scale that bounds imply: a power of two, fine enough for 31 bits of the range."""
    step = max((high - low) / 2**31, max(abs(low), abs(high)) / 2**51, 2.0**-51)
    return int(2 ** max(0, -math.ceil(math.log2(step))))


def _scale_of(resolution: float, name: str) -> int:
    """Return the steps per unit of a resolution that is one divided by a whole number."""
    try:
        size = float(resolution)
        scale = round(1 / size)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError):
        size, scale = math.nan, 0
    if not (scale >= 1 and abs(scale * size - 1) < 1e-9):
        raise GridError(
            f"the resolution of {name!r} must be 1 divided by a whole number",
            "For example 1, 0.5, 0.01 or 0.001.",
        )
    return scale
