"""How an effect settled over the seals; the small picture of it, and that a cold list computes nothing for that."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.unit.dashboard.shop_releases import WEEKLY, FixedSource, alone, ask, plain, words

from kanab.dashboard.app import Dashboard
from kanab.dashboard.releases import RawSource
from kanab.dashboard.results import Results
from kanab.dashboard.timeline import SMALL_HEIGHT, Trend, history_table, sparkline, timeline, trend_of


def row(estimate: float, low: float | None, high: float | None) -> dict[str, Any]:
    return {"estimate": estimate, "interval": [low, high], "verdict": "up", "better": "higher", "tone": "better"}


def heights(svg: str) -> list[float]:
    (band,) = re.findall(r'class="band" d="M([^"]*)Z"', svg)
    return [float(place.split()[1]) for place in band.split("L")]


def test_the_band_narrows_as_intervals_do() -> None:
    steps = [("W1", row(0.04, -0.02, 0.10)), ("W2", row(0.05, 0.01, 0.09)), ("W3", row(0.05, 0.03, 0.07))]
    svg = sparkline(Trend("bought", "B", True, steps))
    tops, bottoms = heights(svg)[:3], heights(svg)[:2:-1]
    widths = [bottom - top for top, bottom in zip(tops, bottoms, strict=True)]
    assert widths[0] > widths[1] > widths[2] > 0
    assert widths[1] / widths[2] == pytest.approx(2.0, abs=0.05)
    assert "Effect of B on bought: +5.0 points (3.0 to 7.0), over 3 seals" in svg


def test_a_single_release_is_one_interval_and_an_open_end_is_that_of_the_picture() -> None:
    svg = sparkline(Trend("spend", "B", False, [("", row(2.0, 1.0, None))]))
    assert "band" not in svg
    (top, bottom) = re.findall(r'd="M66\.0 ([\d.]+)L66\.0 ([\d.]+)"', svg)[0]
    assert 0 < float(top) < float(bottom) < SMALL_HEIGHT
    assert "Effect of B on spend: +2.0 (at least 1.0)" in svg


def test_names_are_escaped() -> None:
    svg = sparkline(Trend("<b>", '"&', False, [("", row(2.0, 1.0, 3.0))]))
    assert "Effect of &quot;&amp; on &lt;b&gt;" in svg


def test_the_main_effect_is_that_of_the_first_metric_or_of_the_primary_one(results: Results) -> None:
    contents = results.read()
    readout = results.readouts(contents)["checkout"][-1]
    points = results.history("checkout", readout.bundle)
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


def test_the_list_draws_every_experiment_and_tells_the_same_as_plain_data() -> None:
    dashboard = Dashboard(FixedSource(WEEKLY), patience=600)
    page = words(ask(dashboard, "/"))
    assert page.count('class="sparkline"') == 3
    assert page.count('class="band"') == 3
    assert re.search(r'aria-label="Effect of B on bought: \+[\d.]+ points \([^)]*\), over 3 seals"', page)
    lines = {line["name"]: line for line in plain(ask(dashboard, "/v1/experiments"))["experiments"]}
    assert [step["through"] for step in lines["checkout"]["trend"]["steps"]] == ["2026-W36", "2026-W37", "2026-W38"]
    assert lines["checkout"]["trend"]["steps"][-1]["estimate"] == pytest.approx(0.1, abs=0.05)


def test_a_cold_list_and_one_of_single_releases_compute_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("a history was computed")

    monkeypatch.setattr("kanab.dashboard.results._point", never)
    cold = Dashboard(FixedSource(WEEKLY), patience=0)
    assert 'class="sparkline"' not in words(ask(cold, "/"))
    files = [RawSource(f"{name}.release.json", (alone(name),)) for name in ("checkout", "banner")]
    single = words(ask(Dashboard(FixedSource(*files), patience=600), "/"))
    assert single.count('class="sparkline"') == 2
    assert 'class="band"' not in single


@pytest.mark.slow
def test_the_timeline_says_what_the_table_says(results: Results) -> None:
    contents = results.source.read()
    points = results.history("checkout", results.readouts(contents)["checkout"][-1].bundle)
    table = history_table(points)
    assert table.header == ("through", "people", "bought, B", "spend, B")
    svg = timeline(points, "bought", "B")
    for row in table.rows:
        assert f"{row[0]} {row[2]}" in svg
    assert svg.count("<circle") == 3
    assert timeline(points[:1], "bought", "B") == timeline(points, "nothing", "B") == ""
