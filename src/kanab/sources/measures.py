"""Metrics in an engine: the column as whole grid steps, what is summed of it, and the sums read back.

The same rule everywhere: to DOUBLE, times the steps per unit, plus one half, floor, to a 64-bit
integer, clamped to the bounds. The quick form leaves out what most data do not need (missing as
NaN, clamping) and checks afterwards that it was not needed; the careful form leaves out nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import ibis

from kanab.errors import SourceError
from kanab.metric import GRID_LIMIT, Metric
from kanab.plan import MetricPlan, Plan
from kanab.sources.grids import HALF, Products, Profile, check_range, chosen_metric, square_plan
from kanab.sources.keys import Kind

Check = Literal["nothing", "bounds", "range"]
_QUICK_LIMIT = 1 << 30  # sampled steps below this leave room for others whose squares still fit


@ibis.udf.scalar.builtin(name="floor")  # type: ignore[untyped-decorator]
def floor(value: float) -> float:  # type: ignore[empty-body]
    """FLOOR as a double; Ibis' own casts to an integer, which infinities and NaN cannot pass."""


@dataclass(frozen=True)
class Measure:
    """One metric as it will be summed.

    ``check`` says what has to be seen of everybody's values: that they keep the bounds, or their
    range; ``fits``: that they lie on the grid.
    """

    place: int
    metric: Metric
    kind: Kind
    products: Products | None
    careful: bool
    check: Check = "nothing"
    fits: bool = False

    @property
    def name(self) -> str:
        """The column's name, which is the metric's."""
        return self.metric.name

    @property
    def leaves_out(self) -> bool:
        """Are people without a value left out of this metric, which then has its own counts?"""
        return self.metric.missing == "exclude"

    @property
    def whole(self) -> bool:
        """May the column's integers be the steps as they are?"""
        return self.kind in ("whole", "truth") and self.metric.scale == 1

    @property
    def as_is(self) -> bool:
        """Are the column's integers the steps, without a further look?"""
        return self.whole and not self.careful

    def value(self, table: Any, inside: Any) -> Any:
        """The column as a number; in the careful form NaN is missing, and so is who is in no experiment."""
        found = number(table[self.name], self.kind, careful=self.careful)
        return ibis.ifelse(inside, found, ibis.null(found.type())) if self.careful else found

    def steps(self, value: Any) -> Any:
        """Unclamped grid steps of a number: an integer, or a double with a whole value."""
        if self.whole:
            return value.cast("int64")
        scaled = value.cast("float64") * float(self.metric.scale) + 0.5
        return floor(scaled) if self.careful else scaled.floor().cast("int64")

    def clamped(self, steps: Any) -> Any:
        """Steps within the bounds, as 64-bit integers."""
        bounds = self.metric.grid_bounds
        if not self.careful or bounds is None:
            return steps.cast("int64")
        low, high = (ibis.literal(bound if self.whole else float(bound), type=steps.type()) for bound in bounds)
        return ibis.cases((steps > high, high), (steps < low, low), else_=steps).cast("int64")

    def checks(self, value: Any, raw: Any) -> dict[str, Any]:
        """The range of the values, and how many were clamped, where this has to be seen."""
        if self.careful and self.metric.grid_bounds is not None:
            low, high = self.metric.grid_bounds
            beyond = (raw < low) | (raw > high)
            return {"cl": beyond.cast("int32").sum(), "lo": value.min(), "hi": value.max()}
        return {"lo": value.min(), "hi": value.max()} if self.check == "range" else {}

    def proofs(self, value: Any, raw: Any) -> Iterator[Any]:
        """Conditions that everybody must meet for the quick form to be enough."""
        bounds = self.metric.bounds
        if self.check == "bounds" and bounds is not None and not (self.kind == "truth" and self.metric.binary):
            whole = self.kind in ("whole", "truth")
            low, high = (math.ceil(bounds[0]), math.floor(bounds[1])) if whole else bounds
            yield value.between(low, high)
        if self.fits:
            yield raw.cast("float64") / float(self.metric.scale) == value


