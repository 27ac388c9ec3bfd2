"""The statement's answer: texts in, tallies and signatures out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.bins import check_arms, check_levels
from kanab.counting.columns import check_classes
from kanab.counting.engine.group_keys import Key
from kanab.counting.engine.metrics import Measure
from kanab.counting.engine.statement import CountQuery, CrossSum, QueryPart
from kanab.counting.levels import place_arms, place_levels
from kanab.counting.signatures import Membership
from kanab.errors import NobodyError, SourceError
from kanab.plan.joint import Population, View, covariates_about, populations
from kanab.plan.model import Linkage
from kanab.tally.cells import DROPPED, Cells, zeros
from kanab.tally.factor import Factor
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.tally import Tally

MOST_SIGNATURES = 2_000_000
"""More combinations of levels over all tables are refused: they would not fit beside the data."""

Text = str | None
Texts = tuple[Text, ...]
Address = tuple[str, tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class AnswerRows:
    """Rows of one part that are grouped alike: texts of the keys, and named numbers as texts."""

    names: tuple[str, ...] = ()
    rows: list[tuple[Texts, Texts]] = field(default_factory=list, repr=False)

    def column(self, name: str) -> list[tuple[Texts, int]]:
        """One number of every row, under the texts of its keys."""
        place = self.names.index(name) if self.rows else 0
        return [(texts, whole(numbers[place])) for texts, numbers in self.rows]

    def array(self, name: str) -> NDArray[np.int64]:
        """One number of every row, without its keys; for numbers of people, which are never long."""
        return np.array([number for _, number in self.column(name)], dtype=np.int64)


@dataclass(frozen=True)
class QueryAnswer:
    """Everything that left the engine."""

    query: CountQuery
    blocks: Mapping[Address, AnswerRows]

    def of(self, name: str, keys: Sequence[Key], experiments: Sequence[str] = ()) -> AnswerRows:
        """The rows of a part that are grouped by these keys."""
        return self.blocks.get((name, tuple(experiments), tuple(key.name for key in keys)), AnswerRows())

    def only(self, name: str) -> Mapping[str, Text]:
        """The one row of a part without keys."""
        block = self.of(name, ())
        return dict(zip(block.names, block.rows[0][1], strict=True))

    def inside(self, group: Population) -> Mapping[str, Text]:
        """Totals over one group of people that the plan is about."""
        groups = populations(self.query.plan)
        return self.only("inside" if len(groups) == 1 else f"inside{groups.index(group)}")

    def everybody(self) -> dict[str, int]:
        """How many people there are, in an experiment or not, and to how many of them each flag applies."""
        inside, outside = self.only("inside"), self.only("outside")
        return {name: whole(inside[name]) + whole(number) for name, number in outside.items()}


def read_answer(rows: Iterable[tuple[Any, ...]], parts: Sequence[QueryPart], query: CountQuery) -> QueryAnswer:
    """Rows as they come, sorted into parts; too many signatures are refused on the way."""
    keys = query.keys
    blocks: dict[Address, AnswerRows] = {}
    shapes: dict[tuple[int, int], tuple[AnswerRows, list[int]]] = {}
    signatures = 0
    for place, mask, *texts in rows:
        if (place, mask) not in shapes:
            part = parts[place]
            own = [key for bit, key in enumerate(part.keys) if not mask >> bit & 1]
            block = AnswerRows(tuple(name for name, _ in part.values))
            blocks[part.name, part.experiments, tuple(key.name for key in own)] = block
            shapes[place, mask] = block, [keys.index(key) for key in own]
        block, where = shapes[place, mask]
        numbers = texts[len(keys) : len(keys) + len(block.names)]
        block.rows.append((tuple(texts[one] for one in where), tuple(numbers)))
        signatures += place == 0
        if signatures > MOST_SIGNATURES:
            raise SourceError(
                f"the covariates have more than {MOST_SIGNATURES:,} combinations of levels together",
                "Name fewer covariates, cut numbers into bins (--bin), or keep the most frequent levels (--top).",
            )
    return QueryAnswer(query, blocks)


@dataclass(frozen=True)
class Places:
    """A factor, and where each text of its key goes."""

    factor: Factor
    into: Mapping[Text, int] = field(repr=False)


def place_all(answer: QueryAnswer, group: Population) -> dict[str, Places]:
    """The factor of every key, from the texts that occurred in a group of people that the plan is about."""
    query = answer.query
    rows = answer.of("signatures", query.keys).rows
    found: dict[str, Places] = {}
    if rows:
        for place, key in enumerate(query.keys[: len(query.arms)]):
            found[key.name] = _arms(key, [texts[place] for texts, _ in rows], query)
        rows = [row for row, there in zip(rows, insiders(answer, found, group), strict=True) if there]
    if not rows:
        raise NobodyError
    used = covariates_about(query.plan, group)
    for place, key in enumerate(query.keys):
        if key.name in used:
            found[key.name] = _levels(key, [texts[place] for texts, _ in rows], answer)
    return found


def insiders(answer: QueryAnswer, arms: Mapping[str, Places], group: Population) -> NDArray[np.bool_]:
    """Which signatures are of people in at least one of some experiments."""
    keys = answer.query.keys
    rows = answer.of("signatures", keys).rows
    if len(group) == len(answer.query.arms):
        return np.ones(len(rows), dtype=bool)
    own = [(place, arms[key.name].into) for place, key in enumerate(keys) if key.name in group]
    return np.array([any(into[texts[place]] != DROPPED for place, into in own) for texts, _ in rows], dtype=bool)


def _arms(key: Key, texts: Iterable[Text], query: CountQuery) -> Places:
    found = list(dict.fromkeys(texts))
    check_arms(key.name, len(found))
    factor, into = place_arms([key.level(text) for text in found], query.plan.experiment(key.name))
    return Places(factor, dict(zip(found, into, strict=True)))


def _levels(key: Key, texts: Iterable[Text], answer: QueryAnswer) -> Places:
    found = list(dict.fromkeys(texts))
    if key.bins is not None:
        return _binned(answer, key, missing=None in found)
    levels = [key.level(text) for text in found]
    declared = answer.query.declared_levels[key.name]
    if declared.levels is None:
        check_levels(key.name, len(set(levels)))
    factor, into = place_levels(levels, declared)
    return Places(factor, dict(zip(found, into, strict=True)))


def _binned(answer: QueryAnswer, key: Key, *, missing: bool) -> Places:
    """A binned covariate: its bins scored by their exact means over everybody."""
    place, binned = next((i, one) for i, one in enumerate(answer.query.binned) if one.key == key)
    bins = key.bins
    assert bins is not None
    people, sums = [0] * len(bins.labels), [0] * len(bins.labels)
    block = answer.of("bins", (key,))
    for ((text,), there), (_, total) in zip(block.column("n"), block.column(f"x{place}s"), strict=True):
        if text is not None:
            people[int(text)] += there
            sums[int(text)] += total
    factor = bins.factor(people, sums, binned.scale, missing=missing)
    kept = [str(number) for number, count in enumerate(people) if count]
    into: dict[Text, int] = {text: position for position, text in enumerate(kept)}
    return Places(factor, into | {None: len(factor.levels) - 1})


def whole(text: Text) -> int:
    """A whole number of any size from its text; nothing is 0."""
    return int(text) if text else 0


# ── tallies ────────────────────────────────────────────────────────────────────────────────────


def build_tally(answer: QueryAnswer, linkage: Linkage, places: Mapping[str, Places]) -> Tally:
    """One linkage's table."""
    query = answer.query
    keys = query.axes(linkage)
    own = [places[key.name] for key in keys]
    factors = tuple(one.factor for one in own)
    shape = tuple(len(factor.levels) for factor in factors)
    check_classes(linkage.name, shape)
    block = answer.of("classes", keys, linkage.experiments)
    people = _filled(shape, own, block, "n")
    moments = []
    for one in query.measures_of(linkage):
        counts = _filled(shape, own, block, f"c{one.place}")
        sums = _filled(shape, own, block, f"s{one.place}")
        squares = {} if one.products is None else _squares(answer, linkage, one, places, (counts, sums))
        moments.append(Moments(one.metric, counts if one.metric.missing == "exclude" else people, sums, squares))
    crosses = [
        _cross(answer, linkage, places[name], place, cross)
        for place, cross in query.crosses_of(linkage)
        for name in linkage.experiments
    ]
    return Tally(factors, people, tuple(moments), tuple(crosses))


