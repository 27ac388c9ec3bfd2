"""Rows to people: who has several rows, and what happened after the first exposure.

Sums are taken of whole grid steps, so that no engine's order of addition changes a digit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, get_args

import ibis

from kanab.counting.engine.dates import day_number, within
from kanab.counting.engine.group_keys import Kind, in_experiment, kind_of, plain
from kanab.counting.engine.joint import add_alias_columns, outside_flag, twice_flag
from kanab.counting.engine.person_sums import How, RowSum, person_values, row_sums, row_totals, row_values
from kanab.errors import SourceError
from kanab.plan.joint import column_of, people_of, populations
from kanab.plan.model import Plan
from kanab.plan.periods import Span

_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


@dataclass(frozen=True)
class Events:
    """What happened when: a table with the metrics, next to one of exposures.

    Counted is what happened within the window after a person's first exposure: from its moment
    on, up to but not including its end. Both tables name the person alike.
    """

    table: Any = field(repr=False)
    window: str = "14d"
    time: str = "time"
    exposure_time: str = "time"

    @property
    def seconds(self) -> int:
        """The window's length.

        >>> Events(None, "14d").seconds, Events(None, "36h").seconds
        (1209600, 129600)
        """
        found = re.fullmatch(r"([1-9]\d{0,5}) ?([mhdw])", str(self.window).strip())
        if found is None:
            raise SourceError("the window is not a length of time", "Write it like 14d, 36h or 90m.")
        return int(found[1]) * _SECONDS[found[2]]


@dataclass(frozen=True)
class Units:
    """Who is one person: the column that names them, and how their rows become one.

    ``aggregate`` is "sum", "max" or "mean" per metric, or one of them for all. By default amounts
    are added, and true/false is true if it ever was. A covariate that changes within a person
    counts as its smallest value; a person seen in two arms of an experiment is not in it.
    """

    unit: str
    aggregate: Mapping[str, How] | How | None = None
    events: Events | None = None

    def how(self, metric: str, kind: Kind) -> How:
        """How the rows of a person become one value of a metric, which is named as its column is."""
        given = self.aggregate if isinstance(self.aggregate, str) else (self.aggregate or {}).get(metric)
        return given or ("max" if kind == "truth" else "sum")

    def check(self, plan: Plan) -> None:
        """Refuse words that mean nothing here."""
        given = [self.aggregate] if isinstance(self.aggregate, str) else (self.aggregate or {}).values()
        if not set(given) <= set(get_args(How)):
            raise SourceError("unknown way to make one value of several rows", "Use sum, max or mean.")
        if isinstance(self.aggregate, Mapping) and not set(self.aggregate) <= {
            column_of(plan, one.name) for one in plan.metrics
        }:
            raise SourceError("aggregate names a metric that is not counted", "Check its name.")
        if self.events is not None and any(len(group) > 1 for group in populations(plan)):
            raise SourceError(
                "exposures of several experiments cannot be counted together",
                "Each has its own first exposure: count one experiment at a time.",
            )


def to_people(rows: Any, plan: Plan, units: Units, span: Span | None = None) -> Any:
    """One row per person: arms, covariates and metrics, and who was seen in two arms.

    With a ``span`` only the people of those cohorts, each by the earliest of their rows.
    """
    units.check(plan)
    kind_of(rows, units.unit)
    if units.events is not None:
        return _exposed(rows, plan, units, units.events, span)
    rows = add_alias_columns(rows, plan)
    rows = rows.filter(rows[units.unit].notnull())
    sums = row_sums(rows, plan, lambda name, kind: units.how(column_of(plan, name), kind))
    enrolled = {} if span is None else {"day": day_number(rows, span.column)}
    table = rows.select(unit=rows[units.unit], **enrolled, **_attributes(rows, plan), **row_values(rows, sums))
    firsts = {name: table[name].min() for name in enrolled}
    grouped = table.group_by("unit").aggregate(**firsts, **_attribute_sums(table, plan), **row_totals(table, sums))
    if span is not None:
        grouped = grouped.filter(within(grouped["day"], span))
    person = _person(grouped, plan, _truths(rows, plan))
    return grouped.select(**person, **_flags(grouped, plan), **person_values(grouped, sums))


# ── exposures and events ───────────────────────────────────────────────────────────────────────


def _exposed(exposures: Any, plan: Plan, units: Units, events: Events, span: Span | None) -> Any:
    """People by their first exposure, with what happened to them in the window after it."""
    exposures = add_alias_columns(exposures, plan, [*plan.experiment_names, *plan.covariates_in_use])
    first = _first_exposures(exposures, plan, units, events, span)
    kind_of(events.table, units.unit)
    rows = add_alias_columns(events.table, plan, [one.name for one in plan.counted_metrics])
    sums = row_sums(rows, plan, lambda name, kind: units.how(column_of(plan, name), kind))
    happened = rows.select(who=rows[units.unit], at=_moment(rows, events.time), **row_values(rows, sums))
    inside = _in_window(happened.join(first, happened.who == first.unit), plan, sums, events)
    totals = inside.group_by("who").aggregate(**row_totals(inside, sums))
    people = first.left_join(totals, first.unit == totals.who)
    person = _person(people, plan, _truths(exposures, plan))
    return people.select(**person, **_flags(people, plan, exposed=True), **person_values(people, sums))


def _first_exposures(exposures: Any, plan: Plan, units: Units, events: Events, span: Span | None) -> Any:
    """When each person was first exposed to each experiment, and their arms and levels."""
    seen = exposures.filter(exposures[units.unit].notnull())
    moments = {"at": _moment(seen, events.exposure_time)}
    if span is not None:
        moments["day"] = _exposure_day(seen, events, span)
    seen = _in_any_arm(seen.select(unit=seen[units.unit], **moments, **_attributes(seen, plan)), plan)
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
        there = within(first[f"day{place}"], span)
        for name in (_arm(place), _last(place)):
            arms[name] = ibis.ifelse(there, first[name], ibis.null(first[name].type()))
    return _in_any_arm(first.mutate(**arms), plan)


def _exposure_day(seen: Any, events: Events, span: Span) -> Any:
    if span.column != events.exposure_time:
        raise SourceError(
            "with events, people enroll at their first exposure",
            f"Make cohorts by its time, {events.exposure_time!r} (--cohort).",
        )
    return day_number(seen, span.column)


def _in_any_arm(table: Any, plan: Plan) -> Any:
    return table.filter(reduce(operator.or_, (table[_arm(place)].notnull() for place in range(len(plan.experiments)))))


def _exposed_to(place: int, value: Any, seen: Any, plan: Plan) -> Any:
    """A value of the exposures to one experiment; if there is just one, that is all of them."""
    if len(plan.experiments) == 1:
        return value
    return ibis.ifelse(seen[_arm(place)].notnull(), value, ibis.null(value.type()))


def _in_window(joined: Any, plan: Plan, sums: Sequence[RowSum], events: Events) -> Any:
    """What happened in the window after the first exposure to the experiment that a metric is about."""
    length = ibis.interval(seconds=events.seconds)
    during = {
        one.name: (joined["at"] >= joined[f"at{place}"]) & (joined["at"] < joined[f"at{place}"] + length)
        for place, one in enumerate(plan.experiments)
    }
    if len(during) == 1:
        return joined.filter(next(iter(during.values())))
    columns = {"who": joined["who"], "any": reduce(operator.or_, during.values())}
    for one in sums:
        (about,) = people_of(plan, one.name)
        for name in one.columns(joined):
            columns[name] = ibis.ifelse(during[about], joined[name], ibis.null(joined[name].type()))
    inside = joined.select(**columns)
    return inside.filter(inside["any"])


def _moment(table: Any, name: str) -> Any:
    """A point in time; dates and texts become one."""
    if name not in table.columns:
        kind_of(table, name)
    moment = table[name]
    if moment.type().is_timestamp():
        return moment
    if moment.type().is_date() or moment.type().is_string():
        return moment.cast("timestamp")
    raise SourceError(f"column {name!r} holds no points in time", "Use timestamps, dates or ISO texts.")


# ── arms and covariates ────────────────────────────────────────────────────────────────────────


def _arm(place: int) -> str:
    return f"arm{place}"


def _last(place: int) -> str:
    return f"arm{place}_last"


def _level(place: int) -> str:
    return f"level{place}"


def _attributes(rows: Any, plan: Plan) -> dict[str, Any]:
    """Arms as far as they are declared, and covariates, under names of our own."""
    found: dict[str, Any] = {}
    for place, one in enumerate(plan.experiments):
        kind = kind_of(rows, one.name)
        arm = plain(rows[one.name], kind)
        if one.arms is not None:
            arm = ibis.ifelse(in_experiment(arm, kind, one.arms), arm, ibis.null(arm.type()))
        found[_arm(place)] = arm.cast("int32") if kind == "truth" else arm  # no engine-neutral MIN of truths
    for place, name in enumerate(plan.covariates_in_use):
        kind = kind_of(rows, name)
        level = plain(rows[name], kind)
        found[_level(place)] = level.cast("int32") if kind == "truth" else level
    return found


def _attribute_sums(table: Any, plan: Plan, *, exposed: bool = False) -> dict[str, Any]:
    """The first and the last arm, and the smallest level; of exposures, those to the covariate's own experiment."""
    found: dict[str, Any] = {}
    places = {one.name: place for place, one in enumerate(plan.experiments)}
    for place in places.values():
        arm = table[_arm(place)]
        found |= {_arm(place): arm.min(), _last(place): arm.max()}
    for place, name in enumerate(plan.covariates_in_use):
        level = table[_level(place)]
        if exposed:
            level = _exposed_to(places[people_of(plan, name)[0]], level, table, plan)
        found[_level(place)] = level.min()
    return found


