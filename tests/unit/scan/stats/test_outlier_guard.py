"""What a test cannot rule out: that one person made it ring, and a difference of effects that it missed."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from kanab import Metric
from kanab.scan.stats.f_tests import run_f_tests
from kanab.scan.stats.outlier_guard import FARTHEST, critical_values, guard_tests, largest_contrast, widen_critical
from kanab.scan.stats.table_blocks import MetricTables

rng = np.random.default_rng(4)
BINARY = Metric("y", 1, (0, 1))


def numbers(n=2_000, tables=30, shift=0, metric=None, sd=1000):
    """Tables of 2 × 2 classes of n people about a mean."""
    counts = np.full((tables, 2, 2), n)
    spread = np.rint(rng.chisquare(counts - 1) * sd**2).astype(np.int64)
    sums = np.rint(rng.normal(0, np.sqrt(n) * sd, counts.shape)).astype(np.int64) + n * shift
    squares = spread + sums.astype(object) ** 2 // n
    return run_f_tests(
        MetricTables(metric or Metric("y", 1000), counts, sums, squares.sum(axis=2), squares.sum(axis=1))
    )


def ones(n, rates, tables=30):
    counts = np.broadcast_to(np.array(n), (tables, 2, 2)).copy()
    return run_f_tests(MetricTables(BINARY, counts, rng.binomial(counts, rates)))


def test_one_person_moves_the_difference_of_effects_by_its_distance_over_its_class():
    tested = numbers(shift=5_000, metric=Metric("y", 1000, (0, 20)))
    found = guard_tests(tested)
    cells = tested.cells
    means = cells.means + cells.centre[:, None, None].astype(float)
    distance = np.maximum(20_000 - means, means)
    se = np.sqrt(np.sum(tested.variances / cells.n, axis=(1, 2)))
    assert found.pull == pytest.approx(np.max(distance / cells.n, axis=(1, 2)) / se, rel=1e-12)


def test_without_bounds_nobody_is_farther_than_thirty_deviations_or_than_the_squares_allow():
    tested = numbers()
    pull = FARTHEST * np.sqrt(np.max(tested.fit.free / tested.cells.n, axis=(1, 2)))
    assert guard_tests(tested).pull == pytest.approx(pull, rel=0.01)
    tiny = numbers(n=12)
    spread = np.sqrt(np.minimum(tiny.cells.row_spread.max(axis=1), tiny.cells.column_spread.max(axis=1)))
    se = np.sqrt(np.sum(tiny.variances / 12, axis=(1, 2)))
    assert np.all(guard_tests(tiny).pull <= spread / 12 / se * (1 + 1e-9))


def test_narrow_bounds_leave_large_classes_as_they_are():
    tested = numbers(n=10**6, metric=Metric("y", 1000, (-6, 6)))
    assert guard_tests(tested).p == pytest.approx(tested.robust.p, rel=0.06)


@pytest.mark.parametrize("tested", [numbers(), numbers(n=20), ones(50, 0.3), ones([[20, 900], [900, 5000]], 0.2)])
def test_the_careful_p_is_never_below_the_robust_one(tested):
    fine = ~np.isnan(tested.robust.p)
    assert fine.any()
    assert np.all(guard_tests(tested).p[fine] >= tested.robust.p[fine])


def test_few_ones_by_chance_do_not_make_a_class_steady():
    counts = np.array([[[100, 900], [900, 8100]]])
    tested = run_f_tests(MetricTables(BINARY, counts, np.array([[[4, 180], [180, 1620]]])))
    found = guard_tests(tested)
    assert tested.robust.p[0] < 1e-7  # a variance from four ones
    assert 1e-4 < found.p[0] < 0.01  # twenty were expected: P(4 or fewer) is 2e-5 one-sided
    assert found.variances[0, 0, 0] > 3 * tested.variances[0, 0, 0]


def test_what_cannot_be_tested_has_no_careful_p():
    tested = run_f_tests(MetricTables(BINARY, np.full((1, 2, 2), 9), np.array([[[0, 2], [3, 4]]])))
    assert np.isnan(guard_tests(tested).p[0])


def test_widening_undoes_the_deflation():
    critical, pull = rng.uniform(1.5, 6, 50), rng.uniform(0, 2, 50)
    wide = widen_critical(critical, pull)
    assert wide**2 / (1 + pull * wide / 3) == pytest.approx(critical**2, rel=1e-12)


draws = np.random.default_rng(6)


def outcome(shape, tables=40, scale=100, empty=()):
    n = draws.integers(10, 200, (tables, *shape))
    for place in empty:
        n[(slice(None), *place)] = 0
    sums = np.rint(draws.normal(0, 30, n.shape) * np.sqrt(n)).astype(np.int64)
    squares = (sums**2 // np.maximum(n, 1) + draws.integers(500, 2000, n.shape) * n) * (n > 0)
    return run_f_tests(MetricTables(Metric("y", scale), n, sums, None, None, squares))


def test_for_two_by_two_it_is_the_end_of_welchs_interval():
    found = outcome((2, 2))
    level = np.full(40, 0.01)
    ends = largest_contrast(found.cells, found.variances, critical_values(found, level))
    means = found.cells.means
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
    limit = critical_values(found, np.full(40, 0.05))
    ends = largest_contrast(found.cells, found.variances, limit)
    means, noise = found.cells.means, found.variances / found.cells.n
    expected = np.zeros(40)
    for (i, k), (j, m) in [(a, b) for a in combinations(range(shape[0]), 2) for b in combinations(range(shape[1]), 2)]:
        contrast = means[:, i, j] - means[:, i, m] - means[:, k, j] + means[:, k, m]
        error = np.sqrt(noise[:, i, j] + noise[:, i, m] + noise[:, k, j] + noise[:, k, m])
        expected = np.maximum(expected, np.abs(contrast) + limit * error)
    assert ends == pytest.approx(expected / 100, rel=1e-12)


def test_the_limit_is_that_of_the_f_test():
    found = outcome((3, 3))
    level = np.linspace(0.001, 0.5, 40)
    beyond = found.fit.extra > critical_values(found, level) ** 2
    assert np.array_equal(beyond, found.robust.p < level)


def test_empty_classes_are_left_out():
    some = outcome((3, 2), empty=[(0, 0)])
    assert np.isfinite(largest_contrast(some.cells, some.variances, np.ones(40))).all()
    ring = outcome((3, 3), empty=[(0, 2), (1, 0), (2, 1)])  # a ring: one degree of freedom, no two arms share two
    assert not np.isnan(ring.robust.p).any()
    assert np.isnan(largest_contrast(ring.cells, ring.variances, np.ones(40))).all()


def test_many_levels_are_looked_through_in_parts(monkeypatch):
    found = outcome((2, 6))
    limit = np.full(40, 3.0)
    whole = largest_contrast(found.cells, found.variances, limit)
    monkeypatch.setattr("kanab.scan.stats.outlier_guard._AT_ONCE", 100)
    assert largest_contrast(found.cells, found.variances, limit).tolist() == whole.tolist()
