"""People out of engines: batches as Arrow from DuckDB, as partitions of Spark, as texts from all others.

An engine that hands out rows one by one would spend its time on a hundred columns of each. There a
person's arms travel as one text, a character for each experiment. The long shape of a warehouse (person,
experiment, arm) becomes one row per person inside the engine: the numbers of all their arms, collected.
That costs one step per row, however many experiments there are. Somebody seen in two arms of an
experiment is not in it.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import sqlglot

from kanab.counting.connect import open_beside, opened_table
from kanab.counting.engine.dialects import asking, cached, engine_of, query_text, run_query, strict_arithmetic
from kanab.counting.engine.filters import filter_rows
from kanab.counting.engine.group_keys import as_plain, kind_of, read_level
from kanab.counting.engine.measures import as_number
from kanab.counting.engine.people import Units, make_units, person_values, row_sums, row_totals, row_values, to_people
from kanab.counting.engine.profiles import SAMPLE_SIZE, profile_columns
from kanab.counting.grids import Profile
from kanab.errors import KanabError, QueryError, SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.scan.count.codes import MOST_ARMS, ArmCodes, NumberedArms, as_numbers, check_arms
from kanab.scan.count.counter import CountTask, PairCounter, PairSums, PeopleBatch
from kanab.scan.count.kernel import NOT_IN, ROWS, rows_at_once
from kanab.scan.count.stream import NO_ROWS, People, PeopleOptions, Progress, count_batches
from kanab.tally.factor import Level

Decoder = Callable[[Sequence[Any]], PeopleBatch]
"""Turns columns of an answer into a batch of people; small and plain, so that it can be sent to other machines."""

MOST_ASSIGNED_EXPERIMENTS = 10_000
"""A table of assignments with more experiments is a table of something else."""

_NONE, _OTHER = ".", "?"
_PARTS_AT_ONCE = 32  # sums of partitions of Spark that one worker adds
_ROWS_ONE_BY_ONE = ROWS // 8  # Python's own values take much memory
_LONGEST = 32  # letters to a text: longer expressions are hard on parsers


def open_people(
    stack: ExitStack, source: Any, metrics: tuple[MetricPlan, ...], options: PeopleOptions
) -> tuple[Sequence[str], Callable[[Sequence[str]], People]]:
    """Return the columns of a source among which experiments are named, and its people once they are.

    What has to be closed or dropped afterwards is left to the stack.
    """
    table = stack.enter_context(opened_table(source, table=options.table, sql=options.sql))
    stack.enter_context(strict_arithmetic(table))
    if options.assignments is not None:
        assigned = _assigned_people(table, metrics, options)
        return assigned.columns, lambda _names: assigned
    rows = filter_rows(table, options.where) if options.where else table
    units = make_units(options.unit, options.aggregate)
    if units is None:
        return list(rows.columns), lambda _names: EnginePeople(rows)

    def row_per_person(names: Sequence[str]) -> People:
        plan = Plan(metrics, tuple(ExperimentPlan(name) for name in names))
        people = stack.enter_context(cached(to_people(rows, plan, units), engine_of(table)))
        return EnginePeople(people)

    return list(rows.columns), row_per_person


@dataclass(frozen=True)
class EnginePeople:
    """An Ibis table with one row per person."""

    table: Any = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.table.columns)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what all rows say of some metrics."""
        kinds = {name: kind_of(self.table, name, metric=True) for name in metrics}
        profiles = profile_columns(self.table, kinds).profiles
        return {name: each for name, each in profiles.items() if math.isfinite(each.low) and math.isfinite(each.high)}

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody, in the way that suits the engine."""
        arms = [as_plain(self.table[name], kind_of(self.table, name)) for name in task.experiments]
        if self.table.get_backend().name not in ("duckdb", "pyspark"):
            sums = self._by_texts(arms, task, progress)
            if sums is not None:
                return sums
        rows = select_people(self.table, arms, [metric.name for metric in task.metrics])
        return count_answer(rows, _ColumnDecoder(len(arms)), task, progress)

    def _by_texts(self, arms: Sequence[Any], task: CountTask, progress: Progress | None) -> PairSums | None:
        """Count from texts, in the letters of the arms of a sample; None if somebody is in another arm."""
        known = [ArmCodes(name) for name in task.experiments]
        for columns in _columns(select_people(self.table, arms, []).limit(SAMPLE_SIZE)):
            for codes, values in zip(known, columns, strict=True):
                codes.read(values)
        letters = [_letter(arm, codes.levels) for arm, codes in zip(arms, known, strict=True)]
        texts = []
        for start in range(0, len(letters), _LONGEST):
            first, *others = letters[start : start + _LONGEST]
            # one operation: a sum of sums grows beyond measure where Ibis repeats its terms
            texts.append(first.concat(*others) if others else first)
        rows = select_people(self.table, texts, [metric.name for metric in task.metrics])
        try:
            levels = tuple(tuple(codes.levels) for codes in known)
            return count_answer(rows, _TextDecoder(levels), task, progress)
        except _AnotherArmError:
            return None


def select_people(table: Any, arms: Sequence[Any], metrics: Sequence[str]) -> Any:
    """Select arms and metrics of a table of people, in this order, under names of our own."""
    wanted = {f"e{place}": arm for place, arm in enumerate(arms)}
    for place, name in enumerate(metrics):
        wanted[f"m{place}"] = as_number(table[name], kind_of(table, name, metric=True), careful=False)
    return table.select(**wanted)


@dataclass(frozen=True)
class _ColumnDecoder:
    """A column for each experiment, then one for each metric."""

    arms: int

    def __call__(self, columns: Sequence[Any]) -> PeopleBatch:
        return PeopleBatch(columns[: self.arms], columns[self.arms :])


def count_answer(rows: Any, decode: Decoder, task: CountTask, progress: Progress | None) -> PairSums:
    """Count what a query gives. Raises `SourceError` where that is nobody."""
    if rows.get_backend().name == "pyspark":
        sums = _on_partitions(rows, decode, task)
    else:
        with closing(_columns(rows)) as answer:
            sums = count_batches(map(decode, answer), task, None, progress)
    people = sums.total + sums.outside
    if not people:
        raise SourceError(*NO_ROWS)
    if progress is not None:
        progress(people, people)
    return sums


def _columns(rows: Any) -> Generator[list[Any]]:
    """Yield the columns of a query's answer, some rows at a time."""
    backend = rows.get_backend()
    if backend.name not in ("duckdb", "postgres"):
        yield from _columns_of_rows(rows)
        return
    with asking(backend):
        if backend.name == "duckdb":
            reader = backend.raw_sql(query_text(rows)).to_arrow_reader(rows_at_once(len(rows.columns)))
        else:  # PostgreSQL keeps the answer, and hands out as much as is asked for
            reader = rows.to_pyarrow_batches(chunk_size=_ROWS_ONE_BY_ONE)
        with reader:
            for batch in reader:
                yield batch.columns


