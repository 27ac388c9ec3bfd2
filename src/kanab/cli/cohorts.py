"""Cohorts on the command line: which of them are ripe and not yet sealed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from kanab.errors import PlanError, PrivacyError
from kanab.plan.model import Cohorts, Plan
from kanab.plan.periods import Periods, Span
from kanab.privacy.ledger import Ledger


def with_cohorts(plan: Plan, given: Mapping[str, Any]) -> Plan:
    """The plan with the periods and the window of its cohorts, from flags or from its file."""
    if given["cohort"] is None:
        for flag in ("every", "as_of"):
            if given[flag]:
                raise PlanError(
                    f"--{flag.replace('_', '-')} is about cohorts", "Name the column of enrollment: --cohort."
                )
        return plan
    base = plan.cohorts or Cohorts()
    window = given["window"] or (plan.cohorts.window if plan.cohorts else None)
    if window is None:
        raise PlanError("how long people of a cohort are measured is not said", "Give --window, such as --window 14d.")
    return replace(plan, cohorts=replace(base, every=given["every"] or base.every, window=window))


def next_span(plan: Plan, ledger: Ledger, given: Mapping[str, Any]) -> tuple[Span | None, tuple[str, ...]]:
    """The cohorts that are ripe and not yet in the ledger, and what deviates from the clock."""
    if given["cohort"] is None:
        return None, ()
    assert plan.cohorts is not None
    periods = Periods(plan.cohorts.every)
    through = periods.last_ripe(_now(given["as_of"]), plan.cohorts.window)
    sealed = ledger.releases[-1].receipt.batch if ledger.releases else None
    after = None if sealed is None else sealed.through
    if after is not None and periods.number(through) <= periods.number(after):
        raise PrivacyError(
            "no further cohort is ripe", "A cohort is sealed when its period and the window after it are over."
        )
    deviations = (f"cohorts as of {given['as_of']}, not as of the clock",) if given["as_of"] else ()
    return Span(given["cohort"], plan.cohorts.every, after, through), deviations


def _now(day: str | None) -> datetime:
    return datetime.now(UTC) if day is None else moment(day)


def moment(day: str) -> datetime:
    """The beginning of a day, in UTC.

    >>> moment("2026-11-15").isoformat()
    '2026-11-15T00:00:00+00:00'
    """
    try:
        return datetime.fromisoformat(day).replace(tzinfo=UTC)
    except ValueError:
        raise PlanError("--as-of is not a day", "Write it as 2026-11-15.") from None
