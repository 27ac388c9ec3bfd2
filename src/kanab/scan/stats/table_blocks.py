"""Many two-way tables of one shape as a few arrays: what a scan tests at once.

Axis 0 numbers the tables, axis 1 the arms of the first experiment, axis 2 those of the second (or
the levels of a covariate). Empty classes are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError
from kanab.scan.pair_tables import Pairs, Whole
from kanab.stats.gram import Floats
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Places = NDArray[np.intp]
Flags = NDArray[np.bool_]

SAFE = 2.0**62
"""Whole numbers up to here, and differences of them, stay clear of the edge of 64 bits."""


@dataclass(frozen=True, eq=False)
class MetricTables:
    """One metric over the tables: counts and sums by class; squares by row, column or class where kept."""

    metric: Metric
    counts: Whole
    sums: Whole
    rows: Whole | None = None
    columns: Whole | None = None
    classes: Whole | None = None

    @property
    def variance(self) -> str:
        """The most honest kind of variance that the squares allow; "" where there is none."""
        if self.metric.binary or self.classes is not None:
            return "by_class"
        if self.rows is None:
            return ""
        return "by_arm" if self.columns is None else "two_marginals"

    def select(self, tables: Places) -> MetricTables:
        """Return only some of the tables."""
        if len(tables) == len(self.counts):
            return self
        arrays = (self.counts, self.sums, self.rows, self.columns, self.classes)
        return MetricTables(self.metric, *(None if array is None else array[tables] for array in arrays))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class TableBlock:
    """Some of a scan's tables, all of one shape.

    ``places`` says which ones of the scan these are. ``arms`` are everybody in each arm of the
    first and of the second experiment, also outside the pair; None where that is not known.
    """

    places: Places
    people: Whole
    metrics: tuple[MetricTables, ...]
    arms: tuple[Whole | None, Whole | None] = (None, None)


@dataclass(frozen=True, eq=False)
class CentredCells:
    """A metric's classes in floats: all in grid steps about a centre, a whole number near the mean of each table.

    Spreads are Σ (y − class mean)².
    """

    part: MetricTables
    n: Floats
    means: Floats
    centre: Whole
    centred: Whole
    between: Floats
    """S²/n of every class."""

    @property
    def filled(self) -> Flags:
        """The classes that hold somebody."""
        return self.n > 0

    @cached_property
    def row_spread(self) -> Floats | None:
        """The spread within the classes of every row."""
        if self.class_spread is not None:
            return np.asarray(self.class_spread.sum(axis=2))
        return None if self.part.rows is None else self._spread(self.part.rows, 2)

    @cached_property
    def column_spread(self) -> Floats | None:
        """The spread within the classes of every column."""
        return None if self.part.columns is None else self._spread(self.part.columns, 1)

    @cached_property
    def class_spread(self) -> Floats | None:
        """The spread within every class."""
        if self.part.metric.binary:
            s, n = self.part.sums.astype(np.float64), self.n
            return s * (n - s) / np.maximum(n, 1)
        return None if self.part.classes is None else self._spread(self.part.classes)

    def _spread(self, squares: Whole, over: int | None = None) -> Floats:
        """Return squares about the centre minus Σ S²/n, the large parts as whole numbers."""
        sums, centred, between = self.part.sums, self.centred, self.between
        if over is not None:
            sums, centred, between = sums.sum(axis=over), centred.sum(axis=over), between.sum(axis=over)
        centre = self.centre.reshape(-1, *(1,) * (squares.ndim - 1))
        squares, centre, sums, centred = _widen(squares, centre, sums, centred)
        about = (squares - centre * (sums + centred)).astype(np.float64)  # Q − K (S + S'), S' = S − nK
        spread = about - between
        # Whole numbers that are not all alike have a spread of at least 1/2.
        still = spread < 0.25 + 1e-14 * np.abs(about)
        return np.where(still, 0.0, spread)


def centre_cells(part: MetricTables) -> CentredCells:
    """Re-centre every table about a whole number near its own mean, exactly."""
    counts = tables_last(part.counts.astype(np.int64))
    total = np.maximum(counts.sum(axis=(1, 2)), 1)
    sums = tables_last(compact(part.sums))
    if np.abs(sums.astype(np.float64)).sum(axis=(1, 2)).max(initial=0.0) >= SAFE:
        sums = sums.astype(object)
    centre = sums.sum(axis=(1, 2)) // total
    centred = compact(sums - counts * centre[:, None, None])
    n, away = counts.astype(np.float64), centred.astype(np.float64)
    means = away / np.maximum(n, 1.0)
    squares = {
        name: None if cells is None else tables_last(compact(cells))
        for name, cells in (("rows", part.rows), ("columns", part.columns), ("classes", part.classes))
    }
    exact = MetricTables(part.metric, counts, sums, **squares)
    return CentredCells(exact, n, means, centre, centred, away * means)


def compact(values: Whole) -> Whole:
    """Return the same whole numbers in 64 bits where all of them fit, else as Python integers."""
    if not values.size:
        return values.astype(np.int64)
    largest = np.abs(values.astype(np.float64)).max()
    return values.astype(np.int64 if largest < SAFE else object, copy=False)


def tables_last(values: Whole) -> Whole:
    """Return the same array with its tables on the last axis in memory, which makes sums over classes quick."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(values, 0, -1)), -1, 0)


