"""Count metrics in an engine: the column as whole grid steps, what is summed of it, and the sums read back.

Steps are those of ``grid_steps``, as 64-bit integers, clamped to the bounds. The quick form leaves out
what most data do not need (missing as NaN, clamping) and checks afterwards that it was not needed; the
careful form leaves out nothing.

Doubles add whole numbers exactly, in any order, while no partial sum reaches 2^53. Squares only
grow as they are added, and Σ |r| is at most Σ r²: so a sum of squares below 2^53 proves that it and
the sum beside it are exact. That is much quicker than 128-bit integers, wherever it is enough.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import ibis

from kanab.counting.engine.dialects import Engine
from kanab.counting.engine.group_keys import Kind, only_where
from kanab.counting.grids import HALF, Products, Profile, check_range, choose_metric, plan_squares, widen_range
from kanab.errors import SourceError
from kanab.plan.model import MetricPlan
from kanab.tally.metric import DOUBLE_LIMIT, GRID_LIMIT, Metric
from kanab.tally.metric import grid_steps as steps_in_memory

Ends = tuple[float | None, float | None]
_QUICK_LIMIT = 1 << 30  # sampled steps below this leave room for others whose squares still fit
_PEOPLE_IN_DOUBLES = 20_000_000  # people of one signature whose squares, if like the sample's, doubles shall hold


@ibis.udf.scalar.builtin(name="floor")  # type: ignore[untyped-decorator]
def floor(value: float) -> float:  # type: ignore[empty-body]
    """Return FLOOR as a double; Ibis' own casts to an integer, which infinities and NaN cannot pass."""


def grid_steps(value: Any, scale: int) -> Any:
    """Return the whole grid steps of a number column, not yet clamped, as doubles."""
    return floor(value.cast("float64") * float(scale) + 0.5)


def product_terms(first: Any, second: Any, products: Products) -> tuple[Any, ...]:
    """Return the terms whose sums give Σ of a product: 64-bit integers, never wider."""
    first, second = first.cast("int64"), second.cast("int64")
    if products.centre:
        first, second = first - products.centre, second - products.centre
    if not products.halves:
        return (first * second,)
    (y1, y0), (z1, z0) = _halves(first), _halves(second)
    return y1 * z1, y1 * z0 + y0 * z1, y0 * z0


def _halves(steps: Any) -> tuple[Any, Any]:
    high = floor(steps.cast("float64") / float(HALF)).cast("int64")  # exact: steps have 52 bits
    return high, steps - high * HALF


