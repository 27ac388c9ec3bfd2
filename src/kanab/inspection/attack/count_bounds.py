"""Bounds on counts that nobody published: linear programming over linked tables.

Blacked-out classes, levels that were merged in two ways, and classes of crossed tables are unknown
counts. Every published count is an equation about them. An unknown that can only lie between 1 and
k − 1 has been found out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, islice, product
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
    edges = [frozenset(table.names) for table in tables]
    for axes in _Links(tables, edges).unions():
        if axes not in seen:
            seen.add(axes)
            inside = tuple(table for table, edge in zip(tables, edges, strict=True) if axes.issuperset(edge))
            if _may_expose(inside):
                system = _System(inside)
                if system.size <= MOST_UNKNOWNS:
                    yield system


class _Links:
    """Which sets of axes hang together, so that tables of hundreds of experiments need not be tried two by two.

    Two sets that share an axis expose nothing if neither does by itself, they have the same levels of what they
    share, and no table reaches from what only one of them has to what only the other has: then everything inside
    their union is inside one of them.
    """

    def __init__(self, tables: Sequence[AttackedTable], edges: Sequence[_Axes]) -> None:
        self.edges = list(dict.fromkeys(edges))
        names = {name: place for place, name in enumerate(dict.fromkeys(name for edge in edges for name in edge))}
        self.names = [[names[name] for name in edge] for edge in self.edges]
        shape = (len(self.edges), len(names))
        self.holds = np.zeros(shape, dtype=bool)
        self.versions = np.full(shape, -1, dtype=np.int32)
        self.exposing = np.zeros(len(self.edges), dtype=bool)
        self._read(tables, edges, names)
        met = self.holds.astype(np.float32)
        beside = ((met.T @ met) > 0).astype(np.float32)
        np.fill_diagonal(beside, 0)
        self.reach = (met @ beside).astype(np.int32)
        """How many axes of a set are beside an axis in some table."""

    def _read(self, tables: Sequence[AttackedTable], edges: Sequence[_Axes], names: Mapping[str, int]) -> None:
        """Note which axes every set has, in which version, and whether its own tables may expose something."""
        of_edge: dict[_Axes, list[AttackedTable]] = {}
        for table, edge in zip(tables, edges, strict=True):
            of_edge.setdefault(edge, []).append(table)
        known: dict[str, list[Axis]] = {name: [] for name in names}
        for place, edge in enumerate(self.edges):
            self.holds[place, self.names[place]] = True
            inside = [table for part in _parts(edge, of_edge) for table in of_edge[part]]
            self.exposing[place] = _may_expose(inside)
            for axis in of_edge[edge][0].axes:
                versions = known[axis.name]
                if axis not in versions:
                    versions.append(axis)
                self.versions[place, names[axis.name]] = versions.index(axis)

    def unions(self) -> Iterator[_Axes]:
        """Yield the axes of sets, of two that share one, and of three that run in a circle, where more may follow."""
        yield from (edge for edge, exposing in zip(self.edges, self.exposing, strict=True) if exposing)
        for place, edge in enumerate(self.edges):
            linked, crossed = self._beside(place)
            suspect = linked & (self.exposing | self.exposing[place] | crossed)
            for name in self.names[place]:
                suspect |= self.holds[:, name] & (self.versions[:, name] != self.versions[place, name])
            for other in place + 1 + np.flatnonzero(suspect[place + 1 :]):
                yield edge | self.edges[other]
        crossing: dict[_Axes, list[_Axes]] = {}
        for edge in self.edges:
            for pair in combinations(sorted(edge), 2):
                crossing.setdefault(frozenset(pair), []).append(edge)
        for place, left in enumerate(self.edges):
            linked, crossed = self._beside(place)
            for other in place + 1 + np.flatnonzero((linked & crossed)[place + 1 :]):
                right = self.edges[other]
                for first, second in product(left - right, right - left):
                    for third in crossing.get(frozenset((first, second)), ()):
                        yield left | right | third

    def _beside(self, place: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which sets share an axis with one, and from which a table reaches over to it, past what they share."""
        names = self.names[place]
        own = self.holds[:, names]
        shared = own.sum(axis=1)
        over = self.reach[:, names] - (shared[:, None] - own)
        return shared > 0, (~own & (over > 0)).any(axis=1)


def _parts(edge: _Axes, known: Mapping[_Axes, object]) -> list[_Axes]:
    """Return the known sets of axes inside one."""
    if 2 ** len(edge) > len(known):
        return [part for part in known if part <= edge]
    subsets = (frozenset(part) for length in range(len(edge) + 1) for part in combinations(edge, length))
    return [part for part in subsets if part in known]


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
