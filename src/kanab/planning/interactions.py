"""The power to see an interference of experiments, or a difference between segments.

The power of the F tests of ``ftest``: two experiments that may interfere, or an effect that may
differ between the levels of a covariate. Any two of people, effect and power give the third.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.planning.power import MOST_PEOPLE, Solved, check_two_of_three, fewest_people
from kanab.planning.spread import positive_shares
from kanab.stats.distributions import check_sides, find_root
from kanab.stats.ftest import cell_spread, finest_variance, two_way
from kanab.stats.gram import Floats
from kanab.tabular import number
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally


@dataclass(frozen=True, eq=False)
class CrossedSpread:
    """The cells of two crossed factors: their shares of the people, and the variance of one person in each."""

    rows: tuple[Level, ...]
    columns: tuple[Level, ...]
    shares: Floats
    variances: Floats

    @property
    def q(self) -> int:
        """Interaction degrees of freedom."""
        return (len(self.rows) - 1) * (len(self.columns) - 1)


@dataclass(frozen=True)
class InteractionPower:
    """People, effect and power that belong together.

    ``effect`` is by how much one cell departs from what rows and columns add up to; ``where`` names the cell, the
    hardest to see.
    """

    solved: Solved
    people: int
    effect: float
    power: float
    where: str
    df: tuple[float, float]
    confidence: float

    def __str__(self) -> str:
        return (
            f"{self.people:,} people see an interaction of {number(self.effect)} ({self.where}) with power "
            f"{100 * self.power:.3g} %; {self.confidence:.0%} confidence, F({self.df[0]:g}, {self.df[1]:,.6g})"
        )


@check_arguments()
def crossed_spread(
    rows: Mapping[Any, float], columns: Mapping[Any, float], *, sd: float | Sequence[Sequence[float]]
) -> CrossedSpread:
    """Return cells from numbers: shares of the arms, and of the levels or of the other experiment's arms.

    ``sd`` is one number, or one per cell. Raises `AnalysisError` for numbers that no experiment has.
    """
    row_levels, row_shares = positive_shares(rows, "level")
    column_levels, column_shares = positive_shares(columns, "level")
    shape = len(row_levels), len(column_levels)
    try:
        variances = np.array(np.broadcast_to(np.asarray(sd, dtype=np.float64), shape)) ** 2
    except (TypeError, ValueError):
        raise AnalysisError("there must be one number, or one per cell", "Rows are arms, columns levels.") from None
    if not np.all(variances > 0):
        raise AnalysisError("a standard deviation must be positive", "Give that of one person's value.")
    return CrossedSpread(row_levels, column_levels, np.outer(row_shares, column_shares), variances)


@check_arguments()
def crossed_spread_of(tally: Tally, covariate: str | None = None, metric: str | None = None) -> CrossedSpread:
    """Return the cells of a tally: arm × covariate, or two experiments, with the finest variances that were kept.

    Raises `AnalysisError` where a combination holds nobody, or its variance is not known.
    """
    cells = two_way(tally, covariate, metric)
    rows, columns = cells.tally.factors
    shape = len(rows.levels), len(columns.levels)
    if len(cells.classes.n) != math.prod(shape):
        raise AnalysisError("a combination holds nobody", "Merge levels so that every combination holds people.")
    spread = cell_spread(cells, finest_variance(cells))
    if spread.problem:
        raise AnalysisError(f"this table cannot be planned with: {spread.problem}", "Merge levels, or wait for more.")
    variances = spread.variances[spread.group]
    unit = cells.classes.scale**2
    shares = cells.classes.n / cells.classes.total
    return CrossedSpread(rows.levels, columns.levels, shares.reshape(shape), variances.reshape(shape) / unit)


@check_arguments()
def interaction_power(
    spread: CrossedSpread,
    *,
    people: int | None = None,
    effect: float | None = None,
    power: float | None = None,
    confidence: float = 0.95,
) -> InteractionPower:
    """Solve for the one of people (in all cells), effect and power that is left out.

    The effect is that of one cell beyond what its row and its column say; in a 2 × 2 table it is the difference of the
    two differences. Raises `AnalysisError` where there is not exactly one to solve for, or no solution.
    """
    check_sides(confidence, "two-sided")
    check_two_of_three(people, effect, power)
    fewest = 2 / float(spread.shares.min())
    if people is not None and not (isinstance(people, Real) and fewest <= float(people) <= MOST_PEOPLE):
        raise AnalysisError("so few (or so many) people cannot be planned with", "Every cell needs two people or more.")
    if power is not None and not (isinstance(power, Real) and 1 - confidence < float(power) < 1):
        raise AnalysisError("the power must lie between the test's own error and 1", "For example 0.8.")
    if effect is not None and not (isinstance(effect, Real) and math.isfinite(effect) and effect != 0):
        raise AnalysisError("the effect must be a finite number other than 0", "In units of the metric.")
    projected = _projector(spread)
    size, where = _size(spread, projected)

    def achieved(n: float, x: float) -> float:
        return _power(spread.q, _df(spread, projected, n), n * x**2 * size, confidence)

    solved: Solved = "power"
    if people is None:
        assert effect is not None
        assert power is not None
        solved, people = "people", math.ceil(fewest_people(lambda n: achieved(n, effect) - power, fewest) - 1e-9)
    elif effect is None:
        assert power is not None
        unit = 1 / math.sqrt(people * size)  # the effect at which the noncentrality is 1
        solved, effect = "effect", unit * find_root(lambda x: achieved(people, x * unit) - power, 0.0, 1e3)
    assert effect is not None
    df = float(spread.q), _df(spread, projected, people)
    return InteractionPower(solved, people, effect, achieved(people, effect), where, df, confidence)


def _projector(spread: CrossedSpread) -> Floats:
    """Return M = I − QQ' of the weighted main-effects design: what rows and columns cannot explain."""
    r, c = spread.shares.shape
    row, column = np.divmod(np.arange(r * c), c)
    main = np.column_stack(
        [np.ones(r * c), *(row == i for i in range(1, r)), *(column == j for j in range(1, c))]
    ).astype(np.float64)
    basis, _ = np.linalg.qr(np.sqrt(_weights(spread))[:, None] * main)
    return np.asarray(np.eye(r * c) - basis @ basis.T)


def _weights(spread: CrossedSpread) -> Floats:
    return np.ravel(spread.shares / spread.variances)


def _size(spread: CrossedSpread, projected: Floats) -> tuple[float, str]:
    """Return the noncentrality per person of a unit effect, and where that effect is."""
    sizes = (_weights(spread) * np.diag(projected)).reshape(spread.shares.shape)[
        1:
    ]  # one cell off by 1, not in the first row
    row, column = (int(place) for place in np.unravel_index(int(np.argmin(sizes)), sizes.shape))
    return float(sizes[row, column]), f"row {label(spread.rows[row + 1])}, column {label(spread.columns[column])}"


def _df(spread: CrossedSpread, projected: Floats, people: float) -> float:
    """Return the denominator's degrees of freedom, of the robust F."""
    freedom = np.maximum(people * np.ravel(spread.shares) - 1, 1e-9)
    h = float(np.sum(np.diag(projected) ** 2 / freedom))
    return (spread.q + 2) * spread.q / (3 * h)


def _power(q: int, df: float, nc: float, confidence: float) -> float:
    """Return how often F is beyond its limit."""
    limit = float(scipy.special.fdtri(q, df, confidence))
    if nc == 0:
        return 1 - confidence
    return min(1.0, max(0.0, 1 - float(scipy.special.ncfdtr(q, df, nc, limit))))
