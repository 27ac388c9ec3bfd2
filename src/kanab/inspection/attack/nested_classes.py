"""Subtracting classes inside classes: a region without its countries is a group that no table shows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Background
from kanab.inspection.attack.differencing import find_small_classes
from kanab.inspection.attack.findings import Finding
from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, Axis, finest_levels, flat_places
from kanab.inspection.attack.value_bounds import find_exposed_values
from kanab.privacy.subtraction.remainders import Partition, Remainders, find_remainders, partitions_of
from kanab.tally.cells import Cells
from kanab.tally.factor import Level
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments

NESTED = "nested classes"
MOST_PEOPLE = 2_000_000
"""Of what is known, or of the combinations of levels that are possible; with more it is not tried."""

_PEOPLE = Metric("\ufffd", 1)  # people as if they were a metric: no other has that name
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Overlap:
    """Tables, and the class in each of them of everybody who is known, or of every combination that is possible."""

    title: str
    tables: tuple[AttackedTable, ...]
    cells: Ints
    people: Ints


@dataclass(frozen=True, eq=False)
class _RemainderTable(AttackedTable):
    """Remainders as a table, each described by its own words."""

    def words(self, place: tuple[int, ...], by: By | None = None) -> str:  # noqa: ARG002 - it has one axis
        return str(self.axes[0].levels[place[0]])


def find_nested_classes(
    releases: Sequence[AttackedRelease], k: int, background: Background | None = None
) -> list[Finding]:
    """Find what classes without the classes inside them say about fewer than k people.

    Which level lies inside which is told by level maps (the same covariate, merged differently), by tables of two
    covariates, and by what is known of people.
    """
    findings: list[Finding] = []
    contributors = {metric: of for release in releases for metric, of in release.contributors.items()}
    for overlap in (*_by_levels(releases), *([] if background is None else [_by_knowledge(background)])):
        if len(overlap.people) <= MOST_PEOPLE:
            for remainders in find_remainders(list(_partitions(overlap)), overlap.people):
                findings += _say(overlap, remainders, contributors, k)
    return list({(finding.metric, finding.learnt): finding for finding in findings}.values())


# ── who is in which class ──────────────────────────────────────────────────────────────────────


def _by_knowledge(background: Background) -> _Overlap:
    titles = dict.fromkeys(title.rpartition(", ")[0] for title in background.titles)
    return _Overlap(" and ".join(titles), background.tables, background.cells, background.people)


def _by_levels(releases: Sequence[AttackedRelease]) -> Iterator[_Overlap]:
    """Yield every two tables of the same experiments of which it is told how their levels overlap."""
    crossed = [table for release in releases for table in release.tables if len(_covariates(table)) > 1]
    alike: dict[frozenset[str], list[tuple[AttackedRelease, AttackedTable]]] = {}
    single = [
        (release, table)
        for release in releases
        for table in release.tables
        if len(_covariates(table)) == 1 and table.moments
    ]
    for release, table in single:
        alike.setdefault(table.experiments, []).append((release, table))
    done = dict.fromkeys(alike, 0)
    for before, first in single:
        done[first.experiments] += 1
        for after, second in alike[first.experiments][done[first.experiments] :]:
            if before.apart(after):
                continue
            title = before.name if before is after else f"{before.name} and {after.name}"
            pairs = _pairs_of_levels(first.axis(*_covariates(first)), second.axis(*_covariates(second)), crossed)
            if pairs is not None:
                yield _crossed(title, first, second, pairs)


def _covariates(table: AttackedTable) -> By:
    return tuple(axis.name for axis in table.axes if axis.role != "arm")


def _pairs_of_levels(first: Axis, second: Axis, crossed: Sequence[AttackedTable]) -> Ints | None:
    """Return the places of levels that somebody may have together, a row each; None where nothing tells."""
    if first.name == second.name:
        levels = finest_levels([first, second])
        places = np.array([[first.place(level), second.place(level)] for level in levels], dtype=np.int64)
        return np.unique(places, axis=0)
    for table in crossed:
        if {first.name, second.name} <= set(table.names) and not table.hidden.any():
            both = table.by((first.name, second.name))
            mine, theirs = (_behind(axis, finer) for axis, finer in zip(both.axes, (first, second), strict=True))
            together = zip(*np.nonzero(both.people), strict=True)
            pairs = [pair for i, j in together for pair in product(mine[i], theirs[j])]
            return np.unique(np.array(pairs, dtype=np.int64).reshape(-1, 2), axis=0)
    return None


def _behind(coarse: Axis, fine: Axis) -> list[list[int]]:
    """Return the places in a table's own axis of what stands behind each level of a coarser one."""
    behind: list[set[int]] = [set() for _ in coarse.levels]
    levels: list[Level] = finest_levels([coarse, fine])
    for level in levels:
        if coarse.place(level) != OUT and fine.place(level) != OUT:
            behind[coarse.place(level)].add(fine.place(level))
    return [sorted(places) for places in behind]


