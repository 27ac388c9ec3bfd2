"""Intervals of one class: closed forms as real numbers, against which those on the grid are tested.

For n ≥ 2 people with sum S, squares Q (or the two ends between which they lie) and values between
``low`` and ``high``; a bound of None is the edge of the grid.
"""

from __future__ import annotations

import math
from fractions import Fraction

from kanab.privacy.audit import Bound, edges

Squares = int | tuple[int, int]


def largest(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float]:
    """Return the two values between which the largest one lies.

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
    """Return the two values between which the smallest one lies: the largest one, seen in a mirror.

    >>> smallest(3, 217, 47089, 0, None)
    (0.0, 0.0)
    """
    low, high = edges(low, high)
    bottom, top = largest(n, -s, q, -high, -low)
    return 0.0 - top, 0.0 - bottom


def anyone(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float]:
    """Return the two values between which everyone lies.

    >>> anyone(4, 40, 448, 0, 100)
    (4.0, 16.0)
    """
    (_, most), low, high = _ends(q), *edges(low, high)
    mean, reach = Fraction(s, n), _reach(n, s, most)
    return float(max(Fraction(low), mean - reach)), float(min(Fraction(high), mean + reach))


def outlier(n: int, s: int, q: Squares, low: Bound, high: Bound) -> tuple[float, float] | None:
    """Return (x, y) where exactly one person is at or above x, and everyone else at or below y; else None.

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


def _ends(q: Squares) -> tuple[int, int]:
    return q if isinstance(q, tuple) else (q, q)


def _from(low: int, n: int, s: int, q: int) -> tuple[int, int]:
    """Return sum and squares of the distances above ``low``."""
    return s - n * low, q - 2 * low * s + n * low**2


def _reach(n: int, s: int, q: int) -> Fraction:
    """Return how far one person can be from the mean: sqrt((n−1)V/n)."""
    return _root(Fraction(max(0, (n - 1) * (n * q - s**2)), n**2))


def _root(value: Fraction) -> Fraction:
    """Return the square root, exact where it is rational, else to 70 bits: more than a double holds."""
    product = value.numerator * value.denominator
    shift = max(0, 71 - product.bit_length() // 2)
    return Fraction(math.isqrt(product << 2 * shift), value.denominator << shift)
