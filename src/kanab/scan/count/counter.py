"""Counters of all pairs: each takes batches of people, and their partial sums are added to ``Pairs`` at the end.

Counters are threads, or the partitions of a Spark table. Each numbers arms as it meets them, so sums
are put side by side by the names of the arms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.frames import to_numbers
from kanab.counting.grids import Profile, check_zero, profile_values
from kanab.scan.count.codes import ArmCodes, as_numbers, check_arms
from kanab.scan.count.kernel import NOT_IN, ROWS, ArmLayout, Codes, Counts, Kernels, choose_kernels, pack
from kanab.scan.pair_tables import Whole, arm_places, largest, plus, spread
from kanab.tally.factor import Level
from kanab.tally.metric import Metric

Columns = Sequence[Any]
"""A batch of people: the arms of every experiment, then the values of every metric."""

BUCKETS = 1 << 14
"""Values are told apart by so many buckets where the commonest one is looked for."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF = 26
_FULL = 1 << 62
_FEW_OFF_ZERO = 0.6  # with a smaller share of people off 0 it pays to leave out the others


# ── partial sums ───────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class MetricSums:
    """One metric over all pairs, as in ``PairMoments``.

    ``people`` are those who have a value, in each bucket of values; ``missing`` counts the others. The profile is
    None as long as nobody had a value.
    """

    profile: Profile | None
    counts: Whole
    sums: Whole
    squares: Whole
    people: Counts
    missing: int

    @property
    def unusual(self) -> int:
        """People off the commonest value: never more than there are."""
        return int(self.people.sum() - self.people.max())

    def __add__(self, other: MetricSums) -> MetricSums:
        return MetricSums(
            merge_profiles(self.profile, other.profile),
            plus(self.counts, other.counts),
            plus(self.sums, other.sums),
            plus(self.squares, other.squares),
            self.people + other.people,
            self.missing + other.missing,
        )


@dataclass(frozen=True, eq=False)
class PairSums:
    """All pairs of some people; ``levels`` are the arms of each experiment in the order of the arrays."""

    levels: tuple[tuple[Level, ...], ...]
    people: Whole
    metrics: tuple[MetricSums, ...]
    total: int
    outside: int

    def __add__(self, other: PairSums) -> PairSums:
        levels = tuple(_join_levels(*sides) for sides in zip(self.levels, other.levels, strict=True))
        mine, theirs = self.with_levels(levels), other.with_levels(levels)
        return PairSums(
            levels,
            plus(mine.people, theirs.people),
            tuple(first + second for first, second in zip(mine.metrics, theirs.metrics, strict=True)),
            self.total + other.total,
            self.outside + other.outside,
        )

    def with_levels(self, levels: tuple[tuple[Level, ...], ...]) -> PairSums:
        """Return the same sums with the arms in another order, or among more arms."""
        if levels == self.levels:
            return self
        into, size = arm_places(self.levels, levels), sum(map(len, levels))
        metrics = tuple(
            replace(
                metric,
                counts=spread(metric.counts, into, size),
                sums=spread(metric.sums, into, size),
                squares=spread(metric.squares, into, size, both=False),
            )
            for metric in self.metrics
        )
        return replace(self, levels=levels, people=spread(self.people, into, size), metrics=metrics)

    def checked(self, names: Sequence[str]) -> PairSums:
        """Return the same, if the arms that several counters met can be those of one experiment."""
        for name, levels in zip(names, self.levels, strict=True):
            check_arms(name, list(levels))
        return self


def _join_levels(first: tuple[Level, ...], second: tuple[Level, ...]) -> tuple[Level, ...]:
    """Return the arms of both; true is not the number 1."""
    known = {(isinstance(level, bool), level) for level in first}
    return (*first, *(level for level in second if (isinstance(level, bool), level) not in known))


def merge_profiles(first: Profile | None, second: Profile | None) -> Profile | None:
    """Return what the values of two groups of people say together.

    A decimal grid that holds a value holds it when it is finer, too, as far as it has room.

    >>> merge_profiles(Profile(0, 2), Profile(0, 1.5, whole=False, decimal=10))
    Profile(low=0, high=2, whole=False, decimal=10, gaps=False)
    """
    if first is None or second is None:
        return first or second
    decimals = [profile.decimal for profile in (first, second) if not profile.whole]
    known = [decimal for decimal in decimals if decimal is not None]
    return Profile(
        min(first.low, second.low),
        max(first.high, second.high),
        first.whole and second.whole,
        max(known) if known and len(known) == len(decimals) else None,
    )


def count_buckets(steps: NDArray[np.int64], *, binary: bool) -> Counts:
    """Count the people with values of each bucket: of each value, if there are just 0 and 1."""
    if binary:
        some = int(np.count_nonzero(steps))
        return np.array([len(steps) - some, some], dtype=np.int64)
    places = (steps.view(np.uint64) * _GOLDEN) >> np.uint64(64 - BUCKETS.bit_length() + 1)
    return np.bincount(places.view(np.int64), minlength=BUCKETS)


