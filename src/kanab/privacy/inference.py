"""What people, sum and squares of a class tell about its largest and smallest value: closed forms, tight.

For n ≥ 2 people with sum S, squares Q and values between ``low`` and ``high``, all in grid steps.
``q`` are the two ends between which Q lies, equal where it is known: lower ends of intervals follow
from the least Q, upper ends from the greatest. A bound of None is the edge of the grid. Nothing is
rounded before the last step, so that an interval is never wider than what is known.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.metric import GRID_LIMIT
from kanab.tally.moments import By, Moments, least_squares

Bound = int | None
ROUNDS = 4
"""How often marginals of squares narrow each other; two are exact for tables of one or two arms."""

_exact_root = np.frompyfunc(math.isqrt, 1, 1)


def edges(low: Bound, high: Bound) -> tuple[int, int]:
    """Return bounds, or the edges of the grid where there are none."""
    return -GRID_LIMIT if low is None else low, GRID_LIMIT if high is None else high


def most_squares(n: Any, s: Any, low: int, high: int) -> Any:
    """Return the greatest Σ y² of values within bounds, of one class or of cells.

    It has as many values as possible at ``high``, one between, and the rest at ``low``.

    >>> most_squares(5, 7, 0, 3)      # 3, 3, 1, 0, 0
    19
    """
    above, width = s - n * low, max(1, high - low)
    full = above // width
    return full * width**2 + (above - full * width) ** 2 + 2 * low * s - n * low**2


def in_machine_words(part: Moments, low: int, high: int) -> Moments:
    """Return the numbers as 64-bit integers, if no step of the closed forms can outgrow them; else as they are.

    With N people, squares up to Q and G classes, nothing below exceeds 32 Q max(N², G).
    """
    size = max(abs(low), abs(high), 1)
    people = max(_most(part.counts), _most(part.sums) // size + 1)  # the latter for sums that no people have
    squares = max(people * size**2, *(_most(cells) for cells in part.squares.values()), 0)
    if 32 * squares * max(people**2, part.counts.size) >= 2**62:
        return part
    words = {by: cells.astype(np.int64) for by, cells in part.squares.items()}
    return Moments(part.metric, part.counts.astype(np.int64), part.sums.astype(np.int64), words)


def _most(cells: Cells) -> int:
    return int(np.abs(cells).max()) if cells.size else 0


def class_squares(part: Moments, axes: By, low: Bound, high: Bound) -> tuple[Cells, Cells]:
    """Return the two ends between which the squares of every class lie, given the marginals that are known.

    What a marginal leaves for one class is its total less the greatest, or the least, squares of the
    others; several marginals narrow each other.
    """
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
    """Return the intervals of the smallest and of the largest value, as grid values and without rounding error.

    The smallest is the largest, seen in a mirror, so that both are worked out at once.
    """
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
    root = _isqrt(below)
    root = root + (root**2 < below)
    bottom = low - (-(above + root) // (j + 1))
    reach = _isqrt(np.maximum(0, (n - 1) * (n * most - s**2)))
    excess = np.maximum(0, most - least_squares(n, s))
    top = np.minimum((s + reach) // n, s // n + (1 + _isqrt(1 + 4 * excess)) // 2)
    top = np.minimum(top, high)
    return np.minimum(bottom, top), top


def _isqrt(cells: Cells) -> Cells:
    """Return the square roots of whole numbers, rounded down; doubles are off by one at most, and put right."""
    if cells.dtype == object:
        return np.asarray(_exact_root(cells))
    root = np.sqrt(cells).astype(np.int64)
    root -= root**2 > cells
    root += (root + 1) ** 2 <= cells
    return root
