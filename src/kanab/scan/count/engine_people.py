"""People out of engines: Arrow batches of the relation that counting uses, or a counter on each partition of Spark.

The long shape of a warehouse (person, experiment, arm) becomes one row per person inside the engine: the numbers of
all their arms, collected. That costs one step per row, however many experiments there are. Somebody seen in two arms
of an experiment is not in it.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import sqlglot

from kanab.counting.connect import open_beside, opened_table
from kanab.counting.dispatch import SourceOptions, open_people
from kanab.counting.engine.dialects import arrow_batches, engine_of, query_text, run_query, strict_arithmetic
from kanab.counting.engine.group_keys import as_plain, kind_of, read_level
from kanab.counting.engine.measures import as_number
from kanab.counting.engine.people import Units, person_values, row_sums, row_totals, row_values
from kanab.counting.engine.profiles import profile_columns
from kanab.counting.grids import Profile
from kanab.errors import KanabError, QueryError, SourceError
from kanab.plan.model import MetricPlan, Plan
from kanab.scan.count.codes import MOST_ARMS, NumberedArms, as_numbers, check_arms
from kanab.scan.count.counter import Columns, CountTask, PairCounter, PairSums
from kanab.scan.count.kernel import NOT_IN, rows_at_once
from kanab.scan.count.people_batches import NO_ROWS, People, Progress, count_batches
from kanab.tally.factor import Level

Decoder = Callable[[Sequence[Any]], Columns]
"""Turns columns of an answer into those of a batch; small and plain, so that it can be sent to other machines."""

MOST_ASSIGNED_EXPERIMENTS = 10_000
"""A table of assignments with more experiments is a table of something else."""

_PARTS_AT_ONCE = 32  # sums of partitions of Spark that one worker adds: each is as large as all tables
_PYTHON_VALUES = 8  # times the memory of Arrow's


@contextmanager
def open_engine_people(
    source: Any, options: SourceOptions, choose: Callable[[Sequence[str]], Plan], assignments: Any = None
) -> Iterator[tuple[Plan, People]]:
    """Open a source of people in an engine; ``choose`` makes the plan, given the names of columns or of experiments."""
    if assignments is None:
        with open_people(source, options, choose) as (plan, table):
            yield plan, EnginePeople(table)
        return
    with opened_table(source, table=options.table, sql=options.sql) as table, strict_arithmetic(table):
        if options.where is not None:
            raise SourceError("a filter could mean either table", "Give tables or queries that are filtered already.")
        engine = engine_of(table)
        if not engine.has_lists:
            raise SourceError(
                f"{engine.name} has no lists, which a person's assignments are collected into",
                "Give a row per person, with a column per experiment; or write both tables to Parquet files.",
            )
        names = _read_assignments(assignments)
        assigned = open_beside(table, names.table)
        plan = choose(assigned_names(assigned, names))
        units = Units(options.unit or names.unit, options.aggregate)  # type: ignore[arg-type]  # as checked by Units
        yield plan, AssignedPeople(assigned, names, table, plan.counted_metrics, units)


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
        """Count everybody."""
        arms = [as_plain(self.table[name], kind_of(self.table, name)) for name in task.experiments]
        return count_answer(select_people(self.table, arms, task), list, task, progress)


def select_people(table: Any, arms: Sequence[Any], task: CountTask) -> Any:
    """Select arms and metrics of a table of people, in this order, under names of our own."""
    wanted = {f"e{place}": arm for place, arm in enumerate(arms)}
    for place, metric in enumerate(task.metrics):
        kind = kind_of(table, metric.name, metric=True)
        wanted[f"m{place}"] = as_number(table[metric.name], kind, careful=False)
    return table.select(**wanted)


def count_answer(rows: Any, decode: Decoder, task: CountTask, progress: Progress | None) -> PairSums:
    """Count what a query gives. Raises `SourceError` where that is nobody."""
    engine = rows.get_backend().name
    if engine == "pyspark":
        sums = _on_partitions(rows, decode, task)
    else:
        at_once = rows_at_once(len(rows.columns)) // (1 if engine == "duckdb" else _PYTHON_VALUES)
        with closing(arrow_batches(rows, at_once)) as answer:
            sums = count_batches((decode(batch.columns) for batch in answer), task, None, progress)
    people = sums.total + sums.outside
    if not people:
        raise SourceError(*NO_ROWS)
    if progress is not None:
        progress(people, people)
    return sums


# ── Spark ──────────────────────────────────────────────────────────────────────────────────────


def _on_partitions(rows: Any, decode: Decoder, task: CountTask) -> PairSums:
    """Count each partition where it is, and add their sums in the cluster, too: the driver gets one answer."""
    try:
        frame = rows.get_backend().raw_sql(query_text(rows))
        with _this_python(frame.sparkSession.sparkContext):
            parts = frame.mapInArrow(_Partition(decode, task), "part binary").rdd.map(_loaded)
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

    decode: Decoder
    task: CountTask

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        counter = PairCounter(self.task)
        part: Any
        try:
            for columns in _larger(batches):
                counter.add(self.decode(columns))
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


# ── one row per assignment ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Assignments:
    """Who is in which arm of which experiment: a table with a row for each assignment.

    ``table`` is the name of a table of the same connection, a path, a frame or an Ibis table.
    """

    table: Any = field(repr=False)
    unit: str = "user"
    experiment: str = "experiment"
    arm: str = "arm"


def _read_assignments(value: Any) -> Assignments:
    if isinstance(value, (tuple, list)) and len(value) == 4 and all(isinstance(name, str) for name in value[1:]):
        return Assignments(*value)
    raise SourceError(
        "assignments are not a table and three of its columns",
        "Give (table, 'user', 'experiment', 'arm'): who, which experiment, which arm.",
    )


def assigned_names(assigned: Any, names: Assignments) -> list[str]:
    """Return the experiments that a table of assignments names, in order.

    Raises `SourceError` where there are more than ``MOST_ASSIGNED_EXPERIMENTS``.
    """
    for name in (names.unit, names.experiment, names.arm):
        kind_of(assigned, name)
    rows = assigned.filter(assigned[names.experiment].notnull())
    distinct = rows.select(name=rows[names.experiment].cast("string")).distinct().limit(MOST_ASSIGNED_EXPERIMENTS + 1)
    texts = sorted(row[0] for row in run_query(assigned.get_backend(), query_text(distinct)))
    if len(texts) > MOST_ASSIGNED_EXPERIMENTS:
        raise SourceError(
            f"column {names.experiment!r} has more than {MOST_ASSIGNED_EXPERIMENTS:,} experiments",
            "Name the column that holds the experiment.",
        )
    return texts


@dataclass(frozen=True)
class AssignedPeople:
    """People by their assignments, with their metrics from another table, in the same engine."""

    assigned: Any = field(repr=False)
    names: Assignments
    rows: Any = field(repr=False)
    metrics: tuple[MetricPlan, ...]
    units: Units

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what the values of everybody in the table of metrics say."""
        return EnginePeople(self._values()).guess(metrics)

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody who is assigned to one of the experiments."""
        kind = kind_of(self.assigned, self.names.arm)
        long = self.assigned.select(
            unit=self.assigned[self.names.unit],
            experiment=self.assigned[self.names.experiment].cast("string"),
            arm=as_plain(self.assigned[self.names.arm], kind),
        )
        known = _assigned_arms(long, kind, task.experiments)
        people = _collected(long, kind, task.experiments, known)
        values = self._values()
        both = people.left_join(values, people["kanab_unit"] == values["kanab_who"])
        return count_answer(select_people(both, [both["kanab_arms"]], task), _ListDecoder(tuple(known)), task, progress)

    def _values(self) -> Any:
        """Return a row for each person of the table of metrics."""
        if kind_of(self.rows, self.units.unit) != kind_of(self.assigned, self.names.unit):
            raise SourceError(
                f"the person's columns {self.names.unit!r} and {self.units.unit!r} hold different kinds of values",
                "Name the person alike in both tables: as text, or as a number.",
            )
        plan = Plan(self.metrics, ())
        self.units.check(plan)
        rows = self.rows.filter(self.rows[self.units.unit].notnull())
        sums = row_sums(rows, plan, self.units.how)
        table = rows.select(kanab_who=rows[self.units.unit], **row_values(rows, sums))
        grouped = table.group_by("kanab_who").aggregate(**row_totals(table, sums))
        return grouped.select(kanab_who=grouped["kanab_who"], **person_values(grouped, sums))


def _assigned_arms(long: Any, kind: Any, experiments: Sequence[str]) -> list[tuple[Level, ...]]:
    """Return the arms of each experiment, from everybody."""
    wanted = long.filter(long["experiment"].isin(list(experiments)) & long["arm"].notnull())
    pairs = wanted.select(experiment=wanted["experiment"], arm=wanted["arm"].cast("string"))
    limited = pairs.distinct().limit(MOST_ARMS * len(experiments) + 1)
    arms: dict[str, dict[Level, None]] = {name: {} for name in experiments}
    for text, level in run_query(long.get_backend(), query_text(limited)):
        arms[text][read_level(level, kind, text)] = None
    for text, levels in arms.items():
        check_arms(text, list(levels))
    return [tuple(levels) for levels in arms.values()]


def _collected(long: Any, kind: Any, experiments: Sequence[str], known: Sequence[tuple[Level, ...]]) -> Any:
    """Return a row for each person, with the numbers of all their arms."""
    backend = long.get_backend()
    numbered = [
        (experiment, int(level) if isinstance(level, bool) else level, MOST_ARMS * place + code)
        for place, (experiment, levels) in enumerate(zip(experiments, known, strict=True))
        for code, level in enumerate(levels)
    ]
    if not numbered:
        raise SourceError("nobody is in an arm of the experiments", "Check the columns of the assignments.")
    rows = long.filter(long["unit"].notnull())
    if kind == "truth":
        rows = rows.mutate(arm=rows["arm"].cast("int32"))
    values = sqlglot.exp.values(numbered, alias="kanab_codes", columns=["experiment", "arm", "code"])
    text = sqlglot.select("*").from_(values).sql(dialect=backend.dialect)
    codes = backend.sql(text, schema={"experiment": "string", "arm": rows["arm"].type(), "code": "int32"})
    joined = rows.join(codes, (rows["experiment"] == codes["experiment"]) & (rows["arm"] == codes["arm"]))
    people = joined.group_by("unit").aggregate(kanab_arms=joined["code"].collect())
    return people.rename(kanab_unit="unit")


@dataclass(frozen=True)
class _ListDecoder:
    """A list with the numbers of a person's arms; then a column for each metric."""

    levels: tuple[tuple[Level, ...], ...]

    def __call__(self, columns: Sequence[Any]) -> Columns:
        lists = columns[0].combine_chunks() if hasattr(columns[0], "combine_chunks") else columns[0]
        people = len(lists)
        numbers = as_numbers(lists.flatten()).astype(np.int64)
        rows = np.repeat(np.arange(people), as_numbers(lists.value_lengths()).astype(np.int64))
        place, code = numbers // MOST_ARMS, (numbers % MOST_ARMS).astype(np.uint8)
        arms = np.full((len(self.levels), people), NOT_IN, dtype=np.uint8)
        arms[place, rows] = code
        twice = arms[place, rows] != code  # somebody else's number is there: seen in two arms
        arms[place[twice], rows[twice]] = NOT_IN
        return [*(NumberedArms(codes, levels) for codes, levels in zip(arms, self.levels, strict=True)), *columns[1:]]
