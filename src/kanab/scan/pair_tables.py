"""Every pair of many experiments at once: counts, sums and squares as blocks of a few arrays.

A hundred experiments have 4,950 pair tables. Kept as one array per number, they are counted by one
kernel, and tested together. ``tally`` takes one pair out as an ordinary tally.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import LevelError, listed
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Whole = NDArray[Any]
"""Whole numbers: 64-bit where they fit, else Python integers."""


@dataclass(frozen=True, eq=False)
class PairMoments:
    """One metric over all pairs.

    ``counts[a, b]`` and ``sums[a, b]`` are over the people of arm a and arm b who have a value, in
    grid steps; ``squares[a, j]`` over the people of arm a who are also in experiment j.
    """

    metric: Metric
    counts: Whole = field(repr=False)
    sums: Whole = field(repr=False)
    squares: Whole = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """All pair tables of some experiments: ``people[a, b]`` are in arm a and in arm b.

    Arms are numbered through: those of experiment i are ``slice_of(i)``. The block of an experiment
    with itself is its own arms on the diagonal. ``total`` is everybody in at least one experiment.
    ``unusual`` are the people whose value is not the commonest one, per metric: never more than there
    are, and fewer only where rare values were told apart too coarsely.

    >>> from kanab.scan.count.pair_counting import count_pairs
    >>> people = {"red": [0, 0, 1, 1, 1], "blue": ["a", "b", "a", "b", None], "bought": [0, 1, 1, 1, 0]}
    >>> pairs = count_pairs(people, ["red", "blue"], ["bought"])
    >>> pairs
    Pairs of 2 experiments (red, blue): bought is 0/1
    >>> pairs.tally(0, 1).people.tolist()
    [[1, 1], [1, 1]]
    """

    experiments: tuple[Factor, ...]
    people: Whole
    moments: tuple[PairMoments, ...]
    total: int
    unusual: Mapping[str, int] = field(default_factory=dict)
    missing: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        """Return names and grids, no counts."""
        names = listed((factor.name for factor in self.experiments), most=4)
        grids = [
            f"{metric.name} {'is 0/1' if metric.binary else f'in steps of {metric.resolution:g}'}"
            for metric in (part.metric for part in self.moments)
        ]
        return f"Pairs of {len(self.experiments)} experiments ({names}): {'; '.join(grids) or 'no metrics'}"

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of each experiment's first arm, and after the last one the number of all arms."""
        return tuple(np.cumsum([0, *(len(factor.levels) for factor in self.experiments)]).tolist())

    def slice_of(self, place: int) -> slice:
        """Return the arms of one experiment."""
        starts = self.starts
        return slice(starts[place], starts[place + 1])

    def place(self, name: str) -> int:
        """Return where an experiment stands. Raises `LevelError` for an unknown name."""
        names = [factor.name for factor in self.experiments]
        if name not in names:
            raise LevelError("unknown experiment", f"Known are: {listed(names)}.")
        return names.index(name)

    def tally(self, first: int, second: int, metrics: Sequence[str] | None = None) -> Tally:
        """Return the table of one pair, with the squares of both arms among the people in both."""
        rows, columns = self.slice_of(first), self.slice_of(second)
        factors = (self.experiments[first], self.experiments[second])
        moments = []
        for part in self.moments:
            if metrics is None or part.metric.name in metrics:
                by_first, by_second = part.squares[rows, second], part.squares[columns, first]
                squares: dict[tuple[str, ...], Whole] = {}
                if not part.metric.binary:
                    squares = {(factors[0].name,): by_first, (factors[1].name,): by_second}
                moments.append(Moments(part.metric, part.counts[rows, columns], part.sums[rows, columns], squares))
        return Tally(factors, self.people[rows, columns], tuple(moments))


def arm_places(arms: Sequence[Sequence[Any]], joined: Sequence[Sequence[Any]]) -> NDArray[np.intp]:
    """Return the number of each arm of some experiments where these have more arms, or others in between.

    >>> arm_places([["B"], [0, 1]], [["A", "B"], [0, 1]]).tolist()
    [1, 2, 3]
    """
    starts = np.cumsum([0, *(len(levels) for levels in joined)])
    places = [
        start + list(levels).index(level)
        for start, levels, mine in zip(starts, joined, arms, strict=False)
        for level in mine
    ]
    return np.array(places, dtype=np.intp)


def spread(array: Whole, into: NDArray[np.intp], size: int, *, both: bool = True) -> Whole:
    """Return a block among more arms: of its rows and columns, or of its rows only; zeros elsewhere."""
    wide = np.zeros((size, size if both else array.shape[1]), dtype=array.dtype)
    if both:
        wide[np.ix_(into, into)] = array
    else:
        wide[into] = array
    return wide


def plus(first: Whole, second: Whole) -> Whole:
    """Add two arrays of whole numbers, as Python integers where 64 bits might not hold the sum."""
    small = object not in (first.dtype, second.dtype)
    if not small or max(largest(first), largest(second)) >= 2**62:
        first, second = first.astype(object), second.astype(object)
    total: Whole = first + second
    return total


def largest(array: Whole) -> int:
    """Return the largest number without its sign; 0 of none."""
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def fitting(array: Whole) -> Whole:
    """Return the same numbers in 64 bits, where all of them fit."""
    return array.astype(np.int64) if array.dtype == object and largest(array) < 2**63 else array
