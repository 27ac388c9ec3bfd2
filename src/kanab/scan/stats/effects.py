"""What an interaction looks like: each experiment's effect within every arm of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kanab.errors import AnalysisError
from kanab.stats.distributions import satterthwaite_df, t_quantile
from kanab.stats.ftest import TwoWay, cell_spread, finest_variance, two_way
from kanab.stats.gram import Floats
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

CONFIDENCE = 0.95
"""Of every interval."""


@dataclass(frozen=True)
class EffectWithin:
    """The effect of an arm of one experiment among the people of one arm of the other."""

    experiment: str
    arm: Level
    control: Level
    within: str
    level: Level
    effect: float
    se: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class PairEffects:
    """A pair's class means, and both experiments' effects within the arms of the other.

    ``means[i][j]`` belongs to arm i of the first and arm j of the second; None in an empty class.
    """

    metric: str
    experiments: tuple[str, str]
    arms: tuple[tuple[Level, ...], tuple[Level, ...]]
    means: tuple[tuple[float | None, ...], ...]
    effects: tuple[EffectWithin, ...]
    chosen: tuple[str, ...] = ()


def effects_within(
    tally: Tally,
    metric: str | None = None,
    *,
    controls: Mapping[str, Level] | None = None,
) -> PairEffects:
    """Return the means of a pair's classes, and effects within arms with the robust test's variances.

    Effects are measured against each experiment's control, or the one in ``controls``, with intervals of 95 %. Raises
    `AnalysisError` where the table is not of two experiments, or cannot be tested.
    """
    cells = two_way(tally, None, metric)
    if len(cells.tally.arms) != 2:
        raise AnalysisError("this is not a table of two experiments", "Give the table of a pair.")
    spread = cell_spread(cells, finest_variance(cells))
    if spread.problem:
        raise AnalysisError(f"not testable: {spread.problem}", "Merge arms, or wait for more people.")
    variances, df = spread.variances[spread.group], spread.df[spread.group]
    classes, factors = cells.classes, cells.tally.factors
    shape = cells.tally.shape
    tables = [np.full(shape, np.nan) for _ in range(3)]
    for table, values in zip(tables, (classes.means, variances / classes.n, df), strict=True):
        table[tuple(classes.places.T)] = values
    effects: list[EffectWithin] = []
    for axis in (0, 1):
        base = (controls or {}).get(factors[axis].name, factors[axis].control)
        mean, noise, freedom = (table if axis == 0 else table.T for table in tables)
        effects += _effects(cells, axis, factors[axis].index(base), (mean, noise, freedom))
    scale = classes.scale
    means = tuple(
        tuple(None if np.isnan(value) else float(value + classes.centre) / scale for value in row) for row in tables[0]
    )
    arms = (factors[0].levels, factors[1].levels)
    return PairEffects(cells.metric, (factors[0].name, factors[1].name), arms, means, tuple(effects))


def _effects(cells: TwoWay, axis: int, control: int, tables: tuple[Floats, Floats, Floats]) -> list[EffectWithin]:
    """Compare every arm with the control, within every arm of the other experiment."""
    factor, other = cells.tally.factors[axis], cells.tally.factors[1 - axis]
    mean, noise, freedom = tables
    scale = cells.classes.scale
    effects = []
    for arm in range(len(factor.levels)):
        for level in range(len(other.levels)):
            if arm == control or np.isnan(mean[arm, level]) or np.isnan(mean[control, level]):
                continue
            parts = noise[[arm, control], level]
            df = satterthwaite_df(parts, freedom[[arm, control], level])
            effect = float(mean[arm, level] - mean[control, level]) / scale
            se = float(np.sqrt(parts.sum())) / scale
            half = t_quantile((1 + CONFIDENCE) / 2, df) * se
            sides = (factor.name, factor.levels[arm], factor.levels[control], other.name, other.levels[level])
            effects.append(EffectWithin(*sides, effect, se, (effect - half, effect + half)))
    return effects
