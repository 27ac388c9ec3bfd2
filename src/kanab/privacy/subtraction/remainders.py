"""Classes inside classes: the groups of people that no table shows, but a difference of tables does.

A region without its countries, a merged level without those that another table shows by themselves: whoever
subtracts gets people and sums of the rest, exactly. Such a *remainder* is one or two classes of one partition
without all classes of another that lie inside them. Remainders are known groups like any other, so that they are
subtracted again, a few times over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanab.tally.cells import Cells, marginal
from kanab.tally.moments import By, Moments

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_TOGETHER = 2
"""Two classes are taken together, if a class of another table lies in both of them but in none alone."""
MOST_ROUNDS = 6
"""How often remainders are subtracted from classes and from each other."""
MOST_PARTITIONS = 200
"""With more of them, remainders are not subtracted again: work grows with their square."""
FEW, MORE = 4, 16  # signatures of a group that are looked at first, and then


class Numbers(NamedTuple):
    """Of every group: the people who have a value, their sum, and their squares where these are known."""

    counts: Cells
    sums: Cells
    squares: Cells | None


@dataclass(frozen=True, eq=False)
class Partition:
    """Groups of different people, of which sums are known: classes, marginals of them, or remainders.

    ``classes`` is the group of every signature, −1 for none. ``tables`` are the places of the tables that tell.
    ``numbers`` returns those of a metric; None where a table does not show it. Partitions with the same ``key`` have
    the same groups; ``covers`` are the keys of those of which its groups leave nothing, or nothing new. ``marginal`` is
    the place of its table and the axes that are kept of it.
    """

    classes: Ints
    size: int
    tables: frozenset[int]
    numbers: Callable[[str], Numbers | None]
    covers: frozenset[object] = frozenset()
    key: object = field(default_factory=object)
    marginal: tuple[int, By] | None = None

    @cached_property
    def ordered(self) -> tuple[Ints, Ints, Ints]:
        """The signatures group by group; the groups that hold somebody, and where each of them begins (and ends)."""
        order = np.argsort(self.classes, kind="stable")
        order = order[np.searchsorted(self.classes[order], 0) :]
        groups, starts = np.unique(self.classes[order], return_index=True)
        return order, groups.astype(np.int64), np.append(starts, len(order)).astype(np.int64)

    def sample(self, many: int) -> Ints:
        """Return some signatures of every group that holds somebody, a column each."""
        order, _, starts = self.ordered
        steps = np.arange(many)[:, None]
        return np.asarray(order[starts[:-1] + (np.diff(starts) - 1) * steps // (many - 1)])

    def people(self, people: Ints) -> Ints:
        """Return the people of every group."""
        there = self.classes >= 0
        return np.bincount(self.classes[there], people[there], self.size).astype(np.int64)


class Remainder(NamedTuple):
    """What is left of groups of one partition without those groups of another that lie inside them."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Remainders:
    """All remainders of one partition without another."""

    outer: Partition
    inner: Partition
    groups: tuple[Remainder, ...]

    @property
    def tables(self) -> frozenset[int]:
        """The tables that tell them, all of them together."""
        return self.outer.tables | self.inner.tables

    def numbers(self, metric: str) -> Numbers | None:
        """Return the numbers of every remainder: a difference of what is known."""
        outer, inner = self.outer.numbers(metric), self.inner.numbers(metric)
        return None if outer is None or inner is None else _difference(outer, inner, self.groups)

    def members(self) -> tuple[Ints, Ints]:
        """Return the remainder and the signature of everybody in one; a signature may be in several."""
        group, rows = [], []
        for number, (outer, inner) in enumerate(self.groups):
            there = np.flatnonzero(np.isin(self.outer.classes, outer) & ~np.isin(self.inner.classes, inner))
            group.append(np.full(len(there), number, dtype=np.int64))
            rows.append(there.astype(np.int64))
        return np.concatenate(group), np.concatenate(rows)

    def partition(self) -> Partition | None:
        """Return those of single groups as a partition, to subtract again."""
        single = tuple(group for group in self.groups if len(group.outer) == 1)
        if not single:
            return None
        number = np.full(self.outer.size + 1, -1, dtype=np.int64)  # the last one is that of nobody
        gone = np.zeros(self.inner.size + 1, dtype=bool)
        for place, group in enumerate(single):
            number[group.outer[0]] = place
            gone[list(group.inner)] = True
        classes = np.where(gone[self.inner.classes], -1, number[self.outer.classes])
        numbers, covers = cache(replace(self, groups=single).numbers), frozenset({self.outer.key})
        return Partition(classes, len(single), self.tables, numbers, covers)


def _difference(outer: Numbers, inner: Numbers, groups: Sequence[Remainder]) -> Numbers:
    def less(of: Cells, without: Cells) -> Cells:
        left = np.empty(len(groups), dtype=object)
        left[:] = [sum(of[list(group.outer)]) - sum(without[list(group.inner)]) for group in groups]
        return left

    squares = None if outer.squares is None or inner.squares is None else less(outer.squares, inner.squares)
    return Numbers(less(outer.counts, inner.counts), less(outer.sums, inner.sums), squares)


def marginal_numbers(moments: Sequence[Moments], axes: By, by: By, metric: str) -> Numbers | None:
    """Return the numbers of a metric at a marginal of a table, flat; None where the table does not show it."""
    part = next((part for part in moments if part.metric.name == metric), None)
    if part is None:
        return None
    squares = part.squares_by(by, axes)
    counts, sums = (marginal(cells, axes, by).ravel() for cells in (part.counts, part.sums))
    return Numbers(counts, sums, None if squares is None else squares.ravel())


