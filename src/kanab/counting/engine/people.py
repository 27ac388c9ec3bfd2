"""Make people of rows: of the several rows of a person, or of what happened after the first exposure.

Sums are taken of whole grid steps, so that no engine's order of addition changes a digit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, get_args

import ibis

from kanab.counting.clusters import PEOPLE
from kanab.counting.engine.dialects import engine_of
from kanab.counting.engine.filters import filter_rows
from kanab.counting.engine.group_keys import Kind, as_plain, in_experiment, kind_of, only_where
from kanab.counting.engine.measures import as_number, check_finite, grid_steps
from kanab.counting.engine.profiles import profile_columns
from kanab.counting.engine.times import day_number, in_span, later, point_in_time
from kanab.counting.frames import check_column
from kanab.errors import SourceError
from kanab.plan.joint_plan import JointPlan, column_of, people_of, populations
from kanab.plan.metric_windows import SECONDS, MetricWindow, metric_window
from kanab.plan.model import MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.tally.metric import GRID_LIMIT

How = Literal["sum", "max", "mean"]

CLUSTER = "kanab_cluster"
"""The column that names the cluster of a row, where arms were assigned to groups of people."""

_BETWEEN = "\x1f"  # the columns that make a cluster
_ROOM = 1 << 10
"""So many times coarser are the steps of rows that nobody declared, for a person's rows to be added up in 64 bits."""


@dataclass(frozen=True)
class Events:
    """A table of events with the metrics, next to one of exposures.

    Only events within the window after a person's first exposure count: from its moment on, up to but
    not including its end. A metric such as ``spend@7d..14d`` counts those of a part of it. Both tables name the
    person alike.
    """

    table: Any = field(repr=False)
    window: str = "14d"
    time: str = "time"
    exposure_time: str = "time"


def window_seconds(text: object) -> int:
    """Return the length of a window; raise `SourceError` where it is no length of time, or has none."""
    match = re.fullmatch(r"(\d{1,6}) ?([mhdw])", str(text).strip())
    if match is None or int(match[1]) == 0:
        fact = "the window is not a length of time" if match is None else "the window is empty: no event would count"
        raise SourceError(fact, "Write it like 14d, 36h or 90m.")
    return int(match[1]) * SECONDS[match[2]]


@dataclass(frozen=True)
class Units:
    """Which rows count, and how they become people: each is one, or a column names whose it is.

    ``where`` is SQL that keeps some rows; with a ``span`` only the people of those cohorts are counted.
    ``aggregate`` is "sum", "max" or "mean" per metric, or one of them for all. By default amounts
    are added, and what is 0 or 1 is 1 if it ever was. A covariate must not change within a person,
    or it is that of the first row: by ``first_by``, or by the exposures' time. A person seen in two
    arms of an experiment is not in it.
    """

    unit: str | None = None
    aggregate: Mapping[str, How] | How | None = None
    events: Events | None = None
    first_by: str | None = None
    where: str | None = None
    span: Span | None = None

    def __post_init__(self) -> None:
        if self.unit is None and (self.aggregate, self.events, self.first_by) != (None, None, None):
            raise SourceError("rows are to be added up, but the column of the person is not named", "Name it: unit=….")

    def how(self, metric: str) -> How | None:
        """Return how the rows of a person become one value of a metric, named as its column is, if that was said."""
        if isinstance(self.aggregate, str) or not self.aggregate:
            return self.aggregate or None  # type: ignore[return-value]
        window = None if self.events is None else metric_window(metric)
        return self.aggregate.get(metric) or (None if window is None else self.aggregate.get(window.column))

    @property
    def time(self) -> str | None:
        """The column by which one of a person's rows is the first; None where all must agree."""
        return self.first_by if self.events is None else self.events.exposure_time

    def check(self, plan: Plan) -> None:
        """Raise `SourceError` for an unknown word, an unknown metric, or events of several experiments."""
        words = [self.aggregate] if isinstance(self.aggregate, str) else (self.aggregate or {}).values()
        if not set(words) <= set(get_args(How)):
            raise SourceError("unknown way to make one value of several rows", "Use sum, max or mean.")
        named = set(self.aggregate) if isinstance(self.aggregate, Mapping) else set()
        columns = {column_of(plan, metric.name) for metric in plan.metrics}
        if self.events is not None:
            columns |= {window.column for window in map(metric_window, columns) if window is not None}
        if not named <= columns:
            raise SourceError("aggregate names a metric that is not counted", "Check its name.")
        if named & {column_of(plan, name) for name in plan.numbers}:
            raise SourceError(
                "aggregate names a number that is adjusted for",
                "Like a covariate it is the same in all rows of a person, or taken at the first (--first-by).",
            )
        if self.events is not None and self.first_by is not None:
            raise SourceError(
                "covariates are those of the first exposure already",
                "Leave out --first-by; name --exposure-time instead.",
            )
        if self.events is not None and any(len(group) > 1 for group in populations(plan)):
            raise SourceError(
                "exposures of several experiments cannot be counted together",
                "Each has its own first exposure: count one experiment at a time.",
            )


