"""The additive fit and both F tests, for many tables at once."""

import numpy as np
import pytest

from kanab import Metric, Tally, count_columns
from kanab.scan.stats.f_tests import (
    ALONE,
    NO_SQUARES,
    STILL,
    TOO_FEW_CELLS,
    AdditiveFit,
    fit_interaction,
    interaction_df,
    run_f_tests,
)
from kanab.scan.stats.table_blocks import SAFE, MetricTables, blocks_of_tables, centre_cells, compact
from kanab.stats import pooled_f, robust_f
from kanab.tally import Factor
from kanab.tally.moments import Moments

BINARY = Metric("y", 1, (0, 1))

rng = np.random.default_rng(2)


def tables(shape, count=20, empty=0.0):
    n = rng.integers(2, 50, (count, *shape)).astype(float)
    n[rng.random(n.shape) < empty] = 0.0
    means = np.where(n > 0, rng.normal(0, 1, n.shape), 0.0)
    return n, means


def by_lstsq(n, means):
    """Residuals, extra sum of squares, leverage-free shares and rank of one table, by the full design."""
    places = np.argwhere(n > 0)
    root = np.sqrt(n[tuple(places.T)])
    design = np.concatenate([np.eye(n.shape[axis])[places[:, axis]] for axis in (0, 1)], axis=1)
    u, s, _ = np.linalg.svd(root[:, None] * design, full_matrices=False)
    basis = u[:, s > 1e-9]
    m = np.eye(len(places)) - basis @ basis.T
    rest = m @ (root * means[tuple(places.T)])
    return rest / root, float(rest @ rest), m, places


@pytest.mark.parametrize("shape", [(2, 2), (2, 5), (3, 3), (8, 2), (4, 7)])
@pytest.mark.parametrize("empty", [0.0, 0.3])
def test_residuals_extra_squares_and_leverages_are_those_of_the_full_design(shape, empty):
    n, means = tables(shape, empty=empty)
    found, q = fit_interaction(means, n), interaction_df(n > 0)
    for at in range(len(n)):
        if not n[at].any():
            continue
        rest, extra, m, places = by_lstsq(n[at], means[at])
        inside = tuple(places.T)
        assert q[at] == round(np.trace(m))
        assert found.residuals[at][inside] == pytest.approx(rest, abs=1e-12)
        assert found.extra[at] == pytest.approx(extra, rel=1e-10, abs=1e-12)
        assert found.free[at][inside] == pytest.approx(np.diag(m), abs=1e-12)


def test_shares_within_rows_are_those_of_the_full_design():
    n, means = tables((3, 4), empty=0.2)
    found = AdditiveFit(n).row_squares()
    for at in range(len(n)):
        _, _, m, places = by_lstsq(n[at], means[at])
        for row in range(3):
            own = places[:, 0] == row
            assert found[at, row] == pytest.approx(np.sum(m[np.ix_(own, own)] ** 2), abs=1e-12)


def test_an_additive_table_leaves_exactly_nothing():
    rows, columns = rng.integers(-(10**9), 10**9, (2, 30, 3))
    means = (rows[:, :, None] + columns[:, None, :]).astype(float)
    n = rng.integers(1, 1000, means.shape).astype(float)
    for shape in ((slice(None), slice(2), slice(2)), (slice(None),) * 3):
        assert not fit_interaction(means[shape], n[shape]).extra.any()


def test_two_by_two_with_an_empty_class_has_no_interaction():
    n = np.array([[[5.0, 0.0], [5.0, 5.0]]])
    assert interaction_df(n > 0).tolist() == [0]
    assert fit_interaction(np.ones_like(n), n).extra.tolist() == [0.0]


@pytest.mark.parametrize(
    ("filled", "q"),
    [
        ([[1, 1], [1, 1]], 1),
        ([[1, 1, 0], [1, 1, 0], [0, 0, 1]], 1),
        ([[1, 1, 0], [0, 1, 1], [1, 0, 1]], 1),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], 0),
        ([[1, 1, 1], [1, 1, 1], [0, 0, 0]], 2),
        ([[0, 0], [0, 0]], 0),
    ],
)
def test_degrees_of_freedom_count_connected_parts(filled, q):
    assert interaction_df(np.array([filled], dtype=bool)).tolist() == [q]


def tally(shape, seed, *, low=5, high=60, size=1, squares="marginals", metric=None):
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
    return run_f_tests(block.metrics[0])


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (3, 3), (8, 5)])
@pytest.mark.parametrize(("squares", "metric"), [("marginals", None), ("class", None), ("arm", None), ("arm", BINARY)])
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
    found = centre_cells(part)
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
    found = run_f_tests(measured(counts, still, [38, 38, 19], [38, 38, 19]))
    assert found.q.tolist() == [2]
    assert found.problem.tolist() == [STILL]


def measured(counts, sums, rows=None, columns=None, metric=None):
    def cells(values):
        return None if values is None else np.array([values], dtype=object)

    return MetricTables(metric or Metric("y"), cells(counts), cells(sums), cells(rows), cells(columns))


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
    found = run_f_tests(part)
    assert found.problem.tolist() == [problem]
    assert np.isnan(found.robust.F[0]) == (problem != "")


def test_the_pooled_test_needs_spread_and_more_people_than_classes():
    still = run_f_tests(measured([[5, 5], [5, 5]], [[5, 10], [5, 5]], [25, 10], [10, 25]))
    single = run_f_tests(measured([[1, 1], [1, 1]], [[5, 10], [5, 5]], [125, 50], [50, 125]))
    assert np.isnan([still.pooled.F[0], single.pooled.F[0]]).all()
    assert [still.problem[0], single.problem[0]] == [STILL, ALONE]


def test_compact_uses_64_bits_where_all_numbers_fit():
    assert compact(np.array([1, -5], dtype=object)).dtype == np.int64
    assert compact(np.array([1, int(SAFE)], dtype=object)).dtype == object
    assert compact(np.array([2**63 - 1])).dtype == object
    assert compact(np.empty((0, 2), dtype=object)).dtype == np.int64