def _truths(rows: Any, plan: Plan) -> set[str]:
    names = [*plan.experiment_names, *plan.covariates_in_use]
    return {name for name in names if kind_of(rows, name) == "truth"}


def _person(grouped: Any, plan: Plan, truths: set[str]) -> dict[str, Any]:
    """The columns that the plan names; an arm only for people seen in just one."""
    found: dict[str, Any] = {}
    for place, one in enumerate(plan.experiments):
        arm, last = grouped[_arm(place)], grouped[_last(place)]
        found[one.name] = ibis.ifelse(arm == last, arm, ibis.null(arm.type()))
    for place, name in enumerate(plan.covariates_in_use):
        found[name] = grouped[_level(place)]
    return {name: value != 0 if name in truths else value for name, value in found.items()}


def _flags(grouped: Any, plan: Plan, *, exposed: bool = False) -> dict[str, Any]:
    """For each group of experiments: who was seen in two arms of one of them, and who is in none.

    Who was exposed to an experiment is either in it or was seen in two arms.
    """
    found: dict[str, Any] = {}
    places = {one.name: place for place, one in enumerate(plan.experiments)}
    for number, group in enumerate(populations(plan)):
        arms = [(grouped[_arm(places[name])], grouped[_last(places[name])]) for name in group]
        twice = reduce(operator.or_, ((arm != last).fill_null(False) for arm, last in arms))
        anywhere = reduce(operator.or_, ((arm == last).fill_null(False) for arm, last in arms))
        found[twice_flag(number)] = twice
        found[outside_flag(number)] = ibis.literal(False) if exposed else ~(twice | anywhere)
    return found