def known_before(plan: Plan) -> tuple[str, ...]:
    """Return the columns that are known of a person beforehand: covariates, and numbers that are adjusted for."""
    return (*plan.covariates_in_use, *plan.numbers)


def to_people(rows: Any, plan: Plan, units: Units) -> Any:
    """Make one row per person, of a cohort by their earliest row: what the plan names, and who was seen in two arms."""
    assert units.unit is not None
    units.check(plan)
    span = units.span
    kind_of(rows, units.unit)
    if units.events is not None:
        kind_of(units.events.table, units.unit)
        return _exposed(rows, plan, units, units.events)
    rows = add_alias_columns(rows, plan)
    rows = rows.filter(rows[units.unit].notnull())
    sums = row_sums(rows, plan, lambda name: units.how(column_of(plan, name)))
    enrolled = {} if span is None else {"day": day_number(rows, span.column)}
    moment = {} if units.time is None else {"at": point_in_time(rows, units.time)}
    values: dict[str, Any] = {}
    for row_sum in sums:
        values |= row_sum.value(rows[row_sum.name])
    table = rows.select(
        unit=rows[units.unit],
        **enrolled,
        **moment,
        **_attributes(rows, plan),
        **values,
    )
    table = _at_first(table, plan) if moment else table
    firsts = {name: table[name].min() for name in enrolled}
    grouped = table.group_by("unit").aggregate(**firsts, **_attribute_sums(table, plan), **_row_totals(table, sums))
    if span is not None:
        grouped = grouped.filter(in_span(grouped["day"], span))
    person = _person(grouped, plan, rows)
    changes = {} if moment else _changes(grouped, plan)
    return grouped.select(**person, **_flags(grouped, plan), **changes, **_person_values(grouped, sums))


def add_alias_columns(table: Any, plan: Plan, names: Iterable[str] | None = None) -> Any:
    """Return the table with a copy of the column behind every alias, or behind those of some names."""
    if not isinstance(plan, JointPlan):
        return table
    copies = {}
    for name in plan.copies if names is None else names:
        base = column_of(plan, name)
        if base != name:
            check_column(base, table.columns)
            copies[name] = table[base]
    return table.mutate(**copies) if copies else table


def restrict_people(people: Any, plan: Plan) -> Any:
    """Return people whose covariates and metrics are missing where these are not about them."""
    if not isinstance(plan, JointPlan) or not plan.about:
        return people
    inside = {}
    for experiment in plan.experiments:
        kind = kind_of(people, experiment.name)
        inside[experiment.name] = in_experiment(as_plain(people[experiment.name], kind), kind, experiment.arms)
    columns = {}
    for name, experiments in plan.about.items():
        check_column(name, people.columns)
        value = people[name]
        if not value.type().is_null():
            there = reduce(operator.or_, (inside[experiment] for experiment in experiments))
            columns[name] = only_where(there, value)
    return people.mutate(**columns)


def twice_flag(place: int) -> str:
    """Return the column that marks people who were seen in two arms of one of the experiments."""
    return f"kanab_twice{place}"


def outside_flag(place: int) -> str:
    """Return the column that marks people who are in none of the experiments, and were in no two arms."""
    return f"kanab_outside{place}"


# ── exposures and events ───────────────────────────────────────────────────────────────────────


