"""Subtracting experiments from experiments: two of the same people but for a few tell about those few."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.differencing import values_of_few
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis, alike
from kanab.privacy.subtraction.experiments import Shares, few_apart, may_be_inside
from kanab.tally.cells import Cells
from kanab.tally.factor import Level, label
from kanab.tally.moments import By

EXPERIMENTS = "experiment differences"


def find_experiment_differences(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find what subtracting one experiment from another says about fewer than k people.

    Totals, and classes of a covariate that both have, summed over arms. Two experiments of other people have such
    differences by chance, which say nothing: so they are only looked at where one may lie inside the other.
    """
    findings: list[Finding] = []
    for release in releases:
        tables: dict[str, list[AttackedTable]] = {}
        for table in release.tables:
            if len(table.experiments) == 1 and len(table.axes) <= 2 and not table.hidden.any():
                tables.setdefault(next(iter(table.experiments)), []).append(table)
        if len(tables) < 2:
            continue
        sides = {name: [_side(table) for table in own] for name, own in tables.items()}
        for first, second in _suspects(tables, k):
            findings += _compared(release.name, (first, sides[first]), (second, sides[second]), k)
    return findings


def _suspects(tables: Mapping[str, Sequence[AttackedTable]], k: int) -> Iterator[tuple[str, str]]:
    """Yield experiments that differ somewhere by a few people, where counts do not prove that neither is inside.

    One against all others at a time. Where levels were merged in different ways, bounds by what is alike must do.
    """
    names, counts = list(tables), _LevelCounts(tables)
    for place, name in enumerate(names):
        suspect = counts.suspects(place, k)
        yield from ((name, names[other]) for other in place + 1 + np.flatnonzero(suspect[place + 1 :]))


class _LevelCounts:
    """People of every experiment by the levels of its covariates, as arrays over experiments."""

    def __init__(self, tables: Mapping[str, Sequence[AttackedTable]]) -> None:
        experiments = list(tables.values())
        totals = [[int(table.people.sum()) for table in own] for own in experiments]
        self.totals = np.array([own[0] for own in totals], dtype=np.int64)
        self.odd = np.array([len(set(own)) > 1 for own in totals], dtype=bool)
        """Experiments whose tables do not agree, or that have two of one covariate: nothing is told beforehand."""
        sides: dict[str, list[tuple[int, Axis, AttackedTable]]] = {}
        for place, own in enumerate(experiments):
            covariates = [by[0] for table in own if (by := _covariates(table))]
            self.odd[place] |= len(set(covariates)) < len(covariates)
            for table in own:
                for name in _covariates(table):
                    sides.setdefault(name, []).append((place, table.axis(name), table.by((name,))))
        self.covariates = [_Covariate(len(experiments), tables) for tables in sides.values()]

    def suspects(self, place: int, k: int) -> NDArray[np.bool_]:
        """Return which experiments may differ from one by a few people, some of whom are told apart."""
        moved = self.totals - self.totals[place]
        near = (moved != 0) & (abs(moved) < k)
        only_first, only_second = np.maximum(-moved, 0), np.maximum(moved, 0)
        for covariate in self.covariates:
            version = covariate.version[place]
            if version < 0:
                continue
            near |= (covariate.version >= 0) & (covariate.version != version)
            alike = np.flatnonzero(covariate.version == version)
            by_level = covariate.people[version]
            moved = by_level[covariate.row[alike]] - by_level[covariate.row[place]]
            near[alike] |= ((moved != 0) & (abs(moved) < k)).any(axis=1)
            only_first[alike] = np.maximum(only_first[alike], -np.minimum(moved, 0).sum(axis=1))
            only_second[alike] = np.maximum(only_second[alike], np.maximum(moved, 0).sum(axis=1))
        elsewhere = (only_first + only_second >= k) & (np.minimum(only_first, only_second) >= 1)
        suspect: NDArray[np.bool_] = (near & ~elsewhere) | self.odd | self.odd[place]
        return suspect


class _Covariate:
    """People by the levels of one covariate; the same levels are one version."""

    def __init__(self, experiments: int, tables: Sequence[tuple[int, Axis, AttackedTable]]) -> None:
        self.version = np.full(experiments, -1, dtype=np.int64)
        self.row = np.zeros(experiments, dtype=np.int64)
        versions: list[Axis] = []
        rows: list[list[Cells]] = []
        for place, axis, table in tables:
            if axis not in versions:
                versions.append(axis)
                rows.append([])
            version = versions.index(axis)
            self.version[place], self.row[place] = version, len(rows[version])
            rows[version].append(table.people)
        self.people = [np.array(of_version).astype(np.int64) for of_version in rows]


_Side = Mapping[By, AttackedTable]
"""A table of an experiment without its arms: everybody, and people by its covariate."""


def _side(table: AttackedTable) -> _Side:
    return {by: table.by(by) for by in {(), _covariates(table)}}


def _compared(
    release: str, first: tuple[str, Sequence[_Side]], second: tuple[str, Sequence[_Side]], k: int
) -> Iterator[Finding]:
    (name, mine), (other, theirs) = first, second
    pairs = [
        (by, *alike(own_side[by], other_side[by], by))
        for own_side in mine
        for other_side in theirs
        for by in own_side
        if by in other_side
    ]
    shares = [_shares([(by, tables[side]) for by, *tables in pairs]) for side in (0, 1)]
    if not few_apart(shares[0], shares[1], k) and not may_be_inside(shares[0], shares[1], 1):
        return
    said = set()
    for _, before, after in pairs:
        for place in np.ndindex(*before.people.shape):
            moved = int(after.people[place] - before.people[place])
            if 0 < abs(moved) < k:
                where = before.words(place) or "everybody"
                learnt = [f"{where} differs by {in_people(abs(moved))}", *values_of_few(before, after, place)]
                finding = Finding(EXPERIMENTS, f"{release}, {name} − {other}", "", abs(moved), "; ".join(learnt))
                if finding.learnt not in said:
                    said.add(finding.learnt)
                    yield finding


def _covariates(table: AttackedTable) -> By:
    return tuple(axis.name for axis in table.axes if axis.role != "arm")


def _shares(tables: Sequence[tuple[By, AttackedTable]]) -> Shares:
    shares: dict[str, Mapping[Level, int]] = {}
    for by, table in tables:
        if by == ():
            shares[""] = {"": int(table.people[()])}
        else:
            levels = (label(level) for level in table.axes[0].levels)
            shares[by[0]] = dict(zip(levels, map(int, table.people.ravel()), strict=True))
    return shares
