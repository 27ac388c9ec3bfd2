"""One reader of many: takes batches of people and adds them to the tables of all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.frames import to_numbers
from kanab.counting.grids import Profile, check_zero, profile_values
from kanab.scan.count.codes import ArmCodes, as_numbers
from kanab.scan.count.kernel import ROWS, Kernels, kernels
from kanab.scan.count.layout import NOT_IN, Codes, Counts, Layout, pack
from kanab.scan.count.sums import MetricSums, PairSums, add_all, buckets, merged
from kanab.scan.pairs import Whole, largest
from kanab.tally.metric import Metric, Missing

_HALF = 26
_FULL = 1 << 62
_SPARSE = 0.6  # with fewer people off 0 it pays to leave out the others


@dataclass(frozen=True)
class Wanted:
    """One metric to be counted; only looked at, as long as its grid is not known."""

    name: str
    missing: Missing
    metric: Metric | None = None


@dataclass(frozen=True)
class Task:
    """What to count. Small and plain, so that it can be sent to other machines."""

    experiments: tuple[str, ...]
    metrics: tuple[Wanted, ...]
    loops: str | None = None

    @property
    def looks_only(self) -> bool:
        """Are grids still unknown, so that values are looked at and nothing is counted?"""
        return any(one.metric is None for one in self.metrics)

    def counter(self) -> PairCounter:
        """A reader with nothing counted yet."""
        return PairCounter(self)


@dataclass(frozen=True)
class Batch:
    """Columns of some people: arms, metrics, and perhaps who was seen in two arms of an experiment."""

    arms: Sequence[Any] = field(repr=False)
    values: Sequence[Any] = field(repr=False)
    twice: Any = field(default=None, repr=False)


class PairCounter:
    """Adds batches; its arms are those that it has met."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.arms = [ArmCodes(name) for name in task.experiments]
        self.gaps = [False] * len(task.experiments)
        self.kernels = kernels(task.loops)
        self.tables: _Tables | None = None
        self.done: list[PairSums] = []

    def add(self, batch: Batch) -> None:
        """Count the people of a batch."""
        codes = [own.read(values) for own, values in zip(self.arms, batch.arms, strict=True)]
        columns = [as_numbers(values) for values in batch.values]
        people = len(codes[0])
        for start in range(0, people, ROWS):
            part = slice(start, start + ROWS)
            self._add([own[part] for own in codes], [values[part] for values in columns])
        if batch.twice is not None and self.tables is not None:
            self.tables.excluded += int(np.count_nonzero(as_numbers(batch.twice)))

    def _add(self, codes: list[Codes], columns: list[NDArray[Any]]) -> None:
        away = [bool(own.max() == NOT_IN) for own in codes]
        outside = 0
        if all(away):
            inside = np.bitwise_and.reduce(codes) != NOT_IN
            outside = len(inside) - int(np.count_nonzero(inside))
            if outside:
                codes = [own[inside] for own in codes]
                columns = [values[inside] for values in columns]
        self.gaps = [was or now for was, now in zip(self.gaps, away, strict=True)]
        tables = self._ready()
        tables.outside += outside
        if len(codes[0]):
            tables.add(
                codes, [_Values.read(values, one) for values, one in zip(columns, self.task.metrics, strict=True)]
            )

    def _ready(self) -> _Tables:
        """Tables that fit the arms met so far; those before are put away if they no longer do."""
        layout = Layout(tuple(len(own.levels) for own in self.arms), tuple(self.gaps))
        if self.tables is None or self.tables.layout != layout or self.tables.full:
            self._put_away()
            self.tables = _Tables(layout, tuple(tuple(own.levels) for own in self.arms), self.task, self.kernels)
        return self.tables

    def _put_away(self) -> None:
        if self.tables is not None:
            self.done = [add_all([*self.done, self.tables.sums()])]
            self.tables = None

    def result(self) -> PairSums:
        """Everything that was added."""
        self._ready()
        self._put_away()
        return self.done[0]


