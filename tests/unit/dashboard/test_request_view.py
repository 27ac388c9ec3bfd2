"""What is said of a cohort that is still open."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from tests.unit.dashboard.shop_releases import NOON, PLAN, WEEKLY, FixedSource, ask, plain, words

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.health import LiveHealth
from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.next_seal import CollectionStatus, moment_text, next_seal
from kanab.dashboard.request_view import open_cohort
from kanab.dashboard.results import Results
from kanab.plan.model import Budget, Cohorts, Plan
from kanab.plan.periods import Periods

LIVE = LiveHealth(NOON, {"banner": {"off": 1700, "on": 1620}, "checkout": {"A": 1990, "B": 0}})


def collection(plan: Plan = PLAN, live: LiveHealth | None = LIVE) -> CollectionStatus:
    return CollectionStatus(plan, datetime(2026, 11, 30, tzinfo=UTC), "2026-W46", live, now=NOON)


def test_people_are_those_not_sealed_yet_in_steps_of_k(results: Results) -> None:
    readout = results.read().readouts()["banner"][-1]
    status = open_cohort("banner", readout, collection())
    assert status is not None
    sealed = readout.data["arms"]
    assert status.people == {"off": (1700 - sealed["off"]) // 10 * 10, "on": (1620 - sealed["on"]) // 10 * 10}
    assert all(count % 10 == 0 and count > 0 for count in status.people.values())
    assert (status.days, status.seal_words) == (18, "in 18 days")


def test_fewer_people_than_were_sealed_are_nobody(results: Results) -> None:
    readout = results.read().readouts()["checkout"][-1]
    status = open_cohort("checkout", readout, collection())
    assert status is not None
    assert status.people["B"] == 0


def test_with_epsilon_nothing_is_said_of_people(results: Results) -> None:
    readout = results.read().readouts()["banner"][-1]
    status = open_cohort("banner", readout, collection(replace(PLAN, budget=Budget(1.0))))
    assert status is not None
    assert status.people == {}


def test_what_is_not_collected_has_no_open_cohort(results: Results) -> None:
    readout = results.read().readouts()["banner"][-1]
    assert open_cohort("banner", readout, None) is None
    assert open_cohort("other", None, collection()) is None


def test_the_page_and_the_plain_data_say_it() -> None:
    dashboard = Dashboard(FixedSource(WEEKLY, collection=collection()), patience=600)
    page = words(ask(dashboard, "/experiments/banner"))
    assert "Open cohort 2026-W46: next seal Mon 30 Nov 2026, 00:00 UTC, in 18 days." in page
    assert "are not sealed yet, in steps of 10." in page
    told = plain(ask(dashboard, "/v1/experiments/banner"))["open_cohort"]
    assert (told["days_to_seal"], told["cohort"]) == (18, "2026-W46")


# ── the next seal ──────────────────────────────────────────────────────────────────────────────


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
