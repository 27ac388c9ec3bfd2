"""Batches of people out of engines: Arrow from DuckDB, partitions of Spark, texts from all others.

An engine that hands out rows one by one would spend its time on a hundred columns of each. There a
person's arms travel as one text, a character for each experiment.
"""

from __future__ import annotations

import math
import operator
import os
import pickle
import sys
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

import ibis
import numpy as np
import pyarrow as pa

from kanab.counting.engine.dialects import query_text
from kanab.counting.engine.group_keys import kind_of, plain
from kanab.counting.engine.metrics import number
from kanab.counting.engine.profiles import SAMPLE, profile_columns
from kanab.counting.grids import Profile
from kanab.errors import KanabError, QueryError, SourceError
from kanab.scan.count.codes import ArmCodes, Numbered
from kanab.scan.count.counter import Batch, Task
from kanab.scan.count.kernel import ROWS
from kanab.scan.count.layout import NOT_IN
from kanab.scan.count.stream import Progress, count_batches
from kanab.scan.count.sums import PairSums, add_all
from kanab.tally.factor import Level

_NONE, _OTHER = ".", "?"
_ROWS_ONE_BY_ONE = ROWS // 8  # Python's own values take much memory
_LONGEST = 32  # letters to a text: longer expressions are hard on parsers


@dataclass(frozen=True)
class EnginePeople:
    """An Ibis table with one row per person. ``twice`` marks who was seen in two arms of an experiment."""

    table: Any = field(repr=False)
    twice: str | None = None

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.columns)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """What all rows say of some metrics."""
        kinds = {name: kind_of(self.table, name, metric=True) for name in metrics}
        found = profile_columns(self.table, kinds).profiles
        return {name: one for name, one in found.items() if math.isfinite(one.low) and math.isfinite(one.high)}

    def count(self, task: Task, progress: Progress | None) -> PairSums:
        """Count everybody, in the way that suits the engine."""
        arms = [plain(self.table[name], kind_of(self.table, name)) for name in task.experiments]
        if self.table.get_backend().name not in ("duckdb", "pyspark"):
            found = self._by_texts(arms, task, progress)
            if found is not None:
                return found
        rows = chosen(self.table, arms, [one.name for one in task.metrics], self.twice)
        return count_answer(rows, Wide(len(arms), len(task.metrics)), task, progress)

    def _by_texts(self, arms: Sequence[Any], task: Task, progress: Progress | None) -> PairSums | None:
        """Count from texts, in the letters of the arms of a sample; None if somebody is in another arm."""
        known = [ArmCodes(name) for name in task.experiments]
        for columns in _columns(chosen(self.table, arms, [], None).limit(SAMPLE)):
            for own, values in zip(known, columns, strict=True):
                own.read(values)
        letters = [_letter(arm, own.levels) for arm, own in zip(arms, known, strict=True)]
        texts = [reduce(operator.add, letters[start : start + _LONGEST]) for start in range(0, len(letters), _LONGEST)]
        rows = chosen(self.table, texts, [one.name for one in task.metrics], self.twice)
        try:
            return count_answer(
                rows, _Texts(tuple(tuple(own.levels) for own in known), len(task.metrics)), task, progress
            )
        except _AnotherArmError:
            return None


def chosen(table: Any, arms: Sequence[Any], metrics: Sequence[str], twice: str | None) -> Any:
    """Arms, metrics and perhaps the mark of a table of people, in this order, under names of our own."""
    wanted = {f"e{place}": arm for place, arm in enumerate(arms)}
    for place, name in enumerate(metrics):
        wanted[f"m{place}"] = number(table[name], kind_of(table, name, metric=True), careful=False)
    if twice is not None:
        wanted["twice"] = table[twice].cast("int32")
    return table.select(**wanted)


class Decoder(Protocol):
    """Columns of an answer to a batch of people. Small and plain, so that it can be sent to other machines."""

    def __call__(self, columns: Sequence[Any]) -> Batch:
        """The people of these columns."""


@dataclass(frozen=True)
class Wide:
    """A column for each experiment, one for each metric, and perhaps the mark."""

    arms: int
    metrics: int

    def __call__(self, columns: Sequence[Any]) -> Batch:
        """The people of these columns."""
        end = self.arms + self.metrics
        return Batch(columns[: self.arms], columns[self.arms : end], columns[end] if len(columns) > end else None)