def _exposed(exposures: Any, plan: Plan, units: Units, events: Events) -> Any:
    """Make people of their first exposures and of what happened to them in the window after it."""
    exposures = add_alias_columns(exposures, plan, [*plan.experiment_names, *known_before(plan)])
    first = _first_exposures(exposures, plan, units, events)
    windows = metric_windows(plan, events)
    rows = events.table.mutate(**{name: events.table[window.column] for name, window in windows.items()})
    rows = add_alias_columns(rows, plan, [metric.name for metric in _outcomes(plan)])
    sums = row_sums(rows, plan, lambda name: units.how(column_of(plan, name)))
    values = {f"v{row_sum.place}": rows[row_sum.name] for row_sum in sums}
    happened = rows.select(who=rows[units.unit], at=point_in_time(rows, events.time), **values)
    moments = first.select("unit", *(f"at{place}" for place in range(len(plan.experiments))))
    inside = _in_window(happened.join(moments, happened.who == moments.unit), plan, sums, events, windows)
    steps = [row_sum.value(inside[f"v{row_sum.place}"]) for row_sum in sums]
    table = inside.select(who=inside["who"], **{name: value for each in steps for name, value in each.items()})
    totals = table.group_by("who").aggregate(**_row_totals(table, sums))
    people = first.left_join(totals, first.unit == totals.who)
    person = _person(people, plan, exposures)
    return people.select(**person, **_flags(people, plan, exposed=True), **_person_values(people, sums))


def _first_exposures(exposures: Any, plan: Plan, units: Units, events: Events) -> Any:
    """Return when each person was first exposed to each experiment, and their arms and levels."""
    span = units.span
    seen = exposures.filter(exposures[units.unit].notnull())
    moments = {"at": point_in_time(seen, events.exposure_time)}
    if span is not None:
        if span.column != events.exposure_time:
            raise SourceError(
                "with events, people enroll at their first exposure",
                f"Make cohorts by its time, {events.exposure_time!r} (--cohort).",
            )
        moments["day"] = day_number(seen, span.column)
    seen = _in_any_arm(seen.select(unit=seen[units.unit], **moments, **_attributes(seen, plan)), plan)
    seen = _at_first(seen, plan, exposed=True)
    firsts = {
        f"{name}{place}": _exposed_to(place, seen[name], seen, plan).min()
        for place in range(len(plan.experiments))
        for name in moments
    }
    first = seen.group_by("unit").aggregate(**firsts, **_attribute_sums(seen, plan, exposed=True))
    if span is None:
        return first
    arms = {}
    for place in range(len(plan.experiments)):
        there = in_span(first[f"day{place}"], span)
        for name in (f"arm{place}", f"arm{place}_last"):
            arms[name] = only_where(there, first[name])
    return _in_any_arm(first.mutate(**arms), plan)


def _in_any_arm(table: Any, plan: Plan) -> Any:
    seen = (table[f"arm{place}"].notnull() for place in range(len(plan.experiments)))
    return table.filter(reduce(operator.or_, seen))


def _exposed_to(place: int, value: Any, seen: Any, plan: Plan) -> Any:
    """Return a value of the exposures to one experiment; where there is just one, of all exposures."""
    if len(plan.experiments) == 1:
        return value
    return only_where(seen[f"arm{place}"].notnull(), value)


def metric_windows(plan: Plan, events: Events) -> dict[str, MetricWindow]:
    """Return the columns that count a part of the window, by their names; a column of such a name counts as it is."""
    windows = {}
    for name in dict.fromkeys(column_of(plan, metric.name) for metric in _outcomes(plan)):
        window = metric_window(name)
        if window is None or name in events.table.columns:
            continue
        check_column(window.column, events.table.columns)
        if window.end > window_seconds(events.window):
            raise SourceError(
                f"{name!r} ends after the window in which events count", "Lengthen the window (--window)."
            )
        windows[name] = window
    return windows


