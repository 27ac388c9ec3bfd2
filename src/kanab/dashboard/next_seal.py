"""How collecting stands: the plan in force and its next seal, on the collector's clock."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.health import LiveHealth
from kanab.collector.protocol.nonces import seconds_of
from kanab.collector.readiness import Problem
from kanab.collector.stores.store import Store
from kanab.plan.model import Plan
from kanab.plan.periods import Periods

MOST_TICKS = 5_000
"""Ticks to look ahead: more than any plan's window holds."""


@dataclass(frozen=True)
class CollectionStatus:
    """The plan in force, when it seals next, the first open cohort, and what may be seen before the seal.

    ``live`` is None where no collector runs here. ``now`` is the collector's clock.
    """

    plan: Plan
    next_seal: datetime | None = None
    cohort: str | None = None
    live: LiveHealth | None = None
    problems: tuple[Problem, ...] = ()
    now: datetime | None = None

    def runs(self, experiment: str) -> bool:
        """Return whether the plan has this experiment."""
        return experiment in self.plan.experiment_names


def collection_status(store: Store, plan: Plan | None, now: datetime) -> CollectionStatus | None:
    """Return the plan in force in a store, and the seal of its first open cohort; None without a plan."""
    versions = Versions.read(store)
    if not versions.entries:
        return None if plan is None else CollectionStatus(plan, now=now)
    if plan is None:
        plan = versions.in_force(Calendar(versions.newest).opening(seconds_of(now)).current)
    cohort = max(store.sealed_through() + 1, versions.entries[0].since)
    label = None if plan.cohorts is None else Periods(plan.cohorts.every).label(cohort)
    return CollectionStatus(plan, next_seal(plan, cohort, now), label, now=now)


def next_seal(plan: Plan, cohort: int, now: datetime) -> datetime | None:
    """Return the next tick at which a cohort is ripe; None where somebody has to seal by hand."""
    if plan.cohorts is None or plan.cohorts.seal == "end":
        return None
    ticks, calendar = Periods(plan.cohorts.seal), Calendar(plan)
    number = ticks.of_day(now.astimezone(UTC).date()) + 1
    for ahead in range(MOST_TICKS):
        tick = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=ticks.first_day(number + ahead))
        ripe = calendar.last_due(seconds_of(tick))
        if ripe is not None and ripe >= cohort:
            return tick
    return None


def moment_text(moment: datetime | None) -> str:
    """Return a moment as people read it."""
    if moment is None:
        return ""
    utc = moment.astimezone(UTC)
    days, months = "Mon Tue Wed Thu Fri Sat Sun".split(), "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
    return f"{days[utc.weekday()]} {utc.day} {months[utc.month - 1]} {utc.year}, {utc:%H:%M} UTC"
