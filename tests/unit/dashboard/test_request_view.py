"""What is said of a cohort that is still open."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from tests.unit.dashboard.shop_releases import NOON, PLAN, WEEKLY, FixedSource, ask, plain, words

from kanab.collector.health import LiveHealth
from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.request_view import open_cohort
from kanab.dashboard.results import Results
from kanab.plan.model import Budget, Plan

LIVE = LiveHealth(NOON, {"banner": {"off": 1700, "on": 1620}, "checkout": {"A": 1990, "B": 0}})


def collection(plan: Plan = PLAN, live: LiveHealth | None = LIVE) -> CollectionStatus:
    return CollectionStatus(plan, datetime(2026, 11, 30, tzinfo=UTC), "2026-W46", live, now=NOON)


def test_people_are_those_not_sealed_yet_in_steps_of_k(results: Results) -> None:
    readout = results.readouts(results.read())["banner"][-1]
    status = open_cohort("banner", readout, collection())
    assert status is not None
    sealed = readout.data["arms"]
    assert status.people == {"off": (1700 - sealed["off"]) // 10 * 10, "on": (1620 - sealed["on"]) // 10 * 10}
    assert all(count % 10 == 0 and count > 0 for count in status.people.values())
    assert (status.days, status.seal_words) == (18, "in 18 days")


def test_fewer_people_than_were_sealed_are_nobody(results: Results) -> None:
    readout = results.readouts(results.read())["checkout"][-1]
    status = open_cohort("checkout", readout, collection())
    assert status is not None
    assert status.people["B"] == 0


def test_with_epsilon_nothing_is_said_of_people(results: Results) -> None:
    readout = results.readouts(results.read())["banner"][-1]
    status = open_cohort("banner", readout, collection(replace(PLAN, budget=Budget(1.0))))
    assert status is not None
    assert status.people == {}


def test_what_is_not_collected_has_no_open_cohort(results: Results) -> None:
    readout = results.readouts(results.read())["banner"][-1]
    assert open_cohort("banner", readout, None) is None
    assert open_cohort("other", None, collection()) is None


def test_the_page_and_the_plain_data_say_it() -> None:
    dashboard = Dashboard(FixedSource(WEEKLY, collection=collection()), patience=600)
    page = words(ask(dashboard, "/experiments/banner"))
    assert "Open cohort 2026-W46: next seal Mon 30 Nov 2026, 00:00 UTC, in 18 days." in page
    assert "are not sealed yet, in steps of 10." in page
    told = plain(ask(dashboard, "/v1/experiments/banner"))["open_cohort"]
    assert (told["days_to_seal"], told["cohort"]) == (18, "2026-W46")
