"""How many tables of pairs may leave: the budget of a scan over all pairs of experiments.

Every published sum is one equation about everybody's values. With as many independent equations as
people, somebody who knows the arms solves for everybody, however large the classes are; with few
people off the commonest value far fewer equations do.
"""

from __future__ import annotations

from collections.abc import Sequence


def pair_numbers(arms: Sequence[int]) -> int:
    """How many independent sums of one metric do the tables of all pairs hold?

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
    """How many people are off the commonest value at least, given count, sum, squares and bounds?

    The commonest value is taken to be 0 or a bound. For a 0/1 metric the answer is exact; for others
    it follows from (Σ y)² ≤ people off 0 × Σ y², and from nobody being beyond the bounds.

    >>> fewest_off(1_000, 20, 20, 0, 1), fewest_off(1_000, 985, 985, 0, 1)
    (20, 15)
    >>> fewest_off(1_000, 60_000, 400_000_000, 0, 50_000)      # nine people at least spent something
    9
    """
    found = n
    for value in {low, high, min(max(0, low), high)}:
        above, squares = s - n * value, q - 2 * value * s + n * value**2
        farthest = max(high - value, value - low)
        found = min(found, max(-(-abs(above) // farthest), -(-(above**2) // squares) if squares else 0))
    return found


def within_budget(people: int, off_commonest: int, numbers: int, k: int) -> bool:
    """May tables with so many independent numbers per metric leave together?

    Independent assignments put at most about 1.2 × numbers / people of leverage on one person, so
    that people ≥ 2 (k − 1) × numbers keeps it well below 1/k. ``off_commonest`` are the people
    whose value is not the commonest one: where they are few, the sparsest values that fit the
    tables are the true ones.

    >>> within_budget(50_000, 450, pair_numbers([2] * 100), k=10)
    False
    >>> within_budget(1_000_000, 100_000, pair_numbers([2] * 100), k=10)
    True
    """
    return people >= 2 * (k - 1) * numbers and off_commonest >= 2 * numbers
