"""Rows of people as rows of their clusters: which cluster, how many people, values within a person's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import ibis

from kanab.counting.clusters import PEOPLE
from kanab.counting.engine.filters import filter_rows
from kanab.counting.engine.group_keys import kind_of
from kanab.counting.engine.people import CLUSTER
from kanab.counting.engine.profiles import profile_columns
from kanab.counting.frames import check_column
from kanab.errors import SourceError
from kanab.plan.model import Plan

_BETWEEN = "\x1f"


def cluster_rows(rows: Any, by: Sequence[str], clamp: Mapping[str, tuple[float, float]]) -> Any:
    """Return the rows with their cluster and their people; metrics are clamped to the bounds of its people.

    Rows without a cluster have none. Raises `SourceError` where a column is unknown or cannot name a cluster.
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
    """Return the metrics without bounds that are 0 or 1 in every row, where a row is a person.

    Raises `SourceError` where a row stands for less than one person: k clusters have to have k people.
    """
    inside = rows if where is None else filter_rows(rows, where)
    there = inside[PEOPLE]
    if there.type().is_floating():
        there = there.isnan().ifelse(0, there)
    if there.type().is_numeric():
        inside = inside.mutate(**{PEOPLE: there.fill_null(0)})
    metrics = [metric.name for metric in plan.counted_metrics if metric.bounds is None and metric.name != PEOPLE]
    profiles = profile_columns(inside, {name: kind_of(rows, name, metric=True) for name in (*metrics, PEOPLE)}).profiles
    people = profiles[PEOPLE]
    if people.low < 1 or not people.whole:
        raise SourceError(
            f"a row has fewer than one person, or parts of people, in {PEOPLE!r}",
            f"Leave out such rows: --where {PEOPLE} >= 1; or rename the column, where it says something else.",
        )
    return tuple(name for name in metrics if profiles[name].binary and people.high <= 1)
