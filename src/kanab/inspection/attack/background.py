"""What an attacker knows besides the release: who is in which class of every table.

Every published sum is then an equation about people's values. Where people are alike in all tables
only their sum can be had; they are one *signature*, and one unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, ShownStatistics, flat_places
from kanab.privacy.leverage import leverages
from kanab.tally.factor import as_level
from kanab.tally.metric import Metric

MOST_ENTRIES = 20_000_000
"""Of the matrix that is solved; larger ones are not tried."""

MANY_ENTRIES = 1_000_000
"""Of a linear program: from here on an interior-point method is quicker than the simplex method."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class KnownScan:
    """A scan's statistics of one 0/1 metric, and where the people whom the attacker knows stand.

    ``sides[i, j]`` is 0 or 1 for person ``who[i]`` and side j, −1 for people who are not in it; ``tests`` are the
    two sides of every F.
    """

    title: str
    metric: str
    who: Ints
    sides: Ints
    tests: Ints
    f: Floats
    error: float


@dataclass(frozen=True, eq=False)
class Background:
    """Who is in which class of every table, and on which side of every test of a scan.

    ``cells[i, j]`` is the class of signature i in table j as a flat index, −1 for people who are
    not in it; ``people[i]`` is how many have that signature, ``who[i]`` the first of them, as a row
    of what is known. ``signatures`` are everybody's, and ``numbers`` everybody's values of metrics that are known, too.
    """

    tables: tuple[AttackedTable, ...]
    titles: tuple[str, ...]
    cells: Ints
    people: Ints
    who: Ints
    scans: tuple[KnownScan, ...] = ()
    signatures: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    numbers: Mapping[str, Floats] = field(default_factory=dict)

    def name(self, signature: int) -> str:
        """Say whom a finding is about."""
        n, first = int(self.people[signature]), int(self.who[signature]) + 1
        return f"person {first}" if n == 1 else f"the {n} people who are like person {first} in every table"

    @cached_property
    def leverages_by_tables(self) -> dict[tuple[int, ...], Floats]:
        """What was computed of leverages so far."""
        return {}

    @cached_property
    def equations(self) -> tuple[Equations, ...]:
        """One set of equations per metric of which nobody lacks a value."""
        full: dict[Metric, list[int]] = {}
        for number, table in enumerate(self.tables):
            for part in table.moments:
                if bool(np.all(part.counts == table.people)):
                    full.setdefault(part.metric, []).append(number)
        return tuple(Equations(metric, self, tuple(numbers)) for metric, numbers in full.items())


