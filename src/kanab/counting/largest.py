"""Find the largest values of classes, where sums are so small that one or two people may make them up.

Where every class sums to three times the largest possible value or more, nobody dominates any:
two people are at most two thirds of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.counted import LARGE_SUM, LargestValues
from kanab.counting.columns import MetricSteps, group_sums
from kanab.tally.cells import DROPPED, zeros
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally


def metrics_with_small_sums(
    tallies: Mapping[str, Tally], ranges: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[str, ...]]:
    """Return for every table the metrics whose largest values have to be known; 0/1 metrics have none.

    ``ranges`` are the grid bounds of metrics without declared ones.

    >>> from kanab.datasets import eighteen
    >>> metrics_with_small_sums({"minutes": eighteen()}, {"minutes": (0, 5 * 10**9)})
    {'minutes': ('minutes',)}
    """
    by_table = {
        name: tuple(part.metric.name for part in tally.moments if _any_small(part, ranges.get(part.metric.name)))
        for name, tally in tallies.items()
    }
    return {name: metrics for name, metrics in by_table.items() if metrics}


def _any_small(part: Moments, observed: tuple[int, int] | None) -> bool:
    bounds = part.metric.grid_bounds or observed
    if part.metric.binary or bounds is None or not part.sums.any():
        return False
    limit = LARGE_SUM * max(abs(end) for end in bounds)
    sums, people = part.sums.ravel(), part.counts.ravel()
    return any(there and abs(total) < limit for there, total in zip(people, sums, strict=True))


def find_largest(metric: MetricSteps, cell: NDArray[np.intp], shape: Sequence[int]) -> LargestValues:
    """Return the two largest absolute values of every class, and their sum, from everybody's steps.

    ``cell`` is everybody's class as a flat index, ``DROPPED`` for people who are not in the table.
    """
    size = math.prod(shape)
    there = (cell != DROPPED) & metric.has
    place, magnitude = cell[there], np.abs(metric.steps[there])
    largest = _maxima(place, magnitude, size)
    somebody = np.full(size, -1, dtype=np.intp)
    at_the_top = np.flatnonzero(magnitude == largest[place])
    somebody[place[at_the_top]] = at_the_top  # one person of every class: the others stay
    others = np.ones(len(place), dtype=bool)
    others[somebody[somebody >= 0]] = False
    second = _maxima(place[others], magnitude[others], size)
    total = group_sums(magnitude, place, size)
    return LargestValues(*(cells.astype(object).reshape(shape) for cells in (largest, second, total)))


def _maxima(place: NDArray[np.intp], values: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    maxima = np.zeros(size, dtype=np.int64)
    np.maximum.at(maxima, place, values)
    return maxima


def merge_largest(shape: Sequence[int], groups: Sequence[tuple[tuple[int, ...], int, int, int]]) -> LargestValues:
    """Return the largest values of classes from those of groups, several of which may make up one class.

    A group is its class, its largest value, its second and its sum.

    >>> merge_largest((1,), [((0,), 9, 4, 20), ((0,), 7, 1, 8)]).second.tolist()
    [7]
    """
    largest, second, total = (zeros(tuple(shape)) for _ in range(3))
    for spot, first, other, added in groups:
        largest[spot], second[spot] = sorted((largest[spot], second[spot], first, other), reverse=True)[:2]
        total[spot] += added
    return LargestValues(largest, second, total)
