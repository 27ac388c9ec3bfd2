"""One line per experiment, filtered, sorted and in pages."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import NOON, PLAN, FixedSource, entries, release_weeks

from kanab.collector.health import LiveHealth
from kanab.dashboard.experiment_list import ListFilter, ListPage, summaries, summarize
from kanab.dashboard.next_seal import CollectionStatus
from kanab.dashboard.releases import RawSource
from kanab.dashboard.results import Results
from kanab.plan.model import ExperimentPlan
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
