"""What one table tells about single values: rules for sensitive metrics and for squares by class, and information.

How closely the largest value of a class can be inferred is told; it withholds only where squares are kept by class.

The closed forms are tight, for n ≥ 2 people with sum S, squares Q and values from ``low`` to ``high``, in grid steps.
``q`` are the two ends between which Q lies. A bound of None is the edge of the grid. Nothing is rounded before the last
step, so that an interval is never wider than what is known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kanab.plan.model import MetricPlan
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.metric import GRID_LIMIT
from kanab.tally.moments import By, Moments, least_squares
from kanab.tally.tally import Tally

Bound = int | None
ROUNDS = 4
"""How often marginals of squares narrow each other; two are exact for tables of one or two arms."""

_root = np.frompyfunc(math.isqrt, 1, 1)

Rule = Literal["interval", "homogeneous", "sensitive", "events"]
Mask = NDArray[np.bool_]
Bounds = tuple[Bound, Bound]

NARROW = 4
"""An interval is too narrow below a quarter (1 ÷ this) of the distance between its outer end and the mean."""

MEANING: Mapping[Rule, str] = {
    "interval": "the largest or the smallest value of a class can be inferred closely",
    "homogeneous": "everyone of a class has the same value, and it is not a bound",
    "sensitive": "everyone of a class has the value that is marked sensitive",
    "events": "a class has fewer than {least} people with it, or without it",
}
"""What each rule forbids, in words; ``least`` is what a metric asks for."""

REMEDY = "Its sums by class are withheld in this table; arm totals stay."


@dataclass(frozen=True)
class Broken:
    """A rule that a metric breaks, and in how many classes; of events, ``least`` people are asked for on both sides."""

    table: str
    metric: str
    rule: Rule
    classes: int
    least: int = 1

    @property
    def meaning(self) -> str:
        """What the rule forbids."""
        return MEANING[self.rule].format(least=self.least)


@dataclass(frozen=True)
class Worst:
    """The narrowest interval: its width as a share of the distance between its outer end and the mean."""

    table: str
    metric: str
    ratio: float


@dataclass(frozen=True)
class Audit:
    """The result of auditing tables; in ``homogeneous`` classes everyone has the same value of a metric."""

    broken: tuple[Broken, ...] = ()
    homogeneous: int = 0
    worst: Worst | None = None

    @property
    def passed(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    def __add__(self, other: Audit) -> Audit:
        narrowest = [worst for worst in (self.worst, other.worst) if worst]
        return Audit(
            self.broken + other.broken,
            self.homogeneous + other.homogeneous,
            min(narrowest, key=lambda worst: worst.ratio, default=None),
        )


def audit_table(
    name: str,
    tally: Tally,
    plans: Mapping[str, MetricPlan],
    *,
    k: int = 1,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    whole: Tally | None = None,
) -> Audit:
    """Apply every rule to every metric of a table as it would be published.

    So many as ``k`` people have a sensitive value, and lack it, unless its plan says otherwise. ``ranges`` are the
    grid bounds of metrics that declare none. ``whole`` is the table with the metrics that are withheld: they tell who
    has a value of the others, too.
    """
    audit = Audit()
    for part in tally.moments:
        metric = part.metric.name
        plan = plans.get(metric, MetricPlan(metric))
        if part.metric.binary:  # its largest value is known anyway, so only classes where all are alike count
            alike = (part.counts > 0) & ((part.sums == 0) | (part.sums == part.counts))
            rules: dict[Rule, int] = {"sensitive": _all_sensitive(part, plan, (0, 1))}
            homogeneous, ratio = int(alike.sum()), None
        else:
            bounds = known_bounds(part, tally.axes, (ranges or {}).get(metric))
            rules, homogeneous, ratio = _judge(*_on_coarsest_grid(part, bounds), tally, plan)
        least = plan.events(k)
        people_with = {other.metric.name: other.sums for other in (whole or tally).moments if other.metric.binary}
        having = part.sums if part.metric.binary else people_with.get(plan.of or "")
        few = 0 if having is None else int(few_events(part.counts, np.minimum(having, part.counts), least).sum())
        rules = {"events": few, **rules}
        broken = [Broken(name, metric, rule, classes, least=least) for rule, classes in rules.items() if classes]
        audit += Audit(tuple(broken), homogeneous, None if ratio is None else Worst(name, metric, ratio))
    return audit


def _judge(part: Moments, bounds: Bounds, tally: Tally, plan: MetricPlan) -> tuple[dict[Rule, int], int, float | None]:
    """Return in how many classes an amount or a count of things breaks each rule, and in how many all are alike."""
    axes = tally.axes
    intervals = _intervals(part, axes, bounds)
    narrow, ratio = _narrow(intervals, bounds)
    low, high = edges(*bounds)
    alike = intervals.alike & (part.sums != low * part.counts) & (part.sums != high * part.counts)
    by_class, sensitive = axes in part.squares and len(axes) > 1, plan.sensitive != "no"
    broken: dict[Rule, int] = {
        "interval": int(narrow.sum()) if by_class else 0,
        "homogeneous": int(alike.sum()) if sensitive or by_class else 0,
        "sensitive": _all_sensitive(part, plan, bounds),
    }
    ratios = [ratio]
    for by, squares in part.squares.items():
        if by != axes:
            whole = Moments(part.metric, marginal(part.counts, axes, by), marginal(part.sums, axes, by), {by: squares})
            ratios.append(_narrow(_intervals(whole, by, bounds), bounds)[1])
    narrowest = min((ratio for ratio in ratios if ratio is not None), default=None)
    return broken, int(intervals.alike.sum()), narrowest


def known_bounds(part: Moments, axes: By, grid_range: tuple[int, int] | None = None) -> Bounds:
    """Return the bounds that a reader knows; without any, values are taken to be all of one sign if they can be."""
    stated = part.metric.grid_bounds or grid_range
    if stated is not None:
        return stated
    guesses: tuple[Bounds, ...] = ((0, None), (None, 0))
    return next((guess for guess in guesses if _fits(part, axes, guess)), (None, None))


def _fits(part: Moments, axes: By, bounds: Bounds) -> bool:
    """Return whether values within these bounds could have these sums and squares."""
    low, high = edges(*bounds)
    if not np.all((part.sums >= low * part.counts) & (part.sums <= high * part.counts)):
        return False
    most = most_squares(part.counts, part.sums, low, high)
    return all(bool(np.all(cells <= marginal(most, axes, by))) for by, cells in part.squares.items())


def _on_coarsest_grid(part: Moments, bounds: Bounds) -> tuple[Moments, Bounds]:
    """Put a metric on the coarsest grid that sums, squares and bounds lie on: anybody can see that values are whole."""
    low, high = bounds
    step = math.gcd(part.metric.scale, low or 0, high or 0, *part.sums.ravel().tolist())
    if step == 1 or any(bool(np.any(cells % step**2)) for cells in part.squares.values()):
        return part, bounds
    squares = {by: cells // step**2 for by, cells in part.squares.items()}
    coarse = replace(part.metric, scale=part.metric.scale // step, bounds=None)
    return (
        Moments(coarse, part.counts, part.sums // step, squares),
        (None if low is None else low // step, None if high is None else high // step),
    )


# ── closed forms and intervals ─────────────────────────────────────────────────────────────────


def edges(low: Bound, high: Bound) -> tuple[int, int]:
    """Return bounds, or the edges of the grid where there are none."""
    return -GRID_LIMIT if low is None else low, GRID_LIMIT if high is None else high


def most_squares(n: Any, s: Any, low: int, high: int) -> Any:
    """Return the greatest Σ y² within bounds: as many at ``high`` as can be, one between, the rest at ``low``."""
    above, width = s - n * low, max(1, high - low)
    full = above // width
    return full * width**2 + (above - full * width) ** 2 + 2 * low * s - n * low**2


def class_squares(part: Moments, axes: By, low: Bound, high: Bound) -> tuple[Cells, Cells]:
    """Return the two ends between which every class's squares lie: marginals less what the others can have."""
    if part.metric.binary:
        return part.sums, part.sums
    least = least_squares(part.counts, part.sums)
    most = most_squares(part.counts, part.sums, *edges(low, high))
    most = np.where(part.counts < 2, least, np.maximum(least, most))
    for _ in range(ROUNDS):
        before = least, most
        for by, total in part.squares.items():
            greatest = to_classes(total - marginal(least, axes, by), axes, by) + least
            smallest_ = to_classes(total - marginal(most, axes, by), axes, by) + most
            least, most = np.maximum(least, smallest_), np.minimum(most, greatest)
        if len(part.squares) == 1 or all(bool(np.all(a == b)) for a, b in zip(before, (least, most), strict=True)):
            break
    return np.minimum(least, most), most


