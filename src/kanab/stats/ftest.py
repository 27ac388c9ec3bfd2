"""F tests: does the effect differ between levels, do two experiments interfere? (paper §8)

The paper's pooled partial F assumes one error variance for all classes. Real segments break that,
so a robust F stands beside it and carries the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, FormulaError, LevelError, listed
from kanab.stats.distributions import f_tail
from kanab.stats.gram import Classes, Floats, Solution, arm_squares, classes_of, difference_of_fits, independent, solve
from kanab.stats.noise_variance import (
    TOO_NOISY,
    ClassNoise,
    class_noise,
    floats,
    freedom_with_noise,
    refuse_noise,
    squares_noise,
)
from kanab.stats.regression import Variable, design, parse
from kanab.tabular import number, p_value
from kanab.tally.cell_arrays import Cells
from kanab.tally.tally import Tally

Variance = Literal["pooled", "by_class", "two_marginals", "by_arm", "score"]

KNOWN = 1e9
"""The degrees of freedom of a variance that is known: that of noise. Files have no number without end."""

NOISE_VARIES = "noise differs between classes, so that only the robust test is made"
"""Why there is no pooled test of numbers with noise."""

EQUAL_VARIANCES = "assumes equal variance across levels"
"""What is said where variances are by arm."""


@dataclass(frozen=True)
class FTest:
    """An F statistic and how it was made; F and p are None where the test cannot be done."""

    metric: str
    between: str
    variance: Variance
    F: float | None
    df: tuple[float, float] | None
    p: float | None
    note: str = ""

    def __str__(self) -> str:
        head = f"{self.metric}: {self.between} ({self.variance.replace('_', ' ')})"
        if self.F is None or self.df is None:
            return f"{head} not testable: {self.note}"
        first, second = self.df
        note = f"; {self.note}" if self.note else ""
        return f"{head} F({first:g}, {second:,.6g}) = {number(self.F, 6)}, p = {p_value(self.p)}{note}"


LARGE = 20_000
"""Designs of more numbers than that are not written down: the levels of the second factor are taken out one by one."""


@dataclass(frozen=True, eq=False)
class LevelsOut:
    """An orthonormal basis of weighted main effects: a column per level of the second factor, then the first factor's.

    A level's column is ``own`` where ``level`` says so, and 0 elsewhere.
    """

    root: Floats
    level: NDArray[np.intp]
    own: Floats
    rest: Floats

    @classmethod
    def of(cls, places: NDArray[np.intp], weights: Floats) -> LevelsOut | None:
        """Return the basis; None where some levels share no row with the others."""
        root = np.sqrt(weights)
        level = np.unique(places[:, 1], return_inverse=True)[1]
        own = root / np.sqrt(np.bincount(level, weights=weights))[level]
        rows = np.unique(places[:, 0])[1:]
        marks = root[:, None] * (places[:, :1] == rows)
        means = [np.bincount(level, weights=own * column)[level] for column in marks.T]
        rest, r = np.linalg.qr(marks - own[:, None] * np.reshape(means, marks.T.shape).T)
        if np.any(np.abs(np.diag(r)) <= 1e-9 * root.max()):
            return None
        return cls(root, level, own, np.asarray(rest))

    def residuals(self, values: Floats) -> Floats:
        """Return what weighted main effects leave of the values."""
        left = self.root * values
        for _ in range(2):  # what rounding leaves of them goes, too
            left = left - self.own * np.bincount(self.level, weights=self.own * left)[self.level]
            left = left - self.rest @ (self.rest.T @ left)
        return np.asarray(left / self.root)

    def left_over(self, group: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the diagonal of the projection onto what is left over, and its squares added within each group.

        No group holds two cells of one level, unless it is a cell by itself.
        """
        alone, others = 1 - self.own**2, np.sum(self.rest**2, axis=1)
        within = np.bincount(group, weights=alone**2 - 2 * alone * others)
        crossed = [self.rest[group == g] for g in range(len(within))] if len(within) < len(group) else []
        added = [float(np.sum((part.T @ part) ** 2)) for part in crossed] or others**2
        return alone - others, within + added


