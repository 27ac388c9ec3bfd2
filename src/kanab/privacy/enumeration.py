"""Exact intervals of whole-number metrics, which give more away than the closed forms say, where that is little work.

Ten counts near zero are all known from n, S and Q in 98 of 100 cases. Groups of values are not
listed one by one: for so many people with such a sum and such a largest value there is one set of
squares that they can have, kept as the bits of an integer, and it follows from two smaller ones.
A class's *excess* is its squares less the least that its count and sum allow. It does not depend
on where the values start, so the classes of a marginal share out its excess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab.privacy.inference import (
    most_squares,
    to_classes,
)
from kanab.tally.cells import Cells, marginal
from kanab.tally.consistency import least_squares
from kanab.tally.moments import By, Moments

WORK = 2**26
"""Bits that the sets of one class may need at most; beyond, a class is not enumerated."""
DEPTH = 300
"""People plus largest value of a class at most: how deep the sets may rest on each other."""
SHARING = 2**18
"""Classes of a marginal × its excess at most; beyond, only the ends of what they share are used."""

Interval = tuple[int, int]
Extremes = tuple[Interval, Interval]
"""The intervals of the smallest and of the largest value."""


class Achievable:
    """The squares that whole numbers can have; every answer is remembered for the next class."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, int], int] = {}

    def squares(self, people: int, total: int, high: int) -> int:
        """Return a number whose bit q is set if so many whole numbers from 0 to ``high`` have this total and squares q.

        >>> bits = Achievable().squares(10, 3, 3)       # 1+1+1, 2+1 or 3
        >>> [q for q in range(10) if bits >> q & 1]
        [3, 5, 9]
        """
        if total == 0:
            return 1
        people, high = min(people, total), min(high, total)
        if total < 0 or people * high < total:
            return 0
        key = people, total, high
        if key not in self._known:
            without = self.squares(people, total, high - 1)
            self._known[key] = without | self.squares(people - 1, total - high, high) << high * high
        return self._known[key]


