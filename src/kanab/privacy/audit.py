"""Could somebody who reads one table infer a single person's value? The rules of the audit, applied to it.

A rule has to be one that real tables pass: it compares what is left to guess about an extreme value
with how far it is from the mean. Texts name rules and remedies, never a count or a value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kanab.counted import LargestValues
from kanab.plan.model import MetricPlan
from kanab.privacy.enumeration import enumerate_classes
from kanab.privacy.inference import (
    Bound,
    class_squares,
    edges,
    in_machine_words,
    largest_on_grid,
    most_squares,
    smallest_on_grid,
)
from kanab.tally.cells import Cells, marginal
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments
from kanab.tally.tally import Tally

Rule = Literal["interval", "homogeneous", "sensitive", "contributors", "dominance"]
Mask = NDArray[np.bool_]
Bounds = tuple[Bound, Bound]

NARROW = 4
"""An interval is too narrow below a quarter (1 ÷ this) of the distance between its outer end and the mean."""
LEAST_CONTRIBUTORS = 3
COARSE = 100
"""Bounds with at most so many steps between them make a metric one of whole numbers, whatever a step is."""

MEANING: Mapping[Rule, str] = {
    "interval": "the largest or the smallest value of a class can be inferred closely",
    "homogeneous": "everyone of a class has the same value, and it is not a bound",
    "sensitive": "everyone of a class has the value that is marked sensitive",
    "contributors": f"a class has fewer than {LEAST_CONTRIBUTORS} people with a value that is not zero",
    "dominance": "one or two people make up nearly all of the sum of a class",
}
"""What is broken, in words."""

REMEDY = "Its sums by class are withheld in this table; arm totals stay."


@dataclass(frozen=True)
class Broken:
    """A rule that a metric breaks in a table: in how many classes or margins of them, and what is done about it."""

    table: str
    metric: str
    rule: Rule
    classes: int
    remedy: str = REMEDY

    @property
    def sentence(self) -> str:
        """For people: no count, no value.

        >>> Broken("checkout/tier", "spend", "dominance", 2).sentence
        'spend in checkout/tier: one or two people make up nearly all of the sum of a class'
        """
        return f"{self.metric} in {self.table}: {MEANING[self.rule]}"


@dataclass(frozen=True)
class Worst:
    """The narrowest interval: its width as a share of the distance between its outer end and the mean."""

    table: str
    metric: str
    ratio: float


@dataclass(frozen=True)
class Audit:
    """What the audit of one or more tables found.

    ``homogeneous`` counts classes in which everyone has the same value of a metric, ``not_enumerated``
    those of whole-number metrics that were too much work to enumerate: for them the closed forms hold.
    """

    broken: tuple[Broken, ...] = ()
    homogeneous: int = 0
    not_enumerated: int = 0
    worst: Worst | None = None

    @property
    def passed(self) -> bool:
        """Is no rule broken?"""
        return not self.broken

    def __add__(self, other: Audit) -> Audit:
        found = [worst for worst in (self.worst, other.worst) if worst]
        return Audit(
            self.broken + other.broken,
            self.homogeneous + other.homogeneous,
            self.not_enumerated + other.not_enumerated,
            min(found, key=lambda worst: worst.ratio, default=None),
        )


def audit_table(
    name: str,
    tally: Tally,
    plans: Mapping[str, MetricPlan],
    *,
    ranges: Mapping[str, tuple[int, int]] | None = None,
    largest: Mapping[str, LargestValues] | None = None,
) -> Audit:
    """Apply every rule to every metric of a table as it would be published.

    ``ranges`` are the grid bounds of metrics that declare none, ``largest`` the largest values of
    the same classes, where they are known.

    >>> from kanab.datasets import eighteen
    >>> audit_table("treatment/tier", eighteen(), {}).passed
    True
    """
    found = Audit()
    for part in tally.moments:
        metric = part.metric.name
        plan = plans.get(metric, MetricPlan(metric))
        if part.metric.binary:
            judged = _judge_binary(part, plan)
        else:
            bounds = _bounds(part, tally.axes, (ranges or {}).get(metric))
            judged = _judge(*_on_coarsest_grid(part, bounds), tally, plan)
            if metric in (largest or {}):
                dominated = _dominated((largest or {})[metric])
                judged = replace(judged, broken={**judged.broken, "dominance": dominated})
        found += judged.audit(name, metric)
    return found


@dataclass(frozen=True)
class _Judged:
    """In how many classes a metric breaks which rule."""

    broken: Mapping[Rule, int]
    homogeneous: int
    not_enumerated: int = 0
    ratio: float | None = None

    def audit(self, table: str, metric: str) -> Audit:
        broken = [Broken(table, metric, rule, classes) for rule, classes in self.broken.items() if classes]
        worst = None if self.ratio is None else Worst(table, metric, self.ratio)
        return Audit(tuple(broken), self.homogeneous, self.not_enumerated, worst)


def _judge_binary(part: Moments, plan: MetricPlan) -> _Judged:
    """Of a 0/1 metric every class knows its largest value, so only classes of one kind count."""
    homogeneous = (part.counts > 0) & ((part.sums == 0) | (part.sums == part.counts))
    return _Judged({"sensitive": _all_sensitive(part, plan, (0, 1))}, int(homogeneous.sum()))


def _judge(part: Moments, bounds: Bounds, tally: Tally, plan: MetricPlan) -> _Judged:
    """The rules for amounts and counts of things, and intervals also of margins: their squares are known exactly."""
    axes, people = tally.axes, _contributors(part, tally, plan, bounds)
    found = _judge_classes(part, people, axes, bounds)
    broken = {**found.broken, "sensitive": _all_sensitive(part, plan, bounds)}
    ratios = [found.ratio]
    for by, squares in part.squares.items():
        if by != axes:
            whole = Moments(part.metric, marginal(part.counts, axes, by), marginal(part.sums, axes, by), {by: squares})
            margin = _judge_classes(whole, None if people is None else marginal(people, axes, by), by, bounds)
            broken["interval"] += margin.broken["interval"]
            ratios.append(margin.ratio)
    return replace(found, broken=broken, ratio=_least(ratios))


def _judge_classes(part: Moments, people: Cells | None, axes: By, bounds: Bounds) -> _Judged:
    """The rules for intervals; twice where it is known how many people have a value that is not zero."""
    known = _known(part, axes, bounds)
    narrow, ratio = _narrow(known, bounds)
    alike = known.alike & ~_at_bound(part, bounds)
    few = np.zeros(part.counts.shape, dtype=bool)
    if people is not None:
        few = (people > 0) & (people < LEAST_CONTRIBUTORS)
        own, off_zero = replace(part, counts=people), _off_zero(bounds)
        among = _known(own, axes, bounds)
        narrow_among, ratio_among = _narrow(among, off_zero)
        narrow, ratio = narrow | narrow_among & ~few, _least([ratio, ratio_among])
        alike = alike | among.alike & ~_at_bound(own, off_zero) & ~few
    broken: dict[Rule, int] = {
        "interval": int(narrow.sum()), "homogeneous": int(alike.sum()), "contributors": int(few.sum()),
    }  # fmt: skip
    return _Judged(broken, int(known.alike.sum()), known.not_enumerated, ratio)


def _least(ratios: Sequence[float | None]) -> float | None:
    return min((ratio for ratio in ratios if ratio is not None), default=None)


def _bounds(part: Moments, axes: By, known: tuple[int, int] | None) -> Bounds:
    """The bounds that a reader knows; if nobody stated any, values are taken to be all of one sign if they can be.

    A reader would guess as much of an amount or a count, and less would be inferred without it.
    """
    stated = part.metric.grid_bounds or known
    if stated is not None:
        return stated
    guesses: tuple[Bounds, ...] = ((0, None), (None, 0))
    return next((guess for guess in guesses if _fits(part, axes, guess)), (None, None))


def _fits(part: Moments, axes: By, bounds: Bounds) -> bool:
    """Could values within these bounds have these sums and squares?"""
    low, high = edges(*bounds)
    if not np.all((part.sums >= low * part.counts) & (part.sums <= high * part.counts)):
        return False
    most = most_squares(part.counts, part.sums, low, high)
    return all(bool(np.all(cells <= marginal(most, axes, by))) for by, cells in part.squares.items())


def _on_coarsest_grid(part: Moments, bounds: Bounds) -> tuple[Moments, Bounds]:
    """The same on the coarsest grid that sums, squares and bounds lie on: anybody can see that values are whole."""
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


# ── intervals ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Known:
    """What can be known of every class: the intervals of its extremes, and whether all are alike."""

    part: Moments
    smallest: tuple[Cells, Cells]
    largest: tuple[Cells, Cells]
    not_enumerated: int = 0

    @property
    def alike(self) -> Mask:
        """Where everyone must have the same value."""
        n = self.part.counts
        found: Mask = (n == 1) | (n > 1) & (self.largest[1] == self.smallest[0])
        return found


def _known(part: Moments, axes: By, bounds: Bounds) -> _Known:
    low, high = bounds
    if low is not None and high is None:
        bounds = low, low + 1 + int((part.sums - low * part.counts).max())  # nobody has more than the sum of all
    part = in_machine_words(part, *edges(*bounds))
    n = np.maximum(part.counts, 2)  # what this makes of smaller classes is not looked at
    q = class_squares(part, axes, *bounds)
    smallest, largest = smallest_on_grid(n, part.sums, q, *bounds), largest_on_grid(n, part.sums, q, *bounds)
    known = _Known(part, smallest, largest)
    return _enumerated(known, axes) if _whole(part.metric, bounds) else known


def _whole(metric: Metric, bounds: Bounds) -> bool:
    low, high = edges(*bounds)
    return metric.scale == 1 or high - low <= COARSE


def _enumerated(known: _Known, axes: By) -> _Known:
    """The same with exact intervals for the classes that are little work."""
    exact = enumerate_classes(known.part, axes, known.smallest[0], known.largest[1])
    ends = [cells.copy() for cells in (*known.smallest, *known.largest)]
    for place, found in enumerate(exact):
        if found is not None:
            for cells, end in zip(ends, (*found[0], *found[1]), strict=True):
                cells.flat[place] = end
    open_ = (known.part.counts > 1) & ~known.alike
    left = sum(found is None for found, wanted in zip(exact, open_.flat, strict=True) if wanted)
    return _Known(known.part, (ends[0], ends[1]), (ends[2], ends[3]), left)


def _narrow(known: _Known, bounds: Bounds) -> tuple[Mask, float | None]:
    """Where is too little left to guess about an extreme? And the least that is left, as a share.

    An extreme that is known to sit at its bound says no more than that somebody reached it. A class
    whose values are all within a step of one bound says no more than a 0/1 metric, for which there
    is no such rule.
    """
    low, high = edges(*bounds)
    n, s = known.part.counts, known.part.sums
    (bottom_low, bottom_high), (top_low, top_high) = known.smallest, known.largest
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


def _at_bound(part: Moments, bounds: Bounds) -> Mask:
    """Is everyone at the same bound?"""
    low, high = edges(*bounds)
    found: Mask = (part.sums == low * part.counts) | (part.sums == high * part.counts)
    return found


def _all_sensitive(part: Moments, plan: MetricPlan, bounds: Bounds) -> int:
    """In how many classes everyone has the greatest value of a sensitive metric, or, if both are, the least."""
    low, high = edges(*bounds)
    everyone = part.sums == high * part.counts
    nobody = part.sums == low * part.counts
    marked: Mask = {"no": everyone & False, "yes": everyone, "both": everyone | nobody}[plan.sensitive]
    return int((marked & (part.counts > 0)).sum())


def _contributors(part: Moments, tally: Tally, plan: MetricPlan, bounds: Bounds) -> Cells | None:
    """In every class the people whose value is not zero, if a 0/1 metric of the same table tells them."""
    low, high = edges(*bounds)
    told = [one for one in tally.moments if one.metric.name == plan.of and one.metric.binary]
    if not told or not low <= 0 <= high:
        return None
    people = np.minimum(told[0].sums, part.counts)
    return np.where((people == 0) & (part.sums != 0), part.counts, people)


def _off_zero(bounds: Bounds) -> Bounds:
    """The bounds of people whose value is not zero: one step off, where zero was one."""
    low, high = bounds
    return (1 if low == 0 else low), (-1 if high == 0 else high)


def _dominated(values: LargestValues) -> int:
    """Is a rest of less than 10 % of the largest value left beside two people (p %-rule), or 90 % of the sum theirs?"""
    largest, both, total = values.largest, values.largest + values.second, values.total
    broken = (10 * (total - both) < largest) | (10 * both > 9 * total)
    return int((broken & (total > 0)).sum())
