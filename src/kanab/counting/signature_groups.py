"""Add people, or groups of them, who share all their classes up to signatures, and how far they are off the commonest
value of a metric: what the rule for amounts needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS, Relation, SignatureNumbers, Signatures, SignatureValues
from kanab.counting.columns import MetricSteps
from kanab.tally.cell_arrays import DROPPED
from kanab.tally.metric import Metric

_DIRECT = 1 << 22  # so many codes or values are counted in place, without sorting everybody


class NumbersInGroups(NamedTuple):
    """Metrics that weigh sums of others, a row per group of people and a column per metric, in grid steps.

    Without ``products`` (see `SignatureNumbers`) every group is one person.
    """

    names: tuple[str, ...]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    sums: NDArray[np.float64]
    products: NDArray[np.float64] | None = None

    def product(self, first: int, second: int) -> NDArray[np.float64]:
        """Return the sum of the products of two numbers in every group."""
        if self.products is None:
            return np.asarray(self.sums[:, first] * self.sums[:, second])
        return self.products[:, first, second]

    def among(self, there: NDArray[np.bool_]) -> NumbersInGroups:
        """Return the same among more groups; the others have 0."""
        low, high, sums = (_spread(each, there) for each in (self.low, self.high, self.sums))
        products = None if self.products is None else _spread(self.products, there)
        return NumbersInGroups(self.names, low, high, sums, products)


def _spread(values: NDArray[Any], there: NDArray[np.bool_]) -> NDArray[Any]:
    wider = np.zeros((len(there), *values.shape[1:]))
    wider[there] = values
    return wider


class Membership(NamedTuple):
    """Everybody's class in every table of a plan, −1 outside; and who has a value of the metrics that leave people out.

    ``sizes`` are the classes of each table. ``values`` say how far everybody (or each group) is off the commonest value
    of amounts, ``cut`` who has 1 of metrics that multiply others, ``left`` is what relations leave, and ``numbers`` are
    those that weigh sums of others.
    """

    cells: Mapping[str, NDArray[Any]]
    sizes: Mapping[str, int]
    present: Mapping[str, NDArray[np.bool_]]
    values: Mapping[str, SignatureValues] = MappingProxyType({})
    numbers: NumbersInGroups | None = None
    cut: Mapping[str, NDArray[np.bool_]] = MappingProxyType({})
    left: Mapping[Relation, SignatureValues] = MappingProxyType({})

    def among(self, there: NDArray[np.bool_]) -> Membership:
        """Return the same among more people; ``there`` says which of them the plan is about."""
        if there.all():
            return self
        cells = {}
        for name, cell in self.cells.items():
            cells[name] = np.full(len(there), DROPPED, dtype=np.int64)
            cells[name][there] = cell
        present, cut = (
            {name: _spread(marks, there).astype(bool) for name, marks in marked.items()}
            for marked in (self.present, self.cut)
        )
        values = {name: spread(known, there) for name, known in self.values.items()}
        numbers = None if self.numbers is None else self.numbers.among(there)
        left = {relation: spread(known, there) for relation, known in self.left.items()}
        return Membership(cells, self.sizes, present, values, numbers, cut, left)


def make_signatures(plans: Sequence[Membership], people: NDArray[np.int64] | None = None) -> list[Signatures]:
    """Return the signatures of several plans over the same people, row by row about the same ones.

    Sorted by the classes of the first plan, then of the next, then by presence. ``people`` are how
    many each place stands for; one by default.
    """
    cells = ((cell + 1, plan.sizes[name] + 1) for plan in plans for name, cell in plan.cells.items())
    marks = (marked for plan in plans for marked in (*plan.present.values(), *plan.cut.values()))
    present = ((marked.astype(np.int64), 2) for marked in marks)
    code: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
    room = 1
    for part, radix in chain(cells, present):
        if room * radix >= 1 << 62:
            distinct, code = np.unique(code, return_inverse=True)
            room = len(distinct)
        code = code * radix + part
        room *= radix
    anyone, counts, number = _one_of_each(code, room, people)
    return [_pick(plan, anyone, counts, number) for plan in plans]


def _pick(
    plan: Membership, anyone: NDArray[np.intp], people: NDArray[np.int64], number: NDArray[np.intp]
) -> Signatures:
    cells = np.stack([cell[anyone] for cell in plan.cells.values()], axis=1).astype(np.int64)
    values = {name: known.added_up(number, len(people)) for name, known in plan.values.items()}
    numbers = None if plan.numbers is None else _numbers(plan.numbers, number, len(people))
    cut = {name: has[anyone] for name, has in plan.cut.items()}
    left = {relation: known.added_up(number, len(people)) for relation, known in plan.left.items()}
    signatures = Signatures(tuple(plan.cells), cells, people, values=values, numbers=numbers, cut=cut, left=left)
    if not plan.present:
        return signatures
    present = np.stack([has[anyone] for has in plan.present.values()], axis=1)
    return replace(signatures, metrics=tuple(plan.present), present=present)


def _numbers(groups: NumbersInGroups, number: NDArray[np.intp], size: int) -> SignatureNumbers:
    many = len(groups.names)
    low, high = np.full((size, many), np.inf), np.full((size, many), -np.inf)
    sums, products = np.zeros((size, many)), np.zeros((size, many, many))
    for first in range(many):
        np.minimum.at(low[:, first], number, groups.low[:, first])
        np.maximum.at(high[:, first], number, groups.high[:, first])
        sums[:, first] = np.bincount(number, groups.sums[:, first], size)
        for second in range(first + 1):
            added = np.bincount(number, groups.product(first, second), size)
            products[:, first, second] = products[:, second, first] = added
    return SignatureNumbers(groups.names, low, high, sums, products)


def _one_of_each(
    code: NDArray[np.int64], room: int, people: NDArray[np.int64] | None
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.intp]]:
    """Return a place of every code that occurs, in order, and how many people have it; and everybody's number."""
    if room > _DIRECT:
        distinct, anyone, code = np.unique(code, return_index=True, return_inverse=True)
        room = len(distinct)
    else:
        anyone = np.zeros(room, dtype=np.intp)
        anyone[code] = np.arange(len(code))
    places = np.bincount(code, minlength=room)
    counts = places if people is None else np.zeros(room, dtype=np.int64)
    if people is not None:
        np.add.at(counts, code, people)
    number = (np.cumsum(places > 0) - 1)[code]
    return anyone[places > 0], counts[places > 0].astype(np.int64), number


