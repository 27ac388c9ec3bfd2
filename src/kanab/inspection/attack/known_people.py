"""What an attacker knows besides the releases, and the design that follows: who weighs how much in every published sum.

Every published sum of a metric is linear in people's values. People who are alike in all of them are one *signature*;
a design is the matrix of signatures × published classes, with the sums of products as further columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counted import SignatureValues
from kanab.counting.columns import MetricSteps
from kanab.counting.signature_groups import values_of
from kanab.errors import SourceError
from kanab.inspection.attack.published import OUT, AttackedRelease, AttackedTable, flat_places
from kanab.privacy.leverage import leverages
from kanab.privacy.numbers.design import Weighted
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import as_level
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross

MOST_ENTRIES = 20_000_000
"""Of the matrix that is solved; larger ones are not tried."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Coded = Mapping[str, tuple[list[Any], Ints]]


@dataclass(frozen=True, eq=False)
class KnownPeople:
    """What the attacker knows of people, one entry each: arms and levels, and values of metrics (NaN: has none)."""

    levels: Mapping[str, Sequence[Any]]
    values: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Background:
    """The class of everybody who is known in every table, −1 outside."""

    known: KnownPeople
    tables: tuple[AttackedTable, ...]
    releases: tuple[AttackedRelease, ...]
    places: tuple[Ints, ...]

    @cached_property
    def designs(self) -> tuple[MetricDesign, ...]:
        """One design per metric; of a collector's batches, which promise k within an experiment, one per experiment."""
        full: dict[tuple[Metric, frozenset[str]], list[int]] = {}
        for number, (table, release) in enumerate(zip(self.tables, self.releases, strict=True)):
            for part in table.moments:
                within = table.experiments if release.collected else frozenset[str]()
                if self.classes_of(number, part.metric) is not None:
                    full.setdefault((part.metric, within), []).append(number)
        classes: dict[tuple[object, ...], KnownClasses] = {}
        return tuple(self._design(metric, tuple(numbers), classes) for (metric, _), numbers in full.items())

    def classes_of(self, number: int, metric: Metric) -> Ints | None:
        """Return everybody's class among those who have a value; None where it is not known who has one."""
        table, places = self.tables[number], self.places[number]
        part = table.part(metric.name)
        shown = np.where((places != OUT) & ~table.hidden.ravel()[places], places, OUT)
        if part is None or np.array_equal(part.counts, table.people):
            return None if part is None else shown
        values = self.known.values.get(metric.name)
        if values is None:
            return None
        having = np.where(np.isnan(values), OUT, shown)
        return having if _fits(having, part.counts, table.hidden) else None

    def _design(
        self, metric: Metric, numbers: tuple[int, ...], known: dict[tuple[object, ...], KnownClasses]
    ) -> MetricDesign:
        """Return the design of a metric; metrics of the same tables, and without products, share its classes."""
        columns, sums, squared = [], [], []
        for number in numbers:
            table, part = self.tables[number], self.tables[number].part(metric.name)
            classes = self.classes_of(number, metric)
            assert part is not None and classes is not None, "it is one of these tables"  # noqa: PT018
            columns.append(classes)
            sums.append(part.sums.ravel())
            squared += [marginal_places(table, classes, by) for by in part.squares]
        cuts = [cut for number in numbers for cut in _cuts(self, number, metric)]
        columns += [column for column, _ in cuts]
        sums += [added for _, added in cuts]
        key = (numbers, *(column.tobytes() for column in columns[len(numbers) :]), metric.missing, metric.name if
               metric.missing == "exclude" else "")  # fmt: skip
        if key not in known:
            known[key] = KnownClasses.of(columns)
        weighted = [added for number in numbers for added in _weighted(self, number, metric)]
        return MetricDesign(metric, self, numbers, known[key], tuple(sums), tuple(squared), tuple(weighted))


@dataclass(frozen=True, eq=False)
class KnownClasses:
    """Signatures: their classes in every column, how many people have them, the first of those, and everybody's."""

    cells: Ints
    people: Ints
    who: Ints
    of_everybody: Ints

    @classmethod
    def of(cls, columns: Sequence[Ints]) -> KnownClasses:
        """Put people together who are alike in all columns, in the order in which they are known."""
        cells, who, number, people = np.unique(
            np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True, return_counts=True
        )
        order = np.argsort(who)
        return cls(cells[order], people[order], who[order], np.argsort(order)[number.ravel()])

    @cached_property
    def leverages(self) -> Floats:
        """The leverage of one person of every signature."""
        return leverages(self.cells, self.people)


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """A sum of a metric that a known number weighs in one arm, and the number on its grid."""

    column: Weighted
    steps: Floats