def partitions_of(
    place: int, classes: Ints, axes: By, marginals: Sequence[By], moments: Sequence[Moments]
) -> Iterator[Partition]:
    """Yield partitions of one table: its classes, and those of marginals; the finer of them cover the coarser."""
    shape = moments[0].counts.shape
    cells = {by: marginal_classes(classes, axes, shape, by) for by in marginals}
    keys = {by: column.tobytes() for by, (column, _) in cells.items()}
    for by, (column, size) in cells.items():
        covers = frozenset(keys[other] for other in marginals if set(other) <= set(by))
        numbers = cache(partial(marginal_numbers, moments, axes, by))
        yield Partition(column, size, frozenset({place}), numbers, covers, keys[by], (place, by))


def marginal_classes(classes: Ints, axes: By, shape: Sequence[int], by: By) -> tuple[Ints, int]:
    """Return the cells of a marginal from those of the table, and how many there are.

    >>> marginal_classes(np.array([0, 5, -1, 3]), ("arm", "tier"), (2, 3), ("tier",))
    (array([ 0,  2, -1,  0]), 3)
    """
    places = np.unravel_index(np.maximum(classes, 0), tuple(shape))
    flat, size = np.zeros(len(classes), dtype=np.int64), 1
    for name, place, levels in zip(axes, places, shape, strict=True):
        if name in by:
            flat, size = flat * levels + place, size * levels
    return np.where(classes < 0, -1, flat), size


def find_remainders(partitions: Sequence[Partition], people: Ints) -> Iterator[Remainders]:
    """Yield what every partition leaves of every other one, and again of what is left, as far as it is little work.

    A country of 12 people inside a region of 30: the other 18 are a group that no table shows.

    >>> region = Partition(np.array([0, 0, 1]), 2, frozenset({0}), lambda metric: None)
    >>> country = Partition(np.array([0, 1, 1]), 2, frozenset({1}), lambda metric: None)
    >>> [remainders.groups for remainders in find_remainders([region, country], np.array([12, 18, 40]))][0]
    (Remainder(outer=(0,), inner=(0,)),)
    """
    known: list[Partition] = []
    new = list({part.key: part for part in reversed(partitions) if part.size}.values())[::-1]
    seen: set[bytes] = set()
    for _ in range(MOST_ROUNDS):
        pairs = [(new, new), (known, new), (new, known)]
        added: list[Partition] = []
        for outer, inner, likely in (each for outers, inners in pairs for each in _candidates(outers, inners)):
            groups = _inside(outer, inner, likely, people)
            if groups:
                remainders = Remainders(outer, inner, tuple(groups))
                yield remainders
                part = remainders.partition()
                if part is not None and part.classes.tobytes() not in seen:
                    seen.add(part.classes.tobytes())
                    added.append(part)
        known, new = known + new, added
        if len(known) + len(new) > MOST_PARTITIONS:
            return


def _candidates(
    outers: Sequence[Partition], inners: Sequence[Partition]
) -> Iterator[tuple[Partition, Partition, Mask]]:
    """Yield the partitions of which one may have groups inside the other's, and which groups these may be.

    A few people of a group tell of nearly all that they are inside no other.
    """
    filled = [inner for inner in inners if len(inner.ordered[1])]
    if not filled:
        return
    samples = np.concatenate([inner.sample(FEW) for inner in filled], axis=1)
    ends = np.cumsum([len(inner.ordered[1]) for inner in filled])
    for outer in outers:
        likely = _few_touched(outer, samples)
        for place in np.unique(np.searchsorted(ends, np.flatnonzero(likely), side="right")).tolist():
            inner = filled[place]
            if inner is not outer and outer.key not in inner.covers:
                mask = likely[ends[place] - len(inner.ordered[1]) : ends[place]]
                mask = mask & _few_touched(outer, inner.sample(MORE))
                if mask.any():
                    yield outer, inner, mask


def _few_touched(outer: Partition, samples: Ints) -> Mask:
    """Return which groups touch no more classes than are taken together, and not all, by a few of their people."""
    most = min(MOST_TOGETHER, max(1, len(outer.ordered[1]) - 1))
    seen = outer.classes[samples]
    seen.sort(axis=0)
    return np.asarray((seen[0] >= 0) & (1 + (np.diff(seen, axis=0) > 0).sum(axis=0) <= most))


def _inside(outer: Partition, inner: Partition, likely: Mask, people: Ints) -> list[Remainder]:
    """Return what is left of groups that have others wholly inside them; groups that are covered leave nothing."""
    order, groups, starts = inner.ordered
    lengths = np.diff(starts)
    seen = outer.classes[order[np.repeat(likely, lengths)]]
    first = np.cumsum(lengths[likely]) - lengths[likely]
    low, high = np.minimum.reduceat(seen, first), np.maximum.reduceat(seen, first)
    ends = np.repeat(low, lengths[likely]), np.repeat(high, lengths[likely])
    inside = (low >= 0) & np.logical_and.reduceat((seen == ends[0]) | (seen == ends[1]), first)
    by_hull: dict[tuple[int, ...], list[int]] = {}
    for name, a, b in zip(groups[likely][inside].tolist(), low[inside].tolist(), high[inside].tolist(), strict=True):
        by_hull.setdefault((a,) if a == b else (a, b), []).append(name)
    if not by_hull:
        return []
    around, within = outer.people(people), inner.people(people)
    left = []
    for hull in by_hull:
        names = [name for part in {hull, *((each,) for each in hull)} for name in by_hull.get(part, ())]
        if int(around[list(hull)].sum()) > int(within[names].sum()):
            left.append(Remainder(hull, tuple(sorted(names))))
    return left
