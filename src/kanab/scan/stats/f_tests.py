"""The additive fit of many two-way tables, and the paper's pooled F and the robust F of what it leaves.

``means ≈ row effect + column effect`` by weighted least squares. Columns are eliminated; what is left
is one small Laplacian per table, made invertible by tying each connected part to itself. For one table
see ``kanab.stats.ftest``, which computes exactly; here main effects of 100 standard deviations leave twelve digits.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from kanab.scan.stats.table_blocks import CentredCells, Flags, MetricTables, centre_cells
from kanab.stats.ftest import two_marginals
from kanab.stats.gram import Classes, Floats

NO_SQUARES = "no squares were kept"
TOO_FEW_CELLS = "too few combinations hold people"
STILL = "nothing varies in a class, an arm or a level"
ALONE = "a class, an arm or a level has too few people"
EQUAL_LEVELS = "assumes equal variance across levels"

_ROUNDS = 4
"""Each round corrects the error of the one before; four are enough for any table that is not nearly disconnected."""

_NOTHING = 1e-12
"""Marginals that leave no spread to a class drive its share of the largest variance below this."""

_SIGNS = np.array([[1.0, -1.0], [-1.0, 1.0]])

Texts = NDArray[np.object_]
Wholes = NDArray[np.int64]


# ── the additive fit ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Interaction:
    """What rows and columns leave unexplained.

    ``extra`` is Σ w residual²; ``free`` the diagonal of M = I − (hat matrix): the share of each
    class mean that is not taken up by the fit.
    """

    extra: Floats
    residuals: Floats
    free: Floats


def interaction_df(filled: Flags) -> Wholes:
    """Return the interaction's degrees of freedom: non-empty cells − (rows + columns − connected parts)."""
    tables, height, width = filled.shape
    df = np.full(tables, (height - 1) * (width - 1))
    gaps = np.flatnonzero(~filled.all(axis=(1, 2)))
    some = filled[gaps]
    rows, columns = np.any(some, axis=2), np.any(some, axis=1)
    parts = np.rint(np.where(rows, 1.0 / _connected_rows(some).sum(axis=2), 0.0).sum(axis=1)).astype(np.int64)
    df[gaps] = some.sum(axis=(1, 2)) - (rows.sum(axis=1) + columns.sum(axis=1) - parts)
    return df


def _connected_rows(filled: Flags) -> Flags:
    """Tell which rows are connected through columns; every row is with itself."""
    size = filled.shape[1]
    linked = np.einsum("pij,pkj->pik", filled.astype(np.float32), filled.astype(np.float32)) > 0
    linked |= np.eye(size, dtype=bool)
    steps = 1
    while steps < size - 1:
        linked = np.matmul(linked.astype(np.float32), linked.astype(np.float32)) > 0
        steps *= 2
    return np.asarray(linked)


def fit_interaction(means: Floats, weights: Floats) -> Interaction:
    """Fit every table with weights, which are 0 in empty classes."""
    if weights.shape[1:] == (2, 2):
        return _fit_two_by_two(means, weights)
    additive = AdditiveFit(weights)
    rest = means
    for _ in range(_ROUNDS):
        rows, columns = additive.effects(rest)
        rest = rest - rows[:, :, None] - columns[:, None, :]
    residuals = np.where(weights > 0, _without_rounding(rest, means), 0.0)
    return Interaction(np.sum(weights * residuals**2, axis=(1, 2)), residuals, additive.free)


def _without_rounding(values: Floats, means: Floats) -> Floats:
    """Set differences of means to 0 that are nothing but rounding, 45 binary digits down."""
    return np.where(np.abs(values) < 2.0**-45 * np.abs(means).max(axis=(1, 2), keepdims=True), 0.0, values)