def _widen(squares: Whole, centre: Whole, sums: Whole, centred: Whole) -> tuple[Whole, Whole, Whole, Whole]:
    """Return the same numbers, as Python integers where 64 bits might not hold Q − K (S + S')."""
    q, k, s, c = (np.abs(values.astype(np.float64)) for values in (squares, centre, sums, centred))
    largest = np.max(q + np.maximum(k, 1.0) * (s + c), initial=0.0)
    if largest < SAFE:
        return squares, centre, sums, centred
    return squares.astype(object), centre.astype(object), sums.astype(object), centred.astype(object)


# ── where tables come from ─────────────────────────────────────────────────────────────────────


def blocks_of_pairs(pairs: Pairs, metrics: Sequence[str]) -> Iterator[TableBlock]:
    """Yield all pairs, those with the same numbers of arms together; in the order of ``itertools.combinations``."""
    starts = np.array(pairs.starts)
    sizes = np.diff(starts)
    first, second = np.triu_indices(len(sizes), 1)
    moments = {part.metric.name: part for part in pairs.moments}
    alone = np.diagonal(pairs.people)
    for shape in dict.fromkeys(zip(sizes[first].tolist(), sizes[second].tolist(), strict=True)):
        places = np.flatnonzero((sizes[first] == shape[0]) & (sizes[second] == shape[1]))
        a, b = first[places], second[places]
        rows, columns = (starts[side] + np.arange(size)[:, None] for side, size in zip((a, b), shape, strict=True))
        tables = []
        for part in (moments[name] for name in metrics):
            squares = () if part.metric.binary else (_take(part.squares, rows, b), _take(part.squares, columns, a))
            counts, sums = (_take(cells, rows[:, None], columns) for cells in (part.counts, part.sums))
            tables.append(MetricTables(part.metric, counts, sums, *squares))
        people = _take(pairs.people, rows[:, None], columns)
        yield TableBlock(places, people, tuple(tables), (_take(alone, rows), _take(alone, columns)))


def _take(cells: Whole, *places: Places) -> Whole:
    """Return cells at places of which the last axis numbers the tables, which then come first."""
    return np.moveaxis(cells[places], -1, 0)


def blocks_of_tables(
    tables: Sequence[Tally], metrics: Sequence[str], alone: Mapping[str, Tally] | None = None
) -> Iterator[TableBlock]:
    """Yield two-way tallies, those of one shape with the same squares together; places follow the tables.

    Raises `AnalysisError` for numbers with noise.
    """
    if any(table.noise is not None for table in tables):
        raise AnalysisError(
            "a scan tests exact numbers, and these carry noise",
            "Read each release by itself (kanab analyze): its segments know the noise.",
        )
    groups: dict[object, list[int]] = {}
    alone = alone or {}
    for place, table in enumerate(tables):
        kinds = tuple((part.metric, _marginals(table, part)) for part in _wanted_moments(table, metrics))
        known = tuple(factor.name in alone for factor in table.factors)
        groups.setdefault((table.shape, kinds, known), []).append(place)
    for places in groups.values():
        chosen = [tables[place] for place in places]
        names = [part.metric.name for part in _wanted_moments(chosen[0], metrics)]
        yield TableBlock(
            np.array(places, dtype=np.intp),
            np.stack([table.people for table in chosen]),
            tuple(_of_tables(chosen, name) for name in names),
            (_people_by_arm(chosen, 0, alone), _people_by_arm(chosen, 1, alone)),
        )


def _wanted_moments(table: Tally, metrics: Sequence[str]) -> list[Moments]:
    return [part for name in metrics for part in table.moments if part.metric.name == name]


def _marginals(table: Tally, part: Moments) -> frozenset[tuple[int, ...]]:
    """Return the axes of the marginals at which squares were kept."""
    return frozenset(tuple(map(table.axes.index, by)) for by in part.squares)


def _of_tables(tables: Sequence[Tally], name: str) -> MetricTables:
    parts = [table.moments_of(name) for table in tables]

    def squares(*axes: int) -> Whole | None:
        arrays = [table.squares(name, [table.axes[axis] for axis in axes]) for table in tables]
        known = [cells for cells in arrays if cells is not None]
        return np.stack(known) if len(known) == len(arrays) else None

    counts, sums = np.stack([part.counts for part in parts]), np.stack([part.sums for part in parts])
    metric = parts[0].metric
    if metric.binary:
        return MetricTables(metric, counts, sums)
    return MetricTables(metric, counts, sums, squares(0), squares(1), squares(0, 1))


def _people_by_arm(tables: Sequence[Tally], axis: int, alone: Mapping[str, Tally]) -> Whole | None:
    """Return everybody in each arm of the experiment on one axis, from its own table."""
    counts = []
    for table in tables:
        factor = table.factors[axis]
        experiment = alone.get(factor.name)
        if experiment is None:
            return None
        people = experiment.people_by(factor.name)
        counts.append([people.get(level, 0) for level in factor.levels])
    return np.array(counts, dtype=np.int64)
