"""A release as an attacker sees it: whatever its file says, also what the gate would have refused, or blacked out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kanab.description import DEFAULT_K
from kanab.errors import KanabError, SourceError
from kanab.plan.file import plan_from_dict
from kanab.privacy.epsilon.accountant import cohort_numbers
from kanab.privacy.epsilon.rho import SpentRho
from kanab.privacy.epsilon.split import TableScales, noise_of, spent_by, stated_noise
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Batch, NoiseReceipt, refuse_own_rows
from kanab.tally.cell_arrays import Cells, fold, marginal
from kanab.tally.factor import Factor, Level, Role, label
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.noise import AddedNoise
from kanab.tally.plain import Document, read

OUT = -1
"""The place of people who are not in a table."""

_UNNAMED = "\ufffd"  # stands for every level that a map does not name
_FIELDS = set(Document.__struct_fields__)

_Place = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """One side of a published table; ``merged`` says which levels were put together."""

    name: str
    levels: tuple[Level, ...]
    role: Role = "covariate"
    merged: LevelMap | None = None

    @cached_property
    def _places(self) -> dict[tuple[bool, Level], int]:
        return {_key(level): place for place, level in enumerate(self.levels)}

    def place(self, level: Level) -> int:
        """Return where somebody with this level stands; ``OUT`` if nowhere."""
        target = level if self.merged is None else self.merged.target(level)
        return self._places.get(_key(target), OUT)


def finest_levels(versions: Sequence[Axis]) -> list[Level]:
    """Return the finest levels that some published versions of one axis tell apart."""
    levels: dict[tuple[bool, Level], Level] = {}
    cuts: set[float] = set()
    for axis in versions:
        if axis.merged is None:
            named: list[Level] = list(axis.levels)
        else:
            named = [old for _, olds in axis.merged.groups for old in olds]
            named += [_UNNAMED] if axis.merged.rest else []
            cuts |= set(axis.merged.cuts or ())
        levels |= {_key(level): level for level in named}
    if cuts:
        edges = [min(cuts) - 1, *sorted(cuts), max(cuts) + 1]
        levels |= {_key(middle): middle for middle in ((low + high) / 2 for low, high in pairwise(edges))}
    return list(levels.values())


@dataclass(frozen=True, eq=False)
class AttackedTable:
    """One table: people per class, which classes are blacked out, the numbers of every metric, and products."""

    name: str
    axes: tuple[Axis, ...]
    people: Cells
    hidden: NDArray[np.bool_]
    moments: tuple[Moments, ...] = ()
    crosses: tuple[Cross, ...] = ()

    @cached_property
    def names(self) -> By:
        """The names of its axes."""
        return tuple(axis.name for axis in self.axes)

    @cached_property
    def experiments(self) -> frozenset[str]:
        """The experiments that somebody must be in to be in this table."""
        return frozenset(axis.name for axis in self.axes if axis.role == "arm")

    def axis(self, name: str) -> Axis:
        """Return an axis by its name."""
        return self.axes[self.names.index(name)]

    def part(self, metric: str) -> Moments | None:
        """Return the numbers of one metric, if the table has them."""
        return next((part for part in self.moments if part.metric.name == metric), None)

    def places(self) -> Iterator[_Place]:
        """Yield every class that is not blacked out."""
        return (place for place in np.ndindex(*self.people.shape) if not self.hidden[place])

    def words(self, place: _Place, by: By | None = None) -> str:
        """Describe a class, or a cell of a marginal: ``variant = A, tier = 3``."""
        axes = self.axes if by is None else [self.axis(name) for name in by]
        return ", ".join(f"{axis.name} = {label(axis.levels[i])}" for axis, i in zip(axes, place, strict=True))

    def by(self, names: By) -> AttackedTable:
        """Return the same people by only these axes; what adds up a blacked-out class is blacked out."""
        table = self
        for name in self.names:
            if name not in names:
                table = table._without(name)
        return table._ordered(names)

    def _without(self, name: str) -> AttackedTable:
        axes = tuple(axis for axis in self.axes if axis.name != name)
        return AttackedTable(
            self.name,
            axes,
            marginal(self.people, self.names, [axis.name for axis in axes]),
            np.asarray(self.hidden.any(axis=self.names.index(name))),
            tuple(part.collapse(self.names, name) for part in self.moments),
        )

    def _ordered(self, names: By) -> AttackedTable:
        if names == self.names:
            return self
        order = [self.names.index(name) for name in names]
        return AttackedTable(
            self.name,
            tuple(self.axes[position] for position in order),
            self.people.transpose(order),
            self.hidden.transpose(order),
            tuple(
                Moments(part.metric, part.counts.transpose(order), part.sums.transpose(order), part.squares)
                for part in self.moments
            ),
        )

    def folded(self, axis: Axis, into: Sequence[int]) -> AttackedTable:
        """Return the same people with the levels of one axis sent to their places in a coarser one."""
        position = self.names.index(axis.name)
        size = len(axis.levels)
        hidden = fold(self.hidden.astype(object), position, into, size).astype(bool)
        return AttackedTable(
            self.name,
            tuple(axis if other.name == axis.name else other for other in self.axes),
            fold(self.people, position, into, size),
            hidden,
            tuple(part.fold(self.names, axis.name, into, size) for part in self.moments),
        )


def alike(left: AttackedTable, right: AttackedTable, names: By) -> tuple[AttackedTable, AttackedTable]:
    """Return two tables by the same axes and the finest levels that both can be added up to."""
    left, right = left.by(names), right.by(names)
    for name in names:
        first, second = left.axis(name), right.axis(name)
        if first.merged is None and second.merged is None and first.levels == second.levels:
            continue
        common, mine, theirs = _coarsened(first, second)
        left, right = left.folded(common, mine), right.folded(common, theirs)
    return left, right


def _coarsened(first: Axis, second: Axis) -> tuple[Axis, list[int], list[int]]:
    """Return the finest axis that both can be folded to, and where their levels go in it."""
    groups: list[set[tuple[int, int]]] = [{(0, i)} for i in range(len(first.levels))]
    groups += [{(1, i)} for i in range(len(second.levels))]
    for level in finest_levels([first, second]):
        met = {(side, axis.place(level)) for side, axis in enumerate((first, second)) if axis.place(level) != OUT}
        touched = [group for group in groups if group & met]
        groups = [group for group in groups if not group & met]
        groups += [set().union(*touched)] if touched else []
    groups.sort(key=min)
    into = {member: place for place, group in enumerate(groups) for member in group}
    levels: list[Level] = []
    for group in groups:
        side = min(group)[0]
        axis = (first, second)[side]
        names = [axis.levels[i] for member, i in sorted(group) if member == side]
        levels.append(names[0] if len(names) == 1 else " + ".join(label(name) for name in names))
    return (
        Axis(first.name, tuple(levels), first.role),
        [into[0, i] for i in range(len(first.levels))],
        [into[1, i] for i in range(len(second.levels))],
    )


def flat_places(table: AttackedTable, places: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return flat indices into a table's classes from places on each of its axes; ``OUT`` where one of them is."""
    inside = [np.maximum(along, 0) for along in places]
    outside = np.any([along == OUT for along in places], axis=0)
    return np.where(outside, OUT, np.ravel_multi_index(inside, table.people.shape))