def to_classes(cells: Cells, axes: By, by: By) -> Cells:
    """Shape a marginal's cells so that every class meets its own."""
    return np.expand_dims(cells, tuple(place for place, axis in enumerate(axes) if axis not in by))


Extremes = tuple[tuple[Cells, Cells], tuple[Cells, Cells]]
"""The intervals of the smallest and of the largest value of every class."""


def extremes_on_grid(n: Cells, s: Cells, q: tuple[Cells, Cells], low: Bound, high: Bound) -> Extremes:
    """Return the intervals of the smallest and of the largest value: the smallest is the largest in a mirror."""
    low, high = edges(low, high)
    sides = (2, *(1 for _ in n.shape))
    lows, highs = (np.array(ends, dtype=n.dtype).reshape(sides) for ends in ((-high, low), (-low, high)))
    bottom, top = _largest(n, np.stack([-s, s]), q, lows, highs)
    return (-top[0], -bottom[0]), (bottom[1], top[1])


def _largest(n: Cells, s: Cells, q: tuple[Cells, Cells], low: Cells, high: Cells) -> tuple[Cells, Cells]:
    """Return the interval of the largest value of every class.

    The least is reached by j people at it, one below and the rest at ``low``; the greatest by one
    person at it and all others alike. That values are whole numbers of steps is used twice: both
    ends are cut to the grid, and since (y − m)(y − m − 1) ≥ 0 for every whole y, with m the mean
    rounded down, nobody is farther from m than the excess of Q over its least value allows.
    """
    least, most = q
    above, squares = s - n * low, least - 2 * low * s + n * low**2
    j = np.maximum(1, np.minimum(n - 1, above**2 // np.maximum(squares, 1)))
    below = -(np.minimum(0, above**2 - (j + 1) * squares) // j)
    root = _root(below)
    root = root + (root**2 < below)
    bottom = low - (-(above + root) // (j + 1))
    reach = _root(np.maximum(0, (n - 1) * (n * most - s**2)))
    excess = np.maximum(0, most - least_squares(n, s))
    top = np.minimum((s + reach) // n, s // n + (1 + _root(1 + 4 * excess)) // 2)
    top = np.minimum(top, high)
    return np.minimum(bottom, top), top


@dataclass(frozen=True, eq=False)
class _Intervals:
    """The intervals of the smallest and the largest value of every class."""

    part: Moments
    smallest: tuple[Cells, Cells]
    largest: tuple[Cells, Cells]

    @property
    def alike(self) -> Mask:
        """The classes in which everyone must have the same value."""
        n = self.part.counts
        alike: Mask = (n == 1) | (n > 1) & (self.largest[1] == self.smallest[0])
        return alike


def _intervals(part: Moments, axes: By, bounds: Bounds) -> _Intervals:
    low, high = bounds
    if low is not None and high is None:
        bounds = low, low + 1 + int((part.sums - low * part.counts).max())  # nobody has more than the sum of all
    n = np.maximum(part.counts, 2)  # what this makes of smaller classes is not looked at
    q = class_squares(part, axes, *bounds)
    return _Intervals(part, *extremes_on_grid(n, part.sums, q, *bounds))


def _narrow(intervals: _Intervals, bounds: Bounds) -> tuple[Mask, float | None]:
    """Return where too little is left to guess about an extreme, and the least that is left, as a share.

    An extreme that is known to sit at its bound says no more than that somebody reached it. A class
    whose values are all within a step of one bound says no more than a 0/1 metric, for which there
    is no such rule.
    """
    low, high = edges(*bounds)
    n, s = intervals.part.counts, intervals.part.sums
    (bottom_low, bottom_high), (top_low, top_high) = intervals.smallest, intervals.largest
    narrow, ratios = np.zeros(n.shape, dtype=bool), []
    for width, outer, harmless in (
        (n * (top_high - top_low), n * top_high - s, (top_low >= high) | (top_high <= low + 1)),
        (n * (bottom_high - bottom_low), s - n * bottom_low, (bottom_high <= low) | (bottom_low >= high - 1)),
    ):
        judged = (n > 1) & (outer > 0) & ~harmless
        narrow |= judged & (NARROW * width < outer)
        ratios += [float(x) for x in (width[judged] / outer[judged])]
    return narrow, min(ratios, default=None)


# ── other rules ────────────────────────────────────────────────────────────────────────────────


def _all_sensitive(part: Moments, plan: MetricPlan, bounds: Bounds) -> int:
    """Count the classes in which everyone has the greatest value of a sensitive metric, or, if both are, the least."""
    low, high = edges(*bounds)
    everyone = part.sums == high * part.counts
    nobody_has = part.sums == low * part.counts
    marked: Mask = {"no": everyone & False, "yes": everyone, "both": everyone | nobody_has}[plan.sensitive]
    return int((marked & (part.counts > 0)).sum())


def few_events(people: Cells, having: Cells, least: int) -> Mask:
    """Return the classes where some people, but fewer than so many, have something, or lack it."""
    lacking = people - having
    few: Mask = (having > 0) & (having < least) | (lacking > 0) & (lacking < least)
    return few
