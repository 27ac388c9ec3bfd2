"""Linked tables: what they say about classes that nobody published, without knowing anybody.

Every published count is an equation about the people of unknown classes, every sum one about their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.findings import Finding, in_people
from kanab.inspection.attack.known_people import Floats, independent_rows, solve
from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, Axis, finest_levels, flat_places
from kanab.inspection.attack.value_bounds import few_have, is_count
from kanab.privacy.exposure import LEAST_CONTRIBUTORS
from kanab.tally.factor import Level, label
from kanab.tally.metric import Metric
from kanab.tally.tally import in_units

LINKED = "linked tables"
MOST_SYSTEMS = 20
"""Sets of linked tables that are tried."""
MOST_UNKNOWNS = 2_000
MOST_PROGRAMS = 400
MANY_ENTRIES = 1_000_000
"""Of a linear program: from here on an interior-point method is quicker than the simplex method."""
_TINY = 1e-5


def find_linked(releases: Sequence[AttackedRelease], k: int) -> list[Finding]:
    """Find unpublished classes of fewer than k people, or whose sum rests on one or two."""
    findings: list[Finding] = []
    for cohorts in dict.fromkeys(release.cohorts for release in releases):
        same = [release for release in releases if release.cohorts == cohorts]
        linked = _solve(same, k) if len(same) > 1 else None
        if linked is None:  # no counts fit all releases if people joined in between; then each is solved by itself
            linked = [finding for release in same for finding in _solve([release], k) or []]
        findings += linked
    return findings


def _solve(releases: Sequence[AttackedRelease], k: int) -> list[Finding] | None:
    """Return the findings about some releases of the same people; None if the same people cannot be in all."""
    tables = [table for release in releases for table in release.tables]
    contributors = {metric: of for release in releases for metric, of in release.contributors.items()}
    title = ", ".join(dict.fromkeys(release.name for release in releases))
    findings: list[Finding] = []
    for system in islice(_systems(tables), MOST_SYSTEMS):
        exposed = system.exposed(k) if _may_expose(system.tables) else {}
        if exposed is None:
            return None
        where = f"{title}, {' + '.join(dict.fromkeys(table.name for table in system.tables))}"
        for unknown, (low, high) in exposed.items():
            exactly = f"exactly {in_people(low)}" if low == high else f"between {low} and {high} people"
            learnt = [f"{system.words(unknown)} holds {exactly}", *system.sums(unknown)]
            findings.append(Finding(LINKED, where, "", high, "; ".join(learnt)))
        findings += [Finding(LINKED, where, name, few, learnt) for name, few, learnt in system.few(contributors)]
    return list({finding.learnt: finding for finding in findings}.values())


# ── which tables are linked ────────────────────────────────────────────────────────────────────


def _systems(tables: Sequence[AttackedTable]) -> Iterator[_System]:
    """Yield tables with all that hang together with them, from those with the most axes on."""
    beside: dict[str, list[int]] = {}
    for place, table in enumerate(tables):
        for name in table.names:
            beside.setdefault(name, []).append(place)
    without_arms = {place for place, table in enumerate(tables) if not table.experiments}
    done: set[int] = set()
    for seed in sorted(range(len(tables)), key=lambda place: -len(tables[place].axes)):
        if seed in done:
            continue
        linked = _Linked([seed], dict(_widths(tables[seed])))
        names = [name for name in tables[seed].names if name in (tables[seed].experiments or tables[seed].names)]
        others = sorted({place for name in names for place in beside[name]} | without_arms - {seed})
        for other in [*others, *others]:  # twice: what was added links others
            linked.try_table(other, tables)
        done.update(linked.chosen)
        system = _System(tuple(tables[place] for place in sorted(linked.chosen)))
        if (len(linked.chosen) > 1 or tables[seed].hidden.any()) and system.size <= MOST_UNKNOWNS:
            yield system


@dataclass
class _Linked:
    """Tables that hang together, by their places, and how many levels each of their axes has at least."""

    chosen: list[int]
    widths: dict[str, int]

    def try_table(self, place: int, tables: Sequence[AttackedTable]) -> None:
        """Add a table that is linked with the others, unless that makes too many crossed classes."""
        more = self.widths | {name: max(n, self.widths.get(name, 1)) for name, n in _widths(tables[place])}
        fits = place not in self.chosen and math.prod(more.values()) <= MOST_UNKNOWNS
        if fits and self._is_linked(tables[place], tables[self.chosen[0]]):
            self.chosen.append(place)
            self.widths = more

    def _is_linked(self, table: AttackedTable, seed: AttackedTable) -> bool:
        """Tell whether a table is about the same axes, or shares a covariate, or one of several arms, with the seed."""
        shared = {*table.names}.intersection(seed.names)
        nested = table.experiments <= seed.experiments or table.experiments >= seed.experiments
        if nested and shared - table.experiments:
            return True
        both = len(table.experiments) > 1 and len(seed.experiments) > 1
        return self.widths.keys() >= {*table.names} or (both and bool(shared))


def _widths(table: AttackedTable) -> list[tuple[str, int]]:
    """Return how many levels axes have; somebody may be in no arm of an experiment."""
    return [(axis.name, len(axis.levels) + (axis.role == "arm" and len(table.experiments) > 1)) for axis in table.axes]


def _may_expose(tables: Sequence[AttackedTable]) -> bool:
    """Tell whether counts could be exposed: not where plain tables hang together like a tree."""
    if any(table.hidden.any() for table in tables):
        return True
    versions: dict[str, Axis] = {}
    for axis in (axis for table in tables for axis in table.axes):
        if versions.setdefault(axis.name, axis) != axis:
            return True
    return _circular({frozenset(table.names) for table in tables})


def _circular(edges: Iterable[frozenset[str]]) -> bool:
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
        from scipy.optimize import linprog  # noqa: PLC0415 - `import kanab` stays light

        costs, matrix = np.zeros(self.size), self.equations[0]
        costs[list(unknowns)] = sign
        method: Any = "highs-ipm" if matrix.shape[0] * matrix.shape[1] > MANY_ENTRIES else "highs"
        answer = linprog(costs, A_eq=matrix, b_eq=self.people, bounds=(0, None), method=method)
        return np.asarray(answer.x, dtype=np.float64) if answer.status == 0 else None

    # ── sums ───────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def there(self) -> NDArray[np.int64]:
        """The unknowns that may hold somebody: no published class that they are in is empty."""
        empty = self.equations[0][self.people == 0]
        return np.flatnonzero(np.asarray(empty.sum(axis=0)).ravel() == 0)

    @cached_property
    def totals(self) -> dict[Metric, dict[int, int]]:
        """The sums of unpublished classes that follow from published ones, by metric and unknown."""
        matrix, rows = self.equations
        metrics = dict.fromkeys(
            part.metric for table in self.tables for part in table.moments if part.metric.missing == "zero"
        )
        return {metric: self._totals(metric, matrix[:, self.there].toarray(), rows) for metric in metrics}

    def _totals(self, metric: Metric, matrix: Floats, rows: Sequence[tuple[int, tuple[int, ...]]]) -> dict[int, int]:
        parts = [self.tables[number].part(metric.name) for number, _ in rows]
        held = [row for row, part in enumerate(parts) if part is not None and part.metric == metric]
        sums = np.array([float(part.sums[place]) for part, (_, place) in zip(parts, rows, strict=True)
                         if part is not None and part.metric == metric])  # fmt: skip
        unique = [row for row in independent_rows(matrix[held]).tolist() if matrix[held][row].any()]
        solved, determined = solve(matrix[held][unique], sums[unique])
        return {int(self.there[place]): round(float(solved[place])) for place in np.flatnonzero(determined)}

    def sums(self, unknown: int) -> Iterator[str]:
        """Yield the sums of a crossed class, where the published sums leave no choice."""
        for metric, totals in self.totals.items():
            if unknown in totals:
                yield f"their {metric.name} adds up to {in_units(totals[unknown], metric.scale)}"

    def few(self, contributors: Mapping[str, str]) -> Iterator[tuple[str, int, str]]:
        """Yield sums of crossed classes that one or two people have, by the 0/1 metric that says who has any."""
        by_name = {metric.name: (metric, totals) for metric, totals in (self.totals if contributors else {}).items()}
        for name, of in contributors.items():
            if name in by_name and of in by_name and by_name[of][0].binary:
                metric, totals = by_name[name]
                for unknown, total in totals.items():
                    having = by_name[of][1].get(unknown, 0)
                    if 0 < having < LEAST_CONTRIBUTORS and not is_count(metric, total, having):
                        yield name, having, few_have(self.words(unknown), metric, total, having)


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
