"""What releases say: the same numbers as analyze gives, seal after seal, and one line per experiment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import PLAN, alone, entries, people, release_weeks

import kanab as kb
from kanab.collector.counting.cohorts import Calendar
from kanab.collector.health import Live
from kanab.dashboard.background import BackgroundCache, LockedCache, NotYetError
from kanab.dashboard.experiment_list import ListFilter, ListPage, summaries, summarize
from kanab.dashboard.next_seal import CollectionStatus, moment_text, next_seal
from kanab.dashboard.releases import Contents, RawSource, read_contents
from kanab.dashboard.results import Results, bundles
from kanab.dashboard.timeline import history_table, timeline
from kanab.errors import AnalysisError, KanabError
from kanab.plan.model import Cohorts, ExperimentPlan
from kanab.plan.periods import Periods, Span


class Fixed:
    """A source that never changes."""

    def __init__(self, *sources: RawSource, collection: CollectionStatus | None = None) -> None:
        self.contents, self.collection = read_contents(sources), collection

    def read(self) -> Contents:
        return self.contents

    def status(self) -> CollectionStatus | None:
        return self.collection


WEEKLY = RawSource("kanab.ledger", tuple(entries()), ledger=True)


@pytest.fixture(scope="module")
def results() -> Results:
    return Results(Fixed(WEEKLY), patience=60)


def as_source(path: Path) -> RawSource:
    return RawSource("kanab.ledger", tuple(path.read_bytes().split(b"\n")[1:-1]), ledger=True)


def test_a_readout_is_that_of_all_batches_added(results: Results) -> None:
    contents = results.contents()
    readouts = results.readouts(contents)
    assert list(readouts) == ["checkout", "banner", "price"]
    total = kb.add_releases(list(contents.releases.values()))
    for name in ("banner", "price"):
        found = readouts[name][-1].readout
        assert found is not None
        assert found.to_dict() == kb.analyze(total, name).to_dict()
    found = readouts["checkout"][-1].readout
    assert found is not None
    assert found.to_dict() == kb.analyze(total, "checkout", looks=kb.Looks("spending")).to_dict()
    looks = [row["sequential"] for row in found.to_dict()["effects"]]
    assert {(one["look"], one["looks"]) for one in looks} == {(3, 3)}


def test_the_history_ends_with_the_readout_and_begins_with_the_first_batch(results: Results) -> None:
    contents = results.contents()
    readout = results.readouts(contents)["checkout"][-1]
    points = results.history("checkout", readout.bundle)
    assert [one.through for one in points] == ["2026-W36", "2026-W37", "2026-W38"]
    first = kb.analyze(next(iter(contents.releases.values())), "checkout", looks=kb.Looks("spending"))
    for data, known in ((points[0].data, first._shown()), (points[-1].data, readout.data)):
        assert len(data["effects"]) == len(known["effects"]) == 4
        for row, other in zip(data["effects"], known["effects"], strict=True):
            assert row["estimate"] == pytest.approx(other["estimate"], rel=1e-12)
            assert row["interval"] == pytest.approx(other["interval"], rel=1e-9)
    assert points[-1].people == readout.data["people"]
    assert results.history("checkout", readout.bundle)[0] is points[0]


def test_the_timeline_says_what_the_table_says(results: Results) -> None:
    contents = results.contents()
    points = results.history("checkout", results.readouts(contents)["checkout"][-1].bundle)
    table = history_table(points)
    assert table.header == ("through", "people", "bought, B", "spend, B")
    svg = timeline(points, "bought", "B")
    for row in table.rows:
        assert f"{row[0]} {row[2]}" in svg
    assert svg.count("<circle") == 3
    assert timeline(points[:1], "bought", "B") == timeline(points, "nothing", "B") == ""


def test_a_point_of_the_history_is_computed_once_even_if_a_batch_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plain = kb.analyze

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments[1])
        return plain(*arguments, **named)

    source = Fixed(RawSource("kanab.ledger", tuple(entries()[:2]), ledger=True))
    results = Results(source, patience=60)
    readout = results.readouts(source.contents)["banner"][-1]
    monkeypatch.setattr("kanab.dashboard.results.analyze", counted)
    results.history("banner", readout.bundle)
    assert calls == ["banner", "banner"]
    source.contents = read_contents([WEEKLY])
    readout = results.readouts(source.contents)["banner"][-1]
    calls.clear()
    assert len(results.history("banner", readout.bundle)) == 3
    assert calls == ["banner"]


def test_an_experiment_that_joined_later_is_read_from_its_own_batches(tmp_path: Path) -> None:
    early = replace(PLAN, experiments=PLAN.experiments[1:2])
    late = replace(PLAN, experiments=PLAN.experiments[1:])
    path = tmp_path / "kanab.ledger"
    rows = people()
    release_weeks(path, early, rows, weeks=1)
    for before, week in (("2026-W36", "2026-W37"), ("2026-W37", "2026-W38")):
        kb.release(kb.count(rows, late, span=Span("day", "7d", before, week)), ledger=path)
    results = Results(Fixed(as_source(path)), patience=60)
    readouts = results.readouts(results.contents())
    assert {name: len(own[-1].bundle.releases) for name, own in readouts.items()} == {"banner": 3, "price": 2}
    assert all(own[-1].readout is not None for own in readouts.values())


def test_more_seals_than_planned_looks_are_said(tmp_path: Path) -> None:
    plan = replace(PLAN, experiments=(replace(PLAN.experiments[1], looks=2),))
    release_weeks(tmp_path / "kanab.ledger", plan)
    results = Results(Fixed(as_source(tmp_path / "kanab.ledger")), patience=60)
    data = results.readouts(results.contents())["banner"][-1].data
    assert data["effects"][0]["sequential"] is None
    assert data["notes"][-1].startswith("More seals were made than looks were planned (there are more looks than")


def test_releases_about_the_same_people_are_read_one_by_one() -> None:
    results = Results(Fixed(RawSource("a.json", (alone(),)), RawSource("b.json", (alone(seed=6),))), patience=60)
    contents = results.contents()
    assert [one.title for one in bundles(contents)] == ["a.json", "b.json"]
    assert [one.bundle.names for one in results.readouts(contents)["checkout"]] == [("a.json",), ("b.json",)]
    assert results.interactions(contents) is None


def test_pairs_are_scanned_from_their_released_tables(results: Results) -> None:
    found = results.interactions(results.contents())
    assert found is not None
    assert [(row["a"], row["b"], row["metric"]) for row in found.to_dict()["pairs"]] == [
        ("checkout", "banner", "bought"), ("checkout", "banner", "spend")
    ]  # fmt: skip


def test_what_cannot_be_analyzed_is_an_alarm_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AnalysisError("nothing can be said", "Wait.")

    monkeypatch.setattr("kanab.dashboard.results.analyze", refuse)
    results = Results(Fixed(WEEKLY), patience=60)
    readout = results.readouts(results.contents())["banner"][-1]
    assert isinstance(readout.problem, KanabError)
    assert summarize("banner", readout, None).why == "it cannot be analyzed: nothing can be said"


# ── the list ───────────────────────────────────────────────────────────────────────────────────

NOON = datetime(2026, 11, 11, 12, tzinfo=UTC)


def collection(people_: Mapping[str, Mapping[str, int]], *alarms: str) -> CollectionStatus:
    new = ExperimentPlan("new", (("A", 1), ("B", 1)))
    plan = replace(PLAN, experiments=(PLAN.experiments[0], PLAN.experiments[1], new))
    live = Live(NOON, people_, frozenset(alarms))
    return CollectionStatus(plan, datetime(2026, 11, 30, tzinfo=UTC), "2026-W46", live)


def test_every_experiment_has_a_line_planned_or_ended(results: Results) -> None:
    live = {"checkout": {"A": 1990, "B": 2010}, "banner": {"off": 0, "on": 0}, "new": {"A": 20, "B": 10}}
    found = {one.name: one for one in summaries(results.readouts(results.contents()), collection(live, "banner"))}
    states = {name: (one.state, one.health, one.people) for name, one in found.items()}
    readouts = results.readouts(results.contents())
    arms = {name: readouts[name][-1].data["arms"] for name in readouts}
    floored = {name: sum(n // 10 * 10 for n in own.values()) for name, own in arms.items()}
    assert states == {
        "checkout": ("running", "fine", 4000),
        "banner": ("running", "alarm", floored["banner"]),
        "new": ("waiting", "unknown", 30),
        "price": ("ended", "alarm", floored["price"]),
    }
    assert found["price"].why == found["banner"].why == "people do not arrive in the planned shares"
    assert (found["checkout"].look, found["checkout"].verdict, found["checkout"].seals) == (
        "look 3 of 3",
        "may stop",
        3,
    )
    assert [(one.metric, one.kind) for one in found["checkout"].clear] == [("bought", "up"), ("spend", "up")]
    assert found["new"].next_seal == datetime(2026, 11, 30, tzinfo=UTC)
    assert found["price"].next_seal is None
    assert all(people % 10 == 0 for one in found.values() for people in one.arms.values())


def test_a_broken_ledger_rings_for_its_experiments() -> None:
    lines = entries()
    results = Results(Fixed(RawSource("kanab.ledger", (lines[0], lines[2]), ledger=True)), patience=60)
    found = summarize("banner", results.readouts(results.contents())["banner"][-1], None)
    assert (found.health, found.why, found.state) == ("alarm", "its ledger could not be verified", "released")


def test_the_list_is_filtered_and_sorted_as_asked(results: Results) -> None:
    found = summaries(results.readouts(results.contents()), collection({"new": {"A": 20, "B": 10}}))

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


# ── the cache ─────────────────────────────────────────────────────────────────────────────


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
        last = Calendar(plan).last_ripe(int(found.timestamp()))
        assert last is not None
        assert last >= cohort
    assert moment_text(None) == ""


def test_a_cohort_that_was_ripe_before_is_sealed_at_the_next_tick() -> None:
    assert next_seal(PLAN, 0, NOON) == datetime(2026, 11, 16, tzinfo=UTC)


def test_a_value_is_computed_once_and_again_for_other_bytes() -> None:
    cache, made = BackgroundCache(), []
    for about in ("one", "one", "two"):
        assert cache.get(about, "key", lambda: made.append(1) or len(made), wait=5) == (2 if about == "two" else 1)
    assert len(made) == 2


def test_whoever_asks_too_early_is_told_and_gets_it_later() -> None:
    cache, ready = BackgroundCache(), threading.Event()

    def slow() -> int:
        ready.wait(10)
        return 7

    with pytest.raises(NotYetError):
        cache.get("one", "slow", slow, wait=0.01)
    ready.set()
    assert cache.get("one", "slow", slow, wait=10) == 7


def test_what_went_wrong_is_raised_to_everybody_who_asks() -> None:
    cache = BackgroundCache()

    def wrong() -> int:
        raise AnalysisError("no", "Wait.")

    for _ in range(2):
        with pytest.raises(AnalysisError):
            cache.get("one", "wrong", wrong, wait=5)


def test_threads_share_one_value() -> None:
    cache, made = LockedCache(), []
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        cache.get("key", lambda: made.append(1))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert made == [1]


def test_a_long_list_has_pages(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.dashboard.experiment_list.MOST_ENTRIES", 2)
    found = summaries(results.readouts(results.contents()), None)
    filters = ListFilter(sort="name")
    pages = {text: ListPage(found, filters, text) for text in ("", "1", "2", "3", "-1", "²", "999999")}
    assert {text: [one.name for one in page.shown] for text, page in pages.items()} == {
        "": ["banner", "checkout"], "1": ["banner", "checkout"], "2": ["price"], "3": ["price"],
        "-1": ["banner", "checkout"], "²": ["banner", "checkout"], "999999": ["banner", "checkout"],
    }  # fmt: skip
    assert pages[""].pages == 2