def place_people(columns: Mapping[str, Any], releases: Sequence[AttackedRelease]) -> Background:
    """Place people, one entry each in every column, in the published tables.

    Tables with an axis that is not among the columns are left out, and so are those whose counts
    are not these people's. Columns that are named like a metric whose products are published are numbers.
    """
    tables, titles, placed = [], [], []
    names = weighing_metrics(releases)
    numbers = {name: np.asarray(values, dtype=np.float64) for name, values in columns.items() if name in names}
    levels = {name: _coded(values) for name, values in columns.items() if name not in names}
    for release in releases:
        for table in release.tables if release.noise is None else ():
            if set(table.names) <= levels.keys():
                places = _places(table, levels)
                shown = ~table.hidden.ravel()
                counts = np.bincount(places[places != OUT], minlength=table.people.size)
                if np.array_equal(counts[shown], table.people.ravel()[shown]):
                    tables.append(table)
                    titles.append(f"{release.name}, {table.name}")
                    placed.append(places)
    everyone = max((len(codes) for _, codes in levels.values()), default=0)
    matrix = np.array(placed, dtype=np.int64).T if placed else np.empty((everyone, 0), dtype=np.int64)
    cells, who, signatures, people = np.unique(
        matrix, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(who)
    scans = [_known_scan(release.name, shown, levels) for release in releases for shown in release.statistics]
    known = tuple(scan for scan in scans if len(scan.f))
    return Background(
        tuple(tables), tuple(titles), cells[order], people[order], who[order], known,
        np.argsort(order)[signatures.ravel()], numbers,
    )  # fmt: skip


def weighing_metrics(releases: Iterable[AttackedRelease]) -> set[str]:
    """Return the metrics whose products with others are published, but for names of arms and covariates."""
    tables = [table for release in releases for table in release.tables]
    return {name for table in tables for cross in table.crosses for name in cross.pair} - {
        name for table in tables for name in table.names
    }


def _known_scan(name: str, shown: ShownStatistics, levels: Mapping[str, tuple[list[Any], Ints]]) -> KnownScan:
    """Place people in the tests of a scan whose sides are known, have two levels, and add up to as many people."""
    sides = {}
    for side in dict.fromkeys(side for pair in shown.sides for side in pair):
        distinct, codes = levels.get(side, ([], np.empty(0, dtype=np.int64)))
        there = [place for place, level in enumerate(distinct) if level is not None]
        if len(there) == 2:
            sides[side] = np.select([codes == there[0], codes == there[1]], [0, 1], OUT)
    places = {side: place for place, side in enumerate(sides)}
    matrix = np.array(list(sides.values()), dtype=np.int64).T.reshape(-1, len(sides))
    rows = [
        row
        for row, (a, b) in enumerate(shown.sides)
        if a in sides and b in sides and int(np.sum((sides[a] != OUT) & (sides[b] != OUT))) == shown.people[row]
    ]
    tests = np.array([[places[side] for side in shown.sides[row]] for row in rows], dtype=np.int64).reshape(-1, 2)
    inside = np.flatnonzero((matrix != OUT).any(axis=1))
    return KnownScan(
        name, shown.metric, inside, matrix[inside], tests, shown.f[np.array(rows, dtype=np.int64)], shown.error
    )


def _coded(values: Iterable[Any]) -> tuple[list[Any], Ints]:
    """Return the distinct levels of a column, and everybody's place among them."""
    places: dict[tuple[bool, Any], int] = {}
    codes = []
    for value in values:
        level = as_level(value, "known")
        codes.append(places.setdefault((isinstance(level, bool), level), len(places)))
    return [level for _, level in places], np.array(codes, dtype=np.int64)


def everybodys_places(table: AttackedTable, columns: Mapping[str, Sequence[Any]]) -> Ints:
    """Return everybody's class in one table, as a flat index; ``OUT`` for people who are not in it."""
    return _places(table, {name: _coded(columns[name]) for name in table.names})


def _places(table: AttackedTable, levels: Mapping[str, tuple[list[Any], Ints]]) -> Ints:
    places = []
    for axis in table.axes:
        distinct, codes = levels[axis.name]
        places.append(np.array([axis.place(level) for level in distinct], dtype=np.int64)[codes])
    return flat_places(table, places)


@dataclass(frozen=True, eq=False)
class Equations:
    """The published sums of one metric: ``matrix @ totals = sums``, an unknown total per signature."""

    metric: Metric
    background: Background
    tables: tuple[int, ...]

    @property
    def title(self) -> str:
        """The tables that say something about the metric."""
        names = [self.background.titles[number] for number in self.tables]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"

    @property
    def cells(self) -> Ints:
        """The classes of every signature in those tables."""
        return self.background.cells[:, list(self.tables)]

    @property
    def too_large(self) -> bool:
        """Whether the matrix would be too large to solve."""
        classes = sum(int(self.background.tables[number].people.size) for number in self.tables)
        return classes * len(self.background.people) > MOST_ENTRIES

    @property
    def covered(self) -> bool:
        """Whether everybody is in some table that shows all its classes."""
        return any(
            bool((self.background.cells[:, number] != OUT).all()) and not self.background.tables[number].hidden.any()
            for number in self.tables
        )

    @cached_property
    def rows(self) -> tuple[Floats, Floats]:
        """The matrix and its sums; the same people are one equation."""
        distinct = {inside.tobytes(): (inside, total) for inside, total in self._rows()}
        matrix = np.array([inside for inside, _ in distinct.values()], dtype=np.float64)
        sums = np.array([float(total) for _, total in distinct.values()])
        return matrix.reshape(len(distinct), len(self.background.people)), sums

    def _rows(self) -> Iterator[tuple[NDArray[np.bool_], int]]:
        """Yield who is in a class, and what its people have between them, for every class that holds somebody."""
        for column, number in zip(self.cells.T, self.tables, strict=True):
            part = self.background.tables[number].part(self.metric.name)
            sums = [] if part is None else part.sums.ravel().tolist()
            hidden = self.background.tables[number].hidden.ravel()
            for cell in np.unique(column[column != OUT]).tolist():
                if not hidden[cell]:
                    yield column == cell, sums[cell]

    @cached_property
    def independent(self) -> tuple[Floats, Floats]:
        """The rows that do not follow from others, which say all there is to say."""
        matrix, sums = self.rows
        rows = independent_rows(matrix)
        return matrix[rows], sums[rows]

    @cached_property
    def leverages(self) -> Floats:
        """The leverage of one person of every signature; metrics in the same tables share it."""
        known = self.background.leverages_by_tables
        if self.tables not in known:
            known[self.tables] = leverages(self.cells, self.background.people)
        return known[self.tables]

    @property
    def nothing_determined(self) -> bool:
        """Whether no combination of sums is the total of one signature."""
        return bool((self.leverages * self.background.people < 1 - 1e-6).all())

    @cached_property
    def solved(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The smallest totals that fit, and which of them every fitting solution has in common."""
        return solve(*self.independent)


def independent_rows(matrix: Floats) -> NDArray[np.int64]:
    """Return the rows of a 0/1 matrix that do not follow from others.

    >>> independent_rows(np.array([[1.0, 1, 0], [0, 0, 1], [1, 1, 1]])).tolist()
    [1, 2]
    """
    from scipy.linalg.lapack import dpstrf  # noqa: PLC0415 - `import kanab` stays light

    if not matrix.size:
        return np.arange(len(matrix))
    # what is left of a row once the others are taken out, squared, is far from 0 for whole people
    _, order, rank, _ = dpstrf(matrix @ matrix.T, tol=1e-6, lower=1)
    return np.sort(order[:rank] - 1).astype(np.int64)


def solve(matrix: Floats, sums: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the smallest totals that fit independent rows, and which of them cannot be otherwise.

    >>> totals, determined = solve(np.array([[1.0, 1, 1], [1, 1, 0]]), np.array([9.0, 4.0]))
    >>> totals.round(9).tolist(), determined.tolist()
    ([2.0, 2.0, 5.0], [False, False, True])
    """
    from scipy.linalg import cholesky, solve_triangular  # noqa: PLC0415 - `import kanab` stays light

    if not matrix.size:
        return np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    root = cholesky(matrix @ matrix.T, lower=True)
    directions = solve_triangular(root, matrix, lower=True)
    totals = directions.T @ solve_triangular(root, sums, lower=True)
    return totals, (directions**2).sum(axis=0) > 1 - 1e-7


def is_large(matrix: Any) -> bool:
    """Tell whether a linear program with these equations takes long."""
    return int(matrix.shape[0] * matrix.shape[1]) > MANY_ENTRIES


def minimize_linear(costs: Floats, matrix: Any, sums: Floats, bounds: Any) -> Floats | None:
    """Return the cheapest totals within bounds that fit ``matrix @ totals = sums``; None if none do."""
    from scipy.optimize import linprog  # noqa: PLC0415 - `import kanab` stays light

    method: Any = "highs-ipm" if is_large(matrix) else "highs"
    answer = linprog(costs, A_eq=matrix, b_eq=sums, bounds=bounds, method=method)
    return np.asarray(answer.x, dtype=np.float64) if answer.status == 0 else None