def _columns_of_rows(rows: Any) -> Generator[list[Any]]:
    """Yield the columns of an answer whose rows are plain values of Python."""
    kinds = rows.schema().to_pyarrow().types
    with closing(run_query(rows.get_backend(), query_text(rows))) as answer:
        while some := list(islice(answer, _ROWS_ONE_BY_ONE)):
            yield [_as_column(values, kind) for values, kind in zip(zip(*some, strict=True), kinds, strict=True)]


def _as_column(values: Sequence[Any], kind: Any) -> Any:
    """Return an Arrow array; what is true or false is so, even where the engine has only 1 and 0."""
    if pa.types.is_boolean(kind):
        values = [None if value is None else bool(value) for value in values]
    try:
        return pa.array(values, kind)
    except pa.ArrowException as problem:
        raise QueryError(problem) from None


# ── texts ──────────────────────────────────────────────────────────────────────────────────────


class _AnotherArmError(Exception):
    """Somebody is in an arm that nobody of the sample is in."""


def _letter(arm: Any, levels: Sequence[Level]) -> Any:
    """Return one character: the number of the arm, or that there is none, or that it is another one."""
    known = [(arm == level, str(place)) for place, level in enumerate(levels)]
    return ibis.cases((arm.isnull(), _NONE), *known, else_=_OTHER)