@dataclass(frozen=True)
class Measure:
    """One metric as it will be summed.

    ``profile`` is what is known of the values beforehand. Counting checks that everybody's keep
    ``limits``, where there are any, and lie on the grid (``fits``); it looks up the ``open_ends`` of
    their range, in steps or, where the grid depends on it (``implied``), in units.
    ``doubles``: squares are added as doubles, and so are steps that are not the column's own integers. ``commonest`` is
    the value that most people of a sample share; ``asked`` where a rule asks how far everybody is off it.
    """

    place: int
    metric: Metric
    kind: Kind
    products: Products | None
    careful: bool
    profile: Profile
    limits: Ends = (None, None)
    open_ends: tuple[str, ...] = ()
    implied: bool = False
    fits: bool = False
    doubles: bool = False
    commonest: int = 0
    asked: bool = False

    @property
    def name(self) -> str:
        """The column's name, which is the metric's."""
        return self.metric.name

    @property
    def leaves_out(self) -> bool:
        """Whether people without a value are left out of this metric, which then has its own counts."""
        return self.metric.missing == "exclude"

    @property
    def whole(self) -> bool:
        """Whether the column's integers may be the steps as they are."""
        return self.kind in ("whole", "truth") and self.metric.scale == 1

    @property
    def as_is(self) -> bool:
        """Whether the column's integers are the steps, without a check."""
        return self.whole and not self.careful

    def value(self, table: Any, inside: Any) -> Any:
        """Return the column as a number; in the careful form NaN is missing, and so is who is in no experiment."""
        value = as_number(table[self.name], self.kind, careful=self.careful)
        return only_where(inside, value) if self.careful else value

    def steps(self, value: Any) -> Any:
        """Return unclamped grid steps of a number: an integer, or a double with a whole value."""
        if self.whole:
            return value.cast("int64")
        steps = grid_steps(value, self.metric.scale)
        return steps if self.careful or self.doubles else steps.cast("int64")

    def clamped(self, steps: Any) -> Any:
        """Return steps within the bounds, as 64-bit integers."""
        bounds = self.metric.grid_bounds
        if not self.careful or bounds is None:
            return steps.cast("int64")
        low, high = (ibis.literal(bound if self.whole else float(bound), type=steps.type()) for bound in bounds)
        return ibis.cases((steps > high, high), (steps < low, low), else_=steps).cast("int64")

    def checks(self, value: Any, raw: Any) -> dict[str, Any]:
        """Return the range of the values, and how many were clamped, where these are needed."""
        if self.careful and self.metric.grid_bounds is not None:
            low, high = self.metric.grid_bounds
            beyond = (raw < low) | (raw > high)
            return {"cl": beyond.cast("int32").sum(), "lo": value.min(), "hi": value.max()}
        if self.implied:
            return {end: value.min() if end == "lo" else value.max() for end in self.open_ends}
        return {end: self.smallest(raw) if end == "lo" else self.largest(raw) for end in self.open_ends}

    def proofs(self, value: Any, raw: Any) -> Iterator[Any]:
        """Yield conditions that everybody must meet for the quick form to be enough."""
        low, high = self.limits
        whole = self.kind in ("whole", "truth")
        if low is not None and high is not None:
            yield value.between(math.ceil(low), math.floor(high)) if whole else value.between(low, high)
        elif low is not None:
            yield value >= (math.ceil(low) if whole else low)
        elif high is not None:
            yield value <= (math.floor(high) if whole else high)
        if self.fits:
            yield raw.cast("float64") / float(self.metric.scale) == value

    def sums(self, steps: Any, engine: Engine) -> dict[str, Any]:
        """Return the exact sum of everybody's steps, and the terms of that of their squares."""
        in_doubles = self.doubles and not self.as_is
        total = steps.cast("float64").sum().cast("int64") if in_doubles else engine.total(steps)
        squares: tuple[Any, ...] = ()
        if self.products is not None and self.doubles:
            squares = (_double_squares(steps).cast("int64"),)
        elif self.products is not None:
            squares = tuple(engine.total(term) for term in product_terms(steps, steps, self.products))
        return {f"s{self.place}": total} | {f"q{self.place}_{term}": square for term, square in enumerate(squares)}

    def values_off(self, steps: Any) -> dict[str, Any]:
        """Return who is off the commonest value, and the sum of third powers of how far; nothing of 0/1.

        Where a rule asks, also how far at most, and the sum of fourth powers: two largest values cannot be asked for
        in one pass, and fourth powers bound the second one closely.
        """
        if self.metric.binary:
            return {}
        if self.commonest and not self.leaves_out:
            steps = steps.fill_null(0)  # who lacks a value that counts as 0 is off another one
        shifted = steps - self.commonest if self.commonest else steps
        double = shifted.cast("float64")
        third = {f"k{self.place}": (double * double * double).sum()}
        if not self.asked:
            return {f"o{self.place}": (shifted != 0).cast("int32").sum()} | third
        low = self.limits[0] if self.metric.grid_bounds is None else self.metric.grid_bounds[0]
        away = shifted.abs() if self.commonest or low is None or low < 0 else shifted
        signs = away.sign().cast("float64").sum().cast("int64")  # quicker in DuckDB than true and false
        return third | {
            f"o{self.place}": signs if self.doubles else (away != 0).cast("int32").sum(),
            f"m{self.place}": self.largest(away),
            f"f{self.place}": fourth_powers(away),
        }

    @property
    def sum_names(self) -> tuple[str, ...]:
        """The columns of people with a value, their sum and their squares."""
        return (f"c{self.place}", f"s{self.place}", *self.square_names)

    @property
    def square_names(self) -> tuple[str, ...]:
        """The columns whose weighted sum are the squares; none for 0/1."""
        terms = range(len(self.products.weights) if self.products else 0)
        return tuple(f"q{self.place}_{term}" for term in terms)

    @property
    def off_names(self) -> tuple[str, ...]:
        """The columns from which it is known how far people are off the commonest value."""
        if not self.asked:
            return ()
        own = () if self.metric.binary else tuple(f"{word}{self.place}" for word in "omf")
        return (*self.sum_names, *own)

    @property
    def known_ends(self) -> tuple[int, int] | None:
        """The steps between which everybody's values are known to lie before they are counted, if any are."""
        if self.metric.grid_bounds is not None:
            return self.metric.grid_bounds
        if self.careful:
            return step_range(self.metric, self.profile)
        low, high = self.limits
        if low is None or high is None:
            return None
        return math.ceil(low * self.metric.scale), math.floor(high * self.metric.scale)

    def smallest(self, steps: Any) -> Any:
        """Return the smallest step."""
        return steps.cast("int64").min()

    def largest(self, steps: Any) -> Any:
        """Return the largest step; doubles are compared slowly."""
        return steps.cast("int64").max()

    def exact(self, steps: Any) -> Iterator[Any]:
        """Yield conditions on the sums without which doubles were not enough."""
        if self.doubles and self.products is not None:
            yield _double_squares(steps) < float(DOUBLE_LIMIT)


@dataclass(frozen=True)
class SampledMetric:
    """The profile of a metric in a sample, the mean of its squares, and which of its ends are steady.

    Where many values lie near the smallest (or the largest), those of everybody else will hardly
    be far beyond; a long tail goes on.
    """

    profile: Profile
    mean_square: float = 0.0
    steady: tuple[bool, bool] = (True, True)


