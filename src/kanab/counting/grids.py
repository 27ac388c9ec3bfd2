"""Choose the grid of a metric that nobody declared, and how its squares are added exactly.

Every source decides alike: from the range of the values, and from the simplest grid that holds all
of them. Only then do files, frames and engines give the same digits.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from kanab.errors import GridError, flag
from kanab.plan.model import MetricPlan, Plan
from kanab.tally.metric import GRID_LIMIT, Metric, Missing, grid_steps
from kanab.tally.tally import Tally

DECIMAL_SCALES = (10, 100, 1_000, 10_000)
"""Grids of money and the like, tried in this order: a value v fits if floor(v·s + ½)/s is v."""

HALF = 1 << 26
"""Grid values of 52 bits are cut into halves of 26 where their products would outgrow 64 bits."""

_LARGEST = 1 << 63

_FEWEST_STEPS = 1_000
"""A spread of fewer steps, of values that lie between them, is rounded visibly."""


@dataclass(frozen=True)
class Profile:
    """What the values of one column say: their range, and the simplest grid that holds them all.

    ``decimal`` is the first of 10, 100, 1,000 and 10,000 steps per unit that fits, if one does.
    Missing values say nothing but that there are ``gaps``; a column of nothing else is (0, 0, whole).
    """

    low: float = 0.0
    high: float = 0.0
    whole: bool = True
    decimal: int | None = None
    gaps: bool = False

    @property
    def scale(self) -> int:
        """Steps per unit: 1 for whole numbers, a decimal grid if it holds the range, else a power of two."""
        largest = max(abs(self.low), abs(self.high))
        if self.whole or largest >= GRID_LIMIT:  # beyond every grid, which check_range says
            return 1
        if self.decimal is not None and largest * self.decimal < GRID_LIMIT:
            return self.decimal
        return finest_scale(largest)

    @property
    def binary(self) -> bool:
        """Whether every value is 0 or 1."""
        return self.whole and self.low >= 0 and self.high <= 1


def finest_scale(largest: float) -> int:
    """Return the finest power of two whose grid holds values up to the largest: hardly coarser than doubles are.

    Rounding then moves a mean by less than a millionth of a millionth of its standard error.
    """
    _, exponent = math.frexp(largest)  # largest < 2 ** exponent
    return 1 << min(max(51 - exponent, 0), 51)


def profile_values(values: NDArray[np.float64]) -> Profile:
    """Return the profile of finite numbers, without the missing ones."""
    if not len(values):
        return Profile()
    whole = bool(np.all(values == np.floor(values)))
    fitting = (scale for scale in DECIMAL_SCALES if np.all(grid_steps(values, scale) / scale == values))
    return Profile(float(values.min()), float(values.max()), whole, None if whole else next(fitting, None))


def choose_metric(plan: MetricPlan, profile: Profile) -> Metric:
    """Return the metric as declared, or on the simplest grid that holds its values, without bounds.

    Missing values that have no rule are left out. Where there are none, nobody has to be counted apart.
    """
    rule: Missing = plan.missing or ("exclude" if profile.gaps else "zero")
    if plan.declared or plan.resolution is not None:
        return replace(plan.metric(), missing=rule)
    if profile.binary:
        return Metric(plan.name, 1, (0.0, 1.0), rule)
    return Metric(plan.name, profile.scale, None, rule)


def check_range(metric: Metric, profile: Profile) -> None:
    """Raise `GridError` where a metric's grid cannot hold the values; with bounds they are clamped instead.

    A declared resolution may round everything to 0, but not one that the values chose.
    """
    if metric.bounds is not None:
        return
    ends = [grid_steps(value, metric.scale) for value in (profile.low, profile.high)]
    if not all(abs(end) < GRID_LIMIT for end in ends):
        raise GridError(
            f"values of {metric.name!r} are infinite or too large for its grid",
            "Declare bounds, or a coarser resolution.",
        )
    lost = not any(ends) and (profile.low, profile.high) != (0, 0)
    if lost and metric.scale == profile.scale:
        raise too_fine(metric.name)


def coarse_metrics(plan: Plan, tallies: Iterable[Tally]) -> dict[str, Metric]:
    """Return the metrics whose bounds alone decided on steps that the values hardly spread over."""
    open_grids = {each.name for each in plan.counted_metrics if each.bounds and each.resolution is None}
    coarse: dict[str, Metric] = {}
    for tally in tallies:
        for part in tally.moments:
            squares = next(iter(part.squares.values()), None)
            if part.metric.name in open_grids and squares is not None and part.counts.sum():
                n, total, square = (int(cells.sum()) for cells in (part.counts, part.sums, squares))
                if n * square - total**2 < (_FEWEST_STEPS * n) ** 2:
                    coarse[part.metric.name] = part.metric
    return coarse


def few_steps(low: float, high: float, metric: Metric) -> bool:
    """Return whether rounding is seen in values between these: they differ, or are so small that digits are lost.

    A single value far from 0 is the same number on the grid, to six digits.
    """
    return low < high or abs(high) * metric.scale < _FEWEST_STEPS**2


def too_coarse(metric: Metric) -> GridError:
    """Return the error of bounds so wide that values are visibly rounded, or all become one."""
    largest = max(map(abs, metric.bounds or (1.0,)))
    digits = int(math.log10(GRID_LIMIT / largest)) if largest * 100 < GRID_LIMIT else 0
    coarsest = 0.01 if digits >= 2 else 1
    finest = f", at the finest {10.0**-digits:g}" if digits > 2 else ""
    return GridError(
        f"the bounds of {metric.name!r} are so wide that its values would be rounded to steps of {metric.resolution:g}",
        f"Declare its resolution ({flag('--resolution', f'{metric.name}={coarsest}')}{finest}), or narrower bounds.",
    )


def too_fine(name: str) -> GridError:
    """Return the error of values that the finest grid would count as 0."""
    return GridError(f"values of {name!r} are finer than every grid", "Count them in a smaller unit.")


def widen_range(low: int, high: int, scale: int) -> tuple[int, int]:
    """Widen a range of grid steps at both ends to the next 1, 2 or 5 times a power of ten units.

    0 stays 0. Ends between two steps of the grid move on to the next step.
    """
    return -_rounded(-low, scale), _rounded(high, scale)


def _rounded(end: int, scale: int) -> int:
    """Return the next round number of units that is not smaller, in steps; at most the largest step of all."""
    if end == 0:
        return 0
    size = Fraction(abs(end), scale)
    power = Fraction(10) ** (len(str(size.numerator)) - len(str(size.denominator)) - 1)
    round_numbers = [power * ten * leading for ten in (1, 10, 100) for leading in (1, 2, 5)]
    if end > 0:
        return min(math.ceil(min(number for number in round_numbers if number >= size) * scale), GRID_LIMIT - 1)
    return -math.floor(max(number for number in round_numbers if number <= size) * scale)


def check_zero(metric: Metric) -> None:
    """Raise `GridError` where missing values would count as 0 but the bounds exclude 0."""
    bounds = metric.bounds
    if metric.missing == "zero" and bounds is not None and not bounds[0] <= 0 <= bounds[1]:
        raise GridError(
            f"missing values of {metric.name!r} would count as 0, outside its bounds",
            "Declare missing='exclude' for this metric, or bounds that hold 0 for a number that is adjusted for.",
        )


@dataclass(frozen=True)
class Products:
    """How products of grid values are summed in 64-bit terms without overflow.

    ``centre`` is subtracted from both factors first; ``halves`` cuts them into 26 bits each.
    """

    centre: int = 0
    halves: bool = False

    @property
    def weights(self) -> tuple[int, ...]:
        """The weight of each partial sum: high × high, the mixed ones, low × low."""
        return (HALF * HALF, HALF, 1) if self.halves else (1,)

    def total(self, parts: tuple[int, ...], people: int, added: int) -> int:
        """Return Σ r² about 0 from the partial sums, the people who have a value, and Σ r."""
        about = sum(weight * part for weight, part in zip(self.weights, parts, strict=True))
        return about + 2 * self.centre * added - people * self.centre**2


def plan_squares(low: int, high: int) -> Products:
    """Return the cheapest exact way to add squares of grid values between two others."""
    if max(-low, high) ** 2 < _LARGEST:
        return Products()
    centre = (low + high) // 2
    if max(centre - low, high - centre) ** 2 < _LARGEST:
        return Products(centre)
    return Products(halves=True)


def plan_products(first: tuple[int, int], second: tuple[int, int]) -> Products:
    """Return the cheapest exact way to add products of two metrics with these ranges."""
    largest = max(-first[0], first[1]) * max(-second[0], second[1])
    return Products(halves=largest >= _LARGEST)