@dataclass(frozen=True, eq=False)
class StatedNoise:
    """The noise of a release with ε: how every statistic of its tables was measured, and variances by table.

    ``spent`` is what the release costs, ``published`` what those of its tables do that it holds.
    """

    epsilon: float
    delta: float
    scales: Mapping[str, TableScales]
    tables: Mapping[str, AddedNoise]
    spent: SpentRho
    published: SpentRho


@dataclass(frozen=True, eq=False)
class AttackedRelease:
    """One release: its tables, the k that it claims, and the cohorts that it is about.

    ``contributors`` names, for a metric, the 0/1 metric of the people whose value is not 0, ``sensitive`` are metrics
    that are marked so, ``noise`` is what every number of a release with ε carries. A batch that was ``collected``
    promises k within each experiment.
    """

    name: str
    tables: tuple[AttackedTable, ...]
    k: int = DEFAULT_K
    cohorts: str = ""
    contributors: Mapping[str, str] = field(default_factory=dict)
    noise: StatedNoise | None = None
    sensitive: frozenset[str] = frozenset()
    collected: bool = False

    def apart(self, other: AttackedRelease) -> bool:
        """Tell whether the two are about different people: batches of different cohorts are."""
        return bool(self.cohorts and other.cohorts and self.cohorts != other.cohorts)


class _Map(msgspec.Struct):
    covariate: str
    groups: list[tuple[Level, list[Level]]]
    cuts: list[float] | None = None
    rest: bool = False


def published_from_dict(data: Any, name: str) -> AttackedRelease:
    """Read a release from its plain data; raise `SourceError` where it is none, `PrivacyError` where it is internal."""
    refuse_own_rows(data)
    if isinstance(data, dict) and (isinstance(data.get("pairs"), list) or isinstance(data.get("segments"), list)):
        raise SourceError(
            "this is a scan, and attacks do not solve F statistics",
            "Give releases. A scan shares at most one number per 2 (k − 1) people, too few to solve for anybody.",
        )
    tables = _dict(data, "tables")
    if not tables:
        raise SourceError("this is not a release", "Give a file that kanab release wrote.")
    receipt = _dict(data, "receipt")
    k = receipt.get("k")
    cohorts = receipt.get("cohorts") or ""
    metrics = _dict(_dict(data, "plan"), "metrics")
    maps = _dict(data, "levels")
    read_tables = tuple(_table(table, plain, maps) for table, plain in tables.items())
    return AttackedRelease(
        name,
        read_tables,
        k if type(k) is int and k >= 2 else DEFAULT_K,
        cohorts if isinstance(cohorts, str) else json.dumps(cohorts, sort_keys=True),
        {metric: _dict(metrics, metric)["of"] for metric in metrics if _dict(metrics, metric).get("of")},
        noise=_noise(data, read_tables),
        sensitive=frozenset(name for name in metrics if _dict(metrics, name).get("sensitive")),
        collected=bool(receipt.get("store") or receipt.get("effective_k_within")),
    )