@dataclass(frozen=True, eq=False)
class TwoWay:
    """The cells of two crossed factors and their main-effects design, without idle columns."""

    tally: Tally
    metric: str
    classes: Classes

    @property
    def between(self) -> str:
        """The two factors, in words."""
        return " × ".join(self.tally.axes)

    @cached_property
    def main(self) -> Floats:
        """The main-effects design, a row per cell."""
        terms = tuple((Variable(name, categorical=True),) for name in self.tally.axes)
        matrix = design(self.tally, terms, self.classes).matrix
        return np.asarray(matrix[:, independent(matrix, self.classes.n)])

    def levels_out(self, weights: Floats) -> LevelsOut | None:
        """Return a basis of a large main-effects design; None where it is better written down."""
        if len(self.classes.places) * sum(self.tally.shape) <= LARGE or self.tally.noise is not None:
            return None
        near = float(np.abs(self.classes.means).max()) ** 2 * self.classes.total <= 100 * self.within
        return LevelsOut.of(self.classes.places, weights) if near else None  # far apart: fitted in integers

    @cached_property
    def q(self) -> int:
        """Interaction degrees of freedom: non-empty cells − (rows + columns − components)."""
        basis = self.levels_out(self.classes.n)
        if basis is None:
            return int(self.main.shape[0] - self.main.shape[1])
        return len(basis.level) - int(basis.level.max() + 1 + basis.rest.shape[1])

    @cached_property
    def within(self) -> float:
        """The squares within cells, in steps²."""
        return self.classes.within(int(arm_squares(self.tally, self.metric).sum()))

    def residuals(self, weights: Floats) -> Floats:
        """Return the cell means minus the weighted main-effects fit, in steps."""
        basis = self.levels_out(weights)
        if basis is not None:
            return basis.residuals(self.classes.means)
        return _fit(self.main, weights, self.classes, self.within).residuals

    def left_over(self, weights: Floats, group: NDArray[np.intp], share: Floats | float = 1.0) -> tuple[Floats, Floats]:
        """Return the diagonal of the projection onto what main effects leave over, and its squares in each group.

        With noise a ``share`` of each cell counts.
        """
        basis = self.levels_out(weights)
        if basis is not None:
            return basis.left_over(group)
        columns, _ = np.linalg.qr(np.sqrt(weights)[:, None] * self.main)
        root = np.sqrt(share * np.ones(len(self.main)))
        m = np.outer(root, root) * (np.eye(len(self.main)) - columns @ columns.T)
        same_group = group[:, None] == group[None, :]
        squares = np.bincount(group, weights=np.sum(m**2 * same_group, axis=1))
        return np.diag(m), np.asarray(squares, dtype=np.float64)


def _fit(matrix: Floats, weights: Floats, classes: Classes, within: float) -> Solution:
    names = tuple(str(position) for position in range(matrix.shape[1]))
    return solve(matrix, weights, classes, names, within)


def two_way(tally: Tally, covariate: str | None = None, metric: str | None = None) -> TwoWay:
    """Return the cells of arm × one covariate, or of two experiments; other covariates are collapsed."""
    if len(tally.arms) == 2 and covariate is None:
        table = tally.keep()
    elif len(tally.arms) == 1:
        names = [factor.name for factor in tally.covariates]
        if covariate is None and len(names) != 1:
            raise AnalysisError("name the covariate to test", f"This tally has: {listed(names) or 'none'}.")
        chosen = tally.factor(covariate or names[0])
        if chosen.role == "arm":
            raise LevelError(f"{chosen.name!r} is the experiment itself", "Name a covariate.")
        table = tally.keep(chosen.name)
    else:
        raise AnalysisError(
            "an interaction is tested between two experiments, or between one and a covariate",
            "Collapse the others first.",
        )
    return TwoWay(table, table.moments_of(metric).metric.name, classes_of(table, metric))


