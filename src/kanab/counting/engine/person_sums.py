"""Metrics of people who have several rows: whole steps are added, so that no order changes a digit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ibis

from kanab.counting.engine.grids import grid_steps
from kanab.counting.engine.group_keys import Kind, kind_of
from kanab.counting.engine.metrics import check_finite, number
from kanab.counting.engine.profiles import profile_columns
from kanab.counting.grids import Profile
from kanab.plan.model import MetricPlan, Plan
from kanab.tally.metric import GRID_LIMIT

How = Literal["sum", "max", "mean"]


@dataclass(frozen=True)
class RowSum:
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
        steps = grid_steps(value, self.scale)
        near = ibis.ifelse(steps.abs() < GRID_LIMIT, steps, ibis.null("float64")).cast("int64")
        return {f"y{self.place}": near, f"far{self.place}": steps.abs()}

    def columns(self, table: Any) -> list[str]:
        """The columns of a table that ``value`` made."""
        return [name for name in (f"y{self.place}", f"far{self.place}") if name in table.columns]

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


def row_sums(rows: Any, plan: Plan, choose: Callable[[str, Kind], How]) -> list[RowSum]:
    """How the rows of a person become one value of every metric."""
    kinds = {one.name: kind_of(rows, one.name, metric=True) for one in plan.counted_metrics}
    how = {name: choose(name, kind) for name, kind in kinds.items()}
    undeclared = {
        one.name: kinds[one.name]
        for one in plan.counted_metrics
        if how[one.name] != "max" and kinds[one.name] == "number" and _scale(one) is None
    }
    scales = {name: _row_scale(name, profile) for name, profile in profile_columns(rows, undeclared).profiles.items()}
    return [
        RowSum(one.name, place, how[one.name], kinds[one.name], scales.get(one.name) or _scale(one) or 1)
        for place, one in enumerate(plan.counted_metrics)
    ]


def row_values(rows: Any, sums: Sequence[RowSum]) -> dict[str, Any]:
    """The columns that are added up."""
    return {name: value for one in sums for name, value in one.value(rows).items()}


def row_totals(table: Any, sums: Sequence[RowSum]) -> dict[str, Any]:
    """The sums over a person's rows."""
    return {name: total for one in sums for name, total in one.sums(table).items()}


def person_values(people: Any, sums: Sequence[RowSum]) -> dict[str, Any]:
    """A person's values, under the names of the metrics."""
    return {one.name: one.result(people) for one in sums}


def _row_scale(name: str, profile: Profile) -> int:
    check_finite(name, profile.low, profile.high)
    return profile.scale


def _scale(plan: MetricPlan) -> int | None:
    return plan.metric().scale if plan.declared or plan.resolution is not None else None
