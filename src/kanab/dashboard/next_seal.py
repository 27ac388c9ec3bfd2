"""What is being waited for, and until when: the next seal of a plan, on the collector's clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.health import Live
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.sealing import first_open
from kanab.collector.stores.store import Store
from kanab.plan.model import Plan
from kanab.plan.periods import Periods

MOST_TICKS = 5_000
"""Ticks to look ahead: more than any plan's window holds."""


@dataclass(frozen=True)
class Standing:
    """How collecting stands: the plan in force, when it seals next, and what may be seen before that.

    ``live`` is None where no collector runs here.
    """

    plan: Plan
    next_seal: datetime | None = None
    cohort: str | None = None
    live: Live | None = None
    healthy: bool = True


def standing(store: Store, plan: Plan | None, now: datetime) -> Standing | None:
    """The plan in force in a store, and the seal that its first open cohort waits for; None without a plan."""
    versions = Versions.read(store)
    if not versions.entries:
        return None if plan is None else Standing(plan)
    if plan is None:
        plan = versions.in_force(Calendar(versions.newest).opening(seconds_of(now)).current)
    cohort = first_open(store, versions)
    label = None if plan.cohorts is None else Periods(plan.cohorts.every).label(cohort)
    return Standing(plan, next_seal(plan, cohort, now), label)


def next_seal(plan: Plan, cohort: int, now: datetime) -> datetime | None:
    """The next tick at which a cohort is ripe; None where somebody has to seal by hand.

    >>> from kanab.plan.model import Cohorts
    >>> plan = Plan((), (), cohorts=Cohorts("7d", "7d", "7d"))
    >>> week = Periods("7d").number("2026-W46")                                # ends on November 16
    >>> next_seal(plan, week, datetime(2026, 11, 11, 12, tzinfo=UTC)).isoformat()
    '2026-11-30T00:00:00+00:00'
    """
    if plan.cohorts is None or plan.cohorts.seal == "end":
        return None
    ticks, calendar = Periods(plan.cohorts.seal), Calendar(plan)
    number = ticks.of_day(now.astimezone(UTC).date()) + 1
    for ahead in range(MOST_TICKS):
        tick = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=ticks.first_day(number + ahead))
        ripe = calendar.last_ripe(seconds_of(tick))
        if ripe is not None and ripe >= cohort:
            return tick
    return None


def until(moment: datetime | None) -> str:
    """A moment as people read it.

    >>> until(datetime(2026, 11, 30, tzinfo=UTC))
    'Mon 30 Nov 2026, 00:00 UTC'
    """
    if moment is None:
        return ""
    there = moment.astimezone(UTC)
    days, months = "Mon Tue Wed Thu Fri Sat Sun".split(), "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
    return f"{days[there.weekday()]} {there.day} {months[there.month - 1]} {there.year}, {there:%H:%M} UTC"