@dataclass(frozen=True)
class SmallClass:
    """A class that is little work, its values counted from one of its bounds."""

    n: int
    total: int
    high: int
    start: int
    downwards: bool

    @classmethod
    def of(cls, n: int, s: int, low: int, high: int) -> SmallClass | None:
        """Return the class, counted from the nearer bound; None if it is too much work."""
        up, down = s - n * low, n * high - s
        small = cls(n, up, high - low, low, False) if up <= down else cls(n, down, high - low, high, True)
        return small if small._work <= WORK and small._depth <= DEPTH else None

    @property
    def _work(self) -> int:
        """People × totals × largest values, each with as many bits as the greatest squares."""
        top = min(self.high, self.total)
        return min(self.n, self.total) * (self.total * top) ** 2

    @property
    def _depth(self) -> int:
        return min(self.n, self.total) + min(self.high, self.total)

    def excess(self, achievable: Achievable) -> int:
        """Return the set of its possible excesses, as bits."""
        return achievable.squares(self.n, self.total, self.high) >> _least(self.n, self.total)

    def extremes(self, achievable: Achievable, excess: int) -> Extremes:
        """Return the intervals of the smallest and the largest value, if its excess is one of these."""
        wanted = excess << _least(self.n, self.total)
        top, bottom = self._largest(achievable, wanted), self._smallest(achievable, wanted)
        if self.downwards:
            return (self.start - top[1], self.start - top[0]), (self.start - bottom[1], self.start - bottom[0])
        return (self.start + bottom[0], self.start + bottom[1]), (self.start + top[0], self.start + top[1])

    def _largest(self, achievable: Achievable, wanted: int) -> Interval:
        """Find the least x with nobody above it, and the greatest with somebody at it and the others not above."""
        values = range(-(-self.total // self.n), min(self.high, self.total) + 1)
        least = next(x for x in values if achievable.squares(self.n, self.total, x) & wanted)
        below = ((x, achievable.squares(self.n - 1, self.total - x, x)) for x in reversed(values))
        return least, next(x for x, bits in below if bits << x * x & wanted)

    def _smallest(self, achievable: Achievable, wanted: int) -> Interval:
        """Find the least x with somebody at it and the others not below, and the greatest with nobody below it."""

        def possible(people: int, x: int) -> int:
            rest = achievable.squares(people, self.total - self.n * x, self.high - x)
            return rest & wanted >> 2 * x * self.total - self.n * x * x

        values = range(self.total // self.n + 1)
        least = next(x for x in values if possible(self.n - 1, x))
        return least, next(x for x in reversed(values) if possible(self.n, x))


@dataclass(frozen=True)
class MarginalExcess:
    """One marginal of squares: in which of its cells each class is, and the excess of each cell."""

    cells: Sequence[int]
    excess: Sequence[int]


def enumerate_classes(part: Moments, axes: By, low: Cells, high: Cells) -> list[Extremes | None]:
    """Return the exact extremes of every class whose values lie between ``low`` and ``high``; None where too much work.

    With one marginal the intervals are exact. Marginals that cross narrow each other, and may leave an
    interval wider than all of them together would. Classes of one person or nobody have no excess.
    """
    achievable = Achievable()
    several = np.flatnonzero(part.counts > 1)
    sums = list(zip(*(cells.ravel()[several].tolist() for cells in (part.counts, part.sums, low, high)), strict=True))
    small = [SmallClass.of(*numbers) for numbers in sums]
    excess = [each.excess(achievable) if each else None for each in small]
    most = [
        _most_excess(*numbers) if bits is None else max(0, bits.bit_length() - 1)
        for numbers, bits in zip(sums, excess, strict=True)
    ]
    marginals = [_marginal_excess(part, axes, by, several) for by in part.squares]
    for each in [*marginals, *marginals[:-1]]:
        _narrow(each, excess, most)
    intervals: list[Extremes | None] = [None] * part.counts.size
    for place, single, bits in zip(several.tolist(), small, excess, strict=True):
        intervals[place] = single.extremes(achievable, bits) if single and bits else None
    return intervals


def _marginal_excess(part: Moments, axes: By, by: By, several: NDArray[np.intp]) -> MarginalExcess:
    """Return where its classes are, and what it has beyond the least squares of all of them."""
    excess = part.squares[by] - marginal(least_squares(part.counts, part.sums), axes, by)
    places = to_classes(np.arange(excess.size).reshape(excess.shape), axes, by)
    cells = np.broadcast_to(places, part.counts.shape).ravel()[several]
    return MarginalExcess(cells.tolist(), excess.ravel().tolist())


def _narrow(marginal_excess: MarginalExcess, excess: list[int | None], most: Sequence[int]) -> None:
    """Leave each class the excesses that the other classes of its cell can make up to the cell's."""
    by_cell: dict[int, list[int]] = {}
    for g, cell in enumerate(marginal_excess.cells):
        by_cell.setdefault(cell, []).append(g)
    for cell, classes in by_cell.items():
        shared = share([excess[g] for g in classes], [most[g] for g in classes], marginal_excess.excess[cell])
        for g, bits in zip(classes, shared, strict=True):
            excess[g] = bits


def share(excess: Sequence[int | None], most: Sequence[int], total: int) -> list[int | None]:
    """Return the excesses that each class can have, if together they have ``total``; None stays unknown."""
    if total < 0:
        return list(excess)
    if len(excess) * total > SHARING:
        rest = sum(most)
        return [_between(bits, total - (rest - top), total) for bits, top in zip(excess, most, strict=True)]
    sets = [_even(min(top, total)) if bits is None else bits for bits, top in zip(excess, most, strict=True)]
    before, after = [1], [1]
    for bits in sets[:-1]:
        before.append(_added(before[-1], bits, total))
    for bits in sets[:0:-1]:
        after.append(_added(after[-1], bits, total))
    others = [_added(first, last, total) for first, last in zip(before, reversed(after), strict=True)]
    return [None if bits is None else bits & _mirrored(rest, total) for bits, rest in zip(excess, others, strict=True)]


def _added(first: int, second: int, total: int) -> int:
    """Return all sums of a member of each set, up to the total."""
    few, many = sorted((first, second), key=int.bit_count)
    if few & 1 and many == _even(total):
        return many
    sums = 0
    while few:
        place = few.bit_length() - 1
        sums |= many << place
        few ^= 1 << place
    return sums & (1 << total + 1) - 1


def _mirrored(bits: int, total: int) -> int:
    """Return the members seen from the total: total − e instead of e."""
    return int(format(bits, f"0{total + 1}b")[::-1], 2)


def _even(most: int) -> int:
    """Return all even numbers up to ``most``: no excess is odd, because y² − y is even."""
    return ((1 << 2 * (most // 2 + 1)) - 1) // 3


def _between(bits: int | None, low: int, high: int) -> int | None:
    """Return the members from ``low`` to ``high``; ends far beyond the set must not become integers of so many bits."""
    if bits is None:
        return None
    low, high = max(0, min(low, bits.bit_length())), min(high, bits.bit_length())
    return (bits & (1 << high + 1) - 1) >> low << low


def _least(n: int, s: int) -> int:
    mean, rest = divmod(s, n)
    return n * mean**2 + rest * (2 * mean + 1)


def _most_excess(n: int, s: int, low: int, high: int) -> int:
    return int(most_squares(n, s, low, high)) - _least(n, s)