def _in_window(
    joined: Any, plan: Plan, sums: Sequence[RowSum], events: Events, windows: Mapping[str, MetricWindow]
) -> Any:
    """Return the events in the window after the first exposure to the experiment that a metric is about."""

    def during(place: int, start: int, end: int) -> Any:
        first = joined[f"at{place}"]
        begin = later(first, start) if start else first
        return (joined["at"] >= begin) & (joined["at"] < later(first, end))

    length = window_seconds(events.window)
    whole = {name: during(place, 0, length) for place, name in enumerate(plan.experiment_names)}
    if len(whole) == 1 and not windows:
        return joined.filter(next(iter(whole.values())))
    columns = {"who": joined["who"], "any": reduce(operator.or_, whole.values())}
    for row_sum in sums:
        (about,) = people_of(plan, row_sum.name)
        window = windows.get(column_of(plan, row_sum.name))
        place = plan.experiment_names.index(about)
        there = whole[about] if window is None else during(place, window.start, window.end)
        columns[f"v{row_sum.place}"] = only_where(there, joined[f"v{row_sum.place}"])
    inside = joined.select(**columns)
    return inside.filter(inside["any"])


# ── arms and covariates ────────────────────────────────────────────────────────────────────────


def changes_flag(place: int) -> str:
    """Return the column that marks people who have several levels of a covariate."""
    return f"kanab_changes{place}"


def _attributes(rows: Any, plan: Plan) -> dict[str, Any]:
    """Return arms as far as they are declared, and covariates, under names of our own."""
    attributes: dict[str, Any] = {}
    for place, experiment in enumerate(plan.experiments):
        kind = kind_of(rows, experiment.name)
        arm = as_plain(rows[experiment.name], kind)
        if experiment.arms is not None:
            arm = only_where(in_experiment(arm, kind, experiment.arms), arm)
        attributes[f"arm{place}"] = arm.cast("int32") if kind == "truth" else arm  # no engine-neutral MIN of truths
    for place, name in enumerate(known_before(plan)):
        kind = kind_of(rows, name)
        level = as_plain(rows[name], kind)
        attributes[f"level{place}"] = level.cast("int32") if kind == "truth" else level
    return attributes


def _attribute_sums(table: Any, plan: Plan, *, exposed: bool = False) -> dict[str, Any]:
    """Return the first and the last arm, and the smallest level; of exposures, those to the covariate's experiment."""
    sums: dict[str, Any] = {}
    places = {name: place for place, name in enumerate(plan.experiment_names)}
    for place in places.values():
        arm = table[f"arm{place}"]
        sums |= {f"arm{place}": arm.min(), f"arm{place}_last": arm.max()}
    for place, name in enumerate(known_before(plan)):
        level = table[f"level{place}"]
        if exposed:
            level = _exposed_to(places[people_of(plan, name)[0]], level, table, plan)
        sums |= {f"level{place}": level.min(), f"level{place}_last": level.max()}
    return sums


def _at_first(rows: Any, plan: Plan, *, exposed: bool = False) -> Any:
    """Return rows whose covariates are missing but in a person's first; of exposures, to the covariate's experiment.

    Of several rows at that moment the smallest level counts, so that no engine's order decides.
    """
    if not known_before(plan):
        return rows
    places = {name: place for place, name in enumerate(plan.experiment_names)}
    levels = {}
    for place, name in enumerate(known_before(plan)):
        at, level = rows["at"], rows[f"level{place}"]
        if exposed:
            at = _exposed_to(places[people_of(plan, name)[0]], at, rows, plan)
        first = at.min().over(group_by=rows["unit"])
        levels[f"level{place}"] = only_where(at == first, level)
    return rows.mutate(**levels)


def _changes(grouped: Any, plan: Plan) -> dict[str, Any]:
    """Return for every covariate who of the people in an experiment has several levels of it."""
    arms = [(grouped[f"arm{place}"], grouped[f"arm{place}_last"]) for place in range(len(plan.experiments))]
    anywhere = reduce(operator.or_, ((arm == last).fill_null(False) for arm, last in arms))
    return {
        changes_flag(place): anywhere & (grouped[f"level{place}"] != grouped[f"level{place}_last"]).fill_null(False)
        for place in range(len(known_before(plan)))
    }


def person_flags(plan: Plan, units: Units) -> tuple[str, ...]:
    """Return the columns of true/false that people made of several rows have."""
    if units.unit is None:
        return ()
    covariates = range(len(known_before(plan))) if units.time is None else ()
    flags = [flag(place) for place in range(len(populations(plan))) for flag in (twice_flag, outside_flag)]
    return (*flags, *map(changes_flag, covariates))


