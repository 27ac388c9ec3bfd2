"""How many people must come until every group holds enough of them?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from kanab.errors import AnalysisError
from kanab.stats.gram import Floats

MOST = 10**12


def enough_people(groups: Sequence[tuple[Floats, int]], sure: float = 0.95, least: int = 1) -> int:
    """The fewest people with whom every group of a share holds its number, with this probability.

    ``groups`` are shares with the number that each must hold. The chances that one holds fewer are
    binomial, and added up, which never gives too few people. ``least`` is a floor for everybody.

    >>> enough_people([(np.array([0.5, 0.5]), 10)])
    30
    """
    shares = np.concatenate([share for share, _ in groups])
    numbers = np.concatenate([np.full(len(share), float(number)) for share, number in groups])
    if not np.all(shares > 0) or not 0 < sure < 1:
        raise AnalysisError("every group needs a positive share, and certainty is not to be had", "For example 0.95.")

    def short(n: int) -> bool:
        if n < floor:
            return True
        fewer = special.betaincc(numbers, n - numbers + 1, shares)  # how often a group holds fewer than its number
        return float(np.sum(fewer)) > 1 - sure

    floor = max(least, int(np.max(numbers)))
    low, high = 0, floor
    while short(high):
        low, high = high, 2 * high
        if high > MOST:
            raise AnalysisError(
                "a group has next to no share of the people", "Merge levels, or widen the arms' shares."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if short(middle) else (low, middle)
    return high