def _crossed(title: str, first: AttackedTable, second: AttackedTable, pairs: Ints) -> _Overlap:
    """Return the combinations of arms and levels that are possible, each standing for one person."""
    arms = [axis for axis in first.axes if axis.role == "arm"]
    sizes = [len(axis.levels) for axis in arms]
    combined = np.array(list(np.ndindex(*sizes)), dtype=np.int64).reshape(math.prod(sizes), len(sizes))
    arm = np.repeat(combined, len(pairs), axis=0)
    level = np.tile(pairs, (len(combined), 1))
    cells = []
    for side, table in enumerate((first, second)):
        places = []
        for axis in table.axes:
            if axis.role == "arm":
                own = next(other for other in arms if other.name == axis.name)
                into = np.array([axis.place(arm_name) for arm_name in own.levels], dtype=np.int64)
                places.append(into[arm[:, arms.index(own)]])
            else:
                places.append(level[:, side])
        cells.append(flat_places(table, places))
    return _Overlap(title, (first, second), np.stack(cells, axis=1), np.ones(len(arm), dtype=np.int64))


# ── what is left ───────────────────────────────────────────────────────────────────────────────


def _partitions(overlap: _Overlap) -> Iterator[Partition]:
    """Yield the classes of every table, and of its marginals: blacked-out classes are known by nobody."""
    for number, table in enumerate(overlap.tables):
        column = overlap.cells[:, number]
        shown = np.where((column < 0) | table.hidden.ravel()[column], OUT, column)
        marginals = [table.names] if table.hidden.any() else _marginals(table.names)
        people = Moments(_PEOPLE, table.people, table.people, {})
        yield from partitions_of(number, shown, table.names, marginals, [people, *table.moments])


def _marginals(names: By) -> list[By]:
    return [by for length in range(len(names), -1, -1) for by in combinations(names, length)]


def _say(overlap: _Overlap, remainders: Remainders, contributors: Mapping[str, str], k: int) -> list[Finding]:
    """Look at remainders as at any other classes."""
    known = remainders.numbers(_PEOPLE.name)
    assert known is not None, "every table has people"
    there = [place for place, n in enumerate(known.counts) if n > 0]
    if not there:
        return []
    tables = [overlap.tables[number] for number in sorted(remainders.tables)]
    people = known.counts[there]
    metrics = {part.metric.name: part.metric for table in tables for part in table.moments}
    parts = []
    axis = Axis(NESTED, tuple(_words(overlap, remainders, place) for place in there))
    for name, metric in metrics.items():
        numbers = remainders.numbers(name)
        if numbers is not None:
            squares: dict[By, Cells] = (
                {} if numbers.squares is None or metric.binary else {(NESTED,): numbers.squares[there]}
            )
            parts.append(Moments(metric, numbers.counts[there], numbers.sums[there], squares))
    shape = (len(there),)
    table = _RemainderTable(
        " − ".join(table.name for table in tables), (axis,), people, np.zeros(shape, dtype=bool),
        tuple(parts),
    )  # fmt: skip
    release = AttackedRelease(overlap.title, (table,), k, contributors=contributors)
    findings = [*find_small_classes([release], k), *find_exposed_values([release], k)]
    return [replace(finding, attack=NESTED) for finding in findings]


def _words(overlap: _Overlap, remainders: Remainders, place: int) -> str:
    """Describe a remainder: the class that it is a part of, and whose classes were subtracted."""
    numbers = sorted(remainders.tables)
    if remainders.outer.marginal is not None:
        number, by = remainders.outer.marginal
        table = overlap.tables[number]
        shape = [len(table.axis(name).levels) for name in by]
        classes = (np.unravel_index(flat, shape) for flat in remainders.groups[place].outer)
        where = " or ".join(table.words(tuple(int(i) for i in at), by) or "everybody" for at in classes)
    else:
        number, where = numbers[0], f"a part of {overlap.tables[numbers[0]].name}"
    others = [overlap.tables[other].name for other in numbers if other != number]
    return f"{where}, without the classes of {' and '.join(others) or 'its table'} inside it"