def _filled(shape: tuple[int, ...], own: Sequence[Places], block: AnswerRows, name: str) -> Cells:
    cells = zeros(shape)
    for texts, value in block.column(name):
        spot = tuple(one.into[text] for one, text in zip(own, texts, strict=True))
        if DROPPED not in spot:
            cells[spot] += value
    return cells


def _squares(
    answer: QueryAnswer, linkage: Linkage, one: Measure, places: Mapping[str, Places], found: tuple[Cells, Cells]
) -> dict[By, Cells]:
    """Σ r² about 0 at every margin that was asked for."""
    counts, sums = found
    keys = answer.query.axes(linkage)
    names = tuple(key.name for key in keys)
    if one.name in answer.query.plan.metrics_squared_by_class:
        block = answer.of("classes", keys, linkage.experiments)
        return {names: _about_zero(one, block, [places[name] for name in names], counts, sums)}
    kept: dict[By, Cells] = {}
    for axis, key in enumerate(keys):
        if key.name in linkage.experiments or linkage.squares == "margins":
            part = "arms" if key.name in linkage.experiments else "levels"
            others = tuple(other for other in range(len(keys)) if other != axis)
            margin = [np.asarray(cells.sum(axis=others)) for cells in (counts, sums)]
            squares = answer.of(part, (key,), linkage.experiments)
            kept[(key.name,)] = _about_zero(one, squares, [places[key.name]], margin[0], margin[1])
    return kept