# ── the commonest value ────────────────────────────────────────────────────────────────────────


COMMON = 0.1
"""A value is the commonest if so many people share it; otherwise 0, or the bound next to it, stands in for it."""

_ROUNDING = 1e-12  # of a sum of doubles, generously


def counts_things(metric: Metric, low: int, high: int) -> bool:
    """Return whether values between two steps are small counts, of which nobody asks who is off the commonest."""
    return metric.scale == 1 and low >= 0 and high <= MOST_STEPS


def commonest_step(metric: Metric, steps: NDArray[np.int64]) -> int:
    """Return the value that most people share, in grid steps."""
    low, high = metric.grid_bounds or (0, 0)
    instead = min(max(0, low), high)
    if not len(steps):
        return instead
    least, most = int(steps.min()), int(steps.max())
    if most - least < _DIRECT:
        counts = np.bincount(steps - least)
        value, people = least + int(counts.argmax()), int(counts.max())
    else:
        values, times = np.unique(steps, return_counts=True)
        value, people = int(values[times.argmax()]), int(times.max())
    return value if people > 1 and people >= COMMON * len(steps) else instead


def values_of(part: MetricSteps) -> SignatureValues:
    """Return how far everybody is off the commonest value; who has no value is not off it."""
    commonest = commonest_step(part.metric, part.steps[part.has])
    away = np.where(part.has, np.abs(part.steps - commonest), 0)
    distance = away.astype(np.float64)
    return SignatureValues(commonest, (away > 0).astype(np.int64), distance**2, distance, np.zeros(len(away)))


def bound_second(
    off: NDArray[np.int64], largest: NDArray[np.float64], fourth: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how far the second one is at most, given people, the largest, and the sum of fourth powers."""
    rest = np.maximum(fourth - largest**4, 0) + _ROUNDING * fourth
    return np.where(off > 1, np.minimum(np.sqrt(np.sqrt(rest)), largest), 0)


def among(known: SignatureValues, there: NDArray[np.bool_]) -> SignatureValues:
    """Return the same where only some groups are meant; the others are not off any value."""
    parts = (np.where(there, part, 0) for part in (known.off, known.squares, known.largest, known.second))
    return SignatureValues(known.commonest, *parts)


def spread(known: SignatureValues, there: NDArray[np.bool_]) -> SignatureValues:
    """Return the same among more people, of whom the others are not off any value."""
    return among(known.of(np.cumsum(there) - 1), there)
