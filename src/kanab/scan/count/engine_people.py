"""People out of engines: Arrow batches of the relation that counting uses, or a counter on each partition of Spark."""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa

from kanab.counting.engine.dialects import arrow_batches, query_text
from kanab.counting.engine.group_keys import as_plain, kind_of
from kanab.counting.engine.measures import as_number
from kanab.counting.engine.profiles import profile_columns
from kanab.counting.grids import Profile
from kanab.errors import KanabError, QueryError, SourceError
from kanab.scan.count.counter import CountTask, PairCounter, PairSums
from kanab.scan.count.kernel import rows_at_once
from kanab.scan.count.people_batches import NO_ROWS, Progress, count_batches

_PARTS_AT_ONCE = 32  # sums of partitions of Spark that one worker adds: each is as large as all tables
_PYTHON_VALUES = 8  # times the memory of Arrow's


@dataclass(frozen=True)
class EnginePeople:
    """An Ibis table with one row per person."""

    table: Any = field(repr=False)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what all rows say of some metrics."""
        kinds = {name: kind_of(self.table, name, metric=True) for name in metrics}
        profiles = profile_columns(self.table, kinds)
        return {name: each for name, each in profiles.items() if math.isfinite(each.low) and math.isfinite(each.high)}

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody. Raises `SourceError` where that is nobody."""
        table = self.table
        wanted = {}
        for place, name in enumerate(task.experiments):
            wanted[f"e{place}"] = as_plain(table[name], kind_of(table, name))
        for place, metric in enumerate(task.metrics):
            kind = kind_of(table, metric.name, metric=True)
            wanted[f"m{place}"] = as_number(table[metric.name], kind, careful=False)
        rows = table.select(**wanted)
        engine = rows.get_backend().name
        if engine == "pyspark":
            sums = _on_partitions(rows, task)
        else:
            at_once = rows_at_once(len(rows.columns)) // (1 if engine == "duckdb" else _PYTHON_VALUES)
            with closing(arrow_batches(rows, at_once)) as answer:
                sums = count_batches((list(batch.columns) for batch in answer), task, None, progress)
        people = sums.total + sums.outside
        if not people:
            raise SourceError(*NO_ROWS)
        if progress is not None:
            progress(people, people)
        return sums


# ── Spark ──────────────────────────────────────────────────────────────────────────────────────


def _on_partitions(rows: Any, task: CountTask) -> PairSums:
    """Count each partition where it is, and add their sums in the cluster, too: the driver gets one answer."""
    try:
        frame = rows.get_backend().raw_sql(query_text(rows))
        with _this_python(frame.sparkSession.sparkContext):
            parts = frame.mapInArrow(_Partition(task), "part binary").rdd.map(_loaded)
            many = parts.getNumPartitions()
            while many > 1:
                many = -(-many // _PARTS_AT_ONCE)
                parts = parts.mapPartitionsWithIndex(_Numbered(many)).reduceByKey(_add_parts, many).values()
            nobody: _Part = PairCounter(task).result()
            sums = reduce(_add_parts, parts.collect(), nobody)
    except Exception as problem:  # engines put values of the data into their errors
        if "No module named" in str(problem):
            raise SourceError(
                "the workers of Spark cannot load kanab", "Install kanab with its [spark] extra for their Python too."
            ) from None
        raise QueryError(problem) from None
    if isinstance(sums, _PartitionError):
        raise sums.kind(sums.fact, sums.remedy)
    return sums.checked(task.experiments)


def _loaded(row: Sequence[bytes]) -> _Part:
    part: _Part = pickle.loads(row[0])
    return part


def _add_parts(first: _Part, second: _Part) -> _Part:
    """Add the sums of two partitions; what is wrong with one is wrong with both."""
    if isinstance(first, _PartitionError):
        return first
    return second if isinstance(second, _PartitionError) else first + second


@dataclass(frozen=True)
class _Numbered:
    """Gives the sums of a partition the number of those that they are added to."""

    groups: int

    def __call__(self, partition: int, parts: Iterable[Any]) -> Iterator[tuple[int, Any]]:
        return ((partition % self.groups, part) for part in parts)


@contextmanager
def _this_python(context: Any) -> Iterator[None]:
    """Let workers on this machine run the Python that runs here, unless another one was named."""
    before = context.pythonExec
    if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@dataclass(frozen=True)
class _PartitionError:
    """What is wrong with the data of a partition, in a form that survives the way back."""

    kind: type[KanabError]
    fact: str
    remedy: str


_Part = PairSums | _PartitionError


@dataclass(frozen=True)
class _Partition:
    """What runs on a worker: batches in, one row with partial sums out."""

    task: CountTask

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        counter = PairCounter(self.task)
        part: Any
        try:
            for columns in _larger(batches):
                counter.add(columns)
            part = counter.result()
        except KanabError as problem:
            part = _PartitionError(type(problem), problem.fact, problem.remedy)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(part)], pa.binary())], ["part"])


def _larger(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Join small batches into larger ones."""
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(batch.num_rows for batch in waiting) >= rows_at_once(batch.num_columns):
            yield pa.Table.from_batches(waiting).columns
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).columns
