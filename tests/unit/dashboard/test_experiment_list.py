"""One line per experiment, filtered, sorted and in pages."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import (
    NOON,
    PLAN,
    WEEKLY,
    FixedSource,
    ask,
    entries,
    plain,
    release_weeks,
    words,
)

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.health import LiveHealth
from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.experiment_list import ListFilter, ListPage, summaries, summarize
from kanab.dashboard.next_seal import CollectionStatus, moment_text, next_seal
from kanab.dashboard.releases import RawSource
from kanab.dashboard.request_view import open_cohort
from kanab.dashboard.results import Results
from kanab.plan.model import Budget, Cohorts, ExperimentPlan, Plan
from kanab.plan.periods import Periods
from kanab.stats import BalanceCheck


def collection(people_: Mapping[str, Mapping[str, int]], *alarms: str) -> CollectionStatus:
    new = ExperimentPlan("new", (("A", 1), ("B", 1)))
    plan = replace(PLAN, experiments=(PLAN.experiments[0], PLAN.experiments[1], new))
    live = LiveHealth(NOON, people_, frozenset(alarms))
    return CollectionStatus(plan, datetime(2026, 11, 30, tzinfo=UTC), "2026-W46", live)


def test_every_experiment_has_a_line_planned_or_ended(results: Results) -> None:
    live = {"checkout": {"A": 1990, "B": 2010}, "banner": {"off": 0, "on": 0}, "new": {"A": 20, "B": 10}}
    found = {one.name: one for one in summaries(results.read().readouts(), collection(live, "banner"))}
    states = {name: (one.state, one.health, one.people) for name, one in found.items()}
    readouts = results.read().readouts()
    arms = {name: readouts[name][-1].data["arms"] for name in readouts}
    floored = {name: sum(n // 10 * 10 for n in own.values()) for name, own in arms.items()}
    assert states == {
        "checkout": ("running", "fine", 4000),
        "banner": ("running", "alarm", floored["banner"]),
        "new": ("waiting", "unknown", 30),
        "price": ("ended", "alarm", floored["price"]),
    }
    assert found["price"].why == "people do not arrive in the planned shares (p below 0.001)"
    assert found["banner"].why == "people do not arrive in the planned shares (p below 0.0001)"
    assert (found["checkout"].look, found["checkout"].verdict, found["checkout"].seals) == (
        "look 3 of 3",
        "may stop",
        3,
    )
    assert [(one.metric, one.kind) for one in found["checkout"].clear] == [("bought", "up"), ("spend", "up")]
    assert found["new"].next_seal == datetime(2026, 11, 30, tzinfo=UTC)
    assert found["price"].next_seal is None
    assert all(people % 10 == 0 for one in found.values() for people in one.arms.values())


def test_unlike_arms_ring_and_the_line_says_in_what(results: Results) -> None:
    readout = results.read().readouts()["checkout"][-1]
    assert readout.readout is not None
    unlike = BalanceCheck("covariate", "tier", 99.0, 2, 1e-20, 3, "B", 0.5, 0.3, p_adjusted=2e-20)
    found = summarize("checkout", replace(readout, readout=replace(readout.readout, balance=(unlike,))), None)
    assert found.health == "alarm"
    assert found.why == "tier is spread unevenly over the arms (corrected p below 0.001)"


def test_what_a_few_people_could_have_made_is_listed_but_not_among_the_clear_effects(results: Results) -> None:
    readout = results.read().readouts()["checkout"][-1]
    assert readout.readout is not None
    rows = readout.readout.effects
    effects = [replace(row, verdict="watch") if row.effect.metric == "spend" else row for row in rows]
    watched = replace(readout, readout=replace(readout.readout, effects=effects))
    line = summarize("checkout", watched, None)
    assert [(result.metric, result.kind) for result in line.clear] == [("bought", "up")]
    assert [(result.metric, result.kind) for result in line.watched] == [("spend", "watch")]


def test_a_broken_ledger_rings_for_its_experiments() -> None:
    lines = entries()
    results = Results(FixedSource(RawSource("kanab.ledger", (lines[0], lines[2]), ledger=True)), patience=60)
    found = summarize("banner", results.read().readouts()["banner"][-1], None)
    assert (found.health, found.why, found.state) == ("alarm", "its ledger could not be verified", "released")


def test_the_list_is_filtered_and_sorted_as_asked(results: Results) -> None:
    found = summaries(results.read().readouts(), collection({"new": {"A": 20, "B": 10}}))

    def names(**query: str) -> list[str]:
        return [one.name for one in ListFilter.read(query).select(found)]

    assert names() == ["price", "checkout", "banner", "new"]
    assert names(sort="name") == ["banner", "checkout", "new", "price"]
    assert names(sort="-name") == ["price", "new", "checkout", "banner"]
    assert names(sort="people")[-1] == "new"
    assert names(sort="result")[0] == "checkout"
    assert names(sort="seals", state="waiting") == ["new"]
    assert names(q="CHECK") == ["checkout"]
    assert names(health="alarm") == ["price"]
    assert names(sort="'; DROP", state="nonsense", health="<b>") == names()


def test_a_long_list_has_pages(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.dashboard.experiment_list.MOST_EXPERIMENTS", 2)
    found = summaries(results.read().readouts(), None)
    filters = ListFilter(sort="name")
    pages = {text: ListPage(found, filters, text) for text in ("", "1", "2", "3", "-1", "²", "999999")}
    assert {text: [one.name for one in page.shown] for text, page in pages.items()} == {
        "": ["banner", "checkout"], "1": ["banner", "checkout"], "2": ["price"], "3": ["price"],
        "-1": ["banner", "checkout"], "²": ["banner", "checkout"], "999999": ["banner", "checkout"],
    }  # fmt: skip
    assert pages[""].pages == 2


def with_roles(tmp_path: Path, **roles: Any) -> Results:
    """Three weekly batches of a plan that says what decides."""
    checkout = replace(
        PLAN.experiments[0], interactions=(), **{"primary": ("bought",), "guardrails": ("spend",)} | roles
    )
    release_weeks(tmp_path / "kanab.ledger", replace(PLAN, experiments=(checkout, *PLAN.experiments[1:])))
    batches = (tmp_path / "kanab.ledger").read_bytes().split(b"\n")[1:-1]
    return Results(FixedSource(RawSource("kanab.ledger", tuple(batches), ledger=True)))


@pytest.mark.slow
def test_the_list_says_what_to_do_and_is_filtered_by_it(tmp_path: Path) -> None:
    results = with_roles(tmp_path)
    lines = summaries(results.read().readouts(), None)
    decisions = {line.name: (line.answer, line.decision_words) for line in lines}
    assert decisions == {"checkout": ("ship", "ship B"), "banner": ("", ""), "price": ("", "")}
    decision = next(line for line in lines if line.name == "checkout").to_dict()["decision"]
    assert decision["because"][-1] == "Not shown to be worse, without a margin: guardrail spend."
    assert [line.name for line in ListFilter.read({"decision": "ship"}).select(lines)] == ["checkout"]
    assert ListFilter.read({"decision": "shp"}).select(lines) != []
    assert ListFilter.read({"sort": "decision"}).select(lines)[0].name == "checkout"
    assert ListPage(lines, ListFilter()).decisions == {"ship": 1}


@pytest.mark.slow
def test_what_still_runs_without_planned_looks_goes_on_and_alarms_break_it(tmp_path: Path) -> None:
    results = with_roles(tmp_path, looks=None)
    (readout,) = results.read().readouts()["checkout"]
    assert summarize("checkout", readout, None).answer == "ship"
    assert summarize("checkout", readout, collection({})).answer == "keep going"
    rung = summarize("checkout", readout, collection({}, "checkout"))
    assert rung.answer == "broken"
    assert rung.decision is not None
    assert rung.decision["because"] == [
        "Find the cause first: people do not arrive in the planned shares (p below 0.0001)."
    ]


LIVE = LiveHealth(NOON, {"banner": {"off": 1700, "on": 1620}, "checkout": {"A": 1990, "B": 0}})


def collected(plan: Plan = PLAN, live: LiveHealth | None = LIVE) -> CollectionStatus:
    return CollectionStatus(plan, datetime(2026, 11, 30, tzinfo=UTC), "2026-W46", live, now=NOON)


def test_people_of_an_open_cohort_are_those_not_sealed_yet_in_steps_of_k(results: Results) -> None:
    readouts = results.read().readouts()
    banner = readouts["banner"][-1]
    status = open_cohort("banner", banner, collected())
    assert status is not None
    sealed = banner.data["arms"]
    assert status.people == {"off": (1700 - sealed["off"]) // 10 * 10, "on": (1620 - sealed["on"]) // 10 * 10}
    assert all(count % 10 == 0 and count > 0 for count in status.people.values())
    assert (status.days, status.seal_words) == (18, "in 18 days")
    fewer = open_cohort("checkout", readouts["checkout"][-1], collected())  # than were sealed
    noisy = open_cohort("banner", banner, collected(replace(PLAN, budget=Budget(1.0))))
    assert fewer is not None
    assert noisy is not None
    assert (fewer.people["B"], noisy.people) == (0, {})
    assert open_cohort("banner", banner, None) is open_cohort("other", None, collected()) is None


def test_the_page_and_the_plain_data_say_it() -> None:
    dashboard = Dashboard(FixedSource(WEEKLY, collection=collected()), patience=600)
    page = words(ask(dashboard, "/experiments/banner"))
    assert "Open cohort 2026-W46: next seal Mon 30 Nov 2026, 00:00 UTC, in 18 days." in page
    assert "are not sealed yet, in steps of 10." in page
    told = plain(ask(dashboard, "/v1/experiments/banner"))["open_cohort"]
    assert (told["days_to_seal"], told["cohort"]) == (18, "2026-W46")


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
