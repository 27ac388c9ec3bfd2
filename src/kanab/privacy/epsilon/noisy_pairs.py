"""Tables of people by two covariates with noise: what an adjustment for several covariates needs.

They are measured at the levels that the tables of both covariates have, which were merged by counts with noise. What
is merged further is decided by counts with noise, too, with one map per covariate for all its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kanab.counted import Counted
from kanab.plan.model import MOST_CLASSES, Plan
from kanab.plan.pairs import Pair, planned_pairs
from kanab.privacy.epsilon.merge import TOO_FEW, deviations, enough, people_with_noise
from kanab.privacy.epsilon.split import Statistic, TableScales
from kanab.privacy.merging import LevelMap
from kanab.privacy.overlap import ReleasedTable, column
from kanab.privacy.pairs import MOST_CELLS, Maps, SingleTables, pair_left_out, same_levels
from kanab.stats.noise import FEWEST_DEVIATIONS
from kanab.tally.factor import Factor
from kanab.tally.tally import Tally

_NOT_COUNTED = "a collector counts people by one covariate at a time"


@dataclass(frozen=True)
class NoisyPairs:
    """The tables of two covariates, what was merged for them, and why others are left out."""

    tables: Mapping[str, Tally] = field(default_factory=dict)
    maps: Mapping[str, LevelMap] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def with_factors(tally: Tally, factors: Mapping[str, Factor]) -> Tally:
    """Return a table with all declared arms and levels, whether or not anybody has them."""
    for factor in tally.factors:
        tally = tally._fold(factors[factor.name], factors[factor.name].positions(factor.levels))
    return tally


def exact_pairs(counted: Counted, factors: Mapping[str, Factor]) -> dict[str, Tally]:
    """Return people by arm and two covariates with all declared levels; none of a collector's.

    A collector knows combinations of levels for some people and for others not, which depends on the people.
    """
    signatures = counted.signatures
    if signatures is None or signatures.within:
        return {}
    pairs = planned_pairs(counted.plan)
    names = {pair.single(covariate) for pair in pairs.values() for covariate in pair.covariates}
    tables = {name: counted.tallies[name] for name in names}
    columns = {name: column(counted, ReleasedTable(name)) for name in names}
    singles = SingleTables(tables, columns, signatures.people)
    unmerged = singles.unmerged()
    return {name: with_factors(singles.table(pair, unmerged), factors) for name, pair in pairs.items()}


def noisy_pairs(
    plan: Plan,
    tables: Mapping[str, Tally],
    merged: Mapping[str, LevelMap],
    exact: Mapping[str, Tally],
    scales: Mapping[str, TableScales],
) -> NoisyPairs:
    """Measure pairs both of whose covariates have a table, and merge levels until their classes have enough people.

    A class within a few deviations of 0 is as good as empty, and stays.
    """
    left_out: dict[str, str] = {}
    drawn: dict[str, Tally] = {}
    pairs = {n: p for n, p in planned_pairs(plan).items() if all(p.single(name) in tables for name in p.covariates)}
    for name, pair in pairs.items():
        sizes = [len(tables[pair.single(covariate)].covariates[0].levels) for covariate in pair.covariates]
        if name not in exact:
            left_out[name] = pair_left_out(pair, _NOT_COUNTED)
        elif math.prod(sizes) * len(exact[name].factors[0].levels) > MOST_CLASSES:
            left_out[name] = pair_left_out(pair, TOO_FEW)
        else:
            whole = exact[name]
            for levels in (merged.get(pair.single(covariate)) for covariate in pair.covariates):
                whole = whole if levels is None else levels.apply(whole)
            by = (pair.experiment, *pair.covariates)
            drawn[name] = people_with_noise(whole, scales[name][Statistic("people", by=by)])
    singles = SingleTables(tables, {}, np.zeros(0, dtype=np.int64))
    maps = {name: same_levels(tables[name]) for pair in pairs.values() for name in map(pair.single, pair.covariates)}
    while sparse := [name for name in drawn if not _dense(_coarse(drawn[name], pairs[name], maps), plan.k)]:
        coarser = singles.coarser(pairs[sparse[0]], maps)
        if coarser is None:
            left_out[sparse[0]] = pair_left_out(pairs[sparse[0]], TOO_FEW)
            del drawn[sparse[0]]
        else:
            maps = dict(coarser)
    further = {pairs[name].map_name(c): maps[pairs[name].single(c)] for name in drawn for c in pairs[name].covariates}
    return NoisyPairs(
        {name: _coarse(table, pairs[name], maps) for name, table in drawn.items()},
        {name: levels for name, levels in further.items() if levels.merged},
        left_out,
    )


def _coarse(table: Tally, pair: Pair, maps: Maps) -> Tally:
    for covariate in pair.covariates:
        table = maps[pair.single(covariate)].apply(table)
    return table


def _dense(table: Tally, k: int) -> bool:
    empty = np.abs(table.people.astype(np.float64)) <= FEWEST_DEVIATIONS * deviations(table)
    return table.people.size <= MOST_CELLS and bool(np.all(enough(table, k) | empty))
