"""Bounds on counts that nobody published: linear programming over linked tables.

Blacked-out classes, levels that were merged in two ways, and classes of crossed tables are unknown
counts. Every published count is an equation about them. An unknown that can only lie between 1 and
k − 1 has been found out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.background import Floats, minimize_linear
from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, Axis, finest_levels, flat_places
from kanab.tally.describe import in_units
from kanab.tally.factor import Level, label

BOUNDS = "bounds on counts"
MOST_SYSTEMS = 60
"""Sets of linked tables that are tried."""
MOST_UNKNOWNS = 2_000
MOST_PROGRAMS = 400
_TINY = 1e-5

_Axes = frozenset[str]


def bound_counts(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find unpublished classes whose count must lie between 1 and k − 1, and their sums if they follow."""
    findings: list[Finding] = []
    for cohorts in dict.fromkeys(release.cohorts for release in releases):
        same = [release for release in releases if release.cohorts == cohorts]
        linked = _bound(same, k) if len(same) > 1 else None
        if linked is None:  # no counts fit all releases if people joined in between; then each is bounded by itself
            linked = [finding for release in same for finding in _bound([release], k) or []]
        findings += linked
    return findings


def _bound(releases: Sequence[AttackedRelease], k: int) -> list[Finding] | None:
    """Return the findings about some releases of the same people; None if the same people cannot be in all."""
    tables = [table for release in releases for table in release.tables]
    title = ", ".join(dict.fromkeys(release.name for release in releases))
    findings: list[Finding] = []
    for system in islice(_systems(tables), MOST_SYSTEMS):
        exposed = system.exposed(k)
        if exposed is None:
            return None
        linked = " + ".join(dict.fromkeys(table.name for table in system.tables))
        for unknown, (low, high) in exposed.items():
            exactly = f"exactly {in_people(low)}" if low == high else f"between {low} and {high} people"
            learnt = [f"{system.words(unknown)} holds {exactly}", *system.sums(unknown)]
            findings.append(Finding(BOUNDS, f"{title}, {linked}", "", high, "; ".join(learnt)))
    return list({finding.learnt: finding for finding in findings}.values())


# ── which tables are linked ────────────────────────────────────────────────────────────────────


def _systems(tables: Sequence[AttackedTable]) -> Iterator[_System]:
    """Yield sets of tables from which more may follow than each of them says."""
    seen: set[_Axes] = set()
    for axes in _unions([frozenset(table.names) for table in tables]):
        if axes not in seen:
            seen.add(axes)
            inside = tuple(table for table in tables if axes.issuperset(table.names))
            if _may_expose(inside):
                system = _System(inside)
                if system.size <= MOST_UNKNOWNS:
                    yield system


def _unions(edges: Sequence[_Axes]) -> Iterator[_Axes]:
    """Yield the axes of every table, of two that share one, and of three that run in a circle."""
    distinct = list(dict.fromkeys(edges))
    yield from distinct
    linked = [(left, right) for left, right in combinations(distinct, 2) if left & right]
    for left, right in linked:
        yield left | right
    crossing: dict[_Axes, list[_Axes]] = {}
    for edge in distinct:
        for pair in combinations(sorted(edge), 2):
            crossing.setdefault(frozenset(pair), []).append(edge)
    for left, right in linked:
        for first in left - right:
            for second in right - left:
                for third in crossing.get(frozenset((first, second)), ()):
                    yield left | right | third


def _may_expose(tables: Sequence[AttackedTable]) -> bool:
    """Tell whether anything could be exposed: not where plain tables hang together like a tree.

    There every crossed class can be as large as the smallest published one that it is in.
    """
    if any(table.hidden.any() for table in tables):
        return True
    versions: dict[str, Axis] = {}
    for axis in (axis for table in tables for axis in table.axes):
        if versions.setdefault(axis.name, axis) != axis:
            return True
    return _circular({frozenset(table.names) for table in tables})


def _circular(edges: Iterable[_Axes]) -> bool:
    """Tell whether a set of tables hangs together in a circle (Graham's reduction leaves something over)."""
    left = set(edges)
    while True:
        lone = [name for name in set().union(*left) if sum(name in edge for edge in left) == 1]
        smaller = {edge.difference(lone) for edge in left} - {frozenset()}
        smaller = {edge for edge in smaller if not any(edge < other for other in smaller)}
        if smaller == left:
            return len(left) > 1
        left = smaller


# ── the equations of linked tables ─────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Side:
    """One axis of the crossed classes: levels that some table tells apart, and their places in every table."""

    name: str
    levels: tuple[str, ...]
    places: dict[int, NDArray[np.int64]]  # by the position of the table


