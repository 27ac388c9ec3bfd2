"""The variances of cells: by class, by arm, or from two marginals of squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.stats.gram import Classes, Floats
from kanab.tally.cells import Cells

_STILL = "nothing varies in a class, an arm or a level"
_ALONE = "a class, an arm or a level has too few people"


@dataclass(frozen=True, eq=False)
class Spread:
    """Variance groups: which one each cell is in, their variances (steps²) and degrees of freedom."""

    group: NDArray[np.intp]
    variances: Floats
    df: Floats
    problem: str = ""


def _spread(group: NDArray[np.intp], within: Floats, df: Floats) -> Spread:
    if np.any(df < 1):
        return Spread(group, within, df, _ALONE)
    if np.any(within <= 0):
        return Spread(group, within, df, _STILL)
    return Spread(group, within / df, df)


def by_class(classes: Classes, squares: Cells) -> Spread:
    """Return a variance for every cell."""
    return _spread(np.arange(len(classes.counts)), classes.within_each(squares), classes.n - 1)


def by_arm(classes: Classes, squares: Cells) -> Spread:
    """Return one variance per arm, the same in all levels."""
    return _spread(*marginal(classes, squares, 0))


def marginal(classes: Classes, squares: Cells, axis: int) -> tuple[NDArray[np.intp], Floats, Floats]:
    """Return Σ (y − cell mean)² and people − cells, for each row (axis 0) or column (axis 1)."""
    present, group = np.unique(classes.places[:, axis], return_inverse=True)
    inside = [group == position for position in range(len(present))]
    within = [classes.within(int(squares[level]), rows) for level, rows in zip(present, inside, strict=True)]
    df = [float(classes.n[rows].sum() - rows.sum()) for rows in inside]
    return group, np.array(within), np.array(df)


def two_marginals(classes: Classes, rows: Cells, columns: Cells) -> Spread:
    """Return σ² = u_row · v_column, fitted to both marginals by iterative proportional fitting."""
    row, row_within, row_df = marginal(classes, rows, 0)
    column, column_within, column_df = marginal(classes, columns, 1)
    freedom = classes.n - 1
    cells = np.arange(len(freedom))
    if np.any(freedom < 1) or np.any(row_df < 1) or np.any(column_df < 1):
        return Spread(cells, freedom, freedom, _ALONE)
    if np.any(row_within <= 0) or np.any(column_within <= 0):
        return Spread(cells, freedom, freedom, _STILL)
    u = row_within / row_df
    v = np.ones(len(column_within))
    for _ in range(50):
        v = column_within / np.bincount(column, weights=freedom * u[row])
        moved = row_within / np.bincount(row, weights=freedom * v[column])
        step = float(np.max(np.abs(moved / u - 1)))
        u = moved
        if step < 1e-14:
            break
    else:
        u, v = _newton((row, row_within, u), (column, column_within, v), freedom)
    return Spread(cells, u[row] * v[column], freedom)


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