def changing_covariates(flagged: Mapping[str, int], plan: Plan, units: Units) -> None:
    """Raise `SourceError` for a covariate that changes within a person, given how many people have each flag."""
    if units.unit is None or units.time is not None:
        return
    for place, name in enumerate(known_before(plan)):
        if flagged[changes_flag(place)] and units.unit == CLUSTER:
            raise SourceError(
                f"covariate {column_of(plan, name)!r} differs among the people of a cluster",
                "Arms were assigned to clusters: adjust for what a cluster has, the same for all its people.",
            )
        if flagged[changes_flag(place)]:
            raise SourceError(
                f"covariate {column_of(plan, name)!r} changes among the rows of a person",
                "What changes after the assignment may be an effect. Take it at the first row "
                "(--first-by TIMECOLUMN, first_by=…), or name a column that is the same in all rows.",
            )


def _person(grouped: Any, plan: Plan, rows: Any) -> dict[str, Any]:
    """Return the columns that the plan names; an arm only for people seen in just one."""
    columns: dict[str, Any] = {}
    for place, name in enumerate(plan.experiment_names):
        arm, last = grouped[f"arm{place}"], grouped[f"arm{place}_last"]
        columns[name] = only_where(arm == last, arm)
    for place, name in enumerate(known_before(plan)):
        columns[name] = grouped[f"level{place}"]
    return {name: value != 0 if kind_of(rows, name) == "truth" else value for name, value in columns.items()}


def _flags(grouped: Any, plan: Plan, *, exposed: bool = False) -> dict[str, Any]:
    """Return for each group of experiments who was seen in two arms of one of them, and who is in none.

    Who was exposed to an experiment is either in it or was seen in two arms.
    """
    flags: dict[str, Any] = {}
    places = {name: place for place, name in enumerate(plan.experiment_names)}
    for index, group in enumerate(populations(plan)):
        arms = [(grouped[f"arm{places[name]}"], grouped[f"arm{places[name]}_last"]) for name in group]
        twice = reduce(operator.or_, ((arm != last).fill_null(False) for arm, last in arms))
        anywhere = reduce(operator.or_, ((arm == last).fill_null(False) for arm, last in arms))
        flags[twice_flag(index)] = twice
        flags[outside_flag(index)] = ibis.literal(False) if exposed else ~(twice | anywhere)
    return flags


# ── metrics ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class RowSum:
    """One metric of a person, out of sums over rows."""

    name: str
    place: int
    how: How
    kind: Kind
    scale: int

    def value(self, column: Any) -> dict[str, Any]:
        """Return what is added up of a column: steps within the grid's reach, and how far the farthest is."""
        value = as_number(column, self.kind, careful=True)
        if self.how == "max":
            return {f"y{self.place}": value}
        if self.kind != "number" and self.scale == 1:
            return {f"y{self.place}": value.cast("int64")}
        steps = grid_steps(value, self.scale)
        near = ibis.ifelse(steps.abs() < GRID_LIMIT, steps, ibis.null("float64")).cast("int64")
        return {f"y{self.place}": near, f"far{self.place}": steps.abs()}

    def sums(self, table: Any) -> dict[str, Any]:
        """Return aggregates over a person's rows."""
        value = table[f"y{self.place}"]
        if self.how == "max":
            return {f"s{self.place}": value.max()}
        sums = {f"s{self.place}": engine_of(table).total_of_rows(value), f"c{self.place}": value.count()}
        if f"far{self.place}" in table.columns:
            sums[f"far{self.place}"] = table[f"far{self.place}"].max()
        return sums

    def result(self, people: Any) -> Any:
        """Return the person's value in units; infinite if a row was, so that the count will refuse it."""
        total = people[f"s{self.place}"]
        if self.how == "max":
            return total
        total = total.cast("float64")
        if self.how == "mean":
            total = total / people[f"c{self.place}"].cast("float64")
        if self.scale != 1:
            total = total / float(self.scale)
        if f"far{self.place}" not in people.columns:
            return total
        far = people[f"far{self.place}"].fill_null(0) >= GRID_LIMIT
        return ibis.ifelse(far, ibis.literal(float("inf"), type="float64"), total)


def _outcomes(plan: Plan) -> list[MetricPlan]:
    return [metric for metric in plan.counted_metrics if metric.name not in plan.numbers]


