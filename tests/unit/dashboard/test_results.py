"""What releases say: the same numbers as analyze gives, seal after seal."""

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.unit.dashboard.shop_releases import (
    PLAN,
    WEEKLY,
    FixedSource,
    alone,
    ask,
    entries,
    ledger_bytes,
    people,
    release_weeks,
    words,
)

import kanab as kb
from kanab.cli.analyze import analyze as analyze_command
from kanab.dashboard.background import BackgroundCache, LockedCache, NotYetError
from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.experiment_list import summarize
from kanab.dashboard.pages import pair_list
from kanab.dashboard.releases import RawSource, read_contents
from kanab.dashboard.request_view import RequestView
from kanab.dashboard.results import Results, Snapshot, analyzed, bundles
from kanab.dashboard.timeline import Trend, history_table, sparkline, timeline, trend_of
from kanab.errors import AnalysisError, KanabError
from kanab.plan import parse_plan
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.privacy.release_json import release_to_dict
from kanab.report.figure import Area, Dots, Line, Mark, Plot


def as_source(path: Path) -> RawSource:
    return RawSource("kanab.ledger", tuple(path.read_bytes().split(b"\n")[1:-1]), ledger=True)


def test_the_command_reads_the_looks_of_the_plan_as_the_dashboard_does(results: Results, tmp_path: Path) -> None:
    (tmp_path / "kanab.ledger").write_bytes(ledger_bytes())
    words = [str(tmp_path / "kanab.ledger"), "--experiment", "checkout", "--json"]
    printed = CliRunner().invoke(analyze_command, words)
    found = results.read().readouts()["checkout"][-1].readout
    assert found is not None
    assert json.loads(printed.output) == json.loads(json.dumps(found.to_dict()))


@pytest.mark.slow
def test_the_history_ends_with_the_readout_and_begins_with_the_first_batch(results: Results) -> None:
    contents = results.source.read()
    readout = results.read().readouts()["checkout"][-1]
    points = results.read().history("checkout", readout.bundle)
    assert [one.through for one in points] == ["2026-W36", "2026-W37", "2026-W38"]
    first = kb.analyze(
        next(iter(contents.releases.values())), "checkout", reading=kb.Reading(looks=kb.Looks("spending"))
    )
    for data, known in ((points[0].data, first._shown()), (points[-1].data, readout.data)):
        assert len(data["effects"]) == len(known["effects"]) == 4
        for row, other in zip(data["effects"], known["effects"], strict=True):
            assert row["estimate"] == pytest.approx(other["estimate"], rel=1e-12)
            assert row["interval"] == pytest.approx(other["interval"], rel=1e-9)
    assert points[-1].people == readout.data["people"]
    assert results.read().history("checkout", readout.bundle)[0] is points[0]


def test_a_point_of_the_history_is_computed_once_even_if_a_batch_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    plain = kb.analyze

    def counted(*arguments: Any, **named: Any) -> Any:
        calls.append(arguments[1])
        return plain(*arguments, **named)

    source = FixedSource(RawSource("kanab.ledger", tuple(entries()[:2]), ledger=True))
    results = Results(source, patience=60)
    readout = results.read().readouts()["banner"][-1]
    monkeypatch.setattr("kanab.dashboard.results.analyze", counted)
    results.read().history("banner", readout.bundle)
    assert calls == ["banner", "banner"]
    source.contents = read_contents([WEEKLY])
    readout = results.read().readouts()["banner"][-1]
    calls.clear()
    assert len(results.read().history("banner", readout.bundle)) == 3
    assert calls == ["banner"]


def test_an_experiment_that_joined_later_is_read_from_its_own_batches(tmp_path: Path) -> None:
    early = replace(PLAN, experiments=PLAN.experiments[1:2])
    late = replace(PLAN, experiments=PLAN.experiments[1:])
    path = tmp_path / "kanab.ledger"
    rows = people()
    release_weeks(path, early, rows, weeks=1)
    for before, week in (("2026-W36", "2026-W37"), ("2026-W37", "2026-W38")):
        kb.release(kb.count(rows, late, rows=kb.Rows(span=Span("day", "7d", before, week))), ledger=path)
    results = Results(FixedSource(as_source(path)), patience=60)
    readouts = results.read().readouts()
    assert {name: len(own[-1].bundle.releases) for name, own in readouts.items()} == {"banner": 3, "price": 2}
    assert all(own[-1].readout is not None for own in readouts.values())


