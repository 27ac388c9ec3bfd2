"""The largest difference of effects that is not ruled out."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from kanab import Metric
from kanab.scan.stats.cells import Measured
from kanab.scan.stats.reach import critical, reach
from kanab.scan.stats.tests import f_tests

rng = np.random.default_rng(6)


def outcome(shape, tables=40, scale=100, empty=()):
    n = rng.integers(10, 200, (tables, *shape))
    for place in empty:
        n[(slice(None), *place)] = 0
    sums = np.rint(rng.normal(0, 30, n.shape) * np.sqrt(n)).astype(np.int64)
    squares = (sums**2 // np.maximum(n, 1) + rng.integers(500, 2000, n.shape) * n) * (n > 0)
    return f_tests(Measured(Metric("y", scale), n, sums, None, None, squares))


def test_for_two_by_two_it_is_the_end_of_welchs_interval():
    found = outcome((2, 2))
    level = np.full(40, 0.01)
    ends = reach(found.cells, found.variances, critical(found, level))
    means = found.cells.means.high
    contrast = means[:, 1, 1] - means[:, 1, 0] - means[:, 0, 1] + means[:, 0, 0]
    parts = found.variances / found.cells.n
    se = np.sqrt(parts.sum(axis=(1, 2)))
    df = se**4 / np.sum(parts**2 / (found.cells.n - 1), axis=(1, 2))
    half = stats.t.ppf(0.995, df) * se
    assert ends == pytest.approx((np.abs(contrast) + half) / 100, rel=1e-9)
    assert np.array_equal(np.abs(contrast) > half, found.robust.p < 0.01)


@pytest.mark.parametrize("shape", [(2, 3), (3, 4), (5, 2)])
def test_for_more_arms_it_is_the_farthest_of_all_differences_of_effects(shape):
    found = outcome(shape)
    limit = critical(found, np.full(40, 0.05))
    ends = reach(found.cells, found.variances, limit)
    means, noise = found.cells.means.high, found.variances / found.cells.n
    expected = np.zeros(40)
    for (i, k), (j, m) in [(a, b) for a in combinations(range(shape[0]), 2) for b in combinations(range(shape[1]), 2)]:
        contrast = means[:, i, j] - means[:, i, m] - means[:, k, j] + means[:, k, m]
        error = np.sqrt(noise[:, i, j] + noise[:, i, m] + noise[:, k, j] + noise[:, k, m])
        expected = np.maximum(expected, np.abs(contrast) + limit * error)
    assert ends == pytest.approx(expected / 100, rel=1e-12)


def test_the_limit_is_that_of_the_f_test():
    found = outcome((3, 3))
    level = np.linspace(0.001, 0.5, 40)
    beyond = found.fit.extra > critical(found, level) ** 2
    assert np.array_equal(beyond, found.robust.p < level)


def test_empty_classes_are_left_out():
    some = outcome((3, 2), empty=[(0, 0)])
    assert np.isfinite(reach(some.cells, some.variances, np.ones(40))).all()
    ring = outcome((3, 3), empty=[(0, 2), (1, 0), (2, 1)])  # a ring: one degree of freedom, no two arms share two
    assert not np.isnan(ring.robust.p).any()
    assert np.isnan(reach(ring.cells, ring.variances, np.ones(40))).all()


def test_many_levels_are_looked_through_in_parts(monkeypatch):
    found = outcome((2, 6))
    limit = np.full(40, 3.0)
    whole = reach(found.cells, found.variances, limit)
    monkeypatch.setattr("kanab.scan.stats.reach._AT_ONCE", 100)
    assert reach(found.cells, found.variances, limit).tolist() == whole.tolist()