def _about_zero(one: Measure, block: AnswerRows, own: Sequence[Places], counts: Cells, sums: Cells) -> Cells:
    products = one.products
    assert products is not None
    names = [f"q{one.place}_{number}" for number in range(len(products.weights))]
    partial = [_filled(counts.shape, own, block, name) for name in names]
    cells = zeros(counts.shape)
    for spot in np.ndindex(counts.shape):
        cells[spot] = products.total(tuple(part.item(spot) for part in partial), counts.item(spot), sums.item(spot))
    return cells


def _cross(answer: QueryAnswer, linkage: Linkage, own: Places, place: int, cross: CrossSum) -> Cross:
    arm = own.factor.name
    block = answer.of("arms", (answer.query.arms[arm],), linkage.experiments)
    shape = (len(own.factor.levels),)

    def filled(word: str) -> Cells:
        return _filled(shape, [own], block, f"z{place}_{word}")

    def product(word: str, number: int) -> Cells:
        weights = cross.products[number].weights
        total = zeros(shape)
        for part, weight in enumerate(weights):
            total = total + filled(f"{word}{part}") * weight
        return total

    first, second = (answer.query.measures[number].name for number in cross.pair)
    squares = product("yy", 0), product("zz", 1)
    return Cross((first, second), (arm,), filled("n"), (filled("y"), filled("z")), squares, product("yz", 2))


# ── signatures ─────────────────────────────────────────────────────────────────────────────────


def membership_of(answer: QueryAnswer, view: View, places: Mapping[str, Places]) -> Membership:
    """The classes of every signature in the tables of one plan, and whether its people have a value."""
    query = answer.query
    block = answer.of("signatures", query.keys)
    spots = {
        key.name: np.array([into.get(texts[place], DROPPED) for texts, _ in block.rows], dtype=np.int64)
        for place, key in enumerate(query.keys)
        for into in ([places[key.name].into] if key.name in places else [])
    }
    there = insiders(answer, places, view.population)
    cells, sizes, present = {}, {}, {}
    for own in view.plan.linkages:
        keys = query.axes(view.table(own))
        shape = [len(places[key.name].factor.levels) for key in keys]
        cells[own.name], sizes[own.name] = _cells([spots[key.name] for key in keys], shape), math.prod(shape)
    for name, joint in view.metrics.items():
        one = query.measure(joint)
        if one.leaves_out:
            present[name] = there & (block.array(f"p{one.place}") > 0)
    return Membership(cells, sizes, present)


def people_in_each(answer: QueryAnswer) -> NDArray[np.int64]:
    """How many people every signature stands for."""
    return answer.of("signatures", answer.query.keys).array("n")


def _cells(spots: Sequence[NDArray[np.int64]], shape: Sequence[int]) -> NDArray[np.int64]:
    cell = np.zeros(len(spots[0]), dtype=np.int64)
    absent = np.zeros(len(spots[0]), dtype=bool)
    for spot, size in zip(spots, shape, strict=True):
        cell = cell * size + spot
        absent |= spot == DROPPED
    return np.where(absent, DROPPED, cell)
