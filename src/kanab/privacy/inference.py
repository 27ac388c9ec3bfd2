"""What do people, sum and squares of a class tell about single people in it? Closed forms, tight.

For n ≥ 2 people with sum S, squares Q and values between ``low`` and ``high``, all in grid steps.
``q`` is Q itself or, where squares are known on margins only, the two ends between which it lies:
lower ends of intervals then follow from the least Q, upper ends from the greatest. A bound of None
is the edge of the grid. Nothing is rounded before the last step, so that an interval is never
wider than what is known.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from kanab.tally.cells import Cells, marginal
from kanab.tally.consistency import least_squares
from kanab.tally.metric import GRID_LIMIT
from kanab.tally.moments import By, Moments

Squares = int | tuple[int, int]
Bound = int | None
ROUNDS = 4
"""How often margins of squares narrow each other; two are exact for tables of one or two arms."""

_exact_root = np.frompyfunc(math.isqrt, 1, 1)


def largest(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float]:
    """Between which values does the largest one lie?

    The least is reached by j people at it, one below and the rest at ``low``; the greatest by one
    person at it and all others alike.

    >>> largest(3, 217, 47089, 0, None)     # the paper's attack: one of three has all of it
    (217.0, 217.0)
    """
    (least, most), low, high = _ends(q), *edges(low, high)
    above, squares = _from(low, n, s, least)
    j = min(n - 1, above**2 // squares) if squares else 1
    j = max(1, j)
    bottom = low + (above + _root(Fraction(max(0, (j + 1) * squares - above**2), j))) / (j + 1)
    top = min(Fraction(high), Fraction(s, n) + _reach(n, s, most))
    return float(min(bottom, top)), float(top)


def smallest(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float]:
    """Between which values does the smallest one lie? The largest one, seen in a mirror.

    >>> smallest(3, 217, 47089, 0, None)
    (0.0, 0.0)
    """
    low, high = edges(low, high)
    bottom, top = largest(n, -s, q, -high, -low)
    return 0.0 - top, 0.0 - bottom


def anyone(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float]:
    """Between which values does everyone lie?

    >>> anyone(4, 40, 448, 0, 100)
    (4.0, 16.0)
    """
    (_, most), low, high = _ends(q), *edges(low, high)
    mean, reach = Fraction(s, n), _reach(n, s, most)
    return float(max(Fraction(low), mean - reach)), float(min(Fraction(high), mean + reach))


def outlier(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float] | None:
    """Is exactly one person at or above x, and everyone else at or below y? Then (x, y).

    >>> outlier(50, 249, 39_680, 0, None)
    (190.3767789133622, 58.62322108663782)
    >>> outlier(50, 50, 60, 0, None) is None
    True
    """
    (least, _), low, high = _ends(q), *edges(low, high)
    above, squares = _from(low, n, s, least)
    gap = 2 * squares - above**2
    if gap <= 0:
        return None
    d = _root(Fraction(gap))
    return float(min(Fraction(high), low + (above + d) / 2)), float(low + (above - d) / 2)


def edges(low: Bound, high: Bound) -> tuple[int, int]:
    """Bounds, or the edges of the grid where there are none."""
    return -GRID_LIMIT if low is None else low, GRID_LIMIT if high is None else high


def _ends(q: Squares) -> tuple[int, int]:
    return q if isinstance(q, tuple) else (q, q)


def _from(low: int, n: int, s: int, q: int) -> tuple[int, int]:
    """Sum and squares of the heights above ``low``."""
    return s - n * low, q - 2 * low * s + n * low**2


def _reach(n: int, s: int, q: int) -> Fraction:
    """How far one person can be from the mean: sqrt((n−1)V/n)."""
    return _root(Fraction(max(0, (n - 1) * (n * q - s**2)), n**2))


def _root(value: Fraction) -> Fraction:
    """The square root, exact where it is rational, else to 70 bits: more than a double holds."""
    product = value.numerator * value.denominator
    shift = max(0, 71 - product.bit_length() // 2)
    return Fraction(math.isqrt(product << 2 * shift), value.denominator << shift)


# ── a whole table at once, and squares on margins ──────────────────────────────────────────────


def most_squares(n: Any, s: Any, low: int, high: int) -> Any:
    """The greatest Σ y² of values within bounds: as many as possible at ``high``, one between, the rest at ``low``.

    Of one class or of cells.

    >>> most_squares(5, 7, 0, 3)      # 3, 3, 1, 0, 0
    19
    """
    above, width = s - n * low, max(1, high - low)
    full = above // width
    return full * width**2 + (above - full * width) ** 2 + 2 * low * s - n * low**2


def in_machine_words(part: Moments, low: int, high: int) -> Moments:
    """The same numbers as 64-bit integers, if no step of the closed forms can outgrow them; else as they are.

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
    """Between which two ends the squares of every class lie, given the margins that are known.

    What a margin leaves for one class is its total less the greatest, or the least, squares of the
    others; several margins narrow each other.
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
    """A margin's cells, shaped so that every class meets its own."""
    return np.expand_dims(cells, tuple(place for place, axis in enumerate(axes) if axis not in by))


def largest_on_grid(n: Cells, s: Cells, q: tuple[Cells, Cells], low: Bound, high: Bound) -> tuple[Cells, Cells]:
    """The same interval for the largest value of many classes, as grid values and without rounding error.

    That values are whole numbers of steps is used twice: both ends are cut to the grid, and since
    (y − m)(y − m − 1) ≥ 0 for every whole y, with m the mean rounded down, nobody is farther from
    m than the excess of Q over its least value allows.
    """
    (least, most), low, high = q, *edges(low, high)
    above, squares = s - n * low, least - 2 * low * s + n * low**2
    j = np.maximum(1, np.minimum(n - 1, above**2 // np.maximum(squares, 1)))
    root = _ceil_root(-(np.minimum(0, above**2 - (j + 1) * squares) // j))
    bottom = low - (-(above + root) // (j + 1))
    reach = _isqrt(np.maximum(0, (n - 1) * (n * most - s**2)))
    excess = np.maximum(0, most - least_squares(n, s))
    top = np.minimum((s + reach) // n, s // n + (1 + _isqrt(1 + 4 * excess)) // 2)
    top = np.minimum(top, high)
    return np.minimum(bottom, top), top


def smallest_on_grid(n: Cells, s: Cells, q: tuple[Cells, Cells], low: Bound, high: Bound) -> tuple[Cells, Cells]:
    """The same for the smallest value."""
    low, high = edges(low, high)
    bottom, top = largest_on_grid(n, -s, q, -high, -low)
    return -top, -bottom


def _isqrt(cells: Cells) -> Cells:
    """The square roots of whole numbers, rounded down; doubles are off by one at most, and put right."""
    if cells.dtype == object:
        return np.asarray(_exact_root(cells))
    root = np.sqrt(cells).astype(np.int64)
    root -= root**2 > cells
    root += (root + 1) ** 2 <= cells
    return root


def _ceil_root(cells: Cells) -> Cells:
    """The same, rounded up."""
    root = _isqrt(cells)
    return root + (root**2 < cells)
