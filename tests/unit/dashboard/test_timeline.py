"""How an effect settled over the seals; the small picture of it, and that a cold list computes nothing for that."""

from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import WEEKLY, FixedSource, alone, ask, words

from kanab.dashboard.dashboard import Dashboard
from kanab.dashboard.releases import RawSource
from kanab.dashboard.results import Results
from kanab.dashboard.timeline import Trend, history_table, sparkline, timeline, trend_of
from kanab.report.figure import Area, Dots, Line, Mark, Plot


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