def row_sums(rows: Any, plan: Plan, choose: Callable[[str], How | None]) -> list[RowSum]:
    """Return how the rows of a person become one value of every metric: added up, but of 0/1 the largest."""
    metrics = _outcomes(plan)
    kinds = {metric.name: kind_of(rows, metric.name, metric=True) for metric in metrics}
    how = {name: choose(name) or ("max" if kind == "truth" else None) for name, kind in kinds.items()}
    how |= {metric.name: how[metric.name] or "max" for metric in metrics if metric.binary}
    undeclared = {
        metric.name: kinds[metric.name]
        for metric in metrics
        if _scale(metric) is None and (how[metric.name] is None or _added(how[metric.name], kinds[metric.name]))
    }
    profiles = profile_columns(rows, undeclared)
    sums = []
    for place, metric in enumerate(metrics):
        name, profile = metric.name, profiles.get(metric.name)
        zero_or_one = profile is not None and profile.binary and profile.low == 0  # all 1 counts rows: it is added up
        chosen: How = how[name] or ("max" if zero_or_one else "sum")
        scale = _scale(metric)
        if profile is not None and _added(chosen, kinds[name]):
            check_finite(name, profile.low, profile.high)
            implied = not profile.whole and profile.scale != profile.decimal
            scale = max(profile.scale // _ROOM, 1) if implied else profile.scale
        sums.append(RowSum(name, place, chosen, kinds[name], scale or 1))
    return sums


def _added(how: How | None, kind: Kind) -> bool:
    """Return whether values that need not be whole are added up."""
    return how != "max" and kind == "number"


def _row_totals(table: Any, sums: Sequence[RowSum]) -> dict[str, Any]:
    """Return the sums over a person's rows."""
    return {name: total for row_sum in sums for name, total in row_sum.sums(table).items()}


def _person_values(people: Any, sums: Sequence[RowSum]) -> dict[str, Any]:
    """Return a person's values, under the names of the metrics."""
    return {row_sum.name: row_sum.result(people) for row_sum in sums}


def _scale(plan: MetricPlan) -> int | None:
    return plan.metric().scale if plan.declared or plan.resolution is not None else None


# ── clusters ───────────────────────────────────────────────────────────────────────────────────


def cluster_rows(rows: Any, by: Sequence[str], clamp: Mapping[str, tuple[float, float]]) -> Any:
    """Return the rows with their cluster and their people; metrics are clamped to the bounds of its people.

    Rows without a cluster have none.
    """
    for name in by:
        check_column(name, rows.columns)
        kind_of(rows, name)
    if len(by) == 1:
        cluster = rows[by[0]]
    else:
        cluster = reduce(lambda first, second: first + _BETWEEN + second, (rows[name].cast("string") for name in by))
    columns = {CLUSTER: cluster}
    if PEOPLE not in rows.columns:
        columns[PEOPLE] = ibis.literal(1, type="int64")
    for name, (low, high) in clamp.items():
        if name in rows.columns and rows[name].type().is_numeric():
            people = rows[PEOPLE] if PEOPLE in rows.columns else 1
            columns[name] = rows[name].clip(people * low, people * high)
    return rows.mutate(**columns)


def find_rates(rows: Any, plan: Plan, where: str | None) -> tuple[str, ...]:
    """Return the metrics without bounds that are 0 or 1 in every row, where a row is a person."""
    inside = rows if where is None else filter_rows(rows, where)
    there = inside[PEOPLE]
    if there.type().is_floating():
        there = there.isnan().ifelse(0, there)
    if there.type().is_numeric():
        inside = inside.mutate(**{PEOPLE: there.fill_null(0)})
    metrics = [metric.name for metric in plan.counted_metrics if metric.bounds is None and metric.name != PEOPLE]
    profiles = profile_columns(inside, {name: kind_of(rows, name, metric=True) for name in (*metrics, PEOPLE)})
    people = profiles[PEOPLE]
    if people.low < 1 or not people.whole:
        raise SourceError(
            f"a row has fewer than one person, or parts of people, in {PEOPLE!r}",
            f"Leave out such rows: --where {PEOPLE} >= 1; or rename the column, where it says something else.",
        )
    return tuple(name for name in metrics if profiles[name].binary and people.high <= 1)
