"""Tables of two covariates at a time, people only: what a joint adjustment for several covariates needs.

They are made of the signatures, after all other tables are decided, and give way first: by merging levels
further than the covariate's own table has them, one map per covariate for all its pairs, or by being left out.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.plan.paired_covariates import Pair, planned_pairs
from kanab.privacy.class_rules import LEAST_DF, smallest_share
from kanab.privacy.joint_rules import smallest_class
from kanab.privacy.leverage import Leverage, holds
from kanab.privacy.merging import SAFETY_FACTOR, LevelMap, merge_smallest
from kanab.privacy.numbers.design import Weights
from kanab.privacy.overlap import Column, ReleasedTable, column, signatures_of
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

MOST_CELLS = 500
"""A pair with more classes has its levels merged: a few hundred adjust as well, and are checked in a second."""

_SPARSE = "too few people share its classes, however its levels are merged"
_EXPOSED = "together with the other tables it would single people out"


@dataclass(frozen=True)
class PairTables:
    """The tables that can be added, what was merged for them, why others are left out, and the effective k of all."""

    tables: Mapping[str, Tally] = field(default_factory=dict)
    maps: Mapping[str, LevelMap] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    effective_k: int | None = None


Maps = Mapping[str, LevelMap]
"""How the levels of every single table are merged for the pairs that its covariate is in."""


@dataclass(frozen=True)
class SingleTables:
    """Published tables of one covariate each, by name, and the class of every signature in them."""

    tables: Mapping[str, Tally]
    columns: Mapping[str, Column]
    people: Column

    def unmerged(self) -> Maps:
        """Return maps that leave every level as it is."""
        return {name: same_levels(table) for name, table in self.tables.items()}

    def column(self, pair: Pair, maps: Maps) -> Column:
        """Return the class of every signature in the table of a pair."""
        crossed: Column = np.zeros_like(self.people)
        inside = np.ones(len(crossed), dtype=bool)
        for name in map(pair.single, pair.covariates):
            factor, places = self.tables[name].covariates[0], self.columns[name]
            targets = [maps[name].target(level) for level in factor.levels]
            order = {target: place for place, target in enumerate(dict.fromkeys(targets))}
            into = np.array([order[target] for target in targets], dtype=np.int64)
            if name == pair.single(pair.first):
                crossed = places // len(factor.levels)
            crossed = crossed * len(order) + into[places % len(factor.levels)]
            inside &= places >= 0
        return np.where(inside, crossed, -1)

    def shape(self, pair: Pair, maps: Maps) -> tuple[int, ...]:
        """Return how many arms and levels the table of a pair has."""
        singles = [pair.single(name) for name in pair.covariates]
        levels = [len(dict.fromkeys(map(maps[name].target, self._levels[name]))) for name in singles]
        return len(self.tables[singles[0]].factors[0].levels), *levels

    def people_in(self, pair: Pair, maps: Maps) -> NDArray[np.int64]:
        """Return the people of a pair, by arm and both covariates."""
        shape, places = self.shape(pair, maps), self.column(pair, maps)
        flat = np.zeros(math.prod(shape), dtype=np.int64)
        np.add.at(flat, places[places >= 0], self.people[places >= 0])
        return flat.reshape(shape)

    def table(self, pair: Pair, maps: Maps) -> Tally:
        """Return the table of a pair: its people, by arm and both covariates."""
        merged = [maps[name].apply(self.tables[name]) for name in map(pair.single, pair.covariates)]
        factors = (merged[0].factors[0], *(table.covariates[0] for table in merged))
        return Tally(factors, self.people_in(pair, maps).astype(object), ())

    @cached_property
    def _levels(self) -> dict[str, dict[Level, int]]:
        """The levels of every table's covariate, with their people."""
        crossed = {name: table for name, table in self.tables.items() if table.covariates}
        return {name: table.people_by(table.covariates[0].name) for name, table in crossed.items()}

    def coarser(self, pair: Pair, maps: Maps) -> Maps | None:
        """Return maps with one level less, the smallest of the pair's; None where both covariates have two left."""
        sizes = {}
        for name in map(pair.single, pair.covariates):
            people = self._levels[name]
            if len(maps[name].groups) > 2:
                sizes[name] = min(sum(people[old] for old in olds) for _, olds in maps[name].groups)
        if not sizes:
            return None
        smallest = min(sizes, key=lambda name: sizes[name])
        return {**maps, smallest: merge_smallest(self.tables[smallest], maps[smallest])}


