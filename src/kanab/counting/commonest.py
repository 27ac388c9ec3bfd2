"""How far people are off the commonest value of a metric: what the rule for amounts needs to know."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS, SignatureValues
from kanab.counting.columns import MetricSteps
from kanab.tally.metric import Metric

COMMON = 0.1
"""A value is the commonest if so many people share it; otherwise 0, or the bound next to it, stands in for it."""

_DIRECT = 1 << 22  # so many values are counted in place, without sorting everybody
_ROUNDING = 1e-12  # of a sum of doubles, generously


def counts_things(metric: Metric, low: int, high: int) -> bool:
    """Return whether values between two steps are small counts, of which nobody asks who is off the commonest."""
    return metric.scale == 1 and low >= 0 and high <= MOST_STEPS


def commonest_step(metric: Metric, steps: NDArray[np.int64]) -> int:
    """Return the value that most people share, in grid steps.

    >>> spend = Metric.declare("spend", bounds=(0, 500), resolution=0.01)
    >>> commonest_step(spend, np.array([0, 0, 990, 0])), commonest_step(spend, np.array([990, 990, 995, 0]))
    (0, 990)
    """
    low, high = metric.grid_bounds or (0, 0)
    instead = min(max(0, low), high)
    if not len(steps):
        return instead
    least, most = int(steps.min()), int(steps.max())
    if most - least < _DIRECT:
        counts = np.bincount(steps - least)
        value, people = least + int(counts.argmax()), int(counts.max())
    else:
        values, times = np.unique(steps, return_counts=True)
        value, people = int(values[times.argmax()]), int(times.max())
    return value if people > 1 and people >= COMMON * len(steps) else instead


def values_of(part: MetricSteps) -> SignatureValues:
    """Return how far everybody is off the commonest value; who has no value is not off it."""
    commonest = commonest_step(part.metric, part.steps[part.has])
    away = np.where(part.has, np.abs(part.steps - commonest), 0)
    distance = away.astype(np.float64)
    return SignatureValues(commonest, (away > 0).astype(np.int64), distance**2, distance, np.zeros(len(away)))


def bound_second(
    off: NDArray[np.int64], largest: NDArray[np.float64], fourth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far the second one is at most, given people, the largest, and the sum of fourth powers."""
    rest = np.maximum(fourth - largest**4, 0) + _ROUNDING * fourth
    return np.where(off > 1, np.minimum(np.sqrt(np.sqrt(rest)), largest), 0)


def add_up(known: SignatureValues, number: NDArray[np.intp], size: int) -> SignatureValues:
    """Return the values of groups, given everybody's, or those of smaller groups, and the number of their group."""
    largest, second = np.zeros(size), np.zeros(size)
    np.maximum.at(largest, number, known.largest)
    somebody = np.full(size, -1, dtype=np.intp)
    at_the_top = np.flatnonzero(known.largest == largest[number])
    somebody[number[at_the_top]] = at_the_top
    rest = known.largest.copy()
    rest[somebody[somebody >= 0]] = 0  # one of every group, so that others who are as far off stay
    np.maximum.at(second, number, np.maximum(rest, known.second))
    off = np.bincount(number, known.off, size).astype(np.int64)
    squares = np.bincount(number, known.squares, size).astype(np.float64)
    return SignatureValues(known.commonest, off, squares, largest, second)


def among(known: SignatureValues, there: NDArray[np.bool_]) -> SignatureValues:
    """Return the same where only some groups are meant; the others are not off any value."""
    parts = (np.where(there, part, 0) for part in (known.off, known.squares, known.largest, known.second))
    return SignatureValues(known.commonest, *parts)


def spread(known: SignatureValues, there: NDArray[np.bool_]) -> SignatureValues:
    """Return the same among more people, of whom the others are not off any value."""
    place = np.cumsum(there) - 1
    return among(SignatureValues(known.commonest, known.off[place], known.squares[place], known.largest[place],
                                 known.second[place]), there)  # fmt: skip
