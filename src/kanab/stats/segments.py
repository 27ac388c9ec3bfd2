"""Segments: where the effect differs, each level against the rest, as a follow-up to the F test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.cell_variance import Spread
from kanab.stats.distributions import satterthwaite_df, t_tail
from kanab.stats.ftest import TwoWay, cell_spread, finest_variance, two_way
from kanab.stats.gram import Classes, Floats
from kanab.stats.multiplicity import Correction, correct
from kanab.tabular import number, p_value
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally


@dataclass(frozen=True)
class FollowUp:
    """The effect in one level, the effect in the rest, and whether the two differ."""

    metric: str
    covariate: str
    level: Level
    arm: Level
    control: Level
    effect: float
    rest: float
    difference: float
    se: float
    df: float
    t: float
    p: float
    p_adjusted: float

    def __str__(self) -> str:
        return (
            f"{self.metric}: {label(self.arm)} − {label(self.control)} is {number(self.effect)} where "
            f"{self.covariate} is {label(self.level)} and {number(self.rest)} in the rest; difference "
            f"{number(self.difference)} ± {number(self.se)}, p = {p_value(self.p)}, "
            f"adjusted {p_value(self.p_adjusted)}"
        )


@check_arguments()
def follow_ups(
    tally: Tally,
    covariate: str | None = None,
    metric: str | None = None,
    *,
    control: Any = None,
    correction: Correction = "holm",
) -> tuple[FollowUp, ...]:
    """Return, for every arm and level, the effect there minus the effect in the rest.

    The rest weighs its levels by their people in both arms together, so that an uneven mix of
    levels is not taken for a difference. Variances are those of the robust F; p-values are
    corrected over all levels and arms. Two levels make one comparison, not two. Raises `AnalysisError`
    for a pair of experiments, and where variances cannot be estimated.

    >>> from kanab.datasets import eighteen
    >>> print(follow_ups(eighteen())[1])
    minutes: B − A is -1.500 where tier is 2 and 0.5720 in the rest; difference -2.072 ± 0.2752, p = 8.48e-06, ...
    """
    cells = two_way(tally, covariate, metric)
    if len(cells.tally.arms) != 1:
        raise AnalysisError("a pair of experiments has no levels to follow up", "Test arm × covariate.")
    spread = cell_spread(cells, finest_variance(cells))
    if spread.problem:
        raise AnalysisError(f"not testable: {spread.problem}", "Merge levels, or wait for more people.")
    arms = cells.tally.factors[0]
    base = arms.levels[arms.index(control)] if control is not None else arms.control
    residuals = cells.residuals(cells.classes.n)
    present = sorted(set(cells.classes.places[:, 1].tolist()))
    chosen = present if len(present) > 2 else present[1:]
    pairs = [((arm, base), level) for arm in arms.levels if arm != base for level in chosen]
    tried = [_follow(cells, spread, residuals, pair, level) for pair, level in pairs]
    comparisons = [comparison for comparison in tried if comparison is not None]
    corrected = correct([comparison.p for comparison in comparisons], correction)
    return tuple(replace(comparison, p_adjusted=p or 0.0) for comparison, p in zip(comparisons, corrected, strict=True))


def _follow(cells: TwoWay, spread: Spread, residuals: Floats, pair: tuple[Level, Level], level: int) -> FollowUp | None:
    """Compare one level with the rest; None where a cell that this needs is empty."""
    arms, levels = cells.tally.factors
    arm, base = (arms.levels.index(name) for name in pair)
    row = {(int(a), int(b)): position for position, (a, b) in enumerate(cells.classes.places)}
    shared = [other for other in range(len(levels.levels)) if {(arm, other), (base, other)} <= row.keys()]
    rest = [other for other in shared if other != level]
    if level not in shared or not rest:
        return None
    n = cells.classes.n
    people = np.array([n[row[arm, other]] + n[row[base, other]] for other in rest])
    weights = np.zeros(len(n))
    for side, sign in ((arm, 1.0), (base, -1.0)):
        weights[row[side, level]] = sign
        for other, share in zip(rest, people / people.sum(), strict=True):
            weights[row[side, other]] = -sign * share
    scale = cells.classes.scale
    effects = {other: _exact_difference(cells.classes, row[arm, other], row[base, other]) for other in shared}
    difference = float(weights @ residuals) / scale  # main effects cancel: nothing large is subtracted
    noise = weights**2 * spread.variances[spread.group] / n
    parts: Floats = np.bincount(spread.group, weights=noise, minlength=len(spread.df)).astype(np.float64)
    df = satterthwaite_df(parts, spread.df)
    se = float(np.sqrt(parts.sum())) / scale
    t = difference / se
    p = t_tail(t, df)
    return FollowUp(
        cells.metric, levels.name, levels.levels[level], *pair,
        effects[level] / scale, float(people @ [effects[other] for other in rest] / people.sum()) / scale,
        difference, se, df, t, p, p,
    )  # fmt: skip


def _exact_difference(classes: Classes, first: int, second: int) -> float:
    """Return one cell's mean minus another's, in steps, rounded once."""
    (s, t), (n, m) = (classes.sums[[first, second]].tolist(), classes.counts[[first, second]].tolist())
    return float(Fraction(s, n) - Fraction(t, m))