def same_levels(table: Tally) -> LevelMap:
    """Return the map that leaves the levels of a table's covariate as they are."""
    factor = table.covariates[0]
    return LevelMap(factor.name, tuple((level, (level,)) for level in factor.levels), {})


def single_tables(
    counted: Counted, published: Mapping[str, ReleasedTable], tables: Mapping[str, Tally]
) -> SingleTables:
    """Return the published tables of one covariate with the classes of all signatures, which must be known."""
    columns = {name: column(counted, table) for name, table in published.items()}
    return SingleTables({name: tables[name] for name in published}, columns, signatures_of(counted).people)


def joint_maps(pair: Pair, singles: SingleTables, maps: Maps) -> Maps:
    """Return how the levels of a published pair were merged beyond its single tables, from the maps of a receipt."""
    return {
        pair.single(name): maps.get(pair.map_name(name)) or same_levels(singles.tables[pair.single(name)])
        for name in pair.covariates
    }


def cross_pairs(
    counted: Counted, singles: SingleTables, others: Sequence[Column], weights: Weights | None = None
) -> PairTables:
    """Return the tables of two covariates that may join the published columns ``others`` and products ``weights``."""
    weights = weights or Weights()
    maps, left_out = singles.unmerged(), {}
    kept: list[Pair] = []
    for pair in planned_pairs(counted.plan).values():
        if not all(pair.single(name) in singles.tables for name in pair.covariates):
            continue
        enough = _merged_to_k(counted, singles, pair, maps)
        if enough is None:
            left_out[pair.name] = pair_left_out(pair, _SPARSE)
        else:
            maps, kept = enough, [*kept, pair]
    result = Leverage(float("inf"), -1)
    while kept:
        columns = {pair: singles.column(pair, maps) for pair in kept}
        try:
            result = weights.leverage(np.stack([*others, *columns.values()], axis=1), singles.people)
            if holds(result, counted.plan.k):
                break
            pair = smallest_class(columns, result.worst, singles.people) or kept[-1]
            coarser = singles.coarser(pair, maps)
        except PrivacyError:  # too many classes to check
            pair, coarser = kept[-1], None
        if coarser is not None:
            maps = coarser
        else:
            kept.remove(pair)
            left_out[pair.name] = pair_left_out(pair, _EXPOSED)
    published = {pair.map_name(name): maps[pair.single(name)] for pair in kept for name in pair.covariates}
    return PairTables(
        {pair.name: singles.table(pair, maps) for pair in kept},
        {name: levels for name, levels in published.items() if levels.merged},
        left_out,
        result.floored(counted.plan.k) if kept else None,
    )


def _merged_to_k(counted: Counted, singles: SingleTables, pair: Pair, maps: Maps) -> Maps | None:
    """Merge levels of two covariates until every class that they share has enough people; None where it never has."""
    k = counted.plan.k
    share = smallest_share(counted.plan.experiment(pair.experiment), singles.tables[pair.single(pair.first)])
    trial: Maps | None = maps
    while trial is not None:
        if math.prod(singles.shape(pair, trial)) > MOST_CELLS:
            trial = singles.coarser(pair, trial)
            continue
        people = singles.people_in(pair, trial)
        pooled = people.sum(axis=0)
        few = np.any((pooled > 0) & (pooled < SAFETY_FACTOR * k / share)) or np.any((people > 0) & (people < k))
        many = int(people.sum()) - np.count_nonzero(people) < LEAST_DF
        if not few and not many:
            return trial
        trial = singles.coarser(pair, trial)
    return None


def pair_left_out(pair: Pair, why: str) -> str:
    """Say why a table of two covariates is left out."""
    return f"{pair.first} × {pair.second} is left out: {why}"