def test_after_the_last_planned_look_the_page_keeps_its_answer(tmp_path: Path) -> None:
    plan = replace(PLAN, experiments=(replace(PLAN.experiments[1], looks=2),))
    release_weeks(tmp_path / "kanab.ledger", plan)
    results = Results(FixedSource(as_source(tmp_path / "kanab.ledger")), patience=60)
    readout = results.read().readouts()["banner"][-1]
    ledger = kb.read_ledger(tmp_path / "kanab.ledger")
    last = kb.analyze(kb.add_releases(ledger.releases[:2]), "banner", reading=kb.Reading(looks=kb.Looks("spending")))
    assert len(ledger.releases) == 3
    assert readout.data["effects"] == last._shown()["effects"]
    assert readout.data["effects"][0]["sequential"]["look"] == 2
    assert readout.data["cautions"][0]["sentence"] == (
        "The design ended with look 2 (2026-W37); people who came later are not in this answer."
    )
    assert [point.through for point in results.read().history("banner", readout.bundle)] == ["2026-W36", "2026-W37"]
    summary = summarize("banner", readout, None)
    assert (summary.look, summary.health) == ("look 2 of 2", "fine")


def test_a_release_that_does_not_say_which_look_it_is_is_read_at_any_time() -> None:
    plan = replace(PLAN, experiments=(replace(PLAN.experiments[1], looks=2),), cohorts=None)
    released = kb.release(kb.count(people(), plan))
    data = analyzed(released, "banner").to_dict()
    assert {row["sequential"]["method"] for row in data["effects"]} == {"always-valid"}
    assert data["notes"][-1].startswith("The planned looks cannot be read: it is not known which of the planned looks")


def test_releases_about_the_same_people_are_read_one_by_one() -> None:
    results = Results(FixedSource(RawSource("a.json", (alone(),)), RawSource("b.json", (alone(seed=6),))), patience=60)
    contents = results.source.read()
    assert [one.title for one in bundles(contents)] == ["a.json", "b.json"]
    assert [one.bundle.names for one in results.read().readouts()["checkout"]] == [("a.json",), ("b.json",)]
    assert results.read().interactions() is None


def test_pairs_are_scanned_from_their_released_tables(results: Results) -> None:
    found = results.read().interactions()
    assert found is not None
    assert [(row["a"], row["b"], row["metric"]) for row in found.to_dict()["pairs"]] == [
        ("checkout", "banner", "bought"), ("checkout", "banner", "spend")
    ]  # fmt: skip


def test_what_cannot_be_analyzed_is_an_alarm_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AnalysisError("nothing can be said", "Wait.")

    monkeypatch.setattr("kanab.dashboard.results.analyze", refuse)
    results = Results(FixedSource(WEEKLY), patience=60)
    readout = results.read().readouts()["banner"][-1]
    assert isinstance(readout.problem, KanabError)
    assert summarize("banner", readout, None).why == "it cannot be analyzed: nothing can be said"


def test_pairs_of_releases_that_were_checked_apart_are_all_shown() -> None:
    rng = np.random.default_rng(1)
    rows: dict[str, Any] = {f"t{i}": rng.choice(["off", "on"], 300) for i in range(6)}
    rows["d"] = (rng.random(300) < 0.3).astype(int)
    files = []
    for names in (("t0", "t1", "t2"), ("t3", "t4", "t5")):
        first, *others = (ExperimentPlan(name) for name in names)
        experiments = (replace(first, interactions=names[1:]), *others)
        made = kb.release(kb.count(rows, Plan((MetricPlan("d", (0, 1), 1),), experiments, k=10)))
        files.append(RawSource(f"{names[0]}.release.json", (json.dumps(release_to_dict(made)).encode(),)))
    for contents, shown in ((read_contents(files), {"t0", "t3"}), (read_contents(files[1:]), {"t3"})):
        scanned = Snapshot(contents).interactions()
        assert scanned is not None
        data = scanned.to_dict()
        assert {row["a"] for row in data["pairs"] if row["F"] is not None} == shown
        assert "not testable" not in str(pair_list(data, "", "d", "")[0])


