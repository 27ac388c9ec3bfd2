"""How a running collector is doing, from what may be seen before a seal: people per arm in steps of k."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from kanab.collector.live_ratio import ALARM, floored_ratio_p
from kanab.plan.model import Plan


@dataclass(frozen=True)
class Live:
    """People per experiment and arm, floored to multiples of k, as of an hour; and whose split looks broken."""

    as_of: datetime | None = None
    people: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    alarms: frozenset[str] = frozenset()


def live(plan: Plan, people: Mapping[str, Mapping[str, int]], as_of: datetime) -> Live:
    """The state of every experiment; the sample-ratio alarm rings only if no counts in the box would be quiet."""
    alarms = {
        one.name
        for one in plan.experiments
        if one.shares
        and sum(people[one.name].values())
        and floored_ratio_p(list(people[one.name].values()), [share for _, share in one.shares], plan.k) < ALARM
    }
    return Live(as_of, people, frozenset(alarms))
