"""Charts of results for notebooks: which there are, what they hold, and what is said where there is none."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.datasets import experiments_rows, shop_rows
from kanab.errors import AnalysisError, MissingExtraError
from kanab.planning import Baseline, forecast_plan, noise_of_rate, power_curve
from kanab.portfolio import combine, read_portfolio
from kanab.scan import PairReadout, scan_interactions, scan_segments


@pytest.fixture(scope="module")
def readout() -> kb.Readout:
    return kb.readout(shop_rows(3_000), arm="variant", metrics=["bought", "spend"], segments=["device"], k=10)


@pytest.fixture(scope="module")
def scan() -> PairReadout:
    return scan_interactions(experiments_rows(4, 8_000), "test_*", ["revenue"])


def values(chart: Any, layer: int | None = None) -> list[dict[str, Any]]:
    """Return the rows of a chart, or of one of its layers, which Altair may keep by name."""
    spec = chart.to_dict()
    part = spec if layer is None else spec["layer"][layer]
    data = part.get("data", spec.get("data"))
    return data["values"] if "values" in data else spec["datasets"][data["name"]]


def test_effects_of_all_metrics_stand_under_each_other(readout: kb.Readout) -> None:
    spec = readout.chart().to_dict()
    assert [part["title"]["text"] for part in spec["vconcat"]] == [
        ["Effects on bought against A"],
        ["Effects on spend against A"],
    ]
    assert spec["background"] == "white"
    assert values(readout.chart(metric="bought"))[0]["estimate"] == pytest.approx(
        100 * readout.effects[0].effect.estimate
    )


def test_the_chart_of_segments_has_a_row_for_each_level(readout: kb.Readout) -> None:
    text = readout.chart("segments", metric="bought").to_json()
    assert all(f"device = {level}, B" in text for level in ("desktop", "phone", "tablet"))


def test_what_cannot_be_drawn_is_answered_with_what_can(readout: kb.Readout) -> None:
    with pytest.raises(AnalysisError, match=r"no chart of that name\. Use one of: effects, segments, received"):
        readout.chart("effect")  # type: ignore[arg-type]
    with pytest.raises(
        AnalysisError, match=r"nothing to draw of windows\. There is something to draw of: effects, seg"
    ):
        readout.chart("windows")
    with pytest.raises(AnalysisError, match=r"for this metric\. Name one of: bought, spend\."):
        readout.chart(metric="clicks")


def test_without_the_extra_its_name_is_said(readout: kb.Readout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'kanab\[charts\]'"):
        readout.chart()


@pytest.mark.slow
def test_a_scan_draws_both_halves_of_its_map_and_the_flagged_pair(scan: PairReadout) -> None:
    assert len(values(scan.chart(), 0)) == 2 * 6
    assert {(mark["x"], mark["y"]) for mark in values(scan.chart(), 1)} == {("test_2", "test_3"), ("test_3", "test_2")}
    assert len(values(scan.chart("p_values"), 1)) == 6
    assert "test_2 and test_3" in scan.chart("effects").to_json()
    segments = scan_segments(experiments_rows(2, 2_000), ["test_1", "test_2"], ["bought"], ["device"])
    assert len(values(segments.chart(), 0)) == 2


@pytest.mark.slow
def test_combined_effects_portfolios_and_shares_are_drawn() -> None:
    rng = np.random.default_rng(4)

    def released(effect: float) -> kb.Release:
        arm = rng.choice(["A", "B"], 600)
        rows = {"checkout": arm, "spend": rng.poisson(4 + effect * (arm == "B"))}
        return kb.release(kb.count(rows, arm="checkout", metrics=["spend"], bounds={"spend": (0, 100)}))

    releases = {name: released(1.0) for name in ("de", "fr", "it")}
    rows = values(combine(releases).chart())
    assert [row["label"] for row in rows] == ["de", "fr", "it", "together"]
    assert rows[-1]["estimate"] == combine(releases).effects[0].together.estimate
    assert len(values(read_portfolio(releases).chart())) == 6


def test_forecasts_and_power_curves_are_drawn() -> None:
    plan = kb.make_plan(arm="checkout", metrics=["bought"], shares={"A": 1, "B": 1})
    forecast = forecast_plan(plan, per_day=500, days=14, baseline=Baseline(rates={"bought": 0.1}))
    (row,) = values(forecast.chart())
    assert row["estimate"] == forecast.effects[0].detectable.effect
    curve = power_curve(noise_of_rate(0.1), people=[1_000, 4_000], effect=0.02)
    assert [point["y"] for point in values(curve.chart())] == [point.power for point in curve]
    with pytest.raises(AnalysisError, match="nothing to draw of effect"):
        power_curve(noise_of_rate(0.1), people=[1_000], power=0.8).chart()