def test_a_further_release_lets_others_be_as_they_were_analyzed() -> None:
    first, second = RawSource("a.json", (alone(),)), RawSource("b.json", (alone(seed=6),))
    source = FixedSource(first)
    results = Results(source, patience=60)
    (before,) = results.read().readouts()["checkout"]
    source.contents = read_contents([first, second])
    old, new = results.read().readouts()["checkout"]
    assert old.readout is before.readout
    assert new.readout is not before.readout
    source.contents = read_contents([second])
    assert [readout.readout for readout in results.read().readouts()["checkout"]] == [new.readout]
    assert len(results._computed.analyses) == len(source.contents.releases["b.json"].plan.experiments)


# ── interference ───────────────────────────────────────────────────────────────────────────────


PAIR_PLAN = """
[metrics]
spend = { bounds = [-50, 100], resolution = 0.01 }
[experiments.checkout]
arms = { off = 1, on = 1 }
interactions = ["banner"]
[experiments.banner]
arms = { off = 1, on = 1 }
"""


def test_the_decisions_of_two_experiments_that_interfere_say_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = {name: rng.choice(["off", "on"], 6_000) for name in ("checkout", "banner")}
    both = (rows["checkout"] == "on") & (rows["banner"] == "on")
    spend = np.round(np.clip(rng.normal(20, 5, 6_000) + 2 * both, -50, 100), 2)
    file = tmp_path / "shop.release.json"
    kb.write_release(kb.release(kb.count(rows | {"spend": spend}, parse_plan(PAIR_PLAN))), file)
    results = Results(FixedSource(RawSource(file.name, (file.read_bytes(),))), patience=600)
    view = RequestView(results)
    says = "It interferes with banner on spend: read it within the arms of banner."
    decision = view.experiment("checkout").summary.decision
    assert decision is not None
    assert (decision["answer"], decision["because"][-1]) == ("ship", says)
    (other,) = [line for line in view.whole_list if line.name == "banner"]
    assert other.decision is not None
    assert "It interferes with checkout on spend" in other.decision["because"][-1]


# ── how an effect settled over the seals ────────────────────────────────────────────────────────────


def row(estimate: float, low: float | None, high: float | None) -> dict[str, Any]:
    return {"estimate": estimate, "interval": [low, high], "verdict": "up", "better": "higher", "tone": "better"}


def marks(trend: Trend) -> list[Mark]:
    (panel,) = sparkline(trend).panels
    assert isinstance(panel, Plot)
    return list(panel.marks)


def test_the_band_narrows_as_intervals_do() -> None:
    steps = [("W1", row(0.04, -0.02, 0.10)), ("W2", row(0.05, 0.01, 0.09)), ("W3", row(0.05, 0.03, 0.07))]
    trend = Trend("bought", "B", True, steps)
    _, band, line, newest = marks(trend)
    assert isinstance(band, Area)
    assert [y for _, y in band.points] == pytest.approx([10, 9, 7, 3, 1, -2])
    assert isinstance(line, Line)
    assert isinstance(newest, Dots)
    assert newest.points == line.points[-1:] == [(2, 5.0)]
    assert sparkline(trend).title == "Effect of B on bought: +5.0 points (3.0 to 7.0), over 3 seals"


def test_a_single_release_is_one_interval_and_an_open_end_is_that_of_the_picture() -> None:
    trend = Trend("spend", "B", False, [("", row(2.0, 1.0, None))])
    _, interval, _ = marks(trend)
    assert isinstance(interval, Line)
    assert interval.points == [(0, 1.0), (0, pytest.approx(2.1))]
    assert sparkline(trend).title == "Effect of B on spend: +2.0 (at least 1.0)"