@dataclass(frozen=True)
class _TextDecoder:
    """Texts of letters, one for each experiment; then a column for each metric."""

    levels: tuple[tuple[Level, ...], ...]

    def __call__(self, columns: Sequence[Any]) -> PeopleBatch:
        texts = -(-len(self.levels) // _LONGEST)
        arms = [codes for place in range(texts) for codes in self._decode(place * _LONGEST, columns[place])]
        return PeopleBatch(arms, columns[texts:])

    def _decode(self, start: int, text: Any) -> Iterator[NumberedArms]:
        arms = self.levels[start : start + _LONGEST]
        letters = np.frombuffer("".join(text.to_pylist()).encode("ascii"), dtype=np.uint8).reshape(-1, len(arms))
        if (letters == ord(_OTHER)).any():
            raise _AnotherArmError
        for codes, levels in zip(np.ascontiguousarray(letters.T), arms, strict=True):
            yield NumberedArms(
                np.where(codes == ord(_NONE), NOT_IN, codes - np.uint8(ord("0"))).astype(np.uint8), levels
            )


# ── Spark ──────────────────────────────────────────────────────────────────────────────────────


def _on_partitions(rows: Any, decode: Decoder, task: CountTask) -> PairSums:
    """Count each partition where it is, and add their sums in the cluster, too: the driver gets one answer."""
    try:
        frame = rows.get_backend().raw_sql(query_text(rows))
        with _this_python(frame.sparkSession.sparkContext):
            parts = frame.mapInArrow(_Partition(decode, task), "part binary").rdd.map(_loaded)
            answers = _added(parts).collect()
    except Exception as problem:  # engines put values of the data into their errors
        if "No module named" in str(problem):
            raise SourceError(
                "the workers of Spark cannot load kanab", "Install kanab with its [spark] extra for their Python too."
            ) from None
        raise QueryError(problem) from None
    if not answers:
        return PairCounter(task).result()
    sums: PairSums | _PartitionError = reduce(_add_parts, answers)
    if isinstance(sums, _PartitionError):
        raise sums.error()
    return sums.checked(task.experiments)


def _added(parts: Any) -> Any:
    """Add the sums of partitions, some of them at a time, until one is left: each is as large as all tables."""
    many = parts.getNumPartitions()
    while many > 1:
        many = -(-many // _PARTS_AT_ONCE)
        parts = parts.mapPartitionsWithIndex(_Numbered(many)).reduceByKey(_add_parts, many).values()
    return parts


def _loaded(row: Sequence[bytes]) -> PairSums | _PartitionError:
    part: PairSums | _PartitionError = pickle.loads(row[0])
    return part


def _add_parts(first: PairSums | _PartitionError, second: PairSums | _PartitionError) -> PairSums | _PartitionError:
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

    def error(self) -> KanabError:
        return self.kind(self.fact, self.remedy)


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


def _assigned_people(table: Any, metrics: tuple[MetricPlan, ...], options: PeopleOptions) -> AssignedPeople:
    if options.where is not None:
        raise SourceError("a filter could mean either table", "Give tables or queries that are filtered already.")
    engine = engine_of(table)
    if not engine.has_lists:
        raise SourceError(
            f"{engine.name} has no lists, which a person's assignments are collected into",
            "Give a row per person, with a column per experiment; or write both tables to Parquet files.",
        )
    assignments = options.assignments
    names = assignments if isinstance(assignments, Assignments) else _read_assignments(assignments)
    units = Units(options.unit or names.unit, options.aggregate)  # type: ignore[arg-type]  # as above
    return AssignedPeople(open_beside(table, names.table), names, table, metrics, units)


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

    @property
    def columns(self) -> list[str]:
        """The experiments that are named."""
        return assigned_names(self.assigned, self.names)

    def guess(self, metrics: Sequence[str]) -> dict[str, Profile]:
        """Return what the values of everybody in the table of metrics say."""
        return EnginePeople(self._values()).guess(metrics)

    def count(self, task: CountTask, progress: Progress | None) -> PairSums:
        """Count everybody who is assigned to one of the experiments."""
        known = self._arms(task.experiments)
        people = self._collected(task.experiments, known)
        values = self._values()
        both = people.left_join(values, people["kanab_unit"] == values["kanab_who"])
        rows = select_people(both, [both["kanab_arms"]], [metric.name for metric in task.metrics])
        return count_answer(rows, _ListDecoder(tuple(known)), task, progress)

    def _arm(self) -> Any:
        kind = kind_of(self.assigned, self.names.arm)
        return as_plain(self.assigned[self.names.arm], kind)

    def _arms(self, experiments: Sequence[str]) -> list[tuple[Level, ...]]:
        """Return the arms of each experiment, from everybody."""
        kind = kind_of(self.assigned, self.names.arm)
        experiment, arm = self.assigned[self.names.experiment].cast("string"), self._arm()
        pairs = self.assigned.select(name=experiment, arm=arm.cast("string"))
        wanted = pairs.filter(pairs["name"].isin(list(experiments)) & pairs["arm"].notnull())
        limited = wanted.distinct().limit(MOST_ARMS * len(experiments) + 1)
        arms: dict[str, dict[Level, None]] = {name: {} for name in experiments}
        for text, level in run_query(self.assigned.get_backend(), query_text(limited)):
            arms[text][read_level(level, kind, text)] = None
        for text, levels in arms.items():
            check_arms(text, list(levels))
        return [tuple(levels) for levels in arms.values()]

    def _collected(self, experiments: Sequence[str], known: Sequence[tuple[Level, ...]]) -> Any:
        """Return a row for each person, with the numbers of all their arms."""
        names, backend = self.names, self.assigned.get_backend()
        kind = kind_of(self.assigned, names.arm)
        arm = self._arm()
        rows = self.assigned.select(
            kanab_unit=self.assigned[names.unit],
            kanab_experiment=self.assigned[names.experiment].cast("string"),
            kanab_arm=arm.cast("int32") if kind == "truth" else arm,
        )
        rows = rows.filter(rows["kanab_unit"].notnull())
        listed = [
            (experiment, int(level) if isinstance(level, bool) else level, MOST_ARMS * place + code)
            for place, (experiment, levels) in enumerate(zip(experiments, known, strict=True))
            for code, level in enumerate(levels)
        ]
        if not listed:
            raise SourceError("nobody is in an arm of the experiments", "Check the columns of the assignments.")
        values = sqlglot.exp.values(listed, alias="kanab_codes", columns=["experiment", "arm", "code"])
        text = sqlglot.select("*").from_(values).sql(dialect=backend.dialect)
        schema = {"experiment": "string", "arm": rows["kanab_arm"].type(), "code": "int32"}
        codes = backend.sql(text, schema=schema)
        same = (rows["kanab_experiment"] == codes["experiment"]) & (rows["kanab_arm"] == codes["arm"])
        joined = rows.join(codes, same)
        return joined.group_by("kanab_unit").aggregate(kanab_arms=joined["code"].collect())

    def _values(self) -> Any:
        """Return a row for each person of the table of metrics."""
        if kind_of(self.rows, self.units.unit) != kind_of(self.assigned, self.names.unit):
            raise SourceError(
                f"the person's columns {self.names.unit!r} and {self.units.unit!r} hold different kinds of values",
                "Name the person alike in both tables: as text, or as a number.",
            )
        self.units.check(Plan(self.metrics, ()))
        rows = self.rows.filter(self.rows[self.units.unit].notnull())
        sums = row_sums(rows, Plan(self.metrics, ()), self.units.how)
        table = rows.select(kanab_who=rows[self.units.unit], **row_values(rows, sums))
        grouped = table.group_by("kanab_who").aggregate(**row_totals(table, sums))
        return grouped.select(kanab_who=grouped["kanab_who"], **person_values(grouped, sums))


@dataclass(frozen=True)
class _ListDecoder:
    """A list with the numbers of a person's arms; then a column for each metric."""

    levels: tuple[tuple[Level, ...], ...]

    def __call__(self, columns: Sequence[Any]) -> PeopleBatch:
        lists = columns[0].combine_chunks() if hasattr(columns[0], "combine_chunks") else columns[0]
        people = len(lists)
        numbers = as_numbers(lists.flatten()).astype(np.int64)
        rows = np.repeat(np.arange(people), as_numbers(lists.value_lengths()).astype(np.int64))
        place, code = numbers // MOST_ARMS, (numbers % MOST_ARMS).astype(np.uint8)
        arms = np.full((len(self.levels), people), NOT_IN, dtype=np.uint8)
        arms[place, rows] = code
        twice = arms[place, rows] != code  # somebody else's number is there: seen in two arms
        arms[place[twice], rows[twice]] = NOT_IN
        experiments = [NumberedArms(codes, levels) for codes, levels in zip(arms, self.levels, strict=True)]
        return PeopleBatch(experiments, columns[1:])