@check_arguments()
def pooled_f(tally: Tally, covariate: str | None = None, metric: str | None = None) -> FTest:
    """Test the interaction by the paper's partial F, with one error variance for all classes.

    Numbers with noise are not tested so: what noise does to a mean differs from class to class.
    """
    cells = two_way(tally, covariate, metric)
    classes = cells.classes
    if tally.noise is not None:
        return FTest(cells.metric, cells.between, "pooled", None, None, None, NOISE_VARIES)
    extra = float(classes.n @ cells.residuals(classes.n) ** 2)
    return _pooled(cells.metric, cells.between, (extra, cells.q), (cells.within, classes.total - len(classes.counts)))


def _pooled(metric: str, between: str, extra: tuple[float, int], residual: tuple[float, int]) -> FTest:
    """Return F from the extra and the residual sums of squares, each with its degrees of freedom."""
    (extra_ss, q), (rss, df) = extra, residual
    problem = (
        "too few combinations hold people" if q < 1
        else "there are no more people than classes" if df < 1
        else "nothing varies within the classes" if rss <= 0
        else ""
    )  # fmt: skip
    if problem:
        return FTest(metric, between, "pooled", None, None, None, problem)
    f = (extra_ss / q) / (rss / df)
    return FTest(metric, between, "pooled", f, (float(q), float(df)), f_tail(f, q, df))


@check_arguments()
def robust_f(
    tally: Tally,
    covariate: str | None = None,
    metric: str | None = None,
    *,
    variance: Literal["by_class", "two_marginals", "by_arm"] | None = None,
) -> FTest:
    """Test the interaction by an F that holds its size when classes differ in variance.

    By default variances are by class where class squares are known (0/1 metrics always), else
    from the two marginals of squares, else by arm, which assumes equal variance across levels.
    Noise that numbers carry is added to them, class by class. Raises `AnalysisError` for an unknown
    kind of variance, or one whose squares were not kept.
    """
    cells = two_way(tally, covariate, metric)
    chosen = finest_variance(cells) if variance is None else variance
    spread = cell_spread(cells, chosen)
    note = EQUAL_VARIANCES if chosen == "by_arm" else ""
    if spread.problem or cells.q < 1:
        problem = spread.problem or "too few combinations hold people"
        return FTest(cells.metric, cells.between, chosen, None, None, None, problem)
    weights = cells.classes.n / spread.of_people(cells.classes.n)
    residuals = cells.residuals(weights)
    j = float(weights @ residuals**2)
    q = cells.q
    h1, h2 = _small_sample(cells, weights, spread)
    f = (j / q) / (1 + 2 * (q * h2 - h1) / (q * (q + 2)))
    df = q * (q + 2) / max(h1 + 2 * h2, 1 / KNOWN)
    return FTest(cells.metric, cells.between, chosen, f, (float(q), df), f_tail(f, q, df), note)


def _small_sample(cells: TwoWay, weights: Floats, spread: CellVariance) -> tuple[float, float]:
    """Return H1 and H2: what estimating each group's variance costs (Welch's correction, generalised)."""
    diagonal, u = cells.left_over(weights, spread.group, spread.estimated(cells.classes.n))
    t = np.bincount(spread.group, weights=diagonal)
    return float(np.sum(t**2 / spread.df)), float(np.sum(u / spread.df))


def finest_variance(cells: TwoWay) -> Literal["by_class", "two_marginals", "by_arm"]:
    """Return the finest kind of variance that the kept squares allow."""
    table, metric = cells.tally, cells.metric
    if table.squares(metric, table.axes) is not None:
        return "by_class"
    known = [table.squares(metric, (name,)) is not None for name in table.axes]
    return "two_marginals" if all(known) else "by_arm"


def cell_spread(cells: TwoWay, variance: str) -> CellVariance:
    """Return the variances of the cells, in groups, with their degrees of freedom."""
    table, metric, classes = cells.tally, cells.metric, cells.classes
    if table.noise is not None and variance in NOISY_MARGINALS:
        return _noisy_spread(cells, variance)
    if variance == "by_class":
        return by_class(classes, arm_squares(table, metric, table.axes))
    if variance == "two_marginals":
        rows, columns = (arm_squares(table, metric, (name,)) for name in table.axes)
        return two_marginals(classes, rows, columns)
    if variance == "by_arm":
        return by_arm(classes, arm_squares(table, metric))
    kinds = ", ".join(kind for kind in get_args(Variance) if kind not in ("pooled", "score"))
    raise AnalysisError("unknown kind of variance", f"Use one of: {kinds}.")


