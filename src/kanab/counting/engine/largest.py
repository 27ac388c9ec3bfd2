"""Find the largest values of the classes of tables in an engine: ``query_largest``.

Classes first (largest value and sum), then everybody once more beside their class: how many have
its largest value, and what the largest of the others is. Sorting everybody would take far longer.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import ibis

from kanab.counted import Derived, LargestValues
from kanab.counting.engine.answer import Places, Text, parse_int
from kanab.counting.engine.dialects import fetch_texts
from kanab.counting.engine.group_keys import Key
from kanab.counting.engine.metrics import Measure
from kanab.counting.engine.statement import CountQuery
from kanab.counting.largest import merge_largest
from kanab.plan.model import Linkage
from kanab.tally.cells import DROPPED


def query_largest(
    people: Any, query: CountQuery, places: Mapping[str, Places], wanted: Mapping[str, Sequence[str | Derived]]
) -> dict[str, dict[str | Derived, LargestValues]]:
    """Find the largest values of metrics, or of what follows from two of them, in some tables.

    It is a statement per table, over the people of its sums.
    """
    linkages = {linkage.name: linkage for linkage in query.plan.linkages}
    return {name: _of_table(people, query, places, linkages[name], metrics) for name, metrics in wanted.items()}


def _of_table(
    people: Any, query: CountQuery, places: Mapping[str, Places], linkage: Linkage, metrics: Sequence[str | Derived]
) -> dict[str | Derived, LargestValues]:
    keys = query.axes(linkage)
    axes = [places[key.name] for key in keys]
    shape = [len(axis.factor.levels) for axis in axes]
    classes = _classes(_people(people, query, linkage, metrics), keys, metrics, query)
    groups: list[list[tuple[tuple[int, ...], int, int, int]]] = [[] for _ in metrics]
    for row in fetch_texts(classes):
        spot = tuple(axis.into[level] for axis, level in zip(axes, row, strict=False))
        if DROPPED not in spot:
            for place in range(len(metrics)):
                groups[place].append((spot, *_top_two(row[len(keys) + 4 * place :])))
    return {metric: merge_largest(shape, rows) for metric, rows in zip(metrics, groups, strict=True)}


def _top_two(numbers: Sequence[Text]) -> tuple[int, int, int]:
    """Return the largest, the second and the sum, from: largest, sum, who have the largest, largest of the others."""
    largest, total, top, rest = (parse_int(number) for number in numbers[:4])
    return largest, largest if top > 1 else rest, total


def _people(people: Any, query: CountQuery, linkage: Linkage, metrics: Sequence[str | Derived]) -> Any:
    """Select the people of a table: their class, twice for joining without missing levels, and absolute values."""
    inside = people.filter(reduce(operator.and_, (query.inside(people, name) for name in linkage.experiments)))
    columns: dict[str, Any] = {}
    for place, key in enumerate(query.axes(linkage)):
        level = key.expression(inside)
        columns |= {f"level{place}": level, f"none{place}": level.isnull().cast("int32")}
        columns[f"known{place}"] = level.fill_null(_anything(level))
    for place, metric in enumerate(metrics):
        columns[f"h{place}"] = _absolute(inside, metric, query)
    return inside.select(**columns)


def _anything(level: Any) -> Any:
    """Return some value of the level's type: whether a level is missing stands in a column of its own."""
    value: Any = "" if level.type().is_string() else False if level.type().is_boolean() else 0
    return ibis.literal(value, type=level.type())


def _absolute(people: Any, metric: str | Derived, query: CountQuery) -> Any:
    """Return absolute values as 64-bit integers; nothing for people who are left out."""
    if isinstance(metric, str):
        return _steps(people, query.measure(metric)).abs()
    first, second = (_steps(people, query.measure(name)) for name in (metric.first, metric.second))
    if metric.side is not None:
        return ibis.ifelse((second == metric.side).fill_null(False), first, 0).fill_null(0).abs()
    return (first.fill_null(0) * metric.weights[0] - second.fill_null(0) * metric.weights[1]).abs()


def _steps(people: Any, measure: Measure) -> Any:
    """Return r as a 64-bit integer; nothing for people who are left out."""
    careful = replace(measure, careful=True, doubles=False)
    value = careful.value(people, ibis.literal(True))
    steps = careful.clamped(careful.steps(value))
    return steps if careful.leaves_out else steps.fill_null(0)


def _classes(table: Any, keys: Sequence[Key], metrics: Sequence[str | Derived], query: CountQuery) -> Any:
    """Group by levels, with four numbers of each class for every metric."""
    names = [f"{word}{place}" for place in range(len(keys)) for word in ("level", "none", "known")]
    places = range(len(metrics))
    total = query.engine.total
    first = table.group_by(names).aggregate(
        **{f"top{place}": table[f"h{place}"].max() for place in places},
        **{f"sum{place}": total(table[f"h{place}"]) for place in places},
    )
    classes = first.rename({f"own_{name}": name for name in first.columns})
    shared = [f"{word}{place}" for place in range(len(keys)) for word in ("none", "known")]
    both = table.join(classes, [table[name] == classes[f"own_{name}"] for name in shared])
    numbers: dict[str, Any] = {}
    for place in places:
        value, top = both[f"h{place}"], both[f"own_top{place}"]
        numbers[f"top{place}"] = top.max()
        numbers[f"sum{place}"] = both[f"own_sum{place}"].max()
        numbers[f"there{place}"] = (value == top).cast("int32").sum()
        numbers[f"rest{place}"] = ibis.ifelse(value < top, value, ibis.null("int64")).max()
    levels = [f"own_level{place}" for place in range(len(keys))]
    return both.group_by(levels).aggregate(**numbers)