def test_the_main_effect_is_that_of_the_first_metric_or_of_the_primary_one(results: Results) -> None:
    readout = results.read().readouts()["checkout"][-1]
    points = results.read().history("checkout", readout.bundle)
    trend = trend_of(readout.data, points)
    assert trend is not None
    assert (trend.metric, trend.arm, [through for through, _ in trend.steps]) == (
        "bought", "B", ["2026-W36", "2026-W37", "2026-W38"],
    )  # fmt: skip
    spent = [
        dict(effect) | {"role": "primary" if effect["metric"] == "spend" else None}
        for effect in readout.data["effects"]
    ]
    primary = trend_of(readout.data | {"effects": spent}, points)
    assert primary is not None
    assert primary.metric == "spend"
    assert trend_of(readout.data | {"effects": []}) is None


def test_a_cold_list_and_one_of_single_releases_compute_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a history was computed")

    monkeypatch.setattr("kanab.dashboard.results._point", never)
    cold = Dashboard(FixedSource(WEEKLY), patience=0)
    assert "<svg" not in words(ask(cold, "/"))
    files = [RawSource(f"{name}.release.json", (alone(name),)) for name in ("checkout", "banner")]
    single = words(ask(Dashboard(FixedSource(*files), patience=600), "/"))
    assert single.count('<svg role="img" aria-label="Effect of') == 2
    assert "fill-opacity" not in single


@pytest.mark.slow
def test_the_timeline_says_what_the_table_says(results: Results) -> None:
    points = results.read().history("checkout", results.read().readouts()["checkout"][-1].bundle)
    table = history_table(points)
    assert table.header == ("through", "people", "bought, B", "spend, B")
    figure = timeline(points, "bought", "B")
    assert figure is not None
    assert figure.description == "; ".join(f"{row[0]} {row[2]}" for row in table.rows) + "."
    assert timeline(points[:1], "bought", "B") is timeline(points, "nothing", "B") is None


# ── what takes a while is computed once ─────────────────────────────────────────────────────────────


def test_a_value_is_computed_once_and_again_for_other_bytes() -> None:
    cache, made = BackgroundCache(), []
    for about in ("one", "one", "two"):
        assert cache.get(about, "key", lambda: made.append(1) or len(made), wait=5) == (2 if about == "two" else 1)
    assert len(made) == 2


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


def test_what_is_computed_ahead_waits_while_a_page_waits_for_something_else() -> None:
    cache, asked, begun, go = BackgroundCache(), threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def ahead() -> None:
        asked.wait(10)
        begun.wait(10)
        cache.give_way("list")
        order.append("list")

    def page() -> None:
        begun.set()
        go.wait(10)
        order.append("page")

    with pytest.raises(NotYetError):
        cache.get("one", "list", ahead, wait=0)
    reader = threading.Thread(target=lambda: cache.get("one", "page", page, wait=10))
    reader.start()
    begun.wait(10)
    asked.set()
    with pytest.raises(NotYetError):
        cache.get("one", "list", ahead, wait=0.2)  # who waits for the list itself does not hold it up, the page does
    go.set()
    reader.join()
    cache.get("one", "list", ahead, wait=10)
    assert order == ["page", "list"]


def test_what_is_computed_ahead_gives_way_while_a_page_is_drawn_but_not_while_it_waits_for_that() -> None:
    cache, drawn = BackgroundCache(), threading.Event()
    order = []

    def ahead() -> str:
        drawn.wait(10)
        cache.give_way("list")
        order.append("list")
        return "a list"

    with cache.drawing():
        with pytest.raises(NotYetError):
            cache.get("one", "list", ahead, wait=0)
        drawn.set()
        threading.Event().wait(0.05)  # while which it could begin
        order.append("page")
        assert cache.get("one", "list", ahead, wait=10) == "a list"
    assert order == ["page", "list"]
