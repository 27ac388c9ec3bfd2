"""Batches of people from frames and Parquet files, and the threads that count them.

Never more than a few batches are held at a time, however many people there are.
"""

from __future__ import annotations

import glob
import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kanab.counting.frames import column_names, get_column, to_numbers
from kanab.counting.grids import Profile, profile_values
from kanab.errors import KanabError, SourceError
from kanab.scan.count.codes import as_numbers, is_text
from kanab.scan.count.counter import Batch, PairCounter, Task
from kanab.scan.count.kernel import ROWS
from kanab.scan.count.sums import PairSums, add_all, merged

Progress = Callable[[int, int | None], None]
"""Called with the people counted so far, and how many there are if that is known."""

_MOST_WORKERS = 16


@dataclass(frozen=True)
class Reading:
    """Which rows of a source are read, and how they become people."""

    where: str | None = None
    table: str | None = None
    sql: str | None = None
    unit: str | None = None
    aggregate: Mapping[str, str] | str | None = None
    assignments: Any = field(default=None, repr=False)

    @property
    def needs_engine(self) -> bool:
        """Is there more to do than to count rows?"""
        return any(one is not None for one in (self.where, self.unit, self.aggregate, self.assignments))


class People(Protocol):
    """A source of people that can be read again and again."""

    @property
    def columns(self) -> Sequence[str]:
        """The names of its columns."""

    def guess(self, metrics: Sequence[str]) -> Mapping[str, Profile]:
        """What all rows say of some metrics, as far as that is quickly known."""

    def count(self, task: Task, progress: Progress | None) -> PairSums:
        """Count everybody."""


def count_batches(batches: Iterator[Batch], task: Task, total: int | None, progress: Progress | None) -> PairSums:
    """Count batches in threads; as many of them wait as there are threads."""
    workers = _workers()
    idle: queue.SimpleQueue[PairCounter] = queue.SimpleQueue()
    counters = [task.counter() for _ in range(workers)]
    for one in counters:
        idle.put(one)
    pending: deque[Future[int]] = deque()
    done = 0

    def work(batch: Batch) -> int:
        counter = idle.get()
        try:
            counter.add(batch)
        finally:
            idle.put(counter)
        return len(batch.arms[0])

    def finish(most: int) -> None:
        nonlocal done
        while len(pending) > most:
            done += pending.popleft().result()
            if progress is not None:
                progress(done, total)

    pool = ThreadPoolExecutor(workers)
    try:
        for batch in batches:
            pending.append(pool.submit(work, batch))
            finish(workers)
        finish(0)
        parts = list(pool.map(PairCounter.result, counters))
    finally:
        pool.shutdown(cancel_futures=True)
    return add_all(parts).checked(task.experiments)


def _workers() -> int:
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(known, _MOST_WORKERS)


def guess_profile(batches: Iterator[Any], name: str) -> Profile | None:
    """What the values of a column say; nothing if there are none, or none that can be added."""
    found: Profile | None = None
    try:
        for values in batches:
            doubles, gone = to_numbers(as_numbers(values), name)
            found = merged(found, profile_values(doubles[~gone])) if not gone.all() else found
    except KanabError:  # perhaps of somebody who is in no experiment: to be seen when everybody is counted
        return None
    return found


# ── in memory ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class FramePeople:
    """A dict of columns, or a pandas, polars or Arrow table."""

    data: Any = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return column_names(self.data)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """What all values of some metrics say."""
        found = {name: guess_profile(_parts(self._column(name)), name) for name in metrics}
        return {name: profile for name, profile in found.items() if profile is not None}

    def count(self, task: Task, progress: Progress | None) -> PairSums:
        """Count everybody, some rows at a time."""
        arms = [self._column(name) for name in task.experiments]
        values = [self._column(one.name) for one in task.metrics]
        lengths = {len(one) for one in (*arms, *values)}
        if len(lengths) > 1:
            raise SourceError("the columns have different lengths", "Give one value per person in each.")
        total = lengths.pop()
        if not total:
            raise SourceError("there are no rows to count", "Check the file, the query or the filter.")
        batches = (
            Batch([_part(one, start) for one in arms], [_part(one, start) for one in values])
            for start in range(0, total, ROWS)
        )
        return count_batches(batches, task, total, progress)

    def _column(self, name: str) -> Any:
        """A column as it is where it can be cut into parts, else as an array."""
        data = self.data
        keys = list(data if isinstance(data, Mapping) else getattr(data, "column_names", None) or data.columns)
        if self.columns.count(name) == 1:
            values = data[keys[self.columns.index(name)]]
            if type(values).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
                return values
        return get_column(data, name)  # arrays, lists and mistakes


def _parts(values: Any) -> Iterator[Any]:
    return (_part(values, start) for start in range(0, len(values), ROWS))


def _part(values: Any, start: int) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[start : start + ROWS]
    return values[start : start + ROWS]


# ── Parquet files ──────────────────────────────────────────────────────────────────────────────


def matching_files(place: str) -> list[Path]:
    """The files of a path or pattern."""
    if Path(place).is_file() or not glob.has_magic(place):
        return [Path(place)] if Path(place).is_file() else []
    return [Path(one) for one in sorted(glob.glob(place))]


@dataclass(frozen=True)
class ParquetPeople:
    """Parquet files with the same columns, read a few columns and some rows at a time."""

    files: tuple[Path, ...]
    schema: Any = field(repr=False)
    total: int

    @classmethod
    def open(cls, files: Sequence[Path]) -> ParquetPeople | None:
        """The files, or None if their columns differ, which is for an engine to resolve."""
        import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        try:
            found = [(pq.read_schema(file), pq.read_metadata(file).num_rows) for file in files]
        except (pa.ArrowInvalid, OSError) as problem:
            raise _unreadable(files[0], problem) from None
        schema = found[0][0]
        same = all(one.equals(schema) for one, _ in found)
        return cls(tuple(files), schema, sum(rows for _, rows in found)) if same else None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.schema.names]

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """What all values of some metrics say; few columns are quickly read."""
        found = {name: guess_profile((batch.column(0) for batch in self._batches([name])), name) for name in metrics}
        return {name: profile for name, profile in found.items() if profile is not None}

    def count(self, task: Task, progress: Progress | None) -> PairSums:
        """Count everybody in all files."""
        if not self.total:
            raise SourceError("there are no rows to count", "Check the file, the query or the filter.")
        names = [*task.experiments, *(one.name for one in task.metrics)]
        arms, values = slice(0, len(task.experiments)), slice(len(task.experiments), None)
        batches = (
            Batch(columns[arms], columns[values])
            for columns in ([batch.column(name) for name in names] for batch in self._batches(names))
        )
        return count_batches(batches, task, self.total, progress)

    def _batches(self, names: Sequence[str]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        for name in names:
            get_column(dict.fromkeys(self.columns, ()), name)  # an unknown name fails here, with a hint
        texts = [name for name in names if is_text(self.schema.field(name).type)]
        for file in self.files:
            try:
                with pq.ParquetFile(file, read_dictionary=texts) as opened:
                    yield from opened.iter_batches(ROWS, columns=list(names))
            except (pa.ArrowException, OSError) as problem:
                raise _unreadable(file, problem) from None


def _unreadable(file: Path, problem: Exception) -> SourceError:
    return SourceError(
        f"{file.name} cannot be read as Parquet ({type(problem).__name__})",
        "Check that it is whole, and that all files have the same columns.",
    )
