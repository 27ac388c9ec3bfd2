"""Evidence that is valid at any time: Robbins' mixtures, for a normal statistic and for counts per arm.

A mixture of likelihood ratios against "nothing is going on" is a fair game: whoever plays it, for
however long, multiplies the stake by 1/α with a chance of at most α. So 1/evidence is a p-value at
every moment, also at one that was chosen because the numbers looked good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from kanab.stats.gram import Floats


def tuning(alpha: float, sides: int) -> float:
    """How strongly the mixture is spread, such that its boundary is lowest at the people it is tuned for.

    It solves c = ln(1 + c) − 2 ln α; the boundary there is √(1 + c). One-sided mixtures are tuned at 2α.

    >>> round(tuning(0.05, 2), 4), round((1 + tuning(0.05, 2)) ** 0.5, 4)
    (8.212, 3.0351)
    """
    level = min(alpha * 2 / sides, 0.5)
    c = -2 * math.log(level)
    for _ in range(60):
        c = math.log1p(c) - 2 * math.log(level)
    return c


def log_evidence(z: float, share: float, alpha: float, sides: int) -> float:
    """The logarithm of the evidence in a z; ``share`` is people over the people it is tuned for.

    Two-sided: the mean is mixed over a normal distribution; one-sided: over its upper half.
    """
    x = tuning(alpha, sides) * share
    a = z * math.sqrt(x / (1 + x))
    both = a * a / 2 - math.log1p(x) / 2
    return both if sides == 2 else both + math.log(2) + float(special.log_ndtr(a))


def mixture_z(share: Floats, alpha: float, sides: int) -> Floats:
    """The z at which the evidence reaches 1/α, at each share of the people it is tuned for.

    Two-sided this is the confidence sequence of Waudby-Smith et al. (2024).

    >>> mixture_z(np.array([0.1, 1.0, 10.0, 100.0]), 0.05, 2).round(3)
    array([3.823, 3.035, 3.246, 3.566])
    """
    x = tuning(alpha, sides) * share
    if sides == 2:
        return np.asarray(np.sqrt((1 + 1 / x) * (np.log1p(x) - 2 * math.log(alpha))))
    goal = np.log1p(x) / 2 - math.log(2 * alpha)
    a = np.sqrt(2 * np.maximum(0.0, goal + math.log(2)))  # at or above the root of a convex function
    for _ in range(40):
        tails = special.log_ndtr(a)
        a = a - (a * a / 2 + tails - goal) / (a + np.exp(-a * a / 2 - tails) / math.sqrt(2 * math.pi))
    return np.asarray(a * np.sqrt((1 + x) / x))


def log_evidence_of_counts(counts: Sequence[int], shares: Sequence[float], concentration: float) -> float:
    """The logarithm of the evidence against planned shares, in people per arm (Lindon and Malek, 2022).

    The arms' true shares are mixed over a Dirichlet distribution about the planned ones; it is the
    narrower, the larger its concentration.
    """
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    prior = concentration * p
    parts = special.gammaln(prior + n) - special.gammaln(prior) - n * np.log(p)
    return float(special.gammaln(concentration) - special.gammaln(concentration + n.sum()) + math.fsum(parts))
