"""The paper's pooled F and the robust F for many tables at once (see ``ftest`` for one table)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from kanab.scan.stats.cells import Cells, Flags, Measured, cells_of
from kanab.scan.stats.fit import Additive, Interaction, freedom, interaction
from kanab.stats.cell_variance import two_marginals
from kanab.stats.gram import Classes, Floats

NO_SQUARES = "no squares were kept"
TOO_FEW_CELLS = "too few combinations hold people"
STILL = "nothing varies in a class, an arm or a level"
ALONE = "a class, an arm or a level has too few people"
EQUAL_LEVELS = "assumes equal variance across levels"

Texts = NDArray[np.object_]


@dataclass(frozen=True, eq=False)
class Fs:
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

    cells: Cells
    pooled: Fs
    robust: Fs
    problem: Texts
    q: NDArray[np.int64]
    fit: Interaction
    variances: Floats
    shrink: Floats


def f_tests(part: Measured) -> FTests:
    """Test every table of one metric."""
    cells = cells_of(part)
    q = freedom(cells.filled)
    plain = interaction(cells.means, cells.n)
    variances, row_df, problem = _variances(cells, q)
    weights = np.where(cells.filled, cells.n / _positive(variances), 0.0)
    fit = interaction(cells.means, weights)
    h1, h2 = _small_sample(cells, weights, fit, row_df)
    with np.errstate(invalid="ignore", divide="ignore"):
        shrink = 1 + 2 * (q * h2 - h1) / (q * (q + 2.0))
        robust = _tail(fit.extra / q / shrink, q, q * (q + 2) / (h1 + 2 * h2), problem == "")
    return FTests(cells, _pooled(cells, plain, q), robust, problem, q, fit, _positive(variances), shrink)


def _pooled(cells: Cells, fit: Interaction, q: NDArray[np.int64]) -> Fs:
    spread = cells.row_spread
    if spread is None:
        return _tail(*(np.full(len(q), np.nan),) * 3, np.zeros(len(q), dtype=bool))
    df = cells.n.sum(axis=(1, 2)) - cells.filled.sum(axis=(1, 2))
    rss = spread.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return _tail((fit.extra / q) / (rss / df), q, df, (q >= 1) & (df >= 1) & (rss > 0))


def _tail(f: Floats, num: NDArray[np.generic], den: Floats, fine: Flags) -> Fs:
    f, num, den = (np.where(fine, values, np.nan).astype(np.float64) for values in (f, num, den))
    return Fs(f, num, den, f_tails(f, num, den))


def f_tails(f: Floats, num: Floats, den: Floats) -> Floats:
    """``distributions.f_tail`` for whole arrays."""
    return np.asarray(special.fdtrc(num, den, f), dtype=np.float64)


def _small_sample(cells: Cells, weights: Floats, fit: Interaction, row_df: Floats | None) -> tuple[Floats, Floats]:
    """H1 and H2: what estimating the variances costs; one variance per class, or one per row."""
    if row_df is None:
        own = np.sum(fit.free**2 / np.where(cells.n > 1, cells.n - 1, 1.0), axis=(1, 2))
        return own, own
    df = np.where(row_df > 0, row_df, 1.0)
    return np.sum(fit.free.sum(axis=2) ** 2 / df, axis=1), np.sum(Additive(weights).shared() / df, axis=1)


# ── variances ──────────────────────────────────────────────────────────────────────────────────


def _variances(cells: Cells, q: NDArray[np.int64]) -> tuple[Floats, Floats | None, Texts]:
    """A variance for every class, the degrees of freedom of rows where they share one, and problems."""
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


_NOTHING = 1e-12
"""Margins that leave no spread to a class drive its share of the largest variance below this."""


def _positive(values: Floats) -> Floats:
    """Where a variance cannot be had, any number does: the table is not tested."""
    return np.where((values > 0) & np.isfinite(values), values, 1.0)


def _problems(groups: list[tuple[Flags, Floats, Floats]], q: NDArray[np.int64]) -> Texts:
    """Groups with too few people or without any spread, or no interaction to test, as texts per table."""

    def some(condition: Flags) -> Flags:
        return np.asarray(condition.any(axis=tuple(range(1, condition.ndim))))

    alone = np.any([some(there & (df < 1)) for there, df, _ in groups], axis=0)
    still = np.any([some(there & (spread <= 0)) for there, _, spread in groups], axis=0)
    texts = np.full(len(q), "", dtype=object)
    texts[q < 1], texts[still], texts[alone] = TOO_FEW_CELLS, STILL, ALONE
    return texts


def _two_marginals(cells: Cells, fine: Flags) -> Floats:
    """σ² = u_row · v_column by iterative proportional fitting (``cellvar.two_marginals``, all at once)."""
    assert cells.row_spread is not None
    assert cells.column_spread is not None
    found = np.ones_like(cells.n)
    left = np.flatnonzero(fine)
    df = np.where(cells.filled, cells.n - 1, 0.0)[left]
    rows, columns = cells.row_spread[left], cells.column_spread[left]
    u = rows / _at_least_one(df.sum(axis=2))
    for _ in range(50):
        v = columns / _at_least_one(np.einsum("pij,pi->pj", df, u))
        moved = rows / _at_least_one(np.einsum("pij,pj->pi", df, v))
        step = np.abs(np.divide(moved, u, out=np.ones_like(u), where=u > 0) - 1).max(axis=1, initial=0.0)
        u, done = moved, step < 1e-14
        if done.any():
            found[left[done]] = u[done][:, :, None] * v[done][:, None, :]
            left, df, rows, columns, u = left[~done], df[~done], rows[~done], columns[~done], u[~done]
        if not len(left):
            break
    for place in left.tolist():  # where proportional fitting crawls
        found[place] = _one_by_newton(cells, place)
    return found


def _at_least_one(values: Floats) -> Floats:
    """Divisors of empty rows and columns, whose spread is 0."""
    return np.where(values > 0, values, 1.0)


def _one_by_newton(cells: Cells, place: int) -> Floats:
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