def _fit_two_by_two(means: Floats, weights: Floats) -> Interaction:
    """Return (m11 − m10 − m01 + m00)² / Σ 1/w: one contrast is all. Nothing is left where a class is empty."""
    contrast = _without_rounding((means * _SIGNS).sum(axis=(1, 2), keepdims=True), means)
    whole = np.all(weights > 0, axis=(1, 2), keepdims=True)
    inverse = np.where(whole, 1.0 / np.where(weights > 0, weights, 1.0), 0.0)
    total = np.where(whole, inverse.sum(axis=(1, 2), keepdims=True), 1.0)
    free = inverse / total
    extra = np.where(whole, contrast**2 / total, 0.0)[:, 0, 0]
    return Interaction(extra, contrast * _SIGNS * free, free)


@dataclass(frozen=True, eq=False)
class AdditiveFit:
    """Row and column effects by weighted least squares, for given weights."""

    weights: Floats

    @cached_property
    def _shares(self) -> Floats:
        """Each class's share of its column's weight; 0 in an empty column."""
        total = self.weights.sum(axis=1, keepdims=True)
        return self.weights / np.where(total > 0, total, 1.0)

    @cached_property
    def inverse(self) -> Floats:
        """A generalised inverse of the Laplacian of the rows."""
        links = np.einsum("pij,pkj->pik", self.weights, self._shares)
        size = links.shape[1]
        links[:, np.arange(size), np.arange(size)] = 0.0
        diagonal = links.sum(axis=2)  # as a sum of the others: nothing cancels
        connected = _connected_rows(self.weights > 0)
        scale = diagonal.max(axis=1)
        tie = np.where(scale > 0, scale, 1.0)[:, None, None] / connected.sum(axis=2, keepdims=True)
        return np.asarray(np.linalg.inv(np.eye(size) * diagonal[:, :, None] - links + connected * tie))

    def effects(self, values: Floats) -> tuple[Floats, Floats]:
        """Return the row and column effects of some values in the classes."""
        average = np.einsum("pij,pij->pj", self._shares, values)
        slope = np.einsum("pij,pij->pi", self.weights, values - average[:, None, :])
        rows = np.einsum("pik,pk->pi", self.inverse, slope)
        return rows, average - np.einsum("pij,pi->pj", self._shares, rows)

    @cached_property
    def _mixed(self) -> Floats:
        """Inverse × shares: how row effects lean on columns."""
        return np.asarray(np.matmul(self.inverse, self._shares))

    @cached_property
    def free(self) -> Floats:
        """The diagonal of I − hat; 0 in empty classes."""
        total = self.weights.sum(axis=1)
        diagonal = np.einsum("pii->pi", self.inverse)[:, :, None]
        across = np.einsum("pij,pij->pj", self._shares, self._mixed)[:, None, :]
        column = (1.0 / np.where(total > 0, total, 1.0))[:, None, :]
        hat = self.weights * (diagonal - 2 * self._mixed + across + column)
        return np.where(self.weights > 0, np.maximum(1.0 - hat, 0.0), 0.0)

    def row_squares(self) -> Floats:
        """Return Σ M² over all pairs of classes of one row, for every row."""
        total = self.weights.sum(axis=1)
        across = np.matmul(self._shares.transpose(0, 2, 1), self._mixed)
        column = np.where(total > 0, 1.0 / np.where(total > 0, total, 1.0), 0.0)
        across[:, np.arange(total.shape[1]), np.arange(total.shape[1])] += column
        squares = []
        for row in range(self.weights.shape[1]):
            root, mixed = np.sqrt(self.weights[:, row]), self._mixed[:, row]
            inner = self.inverse[:, row, row, None, None] - mixed[:, :, None] - mixed[:, None, :] + across
            hat = root[:, :, None] * root[:, None, :] * inner
            unit = np.eye(total.shape[1]) * (root > 0)[:, :, None]
            squares.append(np.sum((unit - hat) ** 2, axis=(1, 2)))
        return np.stack(squares, axis=1)