NOISY_MARGINALS = {"by_class": (-1,), "two_marginals": (0, 1), "by_arm": (0,)}
"""The marginals of squares that every kind of variance takes: classes (−1), rows (0), columns (1)."""


def _noisy_spread(cells: TwoWay, variance: str) -> CellVariance:
    """Return the variances of cells that carry noise."""
    table, metric, classes = cells.tally, cells.metric, cells.classes
    if len(classes.counts) < table.people.size:
        return CellVariance(np.arange(len(classes.counts)), classes.n, classes.n, TOO_NOISY)
    axes = []
    for axis in NOISY_MARGINALS[variance]:
        by = table.axes if axis < 0 else (table.axes[axis],)
        axes.append((axis, arm_squares(table, metric, by), squares_noise(table, metric, by)))
    return noisy_spread(classes, class_noise(table, metric, classes.places), axes)


@check_arguments()
def nested_f(tally: Tally, main: str, full: str, metric: str | None = None) -> FTest:
    """Test any two nested formulas by the paper's partial F.

    Raises `FormulaError` where the first is not contained in the second.
    """
    refuse_noise(tally, "a test of two formulas")
    classes = classes_of(tally, metric)
    models: Sequence[Floats] = [design(tally, parse(text), classes).matrix for text in (main, full)]
    small, large = (matrix[:, independent(matrix, classes.n)] for matrix in models)
    both = np.column_stack([large, small])
    if independent(both, classes.n).sum() > large.shape[1]:
        raise FormulaError("the first formula is not contained in the second", "Give nested formulas.")
    name = tally.moments_of(metric).metric.name
    within = classes.within(int(arm_squares(tally, name).sum()))
    below, above = (_fit(matrix, classes.n, classes, within) for matrix in (small, large))
    extra = difference_of_fits((large, above), (small, below), classes.n)
    rss = within + float(classes.n @ above.residuals**2)
    q, df = large.shape[1] - small.shape[1], classes.total - large.shape[1]
    return _pooled(name, f"{main} → {full}", (float(classes.n @ extra**2), q), (rss, df))


# ── the variances of cells: by class, by arm, or from two marginals of squares ─────────────────────

_STILL = "nothing varies in a class, an arm or a level"
_ALONE = "a class, an arm or a level has too few people"

_SURE_PEOPLE = 3.0
"""A class has people if they are more than so many standard deviations of their noise."""

_MOST_NOISE = 0.5
"""The error of a cell's mean may be known so badly, as a share of its variance, before nothing is tested."""


@dataclass(frozen=True, eq=False)
class CellVariance:
    """Variance groups: which one each cell is in, their variances (steps²) and degrees of freedom."""

    group: NDArray[np.intp]
    variances: Floats
    df: Floats
    problem: str = ""
    noise: Floats | None = None
    """The variance of the noise in the mean of every cell, where there is some."""

    def of_people(self, n: Floats) -> Floats:
        """Return n times the variance of every cell's mean, noise and all."""
        own = self.variances[self.group]
        return own if self.noise is None else own + n * self.noise

    def estimated(self, n: Floats) -> Floats:
        """Return the share of the variance of every cell's mean that is estimated: noise is known."""
        own = self.variances[self.group]
        return np.ones_like(n) if self.noise is None else own / (own + n * self.noise)


def _spread(group: NDArray[np.intp], within: Floats, df: Floats) -> CellVariance:
    if np.any(df < 1):
        return CellVariance(group, within, df, _ALONE)
    if np.any(within <= 0):
        return CellVariance(group, within, df, _STILL)
    return CellVariance(group, within / df, df)


