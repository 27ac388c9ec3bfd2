"""The largest values of a class, looked up only where sums are so small that one or two people may make them up.

Where every class sums to three times the largest possible value or more, nobody dominates any:
two people are at most two thirds of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.counted import LargestValues
from kanab.counting.columns import MetricSteps, group_sums
from kanab.tally.cells import DROPPED, zeros
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

ENOUGH = 3
"""A sum of so many times the largest possible value cannot be that of two people."""


def metrics_with_small_sums(
    tallies: Mapping[str, Tally], ranges: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[str, ...]]:
    """For every table the metrics whose largest values have to be known; 0/1 metrics have none.

    ``ranges`` are the grid bounds of metrics without declared ones.

    >>> from kanab.datasets import eighteen
    >>> metrics_with_small_sums({"minutes": eighteen()}, {"minutes": (0, 5 * 10**9)})
    {'minutes': ('minutes',)}
    """
    found = {
        name: tuple(part.metric.name for part in tally.moments if _are_small(part, ranges.get(part.metric.name)))
        for name, tally in tallies.items()
    }
    return {name: metrics for name, metrics in found.items() if metrics}


def _are_small(part: Moments, own: tuple[int, int] | None) -> bool:
    bounds = part.metric.grid_bounds or own
    if part.metric.binary or bounds is None or not part.sums.any():
        return False
    limit = ENOUGH * max(abs(end) for end in bounds)
    sums, people = part.sums.ravel(), part.counts.ravel()
    return any(there and abs(total) < limit for there, total in zip(people, sums, strict=True))


def find_largest(one: MetricSteps, cell: NDArray[np.intp], shape: Sequence[int]) -> LargestValues:
    """The two largest absolute values of every class, and their sum, from everybody's steps.

    ``cell`` is everybody's class as a flat index, ``DROPPED`` for people who are not in the table.
    """
    size = math.prod(shape)
    there = (cell != DROPPED) & one.has
    place, height = cell[there], np.abs(one.steps[there])
    largest = _maxima(place, height, size)
    somebody = np.full(size, -1, dtype=np.intp)
    at_the_top = np.flatnonzero(height == largest[place])
    somebody[place[at_the_top]] = at_the_top  # one person of every class: the others stay
    others = np.ones(len(place), dtype=bool)
    others[somebody[somebody >= 0]] = False
    second = _maxima(place[others], height[others], size)
    total = group_sums(height, place, size)
    return LargestValues(*(cells.astype(object).reshape(shape) for cells in (largest, second, total)))


def _maxima(place: NDArray[np.intp], height: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    found = np.zeros(size, dtype=np.int64)
    np.maximum.at(found, place, height)
    return found


def merge_largest(shape: Sequence[int], found: Sequence[tuple[tuple[int, ...], int, int, int]]) -> LargestValues:
    """LargestValues from the largest, the second and the sum of groups; several groups may make up one class.

    >>> merge_largest((1,), [((0,), 9, 4, 20), ((0,), 7, 1, 8)]).second.tolist()
    [7]
    """
    largest, second, total = (zeros(tuple(shape)) for _ in range(3))
    for spot, first, other, added in found:
        largest[spot], second[spot] = sorted((largest[spot], second[spot], first, other), reverse=True)[:2]
        total[spot] += added
    return LargestValues(largest, second, total)
