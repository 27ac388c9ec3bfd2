"""When the first open cohort is sealed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.dashboard.shop_releases import NOON, PLAN

from kanab.collector.counting.cohorts import Calendar
from kanab.dashboard.next_seal import moment_text, next_seal
from kanab.plan.model import Cohorts
from kanab.plan.periods import Periods


@pytest.mark.parametrize(
    ("cohorts", "due"),
    [
        (Cohorts("7d", "7d", "7d"), "2026-11-30"), (Cohorts("1d", "1d", "1d"), "2026-11-14"),
        (Cohorts("7d", "14d", "28d"), "2026-12-17"), (Cohorts("7d", "7d", "end"), None), (None, None),
    ],
)  # fmt: skip
def test_the_next_seal_is_the_first_tick_at_which_the_cohort_is_ripe(cohorts: Cohorts | None, due: str | None) -> None:
    plan = replace(PLAN, cohorts=cohorts)
    cohort = 0 if cohorts is None else Periods(cohorts.every).of_day(NOON.date())
    found = next_seal(plan, cohort, NOON)
    assert (None if found is None else f"{found:%Y-%m-%d}") == due
    if found is not None and cohorts is not None:
        last = Calendar(plan).last_due(int(found.timestamp()))
        assert last is not None
        assert last >= cohort
    assert moment_text(None) == ""


def test_a_cohort_that_was_ripe_before_is_sealed_at_the_next_tick() -> None:
    assert next_seal(PLAN, 0, NOON) == datetime(2026, 11, 16, tzinfo=UTC)