def _noise(data: Mapping[str, Any], tables: Sequence[AttackedTable]) -> StatedNoise | None:
    """Return the noise that a file states; None where it has none, or its tables agree as exact ones do."""
    receipt = _dict(data, "receipt")
    if receipt.get("noise") is None or _agree(tables):
        return None
    plan = plan_from_dict(data.get("plan"))
    try:
        stated = msgspec.convert(receipt["noise"], NoiseReceipt)
        maps = {key: _level_map(msgspec.convert(value, _Map)) for key, value in _dict(data, "levels").items()}
        scales = stated_noise(plan, stated)
        batch = msgspec.convert(receipt.get("cohorts"), Batch | None)
        added = {
            table.name: noise_of(
                plan, table.name, scales, tuple(Factor(axis.name, axis.levels, axis.role) for axis in table.axes), maps
            )
            for table in tables
        }
    except (msgspec.ValidationError, KeyError):
        raise SourceError(
            "the noise of this release cannot be read", "Give a file that kanab release wrote.", at="$.receipt.noise"
        ) from None
    spent, published = (
        spent_by(plan, measured, *cohort_numbers(batch))
        for measured in (scales, {name: scales[name] if name in added else {} for name in scales})
    )
    return StatedNoise(stated.epsilon, stated.delta, scales, added, spent, published)


def _agree(tables: Sequence[AttackedTable]) -> bool:
    """Return whether the arms of an experiment add up to the same in several tables, as numbers with noise do not."""
    arms: dict[str, list[tuple[int, ...]]] = {}
    for table in (table for table in tables if len(table.experiments) == 1 and not table.hidden.any()):
        name = next(iter(table.experiments))
        arms.setdefault(name, []).append(tuple(marginal(table.people, table.names, (name,)).tolist()))
    several = [totals for totals in arms.values() if len(totals) > 1]
    return bool(several) and all(len(set(totals)) == 1 for totals in several)


def _table(name: str, plain: Any, levels: Mapping[str, Any]) -> AttackedTable:
    place = f"$.tables.{name}"
    if not isinstance(plain, dict):
        raise SourceError("a table cannot be read", "Give a file that kanab release wrote.", at=place)
    shown, blacked = _without_gaps({key: value for key, value in plain.items() if key in _FIELDS})
    try:
        parts = read(shown)
        maps = {key: msgspec.convert(value, _Map) for key, value in levels.items()}
        hidden = np.zeros(parts.people.shape, dtype=bool)
        for entry in blacked:
            hidden[tuple(factor.index(level) for factor, level in zip(parts.factors, entry["levels"], strict=True))] = (
                True
            )
    except KanabError as problem:
        raise SourceError(problem.fact, problem.remedy, at=f"{place} {problem.at}".strip()) from None
    except (msgspec.ValidationError, ValueError):
        raise SourceError("a table cannot be read", "Give a file that kanab release wrote.", at=place) from None
    axes = tuple(
        Axis(factor.name, factor.levels, factor.role, _map_of(name, maps, factor.name)) for factor in parts.factors
    )
    return AttackedTable(name, axes, parts.people, hidden, parts.moments, parts.crosses)


def _map_of(table: str, maps: Mapping[str, _Map], axis: str) -> LevelMap | None:
    """Return what was merged of one axis; a table of two covariates merges further what their own tables have."""
    own = maps.get(table)
    if own is not None and own.covariate == axis:
        return _level_map(own)
    single, further = maps.get(f"{table.split('/', maxsplit=1)[0]}/{axis}"), maps.get(f"{table}: {axis}")
    if single is None or further is None:
        merged = single or further
        return None if merged is None else _level_map(merged)
    behind = {new: olds or [new] for new, olds in single.groups}
    groups = [(new, [old for level in olds for old in behind.get(level, [level])]) for new, olds in further.groups]
    return _level_map(_Map(axis, groups, rest=single.rest))


def _level_map(merged: _Map) -> LevelMap:
    groups = tuple((new, tuple(olds)) for new, olds in merged.groups)
    return LevelMap(merged.covariate, groups, {}, None if merged.cuts is None else tuple(merged.cuts), merged.rest)


def _without_gaps(plain: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the table without its blacked-out classes, and those."""
    classes = plain.get("classes")
    if not isinstance(classes, list):
        return plain, []
    dicts = [entry for entry in classes if isinstance(entry, dict)]
    blacked = [entry for entry in dicts if entry.get("people", 0) is None and entry.get("levels")]
    return plain | {"classes": [entry for entry in classes if entry not in blacked]}, blacked


def _dict(data: Any, key: str) -> dict[str, Any]:
    """Return a part that is a dict; an empty one if it is not."""
    part = data.get(key) if isinstance(data, dict) else None
    return part if isinstance(part, dict) else {}


def _key(level: Level) -> tuple[bool, Level]:
    """Return a key under which true is not the number 1."""
    return isinstance(level, bool), level
