"""Merging levels by counts with noise: a class stays if its people, noise and all, are k and a few deviations more.

Tables of people by two covariates, which an adjustment for several covariates needs, are measured at the levels that
the tables of both have. What is merged further is decided by counts with noise, too, with one map per covariate for
all its pairs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from kanab.counted import Counted
from kanab.plan.model import MOST_CLASSES, Linkage, Plan
from kanab.plan.pairs import Pair, planned_pairs
from kanab.privacy.class_rules import smallest_share
from kanab.privacy.epsilon.mechanism import Scale, add_noise
from kanab.privacy.epsilon.split import Statistic, TableScales
from kanab.privacy.merging import SAFETY_FACTOR, LevelMap, merge_levels, merge_smallest, without_means
from kanab.privacy.overlap import ReleasedTable, column
from kanab.privacy.pairs import MOST_CELLS, Maps, PairTables, SingleTables, pair_left_out, same_levels
from kanab.stats.noise import FEWEST_DEVIATIONS
from kanab.tally.factor import OTHER, Factor, Level, label
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally

TOO_SPARSE = "its levels are too sparse for this noise, merged they would be one"
TOO_FEW = "too few people share its classes for this noise"


def people_with_noise(exact: Tally, scale: Scale) -> Tally:
    """Return the people of a table with noise, and nothing else of it."""
    variance = np.full(exact.shape, scale.variance, dtype=object)
    return Tally(exact.factors, add_noise(exact.people, scale), noise=AddedNoise(variance))


def deviations(noisy: Tally) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the standard deviation of the noise in the people of every class."""
    assert noisy.noise is not None
    return np.asarray(np.sqrt(noisy.noise.people.astype(np.float64)))


def enough(noisy: Tally, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which classes have k people and `FEWEST_DEVIATIONS` of their noise."""
    return np.asarray(noisy.people.astype(np.float64) >= k + FEWEST_DEVIATIONS * deviations(noisy))


def holds(noisy: Tally, k: int) -> bool:
    """Return whether every class has enough people."""
    return bool(np.all(enough(noisy, k)))


def merge_to_k(noisy: Tally, linkage: Linkage, plan: Plan, begun: LevelMap | None = None) -> tuple[LevelMap, Tally]:
    """Return the map of levels whose classes have enough people, or that leaves a single level, and what it makes.

    What decides, and the scores of merged levels, are counts with noise. A map that earlier batches have ``begun`` is
    kept, or becomes coarser.
    """
    covariate = str(linkage.covariate)
    possible = Tally(noisy.factors, np.maximum(noisy.people, 1))
    share = smallest_share(plan.experiment(linkage.experiments[0]), possible)
    least = plan.k + FEWEST_DEVIATIONS * float(deviations(noisy).flat[0])
    levels = begun or merge_levels(possible, covariate, SAFETY_FACTOR * least / share)
    while True:
        named = levels
        if begun != levels:  # scores and names as they are read
            named = without_means(levels, possible) if linkage.people_only else _with_names(levels)
        merged = named.apply(noisy) if named.merged or named.scores else noisy
        if len(levels.groups) == 1 or holds(merged, plan.k):
            return named, merged
        levels = merge_smallest(possible, levels)


def merged_alike(exact: Tally, levels: LevelMap, merged: Tally) -> Tally:
    """Return an exact table with the levels of a table with noise that were merged by a map."""
    new, old = merged.factor(levels.covariate), exact.factor(levels.covariate)
    return exact._fold(new, new.positions([levels.target(level) for level in old.levels]))


def _with_names(levels: LevelMap) -> LevelMap:
    """Name a level after itself where it was merged with the missing one alone, which nobody may have.

    >>> _with_names(LevelMap("device", (("tv", ("tv",)), ("other", ("phone", None))), {})).groups
    (('tv', ('tv',)), ('phone or missing', ('phone', None)))
    """
    names: dict[Level, Level] = {
        new: f"{label(olds[0])} or missing" for new, olds in levels.groups if new == OTHER and olds[1:] == (None,)
    }
    return replace(levels, groups=tuple((names.get(new, new), olds) for new, olds in levels.groups))


# ── tables of people by two covariates ───────────────────────────────────────────────────────────

_NOT_COUNTED = "a collector counts people by one covariate at a time"


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
) -> PairTables:
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
    return PairTables(
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