def measured(plan: Plan) -> list[MetricPlan]:
    """The metrics that are columns; a ratio is computed from two of them."""
    return [metric for metric in plan.metrics if metric.ratio is None]


def number(column: Any, kind: Kind, *, careful: bool) -> Any:
    """A column as integers or doubles; carefully, NaN is missing."""
    if kind == "truth":
        return column.cast("int32")  # PostgreSQL casts true/false to nothing wider
    if kind == "whole":
        return column
    value = column.cast("float64")
    return ibis.ifelse(value.isnan(), ibis.null("float64"), value) if careful else value


def quick_measure(place: int, plan: MetricPlan, kind: Kind, sample: Profile) -> Measure | None:
    """The quick form where a sample of the people gives hope for it."""
    if not (math.isfinite(sample.low) and math.isfinite(sample.high)):
        return None
    metric = chosen_metric(plan, sample)
    low, high = step_range(metric, sample)
    bounds = metric.grid_bounds
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        return None
    if bounds is None and max(-low, high) >= _QUICK_LIMIT:
        return None
    products = None if metric.binary else square_plan(*(bounds or (0, 1)))
    if plan.declared or plan.resolution is not None:
        return Measure(place, metric, kind, products, False, "nothing" if bounds is None else "bounds")
    if metric.binary:
        return Measure(place, metric, kind, products, False, "bounds", kind == "number")
    implied = not sample.whole and sample.decimal is None
    check: Check = "range" if implied else "nothing"
    return Measure(place, metric, kind, products, False, check, kind == "number" and not implied)


def careful_measure(place: int, plan: MetricPlan, kind: Kind, profile: Profile) -> Measure:
    """The careful form, for everything that was profiled as a whole."""
    if not plan.declared:
        check_finite(plan.name, profile.low, profile.high)
    metric = chosen_metric(plan, profile)
    check_range(metric, profile)
    bounds = metric.grid_bounds or step_range(metric, profile)
    products = None if metric.binary else square_plan(*bounds)
    return Measure(place, metric, kind, products, True)


def step_range(metric: Metric, profile: Profile) -> tuple[int, int]:
    """The smallest and the largest grid step of profiled values."""
    low, high = (value * float(metric.scale) + 0.5 for value in (profile.low, profile.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        return -GRID_LIMIT, GRID_LIMIT
    return math.floor(low), math.floor(high)


def check_finite(name: str, low: float, high: float) -> None:
    """Refuse infinite values, as every other source does."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SourceError(f"metric {name!r} holds infinite values", "Remove them or declare them missing.")


def product_terms(first: Any, second: Any, products: Products) -> tuple[Any, ...]:
    """The terms whose sums give Σ of a product: 64-bit integers, never wider."""
    first, second = first.cast("int64"), second.cast("int64")
    if products.centre:
        first, second = first - products.centre, second - products.centre
    if not products.halves:
        return (first * second,)
    (y1, y0), (z1, z0) = _halves(first), _halves(second)
    return y1 * z1, y1 * z0 + y0 * z1, y0 * z0


def _halves(steps: Any) -> tuple[Any, Any]:
    high = (steps.cast("float64") / float(HALF)).floor().cast("int64")  # exact: steps have 52 bits
    return high, steps - high * HALF


def was_enough(measure: Measure, plan: MetricPlan, low: str | None, high: str | None) -> bool:
    """Does the range that was seen fit what was assumed? Infinite values are refused."""
    if low is None or high is None:
        return True
    ends = float(low), float(high)
    if measure.careful:
        check_finite(measure.name, *ends)
        return True
    seen = Profile(*ends, whole=False)
    if not all(map(math.isfinite, ends)) or chosen_metric(plan, seen) != measure.metric:
        return False
    check_range(measure.metric, seen)
    return True
