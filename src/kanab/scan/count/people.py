"""People out of tables with several rows for each: of the same columns, or one row per assignment.

The long shape of a warehouse (person, experiment, arm) becomes one row per person inside the engine:
the numbers of all their arms, collected. That costs one step per row, however many experiments there
are. Somebody seen in two arms of an experiment is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any
from uuid import uuid4

import ibis
import numpy as np
import pyarrow as pa
import sqlglot

from kanab.counting.connect import open_beside, opened_table
from kanab.counting.engine.dialects import cached, engine_of, query_text, run, strict_arithmetic
from kanab.counting.engine.group_keys import kind_of, plain, read_level
from kanab.counting.engine.joint import twice_flag
from kanab.counting.engine.people import Units, to_people
from kanab.counting.engine.person_sums import person_values, row_sums, row_totals, row_values
from kanab.counting.engine.sql import filter_rows
from kanab.counting.grids import Profile
from kanab.errors import SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.scan.count.codes import MOST_ARMS, Numbered, as_numbers, check_arms
from kanab.scan.count.counter import Batch, Task
from kanab.scan.count.engine import EnginePeople, Wide, chosen, count_answer
from kanab.scan.count.layout import NOT_IN
from kanab.scan.count.stream import People, Progress, Reading
from kanab.scan.count.sums import PairSums
from kanab.tally.factor import Level

MOST_NAMES = 10_000
"""A table of assignments with more experiments is a table of something else."""


def opened_people(
    stack: ExitStack, source: Any, metrics: tuple[MetricPlan, ...], reading: Reading
) -> tuple[Sequence[str], Callable[[Sequence[str]], People]]:
    """The columns of a source among which experiments are named, and its people once they are.

    What has to be closed or forgotten afterwards is left to the stack.
    """
    table = stack.enter_context(opened_table(source, table=reading.table, sql=reading.sql))
    stack.enter_context(strict_arithmetic(table))
    if reading.assignments is not None:
        assigned = _assigned_people(table, metrics, reading)
        return assigned.columns, lambda _names: assigned
    rows = filter_rows(table, reading.where) if reading.where else table
    if reading.unit is None:
        if reading.aggregate is not None:
            raise SourceError("rows are to be added up, but nobody says whose", "Name the column of the person: unit.")
        return list(rows.columns), lambda _names: EnginePeople(rows)
    units = Units(reading.unit, reading.aggregate)  # type: ignore[arg-type]  # its check says which words fit

    def one_row_each(names: Sequence[str]) -> People:
        plan = Plan(metrics, tuple(ExperimentPlan(name) for name in names))
        people = stack.enter_context(cached(to_people(rows, plan, units), engine_of(table)))
        return EnginePeople(people, twice_flag(0))

    return list(rows.columns), one_row_each


@dataclass(frozen=True)
class Assignments:
    """Who is in which arm of which experiment: a table with a row for each assignment.

    ``table`` is the name of a table of the same connection, a path, a frame or an Ibis table.
    """

    table: Any = field(repr=False)
    unit: str = "user"
    experiment: str = "experiment"
    arm: str = "arm"


def _assigned_people(table: Any, metrics: tuple[MetricPlan, ...], reading: Reading) -> AssignedPeople:
    if reading.where is not None:
        raise SourceError("a filter could mean either table", "Give tables or queries that are filtered already.")
    given = reading.assignments
    names = given if isinstance(given, Assignments) else _names(given)
    units = Units(reading.unit or names.unit, reading.aggregate)  # type: ignore[arg-type]  # as above
    return AssignedPeople(_beside(table, names.table), names, table, metrics, units)


def _names(given: Any) -> Assignments:
    if isinstance(given, (tuple, list)) and len(given) == 4 and all(isinstance(one, str) for one in given[1:]):
        return Assignments(*given)
    raise SourceError(
        "assignments are not a table and three of its columns",
        "Give (table, 'user', 'experiment', 'arm'): who, which experiment, which arm.",
    )


def _beside(table: Any, other: Any) -> Any:
    """The table of assignments, in the engine of the metrics."""
    if isinstance(other, (str, PathLike)):
        return open_beside(table, fspath(other))
    backend = table.get_backend()
    if not isinstance(other, ibis.Table):
        if backend.name != "duckdb":
            raise SourceError("assignments and metrics are in different places", "Name a table of the same connection.")
        found = pa.table(dict(other)) if isinstance(other, Mapping) else other
        return backend.create_table(f"kanab_assignments_{uuid4().hex}", found, temp=True)
    if other.get_backend() is not backend:
        raise SourceError("assignments and metrics are in different places", "Take both from one connection.")
    return other


def assigned_names(assigned: Any, names: Assignments) -> list[str]:
    """The experiments that a table of assignments names, in order."""
    for name in (names.unit, names.experiment, names.arm):
        kind_of(assigned, name)
    found = assigned.filter(assigned[names.experiment].notnull())
    distinct = found.select(name=found[names.experiment].cast("string")).distinct().limit(MOST_NAMES + 1)
    texts = sorted(row[0] for row in run(assigned.get_backend(), query_text(distinct)))
    if len(texts) > MOST_NAMES:
        raise SourceError(
            f"column {names.experiment!r} has more than {MOST_NAMES:,} experiments",
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
        """What the values of everybody in the table of metrics say."""
        return EnginePeople(self._values()).guess(metrics)

    def count(self, task: Task, progress: Progress | None) -> PairSums:
        """Count everybody who is assigned to one of the experiments."""
        known = self._arms(task.experiments)
        people = self._collected(task.experiments, known)
        values = self._values()
        both = people.left_join(values, people["kanab_unit"] == values["kanab_who"])
        rows = chosen(both, [both["kanab_arms"]], [one.name for one in task.metrics], None)
        return count_answer(rows, _Long(tuple(known), len(task.metrics)), task, progress)

    def _arm(self) -> Any:
        kind = kind_of(self.assigned, self.names.arm)
        return plain(self.assigned[self.names.arm], kind)

    def _arms(self, experiments: Sequence[str]) -> list[tuple[Level, ...]]:
        """The arms of each experiment, from everybody."""
        kind = kind_of(self.assigned, self.names.arm)
        name, arm = self.assigned[self.names.experiment].cast("string"), self._arm()
        pairs = self.assigned.select(name=name, arm=arm.cast("string"))
        wanted = pairs.filter(pairs["name"].isin(list(experiments)) & pairs["arm"].notnull())
        limited = wanted.distinct().limit(MOST_ARMS * len(experiments) + 1)
        found: dict[str, dict[Level, None]] = {one: {} for one in experiments}
        for text, level in run(self.assigned.get_backend(), query_text(limited)):
            found[text][read_level(level, kind, text)] = None
        for text, levels in found.items():
            check_arms(text, list(levels))
        return [tuple(found[one]) for one in experiments]

    def _collected(self, experiments: Sequence[str], known: Sequence[tuple[Level, ...]]) -> Any:
        """A row for each person, with the numbers of all their arms."""
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
        """A row for each person of the table of metrics."""
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
class _Long:
    """A list with the numbers of a person's arms; then as in ``Wide``."""

    levels: tuple[tuple[Level, ...], ...]
    metrics: int

    def __call__(self, columns: Sequence[Any]) -> Batch:
        lists = columns[0].combine_chunks() if hasattr(columns[0], "combine_chunks") else columns[0]
        people = len(lists)
        numbers = as_numbers(lists.flatten()).astype(np.int64)
        rows = np.repeat(np.arange(people), as_numbers(lists.value_lengths()).astype(np.int64))
        place, code = numbers // MOST_ARMS, (numbers % MOST_ARMS).astype(np.uint8)
        arms = np.full((len(self.levels), people), NOT_IN, dtype=np.uint8)
        arms[place, rows] = code
        twice = arms[place, rows] != code  # somebody else's number is there: seen in two arms
        arms[place[twice], rows[twice]] = NOT_IN
        marked = np.zeros(people, dtype=bool)
        marked[rows[twice]] = True
        own = [Numbered(codes, levels) for codes, levels in zip(arms, self.levels, strict=True)]
        return Batch(own, Wide(0, self.metrics)(columns[1:]).values, marked)