# ── the tests ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class FStatistics:
    """F statistics with their degrees of freedom; not a number where a test cannot be done."""

    F: Floats
    num: Floats
    den: Floats
    p: Floats

    @property
    def df(self) -> Floats:
        """Both degrees of freedom, one pair per table."""
        return np.stack([self.num, self.den], axis=1)


@dataclass(frozen=True, eq=False)
class FTests:
    """One metric of a block, tested. ``problem`` says why the robust test could not be done.

    ``variances`` are those of the robust test, per class in steps²; ``shrink`` is the divisor that
    its small-sample correction puts under Σ w residual² / q.
    """

    cells: CentredCells
    pooled: FStatistics
    robust: FStatistics
    problem: Texts
    q: Wholes
    fit: Interaction
    variances: Floats
    shrink: Floats


def run_f_tests(part: MetricTables) -> FTests:
    """Test every table of one metric."""
    cells = centre_cells(part)
    q = interaction_df(cells.filled)
    plain = fit_interaction(cells.means, cells.n)
    variances, row_df, problem = _variances(cells, q)
    weights = np.where(cells.filled, cells.n / _positive(variances), 0.0)
    fit = fit_interaction(cells.means, weights)
    h1, h2 = _small_sample(cells, weights, fit, row_df)
    with np.errstate(invalid="ignore", divide="ignore"):
        shrink = 1 + 2 * (q * h2 - h1) / (q * (q + 2.0))
        robust = _statistics(fit.extra / q / shrink, q, q * (q + 2) / (h1 + 2 * h2), problem == "")
    return FTests(cells, _pooled(cells, plain, q), robust, problem, q, fit, _positive(variances), shrink)


def _pooled(cells: CentredCells, fit: Interaction, q: Wholes) -> FStatistics:
    spread = cells.row_spread
    if spread is None:
        return _statistics(*(np.full(len(q), np.nan),) * 3, np.zeros(len(q), dtype=bool))
    df = cells.n.sum(axis=(1, 2)) - cells.filled.sum(axis=(1, 2))
    rss = spread.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _statistics((fit.extra / q) / (rss / df), q, df, (q >= 1) & (df >= 1) & (rss > 0))


def _statistics(f: Floats, num: NDArray[np.generic], den: Floats, fine: Flags) -> FStatistics:
    f, num, den = (np.where(fine, values, np.nan).astype(np.float64) for values in (f, num, den))
    return FStatistics(f, num, den, f_tails(f, num, den))


def f_tails(f: Floats, num: Floats, den: Floats) -> Floats:
    """Apply ``distributions.f_tail`` to whole arrays."""
    return np.asarray(scipy.special.fdtrc(num, den, f), dtype=np.float64)


def _small_sample(
    cells: CentredCells, weights: Floats, fit: Interaction, row_df: Floats | None
) -> tuple[Floats, Floats]:
    """Return H1 and H2, what estimating the variances costs; one variance per class, or one per row."""
    if row_df is None:
        by_class = np.sum(fit.free**2 / np.where(cells.n > 1, cells.n - 1, 1.0), axis=(1, 2))
        return by_class, by_class
    df = np.where(row_df > 0, row_df, 1.0)
    h2 = np.sum(AdditiveFit(weights).row_squares() / df, axis=1)
    return np.sum(fit.free.sum(axis=2) ** 2 / df, axis=1), h2


# ── variances ──────────────────────────────────────────────────────────────────────────────────