@dataclass(frozen=True, eq=False)
class _System:
    """Linked tables as equations: one unknown per crossed class, one row per published class."""

    tables: tuple[AttackedTable, ...]

    @cached_property
    def sides(self) -> list[_Side]:
        names = dict.fromkeys(name for table in self.tables for name in table.names)
        return [_side(name, self.tables) for name in names]

    @property
    def size(self) -> int:
        return math.prod(len(side.levels) for side in self.sides)

    def words(self, unknown: int) -> str:
        """Describe a crossed class; who is not in an experiment has no arm of it."""
        places = np.unravel_index(unknown, [len(side.levels) for side in self.sides])
        return ", ".join(f"{side.name} = {side.levels[place]}" for side, place in zip(self.sides, places, strict=True))

    @cached_property
    def equations(self) -> tuple[Any, list[tuple[int, tuple[int, ...]]]]:
        """The 0/1 matrix of published classes × unknowns, and the table and class of every row."""
        from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - `import kanab` stays light

        blocks, rows = [], []
        for number, table in enumerate(self.tables):
            flat = self._flat(number, table)
            inside = np.flatnonzero(flat != OUT)
            matrix = csr_array((np.ones(len(inside)), (flat[inside], inside)), shape=(table.people.size, self.size))
            shown = [(place, int(np.ravel_multi_index(place, table.people.shape))) for place in table.places()]
            blocks.append(matrix[[row for _, row in shown]])
            rows += [(number, place) for place, _ in shown]
        return vstack(blocks).tocsr(), rows

    def _flat(self, number: int, table: AttackedTable) -> NDArray[np.int64]:
        """Return the class of every unknown in one table; ``OUT`` where it is in none."""
        shape = [len(side.levels) for side in self.sides]
        positions = {side.name: position for position, side in enumerate(self.sides)}
        places = []
        for name in table.names:
            along = [1] * len(shape)
            along[positions[name]] = -1
            places.append(np.broadcast_to(self.sides[positions[name]].places[number].reshape(along), shape))
        return flat_places(table, places).ravel()

    @cached_property
    def people(self) -> Floats:
        """The right-hand side."""
        return np.array([float(self.tables[number].people[place]) for number, place in self.equations[1]])

    def exposed(self, k: int) -> dict[int, tuple[int, int]] | None:
        """Return unknowns that lie between 1 and k − 1, with their bounds; None if no counts fit."""
        matrix, _ = self.equations
        alone = np.diff(matrix.indptr) == 1
        published = set(matrix.indices[matrix.indptr[:-1][alone]].tolist())
        left = [unknown for unknown in range(self.size) if unknown not in published]
        bounds: dict[int, tuple[int, int]] = {}
        for sign in (1.0, -1.0):
            fits = self._extreme(left, sign)
            if fits is None:
                return None
            left = _still(left, fits, k)
        for _ in range(MOST_PROGRAMS // 2):
            if not left:
                break
            first = left[0]
            low, high = self._extreme([first], 1.0), self._extreme([first], -1.0)
            if low is None or high is None:
                return None
            if first in _still(_still([first], low, k), high, k):
                bounds[first] = (math.ceil(low[first] - _TINY), math.floor(high[first] + _TINY))
            left = _still(_still(left[1:], low, k), high, k)
        return bounds

    def _extreme(self, unknowns: Sequence[int], sign: float) -> Floats | None:
        """Return counts that fit everything published with the least (sign 1) or most people in some classes."""
        costs = np.zeros(self.size)
        costs[list(unknowns)] = sign
        return minimize_linear(costs, self.equations[0], self.people, (0, None))

    def sums(self, unknown: int) -> Iterator[str]:
        """Yield the sums of a crossed class, where the published sums leave no choice."""
        matrix, rows = self.equations
        target = np.zeros(self.size)
        target[unknown] = 1.0
        dense = matrix.toarray()
        parts = [self.tables[number].moments for number, _ in rows]
        for metric in dict.fromkeys(
            part.metric for moments in parts for part in moments if part.metric.missing == "zero"
        ):
            held = [row for row, moments in enumerate(parts) if any(part.metric == metric for part in moments)]
            weights, *_ = np.linalg.lstsq(dense[held].T, target, rcond=None)
            if np.abs(dense[held].T @ weights - target).max() > 1e-9:
                continue
            values = [self.tables[rows[row][0]].part(metric.name) for row in held]
            sums = [float(part.sums[rows[row][1]]) for part, row in zip(values, held, strict=True) if part is not None]
            yield f"their {metric.name} adds up to {in_units(round(float(weights @ np.array(sums))), metric.scale)}"


def _still(unknowns: Sequence[int], fits: Floats, k: int) -> list[int]:
    """Return those that some fitting counts do not already make empty, or k and more."""
    return [unknown for unknown in unknowns if _TINY < fits[unknown] < k - _TINY]


def _side(name: str, tables: Sequence[AttackedTable]) -> _Side:
    versions = {number: table.axis(name) for number, table in enumerate(tables) if name in table.names}
    role = next(iter(versions.values())).role
    groups: dict[tuple[int, ...], list[Level]] = {}
    for level in finest_levels(list(versions.values())):
        places = tuple(axis.place(level) for axis in versions.values())
        if any(place != OUT for place in places):
            groups.setdefault(places, []).append(level)
    words = [" + ".join(label(level) for level in levels) for levels in groups.values()]
    table_places = {
        number: np.array([places[i] for places in groups], dtype=np.int64) for i, number in enumerate(versions)
    }
    if any(table.experiments and name not in table.names for table in tables) and role == "arm":
        words.append("not in it")
        table_places = {number: np.append(places, OUT) for number, places in table_places.items()}
    return _Side(name, tuple(words), table_places)
