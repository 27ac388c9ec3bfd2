"""Sums of two doubles carry what one double drops."""

from fractions import Fraction

import numpy as np
import pytest

from kanab.scan.stats.double_double import SAFE, DoubleDouble, compact

rng = np.random.default_rng(1)
LARGE = [int(value) * 3**50 + 7 for value in rng.integers(-(2**62), 2**62, 50)]
SMALL = rng.integers(-(2**61), 2**61, 50)
DIVISORS = rng.integers(1, 10**7, 50).astype(np.float64)


def exact(value):
    return [Fraction(high) + Fraction(low) for high, low in zip(value.high.tolist(), value.low.tolist(), strict=True)]


def close(found, expected, digits=100):
    return all(abs(a - b) <= abs(b) * Fraction(1, 2**digits) for a, b in zip(exact(found), expected, strict=True))


def whole(values):
    cells = np.empty(len(values), dtype=object)
    cells[:] = list(values)
    return cells


@pytest.mark.parametrize("values", [LARGE, SMALL.tolist()])
def test_whole_numbers_keep_106_binary_digits(values):
    assert close(DoubleDouble.of_whole(whole(values)), values, digits=104)


def test_64_bit_numbers_are_exact():
    assert exact(DoubleDouble.of_whole(SMALL)) == SMALL.tolist()


def test_sums_differences_squares_and_quotients_keep_30_digits():
    a, b = DoubleDouble.of_whole(whole(LARGE)), DoubleDouble.of_whole(SMALL)
    pairs = list(zip(exact(a), exact(b), strict=True))
    assert close(a + b, [x + y for x, y in pairs])
    assert close(a - b, [x - y for x, y in pairs])
    assert close(a.squared(), [x * x for x, _ in pairs])
    assert close(b.over(DIVISORS), [y / Fraction(d) for (_, y), d in zip(pairs, DIVISORS.tolist(), strict=True)])


def test_a_small_difference_of_large_numbers_is_not_lost():
    a, b = (DoubleDouble.of_whole(np.array([10**17 + extra])).over(np.array([3.0])) for extra in (1, 0))
    assert (a - b).high[0] == pytest.approx(1 / 3, rel=1e-12)


def test_a_double_can_be_taken_away():
    third = DoubleDouble.of_whole(np.array([1])).over(np.array([3.0]))
    rest = third - np.array([1 / 3])
    assert rest.high[0] == float(Fraction(1, 3) - Fraction(1 / 3))


def test_sums_go_along_an_axis():
    values = np.arange(24).reshape(2, 3, 4)
    for axis in range(3):
        assert np.array_equal(DoubleDouble.of_whole(values).sum(axis).high, values.sum(axis=axis))


def test_compact_uses_64_bits_where_all_numbers_fit():
    assert compact(whole([1, -5])).dtype == np.int64
    assert compact(whole([1, int(SAFE)])).dtype == object
    assert compact(np.array([2**63 - 1])).dtype == object
    assert compact(np.empty((0, 2), dtype=object)).dtype == np.int64
