"""Both F tests for many tables at once."""

import numpy as np
import pytest

from kanab import Metric, Tally, count_columns
from kanab.scan.stats.cells import Measured, blocks_of_tables, cells_of
from kanab.scan.stats.tests import ALONE, NO_SQUARES, STILL, TOO_FEW_CELLS, f_tests
from kanab.stats import pooled_f, robust_f
from kanab.tally import Factor
from kanab.tally.moments import Moments

BINARY = Metric("y", 1, (0, 1))


def tally(shape, seed, *, low=5, high=60, size=1, squares="margins", metric=None):
    """A pair's table of random people, with a spread that differs by class."""
    rng = np.random.default_rng(seed)
    rows = {"a": [], "b": [], "y": []}
    for a in range(shape[0]):
        for b in range(shape[1]):
            n = int(rng.integers(low, high))
            y = rng.integers(0, 2, n) if metric is BINARY else np.rint(rng.normal(50, 5 + 9 * a * b, n)) * size
            for name, values in (("a", [a] * n), ("b", [b] * n), ("y", y.tolist())):
                rows[name] += values
    return count_columns(rows, arm=["a", "b"], metrics={"y": metric or Metric("y")}, squares=squares)


def outcome(*tables):
    (block,) = blocks_of_tables(tables, ["y"])
    return f_tests(block.metrics[0])


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (3, 3), (8, 5)])
@pytest.mark.parametrize(("squares", "metric"), [("margins", None), ("class", None), ("arm", None), ("arm", BINARY)])
def test_every_table_is_tested_as_by_itself(shape, squares, metric):
    tables = [tally(shape, seed, squares=squares, metric=metric, low=20) for seed in range(6)]
    if squares == "arm" and metric is None:
        tables = [without(table, "b") for table in tables]
    found = outcome(*tables)
    for at, table in enumerate(tables):
        for fs, test in ((found.pooled, pooled_f), (found.robust, robust_f)):
            expected = test(table)
            assert (fs.F[at], fs.num[at], fs.den[at]) == pytest.approx((expected.F, *expected.df), rel=1e-12)
            assert fs.p[at] == pytest.approx(expected.p, rel=1e-11)


def without(table, name):
    """The table without the squares by one experiment."""
    part = table.moments[0]
    kept = {by: cells for by, cells in part.squares.items() if by != (name,)}
    return Tally(table.factors, table.people, (Moments(part.metric, part.counts, part.sums, kept),))


def test_numbers_beyond_64_bits_cost_no_digits():
    tables = [tally((2, 3), seed, size=2**40) for seed in range(4)]
    small = outcome(*(tally((2, 3), seed) for seed in range(4)))
    large = outcome(*tables)
    assert large.cells.part.rows.dtype == object
    assert large.pooled.F.tolist() == pytest.approx(small.pooled.F.tolist(), rel=1e-13)
    assert large.robust.F.tolist() == pytest.approx(small.robust.F.tolist(), rel=1e-13)


def test_sums_at_the_edge_of_64_bits_are_added_exactly():
    near = 2**61
    part = measured([[5, 5], [5, 5]], [[near, near + 7], [near + 20, near + 1]], metric=Metric("y", 4))
    found = cells_of(part)
    assert found.centre.tolist() == [(4 * near + 28) // 20]
    centre = found.centre[0]
    assert found.centred.tolist() == [
        [[near - 5 * centre, near + 7 - 5 * centre], [near + 20 - 5 * centre, near + 1 - 5 * centre]]
    ]


def test_where_proportional_fitting_crawls_newtons_method_takes_over():
    """Two halves that hardly touch: fifty rounds of proportional fitting are not enough."""
    n = np.array([[5000, 2, 2], [2, 5000, 2], [2, 2, 5000]], dtype=object)
    rng = np.random.default_rng(1)
    spread = np.array([[int(x) for x in row] for row in rng.integers(1, 1000, (3, 3))], dtype=object) * (n - 1)
    sums = n * 0
    part = Moments(Metric("y"), n, sums, {("a",): spread.sum(axis=1), ("b",): spread.sum(axis=0)})
    factors = tuple(Factor(name, (0, 1, 2), "arm") for name in "ab")
    table = Tally(factors, n, (part,))
    expected = robust_f(table)
    found = outcome(table)
    assert (found.robust.num[0], found.robust.den[0]) == pytest.approx(expected.df, rel=1e-11)
    cells = found.variances[0] * (n - 1).astype(float)
    assert cells.sum(axis=1) == pytest.approx(spread.sum(axis=1).astype(float), rel=1e-9)
    assert cells.sum(axis=0) == pytest.approx(spread.sum(axis=0).astype(float), rel=1e-9)


def test_margins_that_leave_no_spread_to_a_class_say_so():
    """Row 2 has one class, which takes all of column 2: nothing is left for the two classes above it."""
    counts, still = [[20, 20, 20], [20, 20, 20], [0, 0, 20]], [[0, 0, 0]] * 3
    found = f_tests(measured(counts, still, [38, 38, 19], [38, 38, 19]))
    assert found.q.tolist() == [2]
    assert found.problem.tolist() == [STILL]


def measured(counts, sums, rows=None, columns=None, metric=None):
    def cells(values):
        return None if values is None else np.array([values], dtype=object)

    return Measured(metric or Metric("y"), cells(counts), cells(sums), cells(rows), cells(columns))


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (measured([[5, 5], [5, 5]], [[5, 5], [5, 5]]), NO_SQUARES),
        (measured([[5, 5], [5, 0]], [[5, 5], [5, 0]], [50, 25], [45, 30]), TOO_FEW_CELLS),
        (measured([[1, 5], [5, 5]], [[1, 5], [5, 5]], [50, 50], [50, 50]), ALONE),
        (measured([[5, 5], [5, 5]], [[5, 5], [5, 5]], [10, 50], [20, 40]), STILL),
        (measured([[5, 5], [5, 5]], [[0, 2], [3, 1]], metric=BINARY), STILL),
        (measured([[5, 5], [5, 5]], [[1, 2], [3, 1]], metric=BINARY), ""),
    ],
)
def test_what_cannot_be_tested_says_why(part, problem):
    found = f_tests(part)
    assert found.problem.tolist() == [problem]
    assert np.isnan(found.robust.F[0]) == (problem != "")


def test_the_pooled_test_needs_spread_and_more_people_than_classes():
    still = f_tests(measured([[5, 5], [5, 5]], [[5, 10], [5, 5]], [25, 10], [10, 25]))
    single = f_tests(measured([[1, 1], [1, 1]], [[5, 10], [5, 5]], [125, 50], [50, 125]))
    assert np.isnan([still.pooled.F[0], single.pooled.F[0]]).all()
    assert [still.problem[0], single.problem[0]] == [STILL, ALONE]


def test_sums_are_centred_near_the_mean_of_each_table():
    part = measured([[5, 5], [5, 5]], [[5 * 10**12, 5 * 10**12 + 3]] * 2, [50 * 10**24, 50 * 10**24], [0, 0])
    found = cells_of(part)
    assert found.centre.tolist() == [10**12]
    assert found.centred.tolist() == [[[0, 3], [0, 3]]]
    assert found.means.high[0].tolist() == [[0.0, 0.6], [0.0, 0.6]]
