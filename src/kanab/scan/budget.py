"""How many sums of a metric a scan may share about so many people, and about so few with an unusual value.

Every shared sum is one equation about everybody's values. With as many independent equations as people, somebody who
knows the arms solves for everybody, however large the classes are. Where only a few people are off the commonest
value, far fewer equations find them. So there have to be twice as many such people as numbers, and 2 (k − 1) times as
many people: independent assignments put at most about 1.2 × numbers / people of leverage on one person, which is well
below 1/k then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kanab.counted import floor_to_k

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Spent:
    """What numbers about a metric use up: so many per person, and per person off the commonest value.

    Those of several scans add up, whoever they are about.

    >>> [Spent.on([(50, people, off)], 10).within(10) for people, off in [(900, 100), (899, 100), (900, 99), (900, 0)]]
    [True, False, False, True]
    """

    per_person: float = 0.0
    per_unusual: float = 0.0

    @classmethod
    def on(cls, groups: Iterable[tuple[int, int, int]], k: int) -> Spent:
        """Return the largest shares of some groups: numbers, people, and people off the commonest value, of each.

        People are taken in steps of k, so that what is spent tells no count. Nobody off the commonest value is nobody
        to be found.
        """
        known = [(_share(numbers, people, k), _share(numbers, off, k)) for numbers, people, off in groups]
        return cls(*(max(shares, default=0.0) for shares in zip(*known, strict=True)))

    def __add__(self, other: Spent) -> Spent:
        """Return what both take together."""
        return Spent(self.per_person + other.per_person, self.per_unusual + other.per_unusual)

    def within(self, k: int) -> bool:
        """Return whether it may all be shared."""
        return 2 * (k - 1) * self.per_person <= 1 + _ROUNDING and 2 * self.per_unusual <= 1 + _ROUNDING


def _share(numbers: int, people: int, k: int) -> float:
    least = floor_to_k(people, k)
    if least:
        return numbers / least
    return math.inf if people else 0.0


def pair_numbers(arms: Sequence[int]) -> int:
    """Count the independent sums of one metric in the tables of all pairs.

    ``arms`` are the numbers of arms of the experiments, all of them about the same people.

    >>> pair_numbers([2] * 100)
    5051
    >>> pair_numbers([2, 3])
    6
    """
    steps = [max(0, count - 1) for count in arms]
    single = sum(steps)
    crossed = (single**2 - sum(step**2 for step in steps)) // 2
    return 1 + single + crossed


def fewest_off(n: int, s: int, q: int, low: int, high: int) -> int:
    """Return how many people are off the commonest value at least, given count, sum, squares and bounds.

    The commonest value is taken to be 0 or a bound. For a 0/1 metric the answer is exact; for others
    it follows from (Σ y)² ≤ people off 0 × Σ y², and from nobody being beyond the bounds.

    >>> fewest_off(1_000, 20, 20, 0, 1), fewest_off(1_000, 985, 985, 0, 1)
    (20, 15)
    >>> fewest_off(1_000, 60_000, 400_000_000, 0, 50_000)      # nine people at least spent something
    9
    """
    fewest = n
    for value in {low, high, min(max(0, low), high)}:
        above, squares = s - n * value, q - 2 * value * s + n * value**2
        farthest = max(high - value, value - low)
        fewest = min(fewest, max(-(-abs(above) // farthest), -(-(above**2) // squares) if squares else 0))
    return fewest