def by_class(classes: Classes, squares: Cells) -> CellVariance:
    """Return a variance for every cell."""
    return _spread(np.arange(len(classes.counts)), classes.within_each(squares), classes.n - 1)


def by_arm(classes: Classes, squares: Cells) -> CellVariance:
    """Return one variance per arm, the same in all levels."""
    return _spread(*marginal(classes, squares, 0))


def marginal(classes: Classes, squares: Cells, axis: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return Σ (y − cell mean)² and people − cells, for each row (axis 0) or column (axis 1)."""
    present, group = np.unique(classes.places[:, axis], return_inverse=True)
    inside = [group == position for position in range(len(present))]
    within = [classes.within(int(squares[level]), rows) for level, rows in zip(present, inside, strict=True)]
    df = [float(classes.n[rows].sum() - rows.sum()) for rows in inside]
    return group, np.array(within), np.array(df)


def two_marginals(classes: Classes, rows: Cells, columns: Cells) -> CellVariance:
    """Return σ² = u_row · v_column, fitted to both marginals by iterative proportional fitting."""
    row, row_within, row_df = marginal(classes, rows, 0)
    column, column_within, column_df = marginal(classes, columns, 1)
    freedom = classes.n - 1
    cells = np.arange(len(freedom))
    if np.any(freedom < 1) or np.any(row_df < 1) or np.any(column_df < 1):
        return CellVariance(cells, freedom, freedom, _ALONE)
    if np.any(row_within <= 0) or np.any(column_within <= 0):
        return CellVariance(cells, freedom, freedom, _STILL)
    u, v = _fitted((row, row_within), (column, column_within), row_within / row_df, freedom)
    return CellVariance(cells, u[row] * v[column], freedom)


def _fitted(
    rows: tuple[NDArray[np.intp], Floats], columns: tuple[NDArray[np.intp], Floats], start: Floats, freedom: Floats
) -> tuple[Floats, Floats]:
    """Return u and v such that Σ freedom · u · v has both marginals, by iterative proportional fitting."""
    (row, row_within), (column, column_within), u = rows, columns, start
    v = np.ones(len(column_within))
    for _ in range(50):
        v = column_within / np.bincount(column, weights=freedom * u[row])
        moved = row_within / np.bincount(row, weights=freedom * v[column])
        step = float(np.max(np.abs(moved / u - 1)))
        u = moved
        if step < 1e-14:
            return u, v
    return _newton((row, row_within, u), (column, column_within, v), freedom)


def noisy_spread(classes: Classes, noise: ClassNoise, axes: Sequence[tuple[int, Cells, Floats]]) -> CellVariance:
    """Return the variances of cells whose numbers carry noise, from marginals of squares, and the noise in their means.

    ``axes`` are rows (0) or columns (1), or every class (−1), each with its squares and the variance of their noise.
    Noise makes squares within classes too small on average, which is put right. What is left may be below nothing, then
    it is taken for nothing: the noise in the means, which is known, is far more. Two marginals are made to agree on
    everybody's squares first; where one of them is below nothing, the rows alone are taken.
    """
    if np.any(classes.n <= _SURE_PEOPLE * np.sqrt(noise.people)):
        return CellVariance(np.arange(len(classes.n)), classes.n, classes.n, TOO_NOISY)
    sides = [_noisy_marginal(classes, noise, *axis) for axis in axes]
    if len(sides) == 2 and all(np.all(side.within > 0) for side in sides):
        rows, columns = _agreeing(*sides)
        freedom = classes.n - 1
        u, v = _fitted((rows.group, rows.within), (columns.group, columns.within), rows.within / rows.df, freedom)
        variances = u[rows.group] * v[columns.group]
        doubt = (rows.noise / rows.within**2)[rows.group] + (columns.noise / columns.within**2)[columns.group]
        spread = CellVariance(np.arange(len(freedom)), variances, 2 / (2 / freedom + doubt), "", noise.means)
        unsure = variances * np.sqrt(doubt)
    else:
        side = sides[0]
        within = np.maximum(0.0, side.within)
        df = freedom_with_noise(within, side.df, side.noise)
        spread = CellVariance(side.group, within / side.df, df, "", noise.means)
        unsure = (np.sqrt(side.noise) / side.df)[side.group]
    vague = np.any(unsure > _MOST_NOISE * spread.of_people(classes.n))
    return replace(spread, problem=TOO_NOISY) if vague else spread


@dataclass(frozen=True, eq=False)
class _NoisyMarginal:
    """Squares within classes of rows or columns, with the variance of their noise."""

    group: NDArray[np.intp]
    within: Floats
    df: Floats
    noise: Floats


def _noisy_marginal(
    classes: Classes, noise: ClassNoise, axis: int, squares: Cells, variances: Floats
) -> _NoisyMarginal:
    """Return the squares within the classes of every row, column or class, put right for the noise in their means."""
    n, s, k = classes.n, classes.sums, classes.centre
    if axis < 0:
        group, at = np.arange(len(n)), tuple(classes.places.T)
        about, of_squares = squares[at], floats(variances)[at]
    else:
        present, group = np.unique(classes.places[:, axis], return_inverse=True)
        about, of_squares = squares[present], floats(variances)[present]
    people, sums = (
        np.array([int(cells[group == place].sum()) for place in range(len(about))], dtype=object)
        for cells in (classes.counts, s)
    )
    centred = floats(about - 2 * k * (sums + people * k) + people * k**2)
    between = np.bincount(group, weights=floats(s) ** 2 / n - n * noise.means)
    df: Floats = np.bincount(group, weights=n - 1).astype(np.float64)
    within = centred - between
    return _NoisyMarginal(group, within, df, noise.within(group, of_squares, np.maximum(0.0, within) / df))


def _agreeing(rows: _NoisyMarginal, columns: _NoisyMarginal) -> tuple[_NoisyMarginal, _NoisyMarginal]:
    """Return both marginals with the same sum: that of both by their precisions, spread by the noise of each part."""
    sums, noise = zip(*((side.within.sum(), side.noise.sum()) for side in (rows, columns)), strict=True)
    common = (sums[0] / noise[0] + sums[1] / noise[1]) / (1 / noise[0] + 1 / noise[1])
    sides = []
    for side in (rows, columns):
        within = side.within + (common - side.within.sum()) * side.noise / side.noise.sum()
        sides.append(replace(side, within=np.maximum(within, 1e-9 * common)))
    # what was cut off above may have left a difference
    return sides[0], replace(sides[1], within=sides[1].within * sides[0].within.sum() / sides[1].within.sum())


_Side = tuple[NDArray[np.intp], Floats, Floats]


def _newton(rows: _Side, columns: _Side, freedom: Floats) -> tuple[Floats, Floats]:
    """Find the same solution by Newton's method, for tables where proportional fitting crawls.

    It minimises the convex Σ ν e^(α + β) − Σ W_row α − Σ W_column β in α = log u, β = log v.
    """
    (row, row_within, u), (column, column_within, v) = rows, columns
    point, split = np.log(np.concatenate([u, v])), len(u)
    wanted = np.concatenate([row_within, column_within])

    def fitted(at: Floats) -> Floats:
        return np.asarray(freedom * np.exp(at[row] + at[split + column]))

    def objective(at: Floats) -> float:
        return float(fitted(at).sum() - wanted @ at)

    for _ in range(100):
        cells = fitted(point)
        curve = np.zeros((len(point), len(point)))
        np.add.at(curve, (row, row), cells)
        np.add.at(curve, (split + column, split + column), cells)
        np.add.at(curve, (row, split + column), cells)
        np.add.at(curve, (split + column, row), cells)
        slope = wanted - np.concatenate([np.bincount(row, weights=cells), np.bincount(column, weights=cells)])
        step = np.linalg.lstsq(curve, slope, rcond=1e-14)[0]
        while np.max(np.abs(step)) > 1e-15 and objective(point + step) > objective(point):
            step = step / 2
        point = point + step
        if np.max(np.abs(step)) < 1e-14:
            break
    return np.exp(point[:split]), np.exp(point[split:])