def _variances(cells: CentredCells, q: Wholes) -> tuple[Floats, Floats | None, Texts]:
    """Return a variance for every class, the degrees of freedom of rows where they share one, and problems."""
    kind, filled, n = cells.part.variance, cells.filled, cells.n
    if kind == "by_class":
        assert cells.class_spread is not None
        problem = _problems([(filled, n - 1, cells.class_spread)], q)
        return cells.class_spread / np.where(n > 1, n - 1, 1.0), None, problem
    if kind == "":
        return np.ones_like(n), None, np.full(len(n), NO_SQUARES, dtype=object)
    assert cells.row_spread is not None
    row = (np.any(filled, axis=2), n.sum(axis=2) - filled.sum(axis=2), cells.row_spread)
    if kind == "by_arm":
        each = cells.row_spread / np.where(row[1] > 0, row[1], 1.0)
        return np.broadcast_to(each[:, :, None], n.shape), row[1], _problems([row], q)
    assert cells.column_spread is not None
    column = (np.any(filled, axis=1), n.sum(axis=1) - filled.sum(axis=1), cells.column_spread)
    problem = _problems([row, column, (filled, n - 1, np.ones_like(n))], q)
    variances = _two_marginals(cells, problem == "")
    least = np.where(filled, variances, np.inf).min(axis=(1, 2), initial=np.inf)
    problem[(problem == "") & ~(least > _NOTHING * variances.max(axis=(1, 2), initial=0.0))] = STILL
    return variances, None, problem


def _positive(values: Floats) -> Floats:
    """Put 1 where a variance cannot be had: that table is not tested."""
    return np.where((values > 0) & np.isfinite(values), values, 1.0)


def _problems(groups: list[tuple[Flags, Floats, Floats]], q: Wholes) -> Texts:
    """Return per table a text if groups have too few people or no spread, or there is no interaction to test."""

    def some(condition: Flags) -> Flags:
        return np.asarray(condition.any(axis=tuple(range(1, condition.ndim))))

    alone = np.any([some(there & (df < 1)) for there, df, _ in groups], axis=0)
    still = np.any([some(there & (spread <= 0)) for there, _, spread in groups], axis=0)
    texts = np.full(len(q), "", dtype=object)
    texts[q < 1], texts[still], texts[alone] = TOO_FEW_CELLS, STILL, ALONE
    return texts


def _two_marginals(cells: CentredCells, fine: Flags) -> Floats:
    """Return σ² = u_row · v_column by iterative proportional fitting (``cell_variance``, all at once)."""
    assert cells.row_spread is not None
    assert cells.column_spread is not None
    variances = np.ones_like(cells.n)
    left = np.flatnonzero(fine)
    df = np.where(cells.filled, cells.n - 1, 0.0)[left]
    rows, columns = cells.row_spread[left], cells.column_spread[left]
    u = rows / _divisor(df.sum(axis=2))
    for _ in range(50):
        v = columns / _divisor(np.einsum("pij,pi->pj", df, u))
        moved = rows / _divisor(np.einsum("pij,pj->pi", df, v))
        step = np.abs(np.divide(moved, u, out=np.ones_like(u), where=u > 0) - 1).max(axis=1, initial=0.0)
        u, done = moved, step < 1e-14
        if done.any():
            variances[left[done]] = u[done][:, :, None] * v[done][:, None, :]
            left, df, rows, columns, u = left[~done], df[~done], rows[~done], columns[~done], u[~done]
        if not len(left):
            break
    for place in left.tolist():  # where proportional fitting crawls
        variances[place] = _by_newton(cells, place)
    return variances


def _divisor(values: Floats) -> Floats:
    """Put 1 under empty rows and columns, whose spread is 0."""
    return np.where(values > 0, values, 1.0)


def _by_newton(cells: CentredCells, place: int) -> Floats:
    part = cells.part
    assert part.rows is not None
    assert part.columns is not None
    at = np.argwhere(cells.filled[place])
    inside = tuple(at.T)
    counts, sums = part.counts[place].astype(object)[inside], cells.centred[place].astype(object)[inside]
    classes = Classes(at, counts, sums, int(cells.centre[place]), part.metric.scale)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        spread = two_marginals(classes, part.rows[place].astype(object), part.columns[place].astype(object))
    variances = np.ones(cells.n.shape[1:])
    variances[inside] = spread.variances
    return variances
