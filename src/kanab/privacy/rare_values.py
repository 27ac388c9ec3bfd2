"""Few people with an unusual value, in several tables: who knows the covariates could name them.

The leverage rule is about what sums add up to. Where only a few people are off the commonest value,
far fewer equations find them: a buyer in tier 3, on a phone, in Norway may be the only one who fits.
So a metric may be in so many tables only as there are twice as many such people as independent
numbers; in the others its class sums are withheld, and the arm totals stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from kanab.counted import Counted
from kanab.privacy.budget import fewest_off
from kanab.privacy.class_rules import Draft
from kanab.privacy.release import Release
from kanab.tally.tally import Tally

Place = tuple[str, str]

WHY = "too few people differ from its commonest value for so many tables"


def too_sparse(counted: Counted, drafts: Mapping[str, Draft], earlier: Sequence[Release]) -> frozenset[Place]:
    """The tables and metrics to withhold, later tables first; what is released already stays."""
    found: set[Place] = set()
    for metric in (one.name for one in counted.plan.counted_metrics):
        before = [t for one in earlier for t in one.tables.values() if metric in t.metric_names]
        numbers, tables = numbers_of(before), sum(len(table.axes) > 1 for table in before)
        for name, draft in drafts.items():
            if draft.why or len(draft.tally.axes) == 1 or metric not in draft.tally.metric_names:
                continue
            more = numbers + _added(draft.table, first=not numbers)
            if tables and too_few_off(draft.tally, metric, more, counted.ranges.get(metric)):
                found.add((name, metric))
            else:
                numbers, tables = more, tables + 1
    return frozenset(found)


def numbers_of(tables: Sequence[Tally]) -> int:
    """How many independent sums of one metric some tables hold, at most."""
    total = 0
    for table in tables:
        total += _added(table, first=not total)
    return total


def _added(table: Tally, *, first: bool) -> int:
    """Independent numbers that a table adds: its classes, but for the arms that another one has as well."""
    arms = 0 if first or len(table.arms) > 1 else len(table.arms[0].levels)
    return max(int(np.count_nonzero(table.people)) - arms, 0)


def too_few_off(tally: Tally, metric: str, numbers: int, bounds: tuple[int, int] | None = None) -> bool:
    """Could who is off the commonest value be found out from so many numbers? Not if it is nobody."""
    off = people_off(tally, metric, bounds)
    nobody = off == 0 and tally.moments_of(metric).metric.binary
    return off < 2 * numbers and not nobody


def people_off(tally: Tally, metric: str, bounds: tuple[int, int] | None) -> int:
    """At least so many people of a table are off the commonest value."""
    part = tally.moments_of(metric)
    n, s = int(part.counts.sum()), int(part.sums.sum())
    low_high = part.metric.grid_bounds or bounds
    squares = part.squares_by((tally.axes[0],), tally.axes)
    if low_high is None or squares is None or n == 0:
        return 0
    return fewest_off(n, s, int(squares.sum()), *low_high)
