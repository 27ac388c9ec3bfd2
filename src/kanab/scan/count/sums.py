"""What one reader has counted of all pairs: partial sums that are added, and become ``Pairs`` at the end.

Readers are threads, or the partitions of a Spark table. Each numbers arms as it meets them, so sums
are put side by side by the names of the arms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from kanab.counting.grids import Profile
from kanab.scan.count.codes import check_arms
from kanab.scan.count.layout import Counts
from kanab.scan.pairs import Whole, arm_places, plus, spread
from kanab.tally.factor import Level

BUCKETS = 1 << 14
"""Values are told apart by so many buckets where the commonest one is looked for."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class MetricSums:
    """One metric over all pairs, as in ``PairMoments``.

    ``people`` are those who have a value, in each bucket of values; ``missing`` and ``clamped``
    count people. The profile is None as long as nobody had a value.
    """

    profile: Profile | None
    counts: Whole
    sums: Whole
    squares: Whole
    people: Counts
    missing: int
    clamped: int

    @property
    def unusual(self) -> int:
        """People off the commonest value: never more than there are."""
        return int(self.people.sum() - self.people.max())


@dataclass(frozen=True, eq=False)
class PairSums:
    """All pairs of some people; ``levels`` are the arms of each experiment in the order of the arrays."""

    levels: tuple[tuple[Level, ...], ...]
    people: Whole
    metrics: tuple[MetricSums, ...]
    total: int
    outside: int
    excluded: int

    def __add__(self, other: PairSums) -> PairSums:
        joined = tuple(_joined(one, two) for one, two in zip(self.levels, other.levels, strict=True))
        mine, theirs = self.with_levels(joined), other.with_levels(joined)
        return PairSums(
            joined,
            plus(mine.people, theirs.people),
            tuple(_together(one, two) for one, two in zip(mine.metrics, theirs.metrics, strict=True)),
            self.total + other.total,
            self.outside + other.outside,
            self.excluded + other.excluded,
        )

    def with_levels(self, levels: tuple[tuple[Level, ...], ...]) -> PairSums:
        """The same sums with the arms in another order, or among more arms."""
        if levels == self.levels:
            return self
        into, size = arm_places(self.levels, levels), sum(len(own) for own in levels)
        metrics = tuple(
            MetricSums(
                one.profile,
                spread(one.counts, into, size),
                spread(one.sums, into, size),
                spread(one.squares, into, size, both=False),
                one.people,
                one.missing,
                one.clamped,
            )
            for one in self.metrics
        )
        return PairSums(levels, spread(self.people, into, size), metrics, self.total, self.outside, self.excluded)

    def checked(self, names: Sequence[str]) -> PairSums:
        """The same; arms that several readers met must be arms together as well."""
        for name, levels in zip(names, self.levels, strict=True):
            check_arms(name, list(levels))
        return self


def _joined(first: tuple[Level, ...], second: tuple[Level, ...]) -> tuple[Level, ...]:
    """The arms of both; true is not the number 1."""
    known = {(isinstance(level, bool), level) for level in first}
    return (*first, *(level for level in second if (isinstance(level, bool), level) not in known))


def _together(first: MetricSums, second: MetricSums) -> MetricSums:
    return MetricSums(
        merged(first.profile, second.profile),
        plus(first.counts, second.counts),
        plus(first.sums, second.sums),
        plus(first.squares, second.squares),
        first.people + second.people,
        first.missing + second.missing,
        first.clamped + second.clamped,
    )


def merged(first: Profile | None, second: Profile | None) -> Profile | None:
    """What the values of two groups of people say together.

    A decimal grid that holds a value holds it when it is finer, too, as far as it has room.

    >>> merged(Profile(0, 2), Profile(0, 1.5, whole=False, decimal=10))
    Profile(low=0, high=2, whole=False, decimal=10)
    """
    if first is None or second is None:
        return first or second
    decimals = [one.decimal for one in (first, second) if not one.whole]
    known = [one for one in decimals if one is not None]
    return Profile(
        min(first.low, second.low),
        max(first.high, second.high),
        first.whole and second.whole,
        max(known) if known and len(known) == len(decimals) else None,
    )


def buckets(steps: NDArray[np.int64], *, binary: bool) -> Counts:
    """How many people have values of each bucket: of each value, if there are just 0 and 1."""
    if binary:
        ones = int(np.count_nonzero(steps))
        return np.array([len(steps) - ones, ones], dtype=np.int64)
    places = (steps.view(np.uint64) * _GOLDEN) >> np.uint64(64 - BUCKETS.bit_length() + 1)
    return np.bincount(places.view(np.int64), minlength=BUCKETS)


def add_all(parts: Sequence[PairSums]) -> PairSums:
    """All of them added, two and two, so that large numbers meet late."""
    while len(parts) > 1:
        halves = zip_longest(parts[::2], parts[1::2])
        parts = [one if two is None else one + two for one, two in halves]
    return parts[0]
