"""How much can one person move?"""

import numpy as np
import pytest

from kanab import Metric
from kanab.scan.stats.cells import Measured
from kanab.scan.stats.guard import FARTHEST, guard, widened
from kanab.scan.stats.tests import f_tests

rng = np.random.default_rng(4)
BINARY = Metric("y", 1, (0, 1))


def numbers(n=2_000, tables=30, shift=0, metric=None, sd=1000):
    """Tables of 2 × 2 classes of n people about a mean."""
    counts = np.full((tables, 2, 2), n)
    spread = np.rint(rng.chisquare(counts - 1) * sd**2).astype(np.int64)
    sums = np.rint(rng.normal(0, np.sqrt(n) * sd, counts.shape)).astype(np.int64) + n * shift
    squares = spread + sums.astype(object) ** 2 // n
    return f_tests(Measured(metric or Metric("y", 1000), counts, sums, squares.sum(axis=2), squares.sum(axis=1)))


def ones(n, rates, tables=30):
    counts = np.broadcast_to(np.array(n), (tables, 2, 2)).copy()
    return f_tests(Measured(BINARY, counts, rng.binomial(counts, rates)))


def test_one_person_moves_the_difference_of_effects_by_its_distance_over_its_class():
    tested = numbers(shift=5_000)
    found = guard(tested, (0.0, 20.0))
    cells = tested.cells
    means = cells.means.high + cells.centre[:, None, None].astype(float)
    distance = np.maximum(20_000 - means, means)
    se = np.sqrt(np.sum(tested.variances / cells.n, axis=(1, 2)))
    assert found.pull == pytest.approx(np.max(distance / cells.n, axis=(1, 2)) / se, rel=1e-12)


def test_without_bounds_nobody_is_farther_than_thirty_deviations_or_than_the_squares_allow():
    tested = numbers()
    pull = FARTHEST * np.sqrt(np.max(tested.fit.free / tested.cells.n, axis=(1, 2)))
    assert guard(tested, None).pull == pytest.approx(pull, rel=0.01)
    tiny = numbers(n=12)
    spread = np.sqrt(np.minimum(tiny.cells.row_spread.max(axis=1), tiny.cells.column_spread.max(axis=1)))
    se = np.sqrt(np.sum(tiny.variances / 12, axis=(1, 2)))
    assert np.all(guard(tiny, None).pull <= spread / 12 / se * (1 + 1e-9))


def test_narrow_bounds_leave_large_classes_as_they_are():
    tested = numbers(n=10**6, metric=Metric("y", 1000, (-6, 6)))
    assert guard(tested, None).p == pytest.approx(tested.robust.p, rel=0.06)


def test_declared_bounds_of_the_metric_come_first():
    tested = numbers(metric=Metric("y", 1000, (-6, 6)))
    assert guard(tested, (0.0, 1e9)).pull.tolist() == guard(tested, None).pull.tolist()


@pytest.mark.parametrize("tested", [numbers(), numbers(n=20), ones(50, 0.3), ones([[20, 900], [900, 5000]], 0.2)])
def test_the_careful_p_is_never_below_the_robust_one(tested):
    fine = ~np.isnan(tested.robust.p)
    assert fine.any()
    assert np.all(guard(tested, None).p[fine] >= tested.robust.p[fine])


def test_few_ones_by_chance_do_not_make_a_class_steady():
    counts = np.array([[[100, 900], [900, 8100]]])
    tested = f_tests(Measured(BINARY, counts, np.array([[[4, 180], [180, 1620]]])))
    found = guard(tested, None)
    assert tested.robust.p[0] < 1e-7  # a variance from four ones
    assert 1e-4 < found.p[0] < 0.01  # twenty were expected: P(4 or fewer) is 2e-5 one-sided
    assert found.variances[0, 0, 0] > 3 * tested.variances[0, 0, 0]


def test_what_cannot_be_tested_has_no_careful_p():
    tested = f_tests(Measured(BINARY, np.full((1, 2, 2), 9), np.array([[[0, 2], [3, 4]]])))
    assert np.isnan(guard(tested, None).p[0])


def test_widening_undoes_the_deflation():
    critical, pull = rng.uniform(1.5, 6, 50), rng.uniform(0, 2, 50)
    wide = widened(critical, pull)
    assert wide**2 / (1 + pull * wide / 3) == pytest.approx(critical**2, rel=1e-12)
