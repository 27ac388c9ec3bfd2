"""How many sums of a metric may leave about so many people, and about so few with an unusual value.

Every published sum is one equation about everybody's values. With as many independent equations as
people, somebody who knows the arms solves for everybody, however large the classes are. Where only a
few people are off the commonest value, far fewer equations find them: a buyer in tier 3, on a phone,
in Norway may be the only one who fits. So a metric may be in so many tables only as there are twice
as many such people as independent numbers; in the others its class sums are withheld, and the arm
totals stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from kanab.tally.tally import Tally

Experiment = TypeVar("Experiment")


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


def numbers_of_pairs(arms: Mapping[Experiment, int], pairs: Iterable[tuple[Experiment, ...]]) -> int:
    """Count the independent sums of one metric in the tables of some pairs; ``arms`` are the numbers of arms.

    >>> numbers_of_pairs({"a": 2, "b": 3, "c": 2}, [("a", "b"), ("b", "c")])
    9
    """
    tables = list(pairs)
    single = sum(arms[name] - 1 for name in {name for pair in tables for name in pair})
    return 1 + single + sum(math.prod(arms[name] - 1 for name in pair) for pair in tables)


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


def enough_people(people: int, numbers: int, k: int) -> bool:
    """Return whether so many independent numbers of a metric may leave about so many people.

    Independent assignments put at most about 1.2 × numbers / people of leverage on one person, so
    that people ≥ 2 (k − 1) × numbers keeps it well below 1/k.
    """
    return people >= 2 * (k - 1) * numbers


def enough_unusual(off_commonest: int, numbers: int) -> bool:
    """Return whether so many independent numbers may leave about so many people with an unusual value.

    Where they are few, the sparsest values that fit the tables are the true ones.
    """
    return off_commonest >= 2 * numbers


def within_budget(people: int, off_commonest: int, numbers: int, k: int) -> bool:
    """Return whether tables with so many independent numbers per metric may leave together.

    ``off_commonest`` are the people whose value is not the commonest one.

    >>> within_budget(50_000, 450, pair_numbers([2] * 100), k=10)
    False
    >>> within_budget(1_000_000, 100_000, pair_numbers([2] * 100), k=10)
    True
    """
    return enough_people(people, numbers, k) and enough_unusual(off_commonest, numbers)


def numbers_of(tables: Sequence[Tally]) -> int:
    """Count the independent sums of one metric that some tables hold, at most."""
    total = 0
    for table in tables:
        arms = len(table.arms[0].levels) if total and len(table.arms) == 1 else 0  # another one has them as well
        total += max(int(np.count_nonzero(table.people)) - arms, 0)
    return total
