"""What two metrics tell together: differences of theirs, and one of them on both sides of a 0/1 metric.

Nobody asks for these numbers, and they are not published: the gate needs to know how few people they are about.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kanab.counted import LARGE_SUM, Derived, DerivedCells
from kanab.counting.columns import MetricSteps, group_sums
from kanab.counting.largest import find_largest
from kanab.tally.cells import DROPPED
from kanab.tally.metric import Metric

Steps = NDArray[np.int64]

COMMON = 2
"""A ratio of two metrics is common if half (1 ÷ this) of the people who have both share it."""
MANY = 10
"""In a sample, 0/1 metrics that differ for a tenth (1 ÷ this) of the people differ for many in every arm."""
RELATED = 100
"""In a sample, metrics that agree for fewer than one in so many people have nothing to do with each other."""

_ROOM = 1 << 62


def choose_derived(
    metrics: Sequence[MetricSteps], products: Sequence[tuple[str, str]] = (), *, sampled: bool = False
) -> tuple[Derived, ...]:
    """Return what can be derived from pairs of metrics, given everybody's steps, or those of a sample.

    Of two amounts the difference, and what is left of one after the commonest multiple of the other; of an amount and
    a 0/1 metric only the latter; of two 0/1 metrics the difference. Where no two values agree, what is left of one is
    about as many people as the two are. In a sample, 0/1 metrics that differ for many need no second look. ``products``
    are published, and cut the amount of a pair by its 0/1 metric.

    >>> gross = MetricSteps(Metric("gross", 100), np.array([999, 0, 1250, 500]), np.ones(4, dtype=bool))
    >>> net = MetricSteps(Metric("net", 100), np.array([999, 0, 1250, 0]), np.ones(4, dtype=bool))
    >>> choose_derived([gross, net])
    (Derived(first='gross', second='net', weights=(1, 1), side=None),)
    """
    chosen: list[Derived] = []
    for left, right in combinations(metrics, 2):
        first, second = (right, left) if left.metric.binary and not right.metric.binary else (left, right)
        chosen += _differences(first, second, sampled=sampled)
    by_name = {each.metric.name: each.metric for each in metrics}
    for pair in dict.fromkeys(products):
        first_name, second_name = pair if by_name[pair[1]].binary else pair[::-1]
        if by_name[second_name].binary and not by_name[first_name].binary:
            chosen += [Derived(first_name, second_name, side=side) for side in (1, 0)]
    return tuple(chosen)


def _differences(first: MetricSteps, second: MetricSteps, *, sampled: bool) -> Iterator[Derived]:
    y, z = _or_zero(first), _or_zero(second)
    names = first.metric.name, second.metric.name
    both_binary = first.metric.binary and second.metric.binary
    common = _commonest_ratio(y, z)
    weights = [] if common is None or both_binary else [(common.denominator, common.numerator)]
    if first.metric.binary or not second.metric.binary:
        step = math.gcd(first.metric.scale, second.metric.scale)
        alike = second.metric.scale // step, first.metric.scale // step
        weights = list(dict.fromkeys([alike, *weights]))
    for pair in weights:
        if _fits(first, second, pair):
            agreeing = int(np.count_nonzero((y != 0) & (pair[0] * y == pair[1] * z)))
            active = int(np.count_nonzero((y != 0) | (z != 0)))
            if not sampled:
                wanted = both_binary or agreeing > 0
            elif both_binary:
                wanted = MANY * int(np.count_nonzero(y != z)) < len(y)
            else:
                wanted = RELATED * agreeing >= active
            if wanted:
                yield Derived(*names, pair)


def _or_zero(metric: MetricSteps) -> Steps:
    """Return everybody's steps, 0 for people without a value: that is what they add to a sum."""
    return metric.steps if metric.has.all() else np.where(metric.has, metric.steps, 0)


def _fits(first: MetricSteps, second: MetricSteps, weights: tuple[int, int]) -> bool:
    """Return whether differences stay within 64 bits."""
    return sum(weight * _largest(metric) for weight, metric in zip(weights, (first, second), strict=True)) < _ROOM


def _largest(metric: MetricSteps) -> int:
    bounds = metric.metric.grid_bounds
    if bounds is not None:
        return max(map(abs, bounds))
    return int(np.abs(metric.steps).max()) if len(metric.steps) else 0


def _commonest_ratio(y: Steps, z: Steps) -> Fraction | None:
    """Return the commonest ratio of two metrics among the people who have both, if it is common.

    What half of them share is in the middle of all ratios, which is found much quicker than how often each occurs.
    """
    both = (y != 0) & (z != 0)
    people = int(np.count_nonzero(both))
    if not people:
        return None
    ratios = y[both] / z[both]
    middle = (people - 1) // 2, people // 2
    candidates = np.partition(ratios, middle)[list(middle)].tolist()
    times = [int(np.count_nonzero(ratios == candidate)) for candidate in candidates]
    most = max(times)
    if most < 2 or COMMON * most < people:
        return None
    return simplest_fraction(candidates[times.index(most)])


def simplest_fraction(ratio: float) -> Fraction | None:
    """Return the fraction with a small denominator that a ratio of whole numbers is; None where there is none.

    >>> simplest_fraction(999 / 100), simplest_fraction(1 / 3)
    (Fraction(999, 100), Fraction(1, 3))
    """
    for most in (1_000, 1_000_000):
        fraction = Fraction(ratio).limit_denominator(most)
        if fraction and fraction.numerator / fraction.denominator == ratio:
            return fraction
    return None


def derive(derived: Derived, metrics: Mapping[str, MetricSteps]) -> Steps:
    """Return everybody's derived number, in steps."""
    first, second = metrics[derived.first], metrics[derived.second]
    y, z = _or_zero(first), _or_zero(second)
    if derived.side is None:
        return np.asarray(derived.weights[0] * y - derived.weights[1] * z, dtype=np.int64)
    return np.where(first.has & second.has & (z == derived.side), y, 0)


def count_derived(
    chosen: Sequence[Derived],
    metrics: Mapping[str, MetricSteps],
    cells: Mapping[str, NDArray[np.intp]],
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, dict[Derived, DerivedCells]]:
    """Count the people of every class, by table, whose derived number is not 0, and find the largest of them.

    ``cells`` are everybody's classes in each table as flat indices.
    """
    counted: dict[str, dict[Derived, DerivedCells]] = {name: {} for name in cells}
    for derived in chosen:
        numbers = derive(derived, metrics)
        anybody = np.flatnonzero(numbers)
        left = numbers[anybody]
        for name, cell in cells.items():
            counted[name][derived] = _cells(left, cell[anybody], shapes[name])
    return counted


def _cells(left: Steps, cell: NDArray[np.intp], shape: tuple[int, ...]) -> DerivedCells:
    there = cell != DROPPED
    left, cell = (left, cell) if there.all() else (left[there], cell[there])
    size = math.prod(shape)
    people = np.bincount(cell, minlength=size)
    sums = group_sums(left, cell, size)
    largest = None
    if any_small(people.tolist(), sums.tolist(), int(np.abs(left).max()) if len(left) else 0):
        largest = find_largest(MetricSteps(Metric("left"), left, np.ones(len(left), dtype=bool)), cell, shape)
    return DerivedCells(people.astype(object).reshape(shape), largest)


def any_small(people: Sequence[int], sums: Sequence[int], most: int) -> bool:
    """Return whether one or two people could make up the sum of a class, where nobody has more than the most."""
    return any(there and abs(total) < LARGE_SUM * most for there, total in zip(people, sums, strict=True))