def count_answer(rows: Any, decode: Decoder, task: Task, progress: Progress | None) -> PairSums:
    """Count what a query gives."""
    if rows.get_backend().name == "pyspark":
        found = _on_partitions(rows, decode, task)
    else:
        with closing(_columns(rows)) as answer:
            found = count_batches(map(decode, answer), task, None, progress)
    people = found.total + found.outside
    if not people:
        raise SourceError("there are no rows to count", "Check the file, the query or the filter.")
    if progress is not None:
        progress(people, people)
    return found


def _columns(rows: Any) -> Generator[list[Any]]:
    """The columns of a query's answer, some rows at a time."""
    backend = rows.get_backend()
    try:
        if backend.name == "duckdb":
            reader = backend.raw_sql(query_text(rows)).to_arrow_reader(ROWS)
        else:
            reader = rows.to_pyarrow_batches(chunk_size=_ROWS_ONE_BY_ONE)
        with reader:
            for batch in reader:
                yield batch.columns
    except Exception as problem:  # engines put values of the data into their errors
        raise QueryError(problem) from None


# ── texts ──────────────────────────────────────────────────────────────────────────────────────


class _AnotherArmError(Exception):
    """Somebody is in an arm that nobody of the sample is in."""


def _letter(arm: Any, levels: Sequence[Level]) -> Any:
    """One character: the number of the arm, or that there is none, or that it is another one."""
    known = [(arm == level, str(place)) for place, level in enumerate(levels)]
    return ibis.cases((arm.isnull(), _NONE), *known, else_=_OTHER)


@dataclass(frozen=True)
class _Texts:
    """Texts of letters, one for each experiment; then as in ``Wide``."""

    levels: tuple[tuple[Level, ...], ...]
    metrics: int

    def __call__(self, columns: Sequence[Any]) -> Batch:
        texts = -(-len(self.levels) // _LONGEST)
        arms = [codes for place in range(texts) for codes in self._spelled(place * _LONGEST, columns[place])]
        rest = Wide(0, self.metrics)(columns[texts:])
        return Batch(arms, rest.values, rest.twice)

    def _spelled(self, start: int, text: Any) -> Iterator[Numbered]:
        own = self.levels[start : start + _LONGEST]
        letters = np.frombuffer("".join(text.to_pylist()).encode("ascii"), dtype=np.uint8).reshape(-1, len(own))
        if (letters == ord(_OTHER)).any():
            raise _AnotherArmError
        for codes, levels in zip(np.ascontiguousarray(letters.T), own, strict=True):
            yield Numbered(np.where(codes == ord(_NONE), NOT_IN, codes - np.uint8(ord("0"))).astype(np.uint8), levels)


# ── Spark ──────────────────────────────────────────────────────────────────────────────────────


def _on_partitions(rows: Any, decode: Decoder, task: Task) -> PairSums:
    """Each partition is counted where it is; the driver adds what they found."""
    try:
        frame = rows.get_backend().raw_sql(query_text(rows))
        with _this_python(frame.sparkSession.sparkContext):
            answers = frame.mapInArrow(_Partition(decode, task), "part binary").collect()
    except Exception as problem:  # engines put values of the data into their errors
        if "No module named" in str(problem):
            raise SourceError(
                "the workers of Spark cannot load kanab", "Install kanab with its [spark] extra for their Python too."
            ) from None
        raise QueryError(problem) from None
    parts = [pickle.loads(answer[0]) for answer in answers]
    for one in parts:
        if isinstance(one, _Mistake):
            raise one.error()
    if not parts:
        return task.counter().result()
    return add_all(parts).checked(task.experiments)


@contextmanager
def _this_python(context: Any) -> Iterator[None]:
    """On this machine the workers run the Python that runs here, unless another one was named."""
    before = context.pythonExec
    if context.master.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


@dataclass(frozen=True)
class _Mistake:
    """What is wrong with the data of a partition, in a form that survives the way back."""

    kind: type[KanabError]
    fact: str
    remedy: str

    def error(self) -> KanabError:
        return self.kind(self.fact, self.remedy)


@dataclass(frozen=True)
class _Partition:
    """What runs on a worker: batches in, one row with partial sums out."""

    decode: Decoder
    task: Task

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        counter = self.task.counter()
        found: Any
        try:
            for columns in _together(batches):
                counter.add(self.decode(columns))
            found = counter.result()
        except KanabError as problem:
            found = _Mistake(type(problem), problem.fact, problem.remedy)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)], pa.binary())], ["part"])


def _together(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """Small batches as larger ones."""
    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= ROWS:
            yield pa.Table.from_batches(waiting).columns
            waiting = []
    if waiting:
        yield pa.Table.from_batches(waiting).columns
