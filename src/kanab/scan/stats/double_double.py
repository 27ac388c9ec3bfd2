"""Numbers held as the sum of two doubles: 32 digits, for whole arrays at once.

Where thousands of tables are tested together, Python's fractions would be slow, and one double
would lose a small difference of large means. The classical error-free sums and products (Knuth,
Dekker) carry along what a double drops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kanab.scan.pairs import Whole
from kanab.stats.gram import Floats

SAFE = 2.0**62
"""Whole numbers up to here, and differences of them, stay clear of the edge of 64 bits."""

_SPLITTER = 2.0**27 + 1


@dataclass(frozen=True, eq=False)
class DoubleDouble:
    """An unevaluated sum: ``low`` is what the double ``high`` leaves out.

    >>> third = DoubleDouble.of_whole(np.array([10**20 + 1])).over(np.array([3.0]))
    >>> (third - third.high).high * 3       # what a double of 10²⁰/3 gets wrong
    array([4097.])
    """

    high: Floats
    low: Floats

    @classmethod
    def of_whole(cls, values: Whole) -> DoubleDouble:
        """Return whole numbers: exact up to 106 binary digits."""
        values = compact(values)
        high = values.astype(np.float64)
        back = _as_whole(high) if values.dtype == object else high.astype(np.int64)
        return cls(high, (values - back).astype(np.float64))

    def __getitem__(self, chosen: Any) -> DoubleDouble:
        return DoubleDouble(self.high[chosen], self.low[chosen])

    def __add__(self, other: DoubleDouble) -> DoubleDouble:
        total, error = _two_sum(self.high, other.high)
        return _normalized(total, error + (self.low + other.low))

    def __sub__(self, other: DoubleDouble | Floats) -> DoubleDouble:
        if not isinstance(other, DoubleDouble):
            other = DoubleDouble(other, np.zeros_like(other))
        return self + DoubleDouble(-other.high, -other.low)

    def squared(self) -> DoubleDouble:
        """Return the square of every number."""
        product, error = _two_product(self.high, self.high)
        return _normalized(product, error + 2 * self.high * self.low)

    def over(self, divisor: Floats) -> DoubleDouble:
        """Divide by doubles."""
        quotient = self.high / divisor
        product, error = _two_product(quotient, divisor)
        rest = (self.high - product) - error + self.low
        return _normalized(quotient, rest / divisor)

    def sum(self, axis: int) -> DoubleDouble:
        """Return the sum along an axis."""
        parts = [np.moveaxis(part, axis, 0) for part in (self.high, self.low)]
        total = DoubleDouble(parts[0][0], parts[1][0])
        for high, low in zip(parts[0][1:], parts[1][1:], strict=True):
            total = total + DoubleDouble(high, low)
        return total


def compact(values: Whole) -> Whole:
    """Return the same whole numbers in 64 bits where all of them fit, else as Python integers."""
    if not values.size:
        return values.astype(np.int64)
    largest = np.abs(values.astype(np.float64)).max()
    return values.astype(np.int64 if largest < SAFE else object, copy=False)


def _as_whole(values: Floats) -> Whole:
    """Return doubles without a fraction as Python integers."""
    whole = np.empty(values.shape, dtype=object)
    whole.ravel()[:] = list(map(int, values.ravel().tolist()))
    return whole


def _normalized(high: Floats, low: Floats) -> DoubleDouble:
    """Return the same sum with as much as possible in its first part."""
    total = high + low
    return DoubleDouble(total, low - (total - high))


def _two_sum(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a + b and the rounding error of that (Knuth)."""
    total = a + b
    shift = total - a
    return total, (a - (total - shift)) + (b - shift)


def _two_product(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return a × b and the rounding error of that (Dekker)."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Floats) -> tuple[Floats, Floats]:
    """Split a double into the sum of two with 26 digits each, whose products are exact."""
    spread = _SPLITTER * a
    high = spread - (spread - a)
    return high, a - high
