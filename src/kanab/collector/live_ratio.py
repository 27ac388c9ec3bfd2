"""Did people arrive as planned, if all that may be seen are counts floored to multiples of k?

Each arm holds at least its floored count and fewer than k more. The alarm rings only if no counts in
that box would be quiet: the smallest χ² over the box is beyond the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.special import chdtrc

from kanab.errors import AnalysisError
from kanab.stats.gram import Floats

_ROUNDS, _STEPS = 4, 17


def floored_ratio_p(floored: Sequence[int], shares: Sequence[float], k: int) -> float:
    """The largest p-value of the sample-ratio test over all counts that these floored ones could stand for.

    >>> floored_ratio_p([5_000, 5_000], [1, 1], 10)            # 5,000 to 5,009 people each
    1.0
    >>> round(floored_ratio_p([5_000, 4_600], [1, 1], 10), 6)
    6.6e-05
    """
    low = np.asarray(floored, dtype=np.float64)
    share = np.asarray(shares, dtype=np.float64)
    if len(low) != len(share) or len(low) < 2 or np.any(share <= 0) or k < 1:
        raise AnalysisError("every arm needs a count and a share above 0", "Give both in the same order.")
    share = share / share.sum()
    high = low + k - 1
    if high.sum() <= 0:
        return 1.0
    # Where χ² is lowest, its slopes are 0 for counts inside the box: those are t × share for one t. So it is
    # enough to search over t, between the kinks where a count meets the box, finer around the best.
    ends = np.sort(np.concatenate([low / share, high / share]))
    best = 0.0, math.inf
    for _ in range(_ROUNDS):
        tried = np.concatenate([np.linspace(a, b, _STEPS) for a, b in pairwise(ends)])
        best = min(((t, _chi2(np.clip(t * share, low, high), share)) for t in tried), key=lambda one: one[1])
        place = int(np.argmin(np.abs(tried - best[0])))
        ends = tried[[max(place - 1, 0), min(place + 1, len(tried) - 1)]]
    return float(chdtrc(len(low) - 1, best[1]))


def _chi2(counts: Floats, share: Floats) -> float:
    expected = counts.sum() * share
    return 0.0 if counts.sum() == 0 else float(np.sum((counts - expected) ** 2 / expected))
