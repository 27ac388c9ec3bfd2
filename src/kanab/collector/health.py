"""The live health of a collector, from what may be seen before a seal: people per arm in steps of k, the sample ratio.

The alarm rings only if it would for all counts that the floored ones stand for: the smallest χ² is beyond the limit.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

import numpy as np
import scipy

from kanab.errors import AnalysisError
from kanab.plan.model import Plan
from kanab.stats.gram import Floats
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM, is_alarm

_ROUNDS, _STEPS = 4, 17


@dataclass(frozen=True)
class LiveHealth:
    """People per experiment and arm, floored to multiples of k, as of an hour; and the experiments with an alarm."""

    as_of: datetime | None = None
    people: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    alarms: frozenset[str] = frozenset()
    would_be_lost: frozenset[str] = frozenset()


def live_health(plan: Plan, people: Mapping[str, Mapping[str, int]], as_of: datetime) -> LiveHealth:
    """Return the state of every experiment, with the alarms of the sample ratio."""
    alarms = set()
    for experiment in plan.experiments:
        counts = list(people[experiment.name].values())
        if experiment.shares and sum(counts):
            p = floored_ratio_p(counts, [share for _, share in experiment.shares], plan.k)
            alarms |= {experiment.name} if is_alarm(p, LIVE_SAMPLE_RATIO_ALARM) else set()
    return LiveHealth(as_of, people, frozenset(alarms))


def floored_ratio_p(floored: Sequence[int], shares: Sequence[float], k: int) -> float:
    """Return the largest p-value of the sample-ratio test over all counts that these floored ones could stand for."""
    low = np.asarray(floored, dtype=np.float64)
    share = np.asarray(shares, dtype=np.float64)
    if len(low) != len(share) or len(low) < 2 or np.any(share <= 0) or k < 1:
        raise AnalysisError("every arm needs a count and a share above 0", "Give both in the same order.")
    share = share / share.sum()
    high = low + k - 1
    if high.sum() <= 0:
        return 1.0
    # Where χ² is lowest, its slopes are 0 for counts within the bounds: those are t × share for one t. So it is
    # enough to search over t, between the kinks where a count meets a bound, finer around the best.
    ends = np.sort(np.concatenate([low / share, high / share]))
    best = 0.0, math.inf
    for _ in range(_ROUNDS):
        tried = np.concatenate([np.linspace(a, b, _STEPS) for a, b in pairwise(ends)])
        best = min(((t, _chi2(np.clip(t * share, low, high), share)) for t in tried), key=lambda pair: pair[1])
        place = int(np.argmin(np.abs(tried - best[0])))
        ends = tried[[max(place - 1, 0), min(place + 1, len(tried) - 1)]]
    return float(scipy.special.chdtrc(len(low) - 1, best[1]))


def _chi2(counts: Floats, share: Floats) -> float:
    expected = counts.sum() * share
    return 0.0 if counts.sum() == 0 else float(np.sum((counts - expected) ** 2 / expected))