@dataclass(frozen=True, eq=False)
class MetricDesign:
    """Everything published of one metric: ``sums[j][c]`` is that of class c of column j.

    ``squared`` are everybody's cells in the published sums of squares, ``weighted`` the sums of products with known
    numbers.
    """

    metric: Metric
    background: Background
    tables: tuple[int, ...]
    classes: KnownClasses
    sums: tuple[Cells, ...]
    squared: tuple[Ints, ...]
    weighted: tuple[WeightedSum, ...] = ()

    @property
    def title(self) -> str:
        """The tables that say something about the metric."""
        of = self.background
        names = [f"{of.releases[number].name}, {of.tables[number].name}" for number in self.tables]
        return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"

    @property
    def sensitive(self) -> bool:
        """Whether the metric is marked so in some release."""
        return any(self.metric.name in self.background.releases[number].sensitive for number in self.tables)

    @property
    def people(self) -> Ints:
        """How many people have every signature."""
        return self.classes.people

    def name(self, signature: int) -> str:
        """Say whom a finding is about."""
        n, first = int(self.people[signature]), int(self.classes.who[signature]) + 1
        return f"person {first}" if n == 1 else f"the {n} people who are like person {first} in every table"

    @property
    def too_large(self) -> bool:
        """Whether the matrix would be too large to solve."""
        return sum(len(added) for added in self.sums) * len(self.people) > MOST_ENTRIES

    @cached_property
    def rows(self) -> tuple[Floats, Floats]:
        """The equations matrix @ totals = sums that do not follow from others, an unknown total per signature."""
        distinct: dict[bytes, tuple[NDArray[np.bool_], float]] = {}
        for column, added in zip(self.classes.cells.T, self.sums, strict=True):
            for cell in np.unique(column[column != OUT]).tolist():
                distinct.setdefault((column == cell).tobytes(), (column == cell, float(added[cell])))
        matrix = np.array([inside for inside, _ in distinct.values()], dtype=np.float64).reshape(-1, len(self.people))
        totals = np.array([total for _, total in distinct.values()])
        rows = independent_rows(matrix)
        return matrix[rows], totals[rows]

    @cached_property
    def solved(self) -> tuple[Floats, NDArray[np.bool_]]:
        """The smallest totals that fit, and which of them every fitting solution has in common."""
        if bool((self.classes.leverages * self.people < 1 - 1e-6).all()):  # no combination is one signature's total
            return np.zeros(len(self.people)), np.zeros(len(self.people), dtype=bool)
        return solve(*self.rows)

    @cached_property
    def values(self) -> SignatureValues | None:
        """How far people of every signature are off the commonest value, where values are known."""
        steps = self.steps
        if steps is None:
            return None
        everybody = values_of(steps)
        return everybody.added_up(self.classes.of_everybody.astype(np.intp), len(self.people))

    @property
    def steps(self) -> MetricSteps | None:
        """Everybody's value on the metric's grid, where it is known; who is in no class has none."""
        known = self.background.known.values.get(self.metric.name)
        if known is None:
            return None
        inside = (self.classes.cells != OUT).any(axis=1)[self.classes.of_everybody]
        return MetricSteps(self.metric, self.metric.to_grid(np.nan_to_num(known)), inside)