@dataclass(frozen=True, eq=False)
class _Values:
    """One metric of a batch: grid steps (0 for people without a value), and who has one (None: all)."""

    profile: Profile | None
    missing: int
    clamped: int = 0
    metric: Metric | None = None
    steps: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    has: NDArray[np.bool_] | None = None

    @classmethod
    def read(cls, column: NDArray[Any], wanted: Wanted) -> _Values:
        values, gone = to_numbers(column, wanted.name)
        missing = int(np.count_nonzero(gone))
        present = values[~gone] if missing else values
        profile = _profile(present, wanted.metric) if len(present) else None
        metric = wanted.metric
        if metric is None:
            return cls(profile, missing)
        steps = metric.to_grid(values)
        if missing:
            check_zero(metric)
            steps[gone] = 0
        has = ~gone if missing and metric.missing == "exclude" else None
        return cls(profile, missing, _clamped(present, metric, profile), metric, steps, has)


def _profile(values: NDArray[np.float64], metric: Metric | None) -> Profile:
    """All that the choice of a grid needs; of declared bounds nothing but the range matters."""
    if metric is not None and metric.bounds is not None and not metric.binary:
        return Profile(float(values.min()), float(values.max()))
    return profile_values(values)


def _clamped(values: NDArray[np.float64], metric: Metric, profile: Profile | None) -> int:
    """Return how many values the bounds clamp; where neither end of their range is, none of them is."""
    if profile is None or not metric.beyond_bounds(np.array([profile.low, profile.high])).any():
        return 0
    return int(np.count_nonzero(metric.beyond_bounds(values)))


class _Added:
    """One metric's share of the tables."""

    def __init__(self, layout: Layout, rows: int, binary: bool) -> None:
        self.layout = layout
        self.profile: Profile | None = None
        self.missing = self.clamped = 0
        self.people = np.zeros(2, dtype=np.int64) if binary else buckets(np.zeros(0, dtype=np.int64), binary=False)
        self.gone = np.zeros((rows, rows), dtype=np.int64)
        self.ones = np.zeros((rows, rows), dtype=np.int64)
        self.sums: dict[int, Counts] = {}
        self.squares: dict[int, Counts] = {}
        self.heaviest = 0