def as_number(column: Any, kind: Kind, *, careful: bool) -> Any:
    """Return a column as integers or doubles; carefully, NaN is missing."""
    if kind == "truth":
        return column.cast("int32")  # PostgreSQL casts true/false to nothing wider
    if kind == "whole":
        return column
    value = column.cast("float64")
    return ibis.ifelse(value.isnan(), ibis.null("float64"), value) if careful else value


def quick_measure(place: int, plan: MetricPlan, kind: Kind, sample: SampledMetric, engine: Engine) -> Measure | None:
    """Return the quick form, or None where a sample shows that it would not be enough."""
    profile = sample.profile
    if not (math.isfinite(profile.low) and math.isfinite(profile.high)):
        return None
    metric = choose_metric(plan, profile)
    low, high = step_range(metric, profile)
    bounds = metric.grid_bounds
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        return None
    if bounds is None and max(-low, high) >= _QUICK_LIMIT:
        return None
    products = None if metric.binary else plan_squares(*(bounds or (0, 1)))
    squares = sample.mean_square * metric.scale**2 * _PEOPLE_IN_DOUBLES
    doubles = engine.adds_doubles and products in (None, Products()) and squares < DOUBLE_LIMIT
    chosen = Measure(place, metric, kind, products, False, profile, doubles=doubles)
    declared = plan.declared or plan.resolution is not None
    if metric.bounds is not None:
        limits: Ends = (None, None) if kind == "truth" and metric.binary else metric.bounds
        return replace(chosen, limits=limits, fits=kind == "number" and not declared)
    implied = not (declared or profile.whole or profile.decimal is not None)
    ends = [end / metric.scale for end in widen_range(low, high, metric.scale)]
    known = [end if steady else None for end, steady in zip(ends, sample.steady, strict=True)]
    if implied and (None in known or choose_metric(plan, replace(profile, low=ends[0], high=ends[1])) != metric):
        known = [None, None]
    open_ends = tuple(word for word, end in zip(("lo", "hi"), known, strict=True) if end is None)
    fits = kind == "number" and not (declared or implied)
    return replace(chosen, limits=(known[0], known[1]), open_ends=open_ends, implied=implied, fits=fits)


def careful_measure(place: int, plan: MetricPlan, kind: Kind, profile: Profile) -> Measure:
    """Return the careful form, for values that were profiled as a whole."""
    if not plan.declared:
        check_finite(plan.name, profile.low, profile.high)
    metric = choose_metric(plan, profile)
    check_range(metric, profile)
    bounds = metric.grid_bounds or step_range(metric, profile)
    products = None if metric.binary else plan_squares(*bounds)
    return Measure(place, metric, kind, products, True, profile)


def step_range(metric: Metric, profile: Profile) -> tuple[int, int]:
    """Return the smallest and the largest grid step of profiled values."""
    low, high = (steps_in_memory(value, metric.scale) for value in (profile.low, profile.high))
    if not (math.isfinite(low) and math.isfinite(high)):
        return -GRID_LIMIT, GRID_LIMIT
    return int(low), int(high)


def check_finite(name: str, low: float, high: float) -> None:
    """Raise `SourceError` for infinite values, as every other source does."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise SourceError(f"metric {name!r} holds infinite values", "Remove them or declare them missing.")


def fourth_powers(numbers: Any) -> Any:
    """Return the sum of fourth powers, as doubles."""
    double = numbers.cast("float64")
    squares = double * double
    return (squares * squares).sum()


def _double_squares(steps: Any) -> Any:
    double = steps.cast("float64")
    return (double * double).sum()


def range_fits(measure: Measure, plan: MetricPlan, low: str | None, high: str | None) -> bool:
    """Return whether the range of everybody's values fits what was assumed; raise `SourceError` for infinite ones."""
    if low is None and high is None:
        return True
    if measure.careful:
        check_finite(measure.name, float(low or 0), float(high or 0))
        return True
    seen = _seen(measure, low, high)
    if not (math.isfinite(seen.low) and math.isfinite(seen.high)) or choose_metric(plan, seen) != measure.metric:
        return False
    check_range(measure.metric, seen)
    return True


def _seen(measure: Measure, low: str | None, high: str | None) -> Profile:
    steps = 1 if measure.implied else measure.metric.scale
    ends: dict[str, Any] = {
        end: float(text) / steps for end, text in (("low", low), ("high", high)) if text is not None
    }
    return replace(measure.profile, **ends)


def open_range(measure: Measure, low: str | None, high: str | None, *, missing: bool) -> tuple[int, int]:
    """Return the range of a metric without bounds, widened; missing values that count as 0 are in it.

    Where everybody's values were only checked against the widened range of a sample, it is also theirs.
    """
    ends = step_range(measure.metric, _seen(measure, low, high))
    zero = (0,) if missing and measure.metric.missing == "zero" else ()
    return widen_range(min(*ends, *zero), max(*ends, *zero), measure.metric.scale)