def add_all(parts: Sequence[PairSums]) -> PairSums:
    """Add all of them, two and two, so that large numbers meet late."""
    while len(parts) > 1:
        halves = zip_longest(parts[::2], parts[1::2])
        parts = [first if second is None else first + second for first, second in halves]
    return parts[0]


# ── counting ───────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class WantedMetric:
    """One metric to be counted; only looked at, as long as its grid is not known."""

    name: str
    metric: Metric | None = None


@dataclass(frozen=True)
class CountTask:
    """What to count. Small and plain, so that it can be sent to other machines."""

    experiments: tuple[str, ...]
    metrics: tuple[WantedMetric, ...]

    @property
    def columns(self) -> list[str]:
        """The columns to read: of the experiments, then of the metrics."""
        return [*self.experiments, *(metric.name for metric in self.metrics)]


class PairCounter:
    """Adds batches; its arms are those that it has met."""

    def __init__(self, task: CountTask) -> None:
        self.task = task
        self.arms = [ArmCodes(name) for name in task.experiments]
        self.gaps = [False] * len(task.experiments)
        self.kernels = choose_kernels()
        self.tables: _PairTables | None = None
        self.done: list[PairSums] = []

    def add(self, batch: Columns) -> None:
        """Count the people of a batch."""
        codes = [arms.read(values) for arms, values in zip(self.arms, batch, strict=False)]
        columns = [as_numbers(values) for values in batch[len(codes) :]]
        people = len(codes[0])
        for start in range(0, people, ROWS):
            part = slice(start, start + ROWS)
            self._add([column[part] for column in codes], [values[part] for values in columns])

    def _add(self, codes: list[Codes], columns: list[NDArray[Any]]) -> None:
        away = [bool(column.max() == NOT_IN) for column in codes]
        outside = 0
        if all(away):
            inside = np.bitwise_and.reduce(codes) != NOT_IN
            outside = len(inside) - int(np.count_nonzero(inside))
            if outside:
                codes = [column[inside] for column in codes]
                columns = [values[inside] for values in columns]
        self.gaps = [was or now for was, now in zip(self.gaps, away, strict=True)]
        tables = self._ready()
        tables.outside += outside
        if len(codes[0]):
            tables.add(codes, [_MetricValues.read(*pair) for pair in zip(columns, self.task.metrics, strict=True)])

    def _ready(self) -> _PairTables:
        """Return tables that fit the arms met so far; those before are put away if they no longer do."""
        layout = ArmLayout(tuple(len(arms.levels) for arms in self.arms), tuple(self.gaps))
        if self.tables is None or self.tables.layout != layout or self.tables.full:
            self._put_away()
            self.tables = _PairTables(layout, tuple(tuple(arms.levels) for arms in self.arms), self.task, self.kernels)
        return self.tables

    def _put_away(self) -> None:
        if self.tables is not None:
            self.done = [add_all([*self.done, self.tables.sums()])]
            self.tables = None

    def result(self) -> PairSums:
        """Return everything that was added."""
        self._ready()
        self._put_away()
        return self.done[0]


@dataclass(frozen=True, eq=False)
class _MetricValues:
    """One metric of a batch: grid steps (0 for people without a value), and who has one (None: all)."""

    profile: Profile | None
    missing: int
    metric: Metric | None = None
    steps: Counts = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    has: NDArray[np.bool_] | None = None

    @classmethod
    def read(cls, column: NDArray[Any], wanted: WantedMetric) -> _MetricValues:
        values, gone = to_numbers(column, wanted.name)
        missing = int(np.count_nonzero(gone))
        present = values[~gone] if missing else values
        metric = wanted.metric
        profile = None
        if len(present):
            bounded = metric is not None and metric.bounds is not None and not metric.binary
            # of declared bounds nothing but the range matters
            profile = Profile(float(present.min()), float(present.max())) if bounded else profile_values(present)
        if metric is None:
            return cls(profile, missing)
        steps = metric.to_grid(values)
        if missing:
            check_zero(metric)
            steps[gone] = 0
        has = ~gone if missing and metric.missing == "exclude" else None
        return cls(profile, missing, metric, steps, has)


class _MetricTotals:
    """One metric's share of the tables."""

    def __init__(self, rows: int, binary: bool) -> None:
        self.profile: Profile | None = None
        self.missing = 0
        self.people = np.zeros(2 if binary else BUCKETS, dtype=np.int64)
        self.gone = np.zeros((rows, rows), dtype=np.int64)
        self.at_one = np.zeros((rows, rows), dtype=np.int64)
        self.sums: dict[int, Counts] = {}
        self.squares: dict[int, Counts] = {}
        self.heaviest = 0


