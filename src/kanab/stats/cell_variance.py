"""The variances of cells: by class, by arm, or from two marginals of squares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kanab.stats.gram import Classes, Floats
from kanab.stats.noise_variance import TOO_NOISY, ClassNoise, floats, freedom_with_noise
from kanab.tally.cell_arrays import Cells

_STILL = "nothing varies in a class, an arm or a level"
_ALONE = "a class, an arm or a level has too few people"

KNOWN = 1e9
"""The degrees of freedom of a variance that is known: that of noise. Files have no number without end."""

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
