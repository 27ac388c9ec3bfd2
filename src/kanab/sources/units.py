"""Rows to people: who has several rows, and what happened after the first exposure.

Sums are taken of whole grid steps, so that no engine's order of addition changes a digit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import ibis

from kanab.errors import SourceError
from kanab.metric import GRID_LIMIT
from kanab.plan import MetricPlan, Plan
from kanab.sources.grids import Profile
from kanab.sources.keys import Kind, as_values, covariates_of, kind_of, plain
from kanab.sources.measures import check_finite, floor, measured, number
from kanab.sources.profiles import look
from kanab.sources.statement import TWICE

How = Literal["sum", "max", "mean"]

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
        """How the rows of a person become one value of a metric."""
        given = self.aggregate if isinstance(self.aggregate, str) else (self.aggregate or {}).get(metric)
        return given or ("max" if kind == "truth" else "sum")

    def check(self, plan: Plan) -> None:
        """Refuse words that mean nothing here."""
        given = [self.aggregate] if isinstance(self.aggregate, str) else (self.aggregate or {}).values()
        if not set(given) <= set(get_args(How)):
            raise SourceError("unknown way to make one value of several rows", "Use sum, max or mean.")
        if isinstance(self.aggregate, Mapping) and not set(self.aggregate) <= {one.name for one in plan.metrics}:
            raise SourceError("aggregate names a metric that is not counted", "Check its name.")
        if self.events is not None and len(plan.experiments) > 1:
            raise SourceError(
                "exposures of several experiments cannot be counted together",
                "Each has its own first exposure: count one experiment at a time.",
            )


def to_people(rows: Any, plan: Plan, units: Units) -> Any:
    """One row per person: arms, covariates and metrics, and who was seen in two arms."""
    units.check(plan)
    kind_of(rows, units.unit)
    if units.events is not None:
        return _exposed(rows, plan, units, units.events)
    rows = rows.filter(rows[units.unit].notnull())
    values, finish = _metrics(rows, plan, units)
    columns = {"unit": rows[units.unit], **_attributes(rows, plan), **values}
    table = rows.select(**columns)
    grouped = table.group_by("unit").aggregate(
        **_attribute_sums(table, plan), **{name: total for one in finish for name, total in one.sums(table).items()}
    )
    person = _person(grouped, plan, _truths(rows, plan))
    return grouped.select(**person, **{one.name: one.result(grouped) for one in finish})


def _exposed(exposures: Any, plan: Plan, units: Units, events: Events) -> Any:
    """People by their first exposure, with what happened to them in the window after it."""
    seen = exposures.filter(exposures[units.unit].notnull())
    attributes = _attributes(seen, plan)
    seen = seen.select(unit=seen[units.unit], at=_moment(seen, events.exposure_time), **attributes)
    seen = seen.filter(seen[_arm(0)].notnull())
    first = seen.group_by("unit").aggregate(first=seen["at"].min(), **_attribute_sums(seen, plan))
    kind_of(events.table, units.unit)
    values, finish = _metrics(events.table, plan, units)
    happened = events.table.select(who=events.table[units.unit], at=_moment(events.table, events.time), **values)
    window = ibis.interval(seconds=events.seconds)
    joined = happened.join(first, happened.who == first.unit)
    inside = joined.filter((joined["at"] >= joined["first"]) & (joined["at"] < joined["first"] + window))
    sums = inside.group_by("who").aggregate(
        **{name: total for one in finish for name, total in one.sums(inside).items()}
    )
    people = first.left_join(sums, first.unit == sums.who)
    person = _person(people, plan, _truths(exposures, plan))
    return people.select(**person, **{one.name: one.result(people) for one in finish})


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


def _level(place: int) -> str:
    return f"level{place}"


def _attributes(rows: Any, plan: Plan) -> dict[str, Any]:
    """Arms as far as they are declared, and covariates, under names of our own."""
    found: dict[str, Any] = {}
    for place, one in enumerate(plan.experiments):
        kind = kind_of(rows, one.name)
        arm = plain(rows[one.name], kind)
        if one.arms is not None:
            known = arm.isin(list(as_values(one.arms, kind)))
            arm = ibis.ifelse(known, arm, ibis.null(arm.type()))
        found[_arm(place)] = arm.cast("int32") if kind == "truth" else arm  # no engine-neutral MIN of truths
    for place, name in enumerate(covariates_of(plan)):
        kind = kind_of(rows, name)
        level = plain(rows[name], kind)
        found[_level(place)] = level.cast("int32") if kind == "truth" else level
    return found


def _attribute_sums(table: Any, plan: Plan) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place in range(len(plan.experiments)):
        arm = table[_arm(place)]
        found |= {_arm(place): arm.min(), f"{_arm(place)}_last": arm.max()}
    for place in range(len(covariates_of(plan))):
        found[_level(place)] = table[_level(place)].min()
    return found


def _truths(rows: Any, plan: Plan) -> set[str]:
    names = [*(one.name for one in plan.experiments), *covariates_of(plan)]
    return {name for name in names if kind_of(rows, name) == "truth"}


def _person(grouped: Any, plan: Plan, truths: set[str]) -> dict[str, Any]:
    """The columns that the plan names; an arm only for people seen in just one."""
    found: dict[str, Any] = {}
    twice = ibis.literal(False)
    for place, one in enumerate(plan.experiments):
        arm, last = grouped[_arm(place)], grouped[f"{_arm(place)}_last"]
        found[one.name] = ibis.ifelse(arm == last, arm, ibis.null(arm.type()))
        twice = twice | (arm != last).fill_null(False)
    for place, name in enumerate(covariates_of(plan)):
        found[name] = grouped[_level(place)]
    return {name: value != 0 if name in truths else value for name, value in found.items()} | {TWICE: twice}


# ── metrics ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Sum:
    """One metric of a person, out of sums over rows."""

    name: str
    place: int
    how: How
    kind: Kind
    scale: int

    def value(self, rows: Any) -> dict[str, Any]:
        """What is added up: steps within the grid's reach, and how far the farthest is."""
        value = number(rows[self.name], self.kind, careful=True)
        if self.how == "max":
            return {f"y{self.place}": value}
        if self.kind != "number" and self.scale == 1:
            return {f"y{self.place}": value.cast("int64")}
        steps = floor(value.cast("float64") * float(self.scale) + 0.5)
        near = ibis.ifelse(steps.abs() < GRID_LIMIT, steps, ibis.null("float64")).cast("int64")
        return {f"y{self.place}": near, f"far{self.place}": steps.abs()}

    def sums(self, table: Any) -> dict[str, Any]:
        """Aggregates over a person's rows."""
        value = table[f"y{self.place}"]
        if self.how == "max":
            return {f"s{self.place}": value.max()}
        found = {f"s{self.place}": value.sum(), f"c{self.place}": value.count()}
        if f"far{self.place}" in table.columns:
            found[f"far{self.place}"] = table[f"far{self.place}"].max()
        return found

    def result(self, people: Any) -> Any:
        """The person's value in units; infinite if a row was, so that the count will refuse it."""
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


def _metrics(rows: Any, plan: Plan, units: Units) -> tuple[dict[str, Any], list[_Sum]]:
    """What to add up per row, and how the sums become a person's values."""
    kinds = {one.name: kind_of(rows, one.name, metric=True) for one in measured(plan)}
    how = {name: units.how(name, kind) for name, kind in kinds.items()}
    undeclared = {
        one.name: kinds[one.name]
        for one in measured(plan)
        if how[one.name] != "max" and kinds[one.name] == "number" and _scale(one) is None
    }
    scales = {name: _row_scale(name, profile) for name, profile in look(rows, undeclared).profiles.items()}
    sums = [
        _Sum(one.name, place, how[one.name], kinds[one.name], scales.get(one.name) or _scale(one) or 1)
        for place, one in enumerate(measured(plan))
    ]
    return {name: value for one in sums for name, value in one.value(rows).items()}, sums


def _row_scale(name: str, profile: Profile) -> int:
    check_finite(name, profile.low, profile.high)
    return profile.scale


def _scale(plan: MetricPlan) -> int | None:
    return plan.metric().scale if plan.declared or plan.resolution is not None else None