class _PairTables:
    """Everything counted under one layout."""

    def __init__(self, layout: ArmLayout, levels: tuple[tuple[Any, ...], ...], task: CountTask, loops: Kernels) -> None:
        self.layout, self.levels, self.task, self.kernels = layout, levels, task, loops
        rows = sum(map(len, layout.bit_rows)) + 1
        rows += rows % 2
        self.bits = np.zeros((rows, rows), dtype=np.int64)
        self.metrics = [_MetricTotals(rows, bool(wanted.metric and wanted.metric.binary)) for wanted in task.metrics]
        self.total = self.outside = 0

    @property
    def full(self) -> bool:
        """Whether 64 bits might be too few for another batch."""
        return any(totals.heaviest >= _FULL - ROWS * self.kernels.widest for totals in self.metrics)

    def add(self, codes: Sequence[Codes], values: Sequence[_MetricValues]) -> None:
        """Count people who are all in some experiment."""
        people = len(codes[0])
        self.total += people
        for totals, batch in zip(self.metrics, values, strict=True):
            totals.profile = merge_profiles(totals.profile, batch.profile)
            totals.missing += batch.missing
        if any(wanted.metric is None for wanted in self.task.metrics):
            return  # grids are still unknown
        rows = self.layout.bits(codes)
        self.kernels.count_bits(rows, rows, self.bits)
        packed: Codes | None = None
        for totals, batch in zip(self.metrics, values, strict=True):
            assert batch.metric is not None
            present = batch.steps if batch.has is None else batch.steps[batch.has]
            totals.people += count_buckets(present, binary=batch.metric.binary)
            if batch.has is not None:
                self.kernels.count_bits(rows & pack([~batch.has], 1, people), rows, totals.gone)
            if batch.metric.binary:
                self.kernels.count_bits(rows & pack([batch.steps != 0], 1, people), rows, totals.at_one)
            else:
                packed = self.layout.pack_groups(codes) if packed is None else packed
                self._add_weights(totals, packed, batch.steps)

    def _add_weights(self, totals: _MetricTotals, packed: Codes, steps: Counts) -> None:
        """Add sums and squares of a metric that is not 0/1; people at 0 add nothing."""
        off = np.flatnonzero(steps)
        if len(off) < _FEW_OFF_ZERO * len(steps):
            packed, steps = np.take(packed, off, axis=1), steps[off]
        layout = self.layout
        for tables, pairs, parts in (
            (totals.sums, layout.sum_pairs, value_parts(steps, self.kernels.widest)),
            (totals.squares, layout.square_pairs, square_parts(steps, self.kernels.widest)),
        ):
            for weight, part in parts:
                if weight not in tables:
                    tables[weight] = layout.empty_tables(pairs)
                totals.heaviest += len(part) * largest(part)
                self.kernels.add_weights(packed, pairs, part, tables[weight], layout.shift)

    def sums(self) -> PairSums:
        """Return what these tables hold, as sums over pairs of arms."""
        people = self.layout.all_arms(self.bits)
        metrics = tuple(
            self._metric_sums(totals, wanted.metric, people)
            for totals, wanted in zip(self.metrics, self.task.metrics, strict=True)
        )
        return PairSums(self.levels, people, metrics, self.total, self.outside)

    def _metric_sums(self, totals: _MetricTotals, metric: Metric | None, people: Counts) -> MetricSums:
        layout = self.layout
        counts: Whole = people - layout.all_arms(totals.gone) if totals.gone.any() else people
        if metric is None or metric.binary:
            sums: Whole = layout.all_arms(totals.at_one)
            squares: Whole = np.stack([sums[:, a:b].sum(axis=1) for a, b in pairwise(layout.starts)], axis=1)
        else:
            sums = _weighted({weight: layout.sums(table) for weight, table in totals.sums.items()}, people.shape)
            marginals = {weight: layout.squares(table) for weight, table in totals.squares.items()}
            squares = _weighted(marginals, (layout.starts[-1], len(layout.arms)))
        return MetricSums(totals.profile, counts, sums, squares, totals.people, totals.missing)


def _weighted(parts: dict[int, Counts], shape: tuple[int, ...]) -> Whole:
    """Add parts times their weights, in Python integers unless there is just the one weight of 1."""
    if set(parts) <= {1}:
        return parts.get(1, np.zeros(shape, dtype=np.int64))
    total: Whole = np.zeros(shape, dtype=object)
    for weight, part in parts.items():
        total = total + part.astype(object) * weight
    return total


def value_parts(steps: Counts, widest: int) -> Iterator[tuple[int, Counts]]:
    """Yield grid values as sums of weights times numbers below ``widest``."""
    if largest(steps) < widest:
        yield 1, steps
    else:
        yield 1 << _HALF, steps >> _HALF
        yield 1, steps & ((1 << _HALF) - 1)


def square_parts(steps: Counts, widest: int) -> Iterator[tuple[int, Counts]]:
    """Yield the same for their squares, which have up to 104 bits."""
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
