"""The largest values of the classes of one table, in an engine: ``query_largest``.

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

from kanab.counted import LargestValues
from kanab.counting.engine.answer import Places, Text, whole
from kanab.counting.engine.dialects import query_text, run
from kanab.counting.engine.group_keys import Key, in_experiment
from kanab.counting.engine.metrics import Measure
from kanab.counting.engine.statement import CountQuery, as_texts
from kanab.counting.largest import merge_largest
from kanab.plan.model import Linkage
from kanab.tally.cells import DROPPED


def query_largest(
    people: Any, query: CountQuery, places: Mapping[str, Places], wanted: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, LargestValues]]:
    """The largest values of some metrics in some tables: one statement per table, over the same people as its sums."""
    linkages = {one.name: one for one in query.plan.linkages}
    return {name: _of_table(people, query, places, linkages[name], metrics) for name, metrics in wanted.items()}


def _of_table(
    people: Any, query: CountQuery, places: Mapping[str, Places], linkage: Linkage, metrics: Sequence[str]
) -> dict[str, LargestValues]:
    keys = query.axes(linkage)
    own = [places[key.name] for key in keys]
    shape = [len(one.factor.levels) for one in own]
    asked = _classes(_people(people, query, linkage, metrics), keys, metrics, query)
    backend = people.get_backend()
    text = as_texts(query_text(asked), asked.columns, backend.dialect)
    found: list[list[tuple[tuple[int, ...], int, int, int]]] = [[] for _ in metrics]
    for row in run(backend, text):
        spot = tuple(one.into[level] for one, level in zip(own, row, strict=False))
        if DROPPED not in spot:
            for place in range(len(metrics)):
                found[place].append((spot, *_top_two(row[len(keys) + 4 * place :])))
    return {metric: merge_largest(shape, groups) for metric, groups in zip(metrics, found, strict=True)}


def _top_two(numbers: Sequence[Text]) -> tuple[int, int, int]:
    """The largest, the second and the sum, from: largest, sum, how many have the largest, largest of the others."""
    largest, total, top, rest = (whole(number) for number in numbers[:4])
    return largest, largest if top > 1 else rest, total


def _people(people: Any, query: CountQuery, linkage: Linkage, metrics: Sequence[str]) -> Any:
    """The people of one table: their class, twice for joining without missing levels, and their absolute values."""
    inside = reduce(
        operator.and_,
        (
            in_experiment(key.expression(people), key.kind, query.plan.experiment(key.name).arms)
            for key in (query.arms[name] for name in linkage.experiments)
        ),
    )
    own = people.filter(inside)
    columns: dict[str, Any] = {}
    for place, key in enumerate(query.axes(linkage)):
        level = key.expression(own)
        columns |= {f"level{place}": level, f"none{place}": level.isnull().cast("int32")}
        columns[f"known{place}"] = level.fill_null(_anything(level))
    measures = {one.name: one for one in query.measures}
    for place, metric in enumerate(metrics):
        columns[f"h{place}"] = _height(own, measures[metric])
    return own.select(**columns)


def _anything(level: Any) -> Any:
    """Some value of the level's type: whether a level is missing stands in a column of its own."""
    value: Any = "" if level.type().is_string() else False if level.type().is_boolean() else 0
    return ibis.literal(value, type=level.type())


def _height(people: Any, measure: Measure) -> Any:
    """|r| as a 64-bit integer; nothing for people who are left out."""
    careful = replace(measure, careful=True, doubles=False)
    value = careful.value(people, ibis.literal(True))
    steps = careful.clamped(careful.steps(value)).abs()
    return steps if careful.leaves_out else steps.fill_null(0)


def _classes(table: Any, keys: Sequence[Key], metrics: Sequence[str], query: CountQuery) -> Any:
    """Levels, and for every metric four numbers of each class."""
    names = [f"{word}{place}" for place in range(len(keys)) for word in ("level", "none", "known")]
    places = range(len(metrics))
    total = query.engine.total
    first = table.group_by(names).aggregate(
        **{f"top{place}": table[f"h{place}"].max() for place in places},
        **{f"sum{place}": total(table[f"h{place}"]) for place in places},
    )
    own = first.rename({f"own_{name}": name for name in first.columns})
    pairs = [(f"{word}{place}", f"own_{word}{place}") for place in range(len(keys)) for word in ("none", "known")]
    both = table.join(own, [table[mine] == own[theirs] for mine, theirs in pairs])
    numbers: dict[str, Any] = {}
    for place in places:
        height, top = both[f"h{place}"], both[f"own_top{place}"]
        numbers[f"top{place}"] = top.max()
        numbers[f"sum{place}"] = both[f"own_sum{place}"].max()
        numbers[f"there{place}"] = (height == top).cast("int32").sum()
        numbers[f"rest{place}"] = ibis.ifelse(height < top, height, ibis.null("int64")).max()
    levels = [f"own_level{place}" for place in range(len(keys))]
    return both.group_by(levels).aggregate(**numbers)
