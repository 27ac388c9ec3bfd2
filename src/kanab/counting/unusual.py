"""Count the people who are off the commonest value of their arm: what the rule for rare values needs.

A value is also rare if it is off the grid of all others: where everybody pays whole euros, one person's odd cents show
in every sum. So people off the commonest remainder are counted as well.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Unusual
from kanab.counting.columns import MetricSteps
from kanab.tally.cells import DROPPED
from kanab.tally.tally import Tally

REMAINDERS = (2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Numbers of steps by whose remainders values are told apart; each divides the last. No step is finer than a cent."""

CENTS = 100

_FEWEST_PLENTY = 2_000
_DIRECT = 1 << 22  # so many values are counted in place, without sorting everybody


def count_unusual(metric: MetricSteps, arm: NDArray[np.intp], arms: int) -> Unusual:
    """Return how many people of every arm are off its commonest value, and off its commonest remainders.

    ``arm`` is everybody's arm, ``DROPPED`` for people who are in none. Who has no value is not counted.

    >>> from kanab.tally.metric import Metric
    >>> seats = MetricSteps(Metric("seats"), np.array([1, 1, 2, 1, 3, 3]), np.ones(6, dtype=bool))
    >>> count_unusual(seats, np.array([0, 0, 0, 1, 1, 1]), 2)[:, :2].tolist()
    [[1, 1], [1, 0]]
    """
    there = (arm != DROPPED) & metric.has
    place, steps = arm[there], metric.steps[there]
    last = REMAINDERS[-1]
    left = cent_steps(steps, metric.metric.scale) % last
    counts = np.bincount(place * last + left, minlength=arms * last).reshape(arms, last)
    return off_commonest(counts, (_most_alike(steps, place, own) for own in range(arms)))


def plenty(tables: Iterable[Tally]) -> int:
    """Return how many people off the commonest value are enough for any rule: beyond, they are not told apart.

    The rules ask for two of them to every number that is published about an arm, and an earlier plan may have published
    as many again.
    """
    return max(_FEWEST_PLENTY, 4 * sum(table.people.size for table in tables))


def cent_steps(steps: NDArray[np.int64], scale: int) -> NDArray[np.int64]:
    """Return steps as they are, or in cents where the grid is finer: whole euros are whole on any grid.

    >>> cent_steps(np.array([4_194_304, 41_901_097]), 4_194_304).tolist()
    [100, 999]
    """
    return steps if scale <= CENTS else np.floor(steps * (CENTS / scale) + 0.5).astype(np.int64)


def off_commonest(remainders: NDArray[np.int64], most_alike: Iterable[int]) -> Unusual:
    """Return people off the commonest value and remainders of every arm.

    ``remainders[a, r]`` are the people of arm a by the last of the remainders, ``most_alike`` those who share the
    commonest value.
    """
    arms, last = remainders.shape
    people = remainders.sum(axis=1)
    alike = [np.fromiter(most_alike, dtype=np.int64, count=arms)]
    for steps in REMAINDERS:
        alike.append(remainders.reshape(arms, last // steps, steps).sum(axis=1).max(axis=1))
    return np.asarray(people[:, None] - np.stack(alike, axis=1), dtype=np.int64)


def _most_alike(steps: NDArray[np.int64], place: NDArray[np.intp], own: int) -> int:
    """Return how many people of one arm share its commonest value."""
    values = steps[place == own]
    if not len(values):
        return 0
    low, high = int(values.min()), int(values.max())
    if high - low < _DIRECT:
        return int(np.bincount(values - low).max())
    values = np.sort(values)
    starts = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1], [True]]))
    return int(np.diff(starts).max())