def known_columns(columns: Mapping[str, Sequence[Any]], releases: Sequence[AttackedRelease]) -> KnownPeople:
    """Return what is known from columns named like axes and metrics; raise `SourceError` where they are none."""
    if not isinstance(columns, Mapping) or any(
        isinstance(each, str) or not isinstance(each, Sized) for each in columns.values()
    ):
        raise SourceError("known is a dict of columns", "Give one entry per person: {'variant': ['A', 'B'], …}.")
    tables = [table for release in releases for table in release.tables]
    axes = {axis.name for table in tables for axis in table.axes}
    metrics = {part.metric.name for table in tables for part in table.moments}
    if len({len(values) for values in columns.values()}) > 1:
        raise SourceError("columns of known differ in length", "Give one entry per person in each of them.")
    numbers = {}
    for name in metrics & columns.keys():
        values = [math.nan if value is None else value for value in columns[name]]
        try:
            numbers[name] = np.array(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise SourceError(f"known: {name!r} is a metric, and needs numbers", "Give numbers, or None.") from None
    return KnownPeople({name: list(columns[name]) for name in axes & columns.keys()}, numbers)


def place_people(known: KnownPeople, releases: Sequence[AttackedRelease]) -> Background:
    """Place people in the published tables whose axes are known, and whose counts are those of these people."""
    levels = {name: _coded(values) for name, values in known.levels.items()}
    tables, sources, placed = [], [], []
    for release in releases:
        for table in release.tables if release.noise is None else ():
            places = _places(table, levels) if set(table.names) <= levels.keys() else None
            if places is not None and _fits(places, table.people, table.hidden):
                tables.append(table)
                sources.append(release)
                placed.append(places)
    return Background(known, tuple(tables), tuple(sources), tuple(placed))


def _fits(places: Ints, people: Cells, hidden: NDArray[np.bool_]) -> bool:
    """Return whether so many people are in every class that is shown."""
    counts, shown = np.bincount(places[places != OUT], minlength=people.size), ~hidden.ravel()
    return bool(np.array_equal(counts[shown], people.ravel()[shown]))


def places_of_people(table: AttackedTable, columns: Mapping[str, Sequence[Any]]) -> Ints:
    """Return everybody's class in one table, as a flat index; ``OUT`` for people who are not in it."""
    return _places(table, {name: _coded(columns[name]) for name in table.names})


def _coded(values: Iterable[Any]) -> tuple[list[Any], Ints]:
    """Return the distinct levels of a column, and everybody's place among them."""
    places: dict[tuple[bool, Any], int] = {}
    codes = []
    for value in values:
        level = as_level(value, "known")
        codes.append(places.setdefault((isinstance(level, bool), level), len(places)))
    return [level for _, level in places], np.array(codes, dtype=np.int64)


def _places(table: AttackedTable, levels: Coded) -> Ints:
    places = []
    for axis in table.axes:
        distinct, codes = levels[axis.name]
        places.append(np.array([axis.place(level) for level in distinct], dtype=np.int64)[codes])
    return flat_places(table, places)


def marginal_places(table: AttackedTable, places: Ints, by: Sequence[str]) -> Ints:
    """Return everybody's place in a marginal of a table."""
    along = np.unravel_index(np.maximum(places, 0), table.people.shape)
    axes = [table.names.index(name) for name in by]
    flat = np.ravel_multi_index([along[axis] for axis in axes], [table.people.shape[axis] for axis in axes])
    return np.where(places == OUT, OUT, flat)


# ── products ───────────────────────────────────────────────────────────────────────────────────


def _products(background: Background, number: int, metric: Metric) -> Iterator[tuple[Cross, str, Ints, Floats]]:
    """Yield the products of a metric with one that is known: by arm, the other's name, everybody's arm and steps."""
    table, classes = background.tables[number], background.classes_of(number, metric)
    assert classes is not None, "it is one of these tables"
    for cross in table.crosses:
        other = next((name for name in cross.pair if name != metric.name), "")
        part, known = table.part(other), background.known.values.get(other)
        if metric.name in cross.pair and part is not None and known is not None:
            steps = part.metric.to_grid(np.nan_to_num(known)).astype(np.float64)
            yield cross, other, marginal_places(table, classes, cross.by), steps


def _cuts(background: Background, number: int, metric: Metric) -> Iterator[tuple[Ints, Cells]]:
    """Yield who of every arm has a known 0/1 metric, with the sums over them: products cut the arms by it."""
    for cross, other, arms, steps in _products(background, number, metric):
        scale = float(steps.max(initial=1))
        if np.isin(steps, (0, scale)).all():
            column = np.where(steps > 0, arms, OUT)
            having = cross.sums[cross.pair.index(other)] // int(scale)
            if _fits(column, having, np.zeros(having.shape, dtype=bool)):
                yield column, cross.products.ravel() // int(scale)


def _weighted(background: Background, number: int, metric: Metric) -> Iterator[WeightedSum]:
    """Yield the sums that a known number weighs, arm by arm, where its own sum there is that of these people."""
    for cross, other, arms, steps in _products(background, number, metric):
        place = cross.pair.index(other)
        if len(np.unique(steps)) > 2:  # else it cuts the arms
            for arm in range(cross.counts.size):
                rows = arms == arm
                if rows.sum() == cross.counts.flat[arm] and steps[rows].sum() == cross.sums[place].flat[arm]:
                    yield WeightedSum(Weighted(other, rows), steps)


# ── equations ──────────────────────────────────────────────────────────────────────────────────


def independent_rows(matrix: Floats) -> NDArray[np.int64]:
    """Return the rows of a 0/1 matrix that do not follow from others."""
    from scipy.linalg.lapack import dpstrf  # noqa: PLC0415 - `import kanab` stays light

    if not matrix.size:
        return np.arange(len(matrix))
    # what is left of a row once the others are taken out, squared, is far from 0 for whole people
    _, order, rank, _ = dpstrf(matrix @ matrix.T, tol=1e-6, lower=1)
    return np.sort(order[:rank] - 1).astype(np.int64)


def solve(matrix: Floats, sums: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the smallest totals that fit independent rows, and which of them cannot be otherwise."""
    from scipy.linalg import cholesky, solve_triangular  # noqa: PLC0415 - `import kanab` stays light

    if not matrix.size:
        return np.zeros(matrix.shape[1]), np.zeros(matrix.shape[1], dtype=bool)
    root = cholesky(matrix @ matrix.T, lower=True)
    directions = solve_triangular(root, matrix, lower=True)
    totals = directions.T @ solve_triangular(root, sums, lower=True)
    return totals, (directions**2).sum(axis=0) > 1 - 1e-7
