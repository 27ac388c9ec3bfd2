"""The one statement: people grouped by all arms and levels, and every table added up from that.

The first stage holds one row per signature, with counts, sums and squares; it never leaves the
engine. The second is a list of parts over it, one below the other: signatures with their people,
classes with their sums, and squares on margins only. So class-level squares stay where they are,
and the source is read once.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import ibis

from kanab.plan import Linkage, Plan
from kanab.sources.engine import Engine
from kanab.sources.grids import Products
from kanab.sources.keys import Key, as_values
from kanab.sources.measures import Measure, product_terms

TWICE = "kanab_seen_in_two_arms"
"""A column of people who are excluded; only where people were made from several rows each."""


@dataclass(frozen=True)
class CrossSum:
    """A declared pair of metrics whose products are kept: their places, and three kinds of products."""

    pair: tuple[int, int]
    products: tuple[Products, Products, Products]


@dataclass(frozen=True)
class Binned:
    """A binned covariate whose mean per bin is wanted: its key and its grid."""

    key: Key
    scale: int


@dataclass(frozen=True)
class Question:
    """Everything that the statement asks."""

    plan: Plan
    engine: Engine
    arms: Mapping[str, Key]
    levels: Mapping[str, Key]
    measures: tuple[Measure, ...]
    crosses: tuple[CrossSum, ...] = ()
    binned: tuple[Binned, ...] = ()
    twice: bool = False

    @property
    def keys(self) -> tuple[Key, ...]:
        """All columns to group by."""
        return (*self.arms.values(), *self.levels.values())

    def axes(self, linkage: Linkage) -> tuple[Key, ...]:
        """The keys of one table."""
        own = [self.arms[name] for name in linkage.experiments]
        return (*own, *([self.levels[linkage.covariate]] if linkage.covariate else []))

    def arm_column(self, table: Any, name: str) -> Any:
        """The arm of an experiment, in the source or in the first stage."""
        key = self.arms[name]
        return table[key.column] if key.column in table.columns else key.expression(table)

    def inside(self, table: Any, experiments: Iterable[str]) -> Any:
        """Who is in all of these experiments: their arm is there, and declared if arms are."""
        return reduce(operator.and_, (self._in_one(table, name) for name in experiments))

    def anywhere(self, table: Any) -> Any:
        """Who is in any experiment."""
        return reduce(operator.or_, (self._in_one(table, name) for name in self.arms))

    def _in_one(self, table: Any, name: str) -> Any:
        key, arm = self.arms[name], self.arm_column(table, name)
        declared = self.plan.experiment(name).arms
        if declared is None:
            return arm.notnull() & ~arm.isnan() if key.kind == "number" else arm.notnull()
        values = as_values(declared, key.kind)
        return arm.isin(list(values)).fill_null(False) if values else ibis.literal(False)


@dataclass(frozen=True)
class Part:
    """One group of rows of the answer: by which keys, over whom, and which numbers."""

    name: str
    keys: tuple[Key, ...]
    values: Mapping[str, Any] = field(repr=False)
    over: Any = field(default=None, repr=False)


# ── the first stage ────────────────────────────────────────────────────────────────────────────


def first_stage(people: Any, question: Question) -> Any:
    """One row per signature: people, and for every metric counts, sums and squares."""
    inside = question.anywhere(people)
    columns = {key.column: key.expression(people) for key in question.keys}
    for one in question.measures:
        value = one.value(people, inside)
        columns |= {f"y{one.place}": value, f"d{one.place}": one.steps(value)}
    for place, binned in enumerate(question.binned):
        columns[f"x{place}"] = _grid_of(people[binned.key.name], binned, inside)
    if question.twice:
        columns[TWICE] = people[TWICE].cast("int32").cast("int64")
    table = people.select(**columns)
    clamped = {f"g{one.place}": one.clamped(table[f"d{one.place}"]) for one in question.measures if one.careful}
    table = table.mutate(**clamped) if clamped else table
    sums = {"n": table.count()}
    for one in question.measures:
        sums |= _metric_sums(table, one, question.engine)
    for place, cross in enumerate(question.crosses):
        sums |= _cross_sums(table, place, cross, question)
    for place in range(len(question.binned)):
        sums |= {f"x{place}_s": question.engine.total(table[f"x{place}"])}
    if question.twice:
        sums["twice"] = table[TWICE].sum()
    return table.group_by([key.column for key in question.keys]).aggregate(**sums)


def _grid_of(column: Any, binned: Binned, inside: Any) -> Any:
    value = column.cast("float64")
    if binned.key.kind == "number":
        inside = inside & ~value.isnan()
    return ibis.ifelse(inside, value * float(binned.scale) + 0.5, ibis.null("float64")).floor().cast("int64")


def _metric_sums(table: Any, one: Measure, engine: Engine) -> dict[str, Any]:
    place = one.place
    value, raw = table[f"y{place}"], table[f"d{place}"]
    steps = table[f"g{place}"] if one.careful else raw
    sums = {f"c{place}": value.count(), f"s{place}": engine.total(steps)}
    if one.products is not None:
        for number, term in enumerate(product_terms(steps, steps, one.products)):
            sums[f"q{place}_{number}"] = engine.total(term)
    if one.check != "nothing":
        seen = value if one.check == "values" else raw
        sums |= {f"lo{place}": seen.min(), f"hi{place}": seen.max()}
    if one.fits:
        sums[f"off{place}"] = (raw.cast("float64") / float(one.metric.scale) != value).sum()
    if one.careful and one.metric.grid_bounds is not None:
        low, high = one.metric.grid_bounds
        sums[f"cl{place}"] = ((raw < low) | (raw > high)).sum()
    return sums


def _cross_sums(table: Any, place: int, cross: CrossSum, question: Question) -> dict[str, Any]:
    """Sums over the people who have both values; a missing one that means 0 is one."""
    first, second = (_present(table, question.measures[number]) for number in cross.pair)
    total = question.engine.total
    both = first.notnull() & second.notnull()
    y, z = (ibis.ifelse(both, one, ibis.null("int64")) for one in (first, second))
    sums = {f"z{place}_n": both.sum(), f"z{place}_y": total(y), f"z{place}_z": total(z)}
    for word, (a, b), products in zip(("yy", "zz", "yz"), ((y, y), (z, z), (y, z)), cross.products, strict=True):
        for number, term in enumerate(product_terms(a, b, products)):
            sums[f"z{place}_{word}{number}"] = total(term)
    return sums


def _present(table: Any, one: Measure) -> Any:
    steps = table[f"g{one.place}" if one.careful else f"d{one.place}"]
    return steps if one.metric.missing == "exclude" else steps.fill_null(0)


# ── the second stage ───────────────────────────────────────────────────────────────────────────


def parts(stage: Any, question: Question) -> tuple[Part, ...]:
    """Everything that leaves the engine."""
    anywhere = question.anywhere(stage)
    total = question.engine.total
    found = [
        Part("signatures", question.keys, {"n": stage.n}, anywhere),
        Part("inside", (), _inside_values(stage, question), anywhere),
        Part("outside", (), {"n": stage.n.sum()} | ({"t": stage.twice.sum()} if question.twice else {}), ~anywhere),
    ]
    for place, binned in enumerate(question.binned):
        values = {"n": stage.n.sum(), "s": total(stage[f"x{place}_s"])}
        found.append(Part(f"bins {binned.key.name}", (binned.key,), values, anywhere))
    margins: dict[str, Part] = {}
    for linkage in question.plan.linkages:
        keys = question.axes(linkage)
        over = question.inside(stage, linkage.experiments)
        found.append(Part(f"classes {linkage.name}", keys, _class_values(stage, question), over))
        for key in keys:
            if key.name in linkage.experiments or linkage.squares == "margins":
                name = margin_name(linkage, key)
                with_crosses = key.name in linkage.experiments
                margins.setdefault(name, Part(name, (key,), _square_values(stage, question, with_crosses), over))
    return (*found, *(part for part in margins.values() if part.values))


def margin_name(linkage: Linkage, key: Key) -> str:
    """Squares of one margin; tables of the same experiments share those of their arms."""
    return f"squares {'/'.join(linkage.experiments)} by {key.name}"


def _inside_values(stage: Any, question: Question) -> dict[str, Any]:
    values: dict[str, Any] = {"n": stage.n.sum()}
    if question.twice:
        values["t"] = stage.twice.sum()
    for one in question.measures:
        names = {"c": "sum", "lo": "min", "hi": "max", "off": "sum", "cl": "sum"}
        for word, how in names.items():
            column = f"{word}{one.place}"
            if column in stage.columns:
                values[column] = getattr(stage[column], how)()
    return values


def _class_values(stage: Any, question: Question) -> dict[str, Any]:
    values: dict[str, Any] = {"n": stage.n.sum()}
    for one in question.measures:
        values[f"c{one.place}"] = stage[f"c{one.place}"].sum()
        values[f"s{one.place}"] = question.engine.total(stage[f"s{one.place}"])
        if _squares_by_class(one, question):
            values |= _squares(stage, one, question)
    return values


def _square_values(stage: Any, question: Question, with_crosses: bool) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in question.measures:
        if not _squares_by_class(one, question):
            values |= _squares(stage, one, question)
    names = [name for name in stage.columns if name.startswith("z")] if with_crosses else []
    return values | {name: question.engine.total(stage[name]) for name in names}


def _squares_by_class(one: Measure, question: Question) -> bool:
    return any(metric.name == one.name and metric.squares == "class" for metric in question.plan.metrics)


def _squares(stage: Any, one: Measure, question: Question) -> dict[str, Any]:
    weights = () if one.products is None else one.products.weights
    names = [f"q{one.place}_{number}" for number in range(len(weights))]
    return {name: question.engine.total(stage[name]) for name in names}


def united(stage: Any, wanted: Sequence[Part], question: Question) -> Any:
    """All parts, one below the other: the part's number, the keys and the numbers as texts."""
    slots = max(len(part.values) for part in wanted)
    tables = [_rows(stage, place, part, slots, question) for place, part in enumerate(wanted)]
    return ibis.union(*tables, distinct=False) if len(tables) > 1 else tables[0]


def _rows(stage: Any, place: int, part: Part, slots: int, question: Question) -> Any:
    table = stage if part.over is None else stage.filter(part.over)
    if part.name == "signatures":
        found = table
    elif part.keys:
        found = table.group_by([key.column for key in part.keys]).aggregate(**part.values)
    else:
        found = table.aggregate(**part.values)
    nothing = ibis.null("string")
    own = {key.column for key in part.keys}
    columns = {
        key.column: found[key.column].cast("string") if key.column in own else nothing for key in question.keys
    }
    names = list(part.values)
    texts = [found[names[slot]].cast("string") if slot < len(names) else nothing for slot in range(slots)]
    return found.select(
        part=ibis.literal(place, type="int32"), **columns, **{f"v{slot}": text for slot, text in enumerate(texts)}
    )