class _Tables:
    """Everything counted under one layout."""

    def __init__(self, layout: Layout, levels: tuple[tuple[Any, ...], ...], task: Task, loops: Kernels) -> None:
        self.layout, self.levels, self.task, self.kernels = layout, levels, task, loops
        rows = sum(len(own) for own in layout.bit_rows) + 1
        rows += rows % 2
        self.bits = np.zeros((rows, rows), dtype=np.int64)
        self.metrics = [_Added(layout, rows, bool(one.metric and one.metric.binary)) for one in task.metrics]
        self.total = self.outside = self.excluded = 0

    @property
    def full(self) -> bool:
        """Might 64 bits be too few for another batch?"""
        return any(one.heaviest >= _FULL - ROWS * self.kernels.widest for one in self.metrics)

    def add(self, codes: Sequence[Codes], values: Sequence[_Values]) -> None:
        """Count people who are all in some experiment."""
        people = len(codes[0])
        self.total += people
        for added, one in zip(self.metrics, values, strict=True):
            added.profile = merged(added.profile, one.profile)
            added.missing += one.missing
            added.clamped += one.clamped
        if self.task.looks_only:
            return
        rows = self.layout.bits(codes)
        self.kernels.count_bits(rows, rows, self.bits)
        packed: Codes | None = None
        for added, one in zip(self.metrics, values, strict=True):
            assert one.metric is not None
            added.people += buckets(one.steps if one.has is None else one.steps[one.has], binary=one.metric.binary)
            if one.has is not None:
                self.kernels.count_bits(rows & pack([~one.has], 1, people), rows, added.gone)
            if one.metric.binary:
                self.kernels.count_bits(rows & pack([one.steps != 0], 1, people), rows, added.ones)
            else:
                packed = self.layout.packed(codes) if packed is None else packed
                self._add_weights(added, packed, one.steps)

    def _add_weights(self, added: _Added, packed: Codes, steps: Counts) -> None:
        """Sums and squares of a metric that is not 0/1; people at 0 add nothing."""
        off = np.flatnonzero(steps)
        if len(off) < _SPARSE * len(steps):
            packed, steps = np.take(packed, off, axis=1), steps[off]
        layout = self.layout
        for tables, pairs, parts in (
            (added.sums, layout.sum_pairs, value_parts(steps, self.kernels.widest)),
            (added.squares, layout.square_pairs, square_parts(steps, self.kernels.widest)),
        ):
            for weight, part in parts:
                if weight not in tables:
                    tables[weight] = layout.tables(pairs)
                added.heaviest += len(part) * largest(part)
                self.kernels.add_weights(packed, pairs, part, tables[weight], layout.shift)

    def sums(self) -> PairSums:
        """What these tables hold, as sums over pairs of arms."""
        people = self.layout.all_arms(self.bits)
        metrics = tuple(
            self._metric(added, one.metric, people) for added, one in zip(self.metrics, self.task.metrics, strict=True)
        )
        return PairSums(self.levels, people, metrics, self.total, self.outside, self.excluded)

    def _metric(self, added: _Added, metric: Metric | None, people: Counts) -> MetricSums:
        layout = self.layout
        counts: Whole = people - layout.all_arms(added.gone) if added.gone.any() else people
        if metric is None or metric.binary:
            sums: Whole = layout.all_arms(added.ones)
            squares: Whole = np.stack([sums[:, a:b].sum(axis=1) for a, b in pairwise(layout.starts)], axis=1)
        else:
            sums = _weighted({weight: layout.sums(table) for weight, table in added.sums.items()}, people.shape)
            margins = {weight: layout.squares(table) for weight, table in added.squares.items()}
            squares = _weighted(margins, (layout.starts[-1], len(layout.arms)))
        return MetricSums(added.profile, counts, sums, squares, added.people, added.missing, added.clamped)


def _weighted(parts: dict[int, Counts], shape: tuple[int, ...]) -> Whole:
    """Parts times their weights, in Python integers unless there is just the one weight of 1."""
    if set(parts) <= {1}:
        return parts.get(1, np.zeros(shape, dtype=np.int64))
    total: Whole = np.zeros(shape, dtype=object)
    for weight, part in parts.items():
        total = total + part.astype(object) * weight
    return total


def value_parts(steps: Counts, widest: int) -> Iterator[tuple[int, Counts]]:
    """Grid values as sums of weights times numbers below ``widest``."""
    if largest(steps) < widest:
        yield 1, steps
    else:
        yield 1 << _HALF, steps >> _HALF
        yield 1, steps & ((1 << _HALF) - 1)


def square_parts(steps: Counts, widest: int) -> Iterator[tuple[int, Counts]]:
    """The same for their squares, which have up to 104 bits."""
    most = largest(steps)
    if most * most < widest:
        yield 1, steps * steps
    elif most < 1 << 31:
        squares = steps * steps
        yield 1 << 31, squares >> 31
        yield 1, squares & ((1 << 31) - 1)
    else:
        low_bits = (1 << _HALF) - 1
        high, low = steps >> _HALF, steps & low_bits
        parts = (low * low, 2 * high * low, high * high)
        yield 1, parts[0] & low_bits
        yield 1 << _HALF, (parts[0] >> _HALF) + (parts[1] & low_bits)
        yield 1 << 2 * _HALF, (parts[1] >> _HALF) + (parts[2] & low_bits)
        yield 1 << 3 * _HALF, parts[2] >> _HALF
