"""Batches of people from frames and Parquet files, and the threads that count them.

Never more than a few batches are held at a time, however many people there are.
"""

from __future__ import annotations

import os
import queue
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kanab.counting.files import check_no_parts
from kanab.counting.frames import column_names, get_column, to_numbers
from kanab.counting.grids import Profile, profile_values
from kanab.counting.parquet_files import partition_kinds, unreadable
from kanab.errors import KanabError, SourceError
from kanab.scan.count.codes import as_numbers, is_text
from kanab.scan.count.counter import Columns, CountTask, PairCounter, PairSums, add_all, merge_profiles
from kanab.scan.count.kernel import ROWS, rows_at_once

Progress = Callable[[int, int | None], None]
"""Called with the people counted so far, and how many there are if that is known."""

NO_ROWS = ("there are no rows to count", "Check the file, the query or the filter.")
"""What is wrong with an empty source, and what to do."""

_MOST_WORKERS = 16


class People(Protocol):
    """A source of people that can be read again and again."""

    def guess(self, metrics: Sequence[str]) -> Mapping[str, Profile]:
        """Return what all rows say of some metrics, as far as that is quickly known."""

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody."""


def count_batches(
    batches: Iterator[Columns], task: CountTask, total: int | None, progress: Progress | None
) -> PairSums:
    """Count batches in threads; as many of them wait as there are threads."""
    workers = _workers()
    idle: queue.SimpleQueue[PairCounter] = queue.SimpleQueue()
    counters = [PairCounter(task) for _ in range(workers)]
    for counter in counters:
        idle.put(counter)
    pending: deque[Future[int]] = deque()
    done = 0

    def work(batch: Columns) -> int:
        free = idle.get()
        try:
            free.add(batch)
        finally:
            idle.put(free)
        return len(batch[0])

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
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _MOST_WORKERS)


def _guess_profiles(metrics: Sequence[str], batches: Callable[[str], Iterator[Any]]) -> dict[str, Profile]:
    """Return what the values of some columns say, as far as they say anything."""
    profiles = {}
    for name in metrics:
        profile: Profile | None = None
        try:
            for values in batches(name):
                doubles, gone = to_numbers(as_numbers(values), name)
                profile = merge_profiles(profile, profile_values(doubles[~gone])) if not gone.all() else profile
        except KanabError:  # perhaps of somebody in no experiment: counting everybody will tell
            continue
        if profile is not None:
            profiles[name] = profile
    return profiles


@dataclass(frozen=True)
class FramePeople:
    """A dict of columns, or a pandas, polars or Arrow table."""

    data: Any = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return column_names(self.data)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what all values of some metrics say."""
        return _guess_profiles(metrics, lambda name: (part for (part,) in _parts([self._column(name)], ROWS)))

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody, some rows at a time."""
        columns = [self._column(name) for name in task.columns]
        lengths = {len(column) for column in columns}
        if len(lengths) > 1:
            raise SourceError("the columns have different lengths", "Give one value per person in each.")
        total = lengths.pop()
        if not total:
            raise SourceError(*NO_ROWS)
        return count_batches(_parts(columns, rows_at_once(len(columns))), task, total, progress)

    def _column(self, name: str) -> Any:
        """Return a column as it is where it can be cut into parts, else as an array."""
        data = self.data
        keys = list(data if isinstance(data, Mapping) else getattr(data, "column_names", None) or data.columns)
        if self.columns.count(name) == 1:
            values = data[keys[self.columns.index(name)]]
            if type(values).__module__.partition(".")[0] in ("pandas", "polars", "pyarrow"):
                return values
        return get_column(data, name)  # arrays, lists and mistakes


def _parts(columns: Sequence[Any], rows: int) -> Iterator[list[Any]]:
    """Cut columns of one length into parts."""
    sliced = [getattr(column, "iloc", column) for column in columns]
    for start in range(0, len(columns[0]), rows):
        yield [column[start : start + rows] for column in sliced]


@dataclass(frozen=True)
class ParquetPeople:
    """Parquet files with the same columns, read a few columns and some rows at a time.

    Read by Arrow itself, this takes half the processor time of an engine that hands out batches.
    """

    files: tuple[Path, ...]
    schema: Any = field(repr=False)
    total: int

    @classmethod
    def open(cls, files: Sequence[Path]) -> ParquetPeople | None:
        """Open the files; None if their columns differ or are folders, which is for an engine to resolve.

        Raises `SourceError` where a file cannot be read.
        """
        import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        check_no_parts(files)
        try:
            described = [(pq.read_schema(file), pq.read_metadata(file).num_rows) for file in files]
        except (pa.ArrowInvalid, OSError) as problem:
            raise unreadable(files[0], problem) from None
        schema = described[0][0]
        same = all(other.equals(schema) for other, _ in described) and not partition_kinds(files)
        return cls(tuple(files), schema, sum(rows for _, rows in described)) if same else None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [str(name) for name in self.schema.names]

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what all values of some metrics say; few columns are quickly read."""
        return _guess_profiles(metrics, lambda name: (column for (column,) in self._batches([name])))

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody in all files."""
        if not self.total:
            raise SourceError(*NO_ROWS)
        return count_batches(self._batches(task.columns), task, self.total, progress)

    def _batches(self, names: Sequence[str]) -> Iterator[list[Any]]:
        import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
        import pyarrow.parquet as pq  # noqa: PLC0415

        for name in names:
            get_column(dict.fromkeys(self.columns, ()), name)  # an unknown name fails here, with a hint
        texts = [name for name in names if is_text(self.schema.field(name).type)]
        rows = rows_at_once(len(names))
        for file in self.files:
            try:
                with pq.ParquetFile(file, read_dictionary=texts) as opened:
                    for groups in _runs_of_row_groups(opened.metadata, rows):
                        for batch in opened.iter_batches(rows, row_groups=groups, columns=list(names)):
                            yield [batch.column(name) for name in names]
            except (pa.ArrowException, OSError) as problem:
                raise unreadable(file, problem) from None


def _runs_of_row_groups(metadata: Any, rows: int) -> Iterator[list[int]]:
    """Yield neighbouring row groups of at least so many people: what Arrow has read of a run it keeps until its end."""
    groups: list[int] = []
    people = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        people += metadata.row_group(group).num_rows
        if people >= rows:
            yield groups
            groups, people = [], 0
    if groups:
        yield groups
