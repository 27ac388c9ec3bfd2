"""How a running collector is doing, from what may be seen before a seal: people per arm in steps of k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kanab.collector.live_ratio import floored_ratio_p
from kanab.plan.model import Plan
from kanab.stats.srm import LIVE_SAMPLE_RATIO_ALARM, is_alarm


@dataclass(frozen=True)
class Live:
    """People per experiment and arm, floored to multiples of k, as of an hour; and whose split looks broken."""

    as_of: datetime | None = None
    people: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    alarms: frozenset[str] = frozenset()


def live(plan: Plan, people: Mapping[str, Mapping[str, int]], as_of: datetime) -> Live:
    """The state of every experiment; the sample-ratio alarm rings only if no counts in the box would be quiet."""
    alarms = set()
    for experiment in plan.experiments:
        counts = list(people[experiment.name].values())
        if experiment.shares and sum(counts):
            p = floored_ratio_p(counts, [share for _, share in experiment.shares], plan.k)
            alarms |= {experiment.name} if is_alarm(p, LIVE_SAMPLE_RATIO_ALARM) else set()
    return Live(as_of, people, frozenset(alarms))
