"""Charts of results for notebooks: which there are, what they hold, and what is said where there is none."""

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

import kanab as kb
from kanab.choices import INTERNAL
from kanab.datasets import experiments_rows, shop_rows
from kanab.errors import AnalysisError
from kanab.planning import Baseline, PowerCurve, forecast_plan, power_curve, spread_of_rate
from kanab.portfolio import combine, read_portfolio
from kanab.report.figure import Figure
from kanab.scan import PairReadout, scan_interactions

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def readout() -> kb.Readout:
    return kb.readout(shop_rows(3_000), arm="variant", metrics=["bought", "spend"], segments=["device"], k=10)


@pytest.fixture(scope="module")
def scan() -> PairReadout:
    return scan_interactions(experiments_rows(4, 8_000), "test_*", ["revenue"])


def words(chart: Figure) -> list[str]:
    """Return every text that a chart shows."""
    return [element.text or "" for element in ElementTree.fromstring(chart.to_svg()).iter(f"{SVG}text")]


def test_a_chart_of_one_metric_is_the_picture_of_the_report(readout: kb.Readout) -> None:
    picture = readout.chart(metric="bought").to_html()
    assert picture.removesuffix("</svg>") in readout.to_html()  # there each picture has the mark of what is internal
    levels = words(readout.chart("segments", metric="bought"))
    assert [text for text in levels if text.startswith("device = ")] == [
        "device = desktop, B", "device = phone, B", "device = tablet, B",
    ]  # fmt: skip
    titles = ["Effects on bought against A", "Effects on spend against A"]
    assert [text for text in words(readout.chart()) if text.startswith("Effects on")] == titles


def test_what_cannot_be_drawn_is_answered_with_what_can(readout: kb.Readout) -> None:
    with pytest.raises(
        AnalysisError, match=r"no chart of that name\. (Did you mean 'effects'\? )?Use one of: effects, "
    ):
        readout.chart("effect")  # type: ignore[arg-type]
    with pytest.raises(
        AnalysisError, match=r"nothing to draw of quantiles\. There is something to draw of: effects, segments\."
    ):
        readout.chart("quantiles")
    with pytest.raises(AnalysisError, match=r"for this metric\. Name one of: bought, spend\."):
        readout.chart(metric="clicks")


@pytest.mark.slow
def test_a_scan_draws_both_halves_of_its_map_and_the_flagged_pair(scan: PairReadout) -> None:
    drawn = scan.chart()
    assert drawn.figures[0].to_html().count("<circle") == 2
    assert "interference" in words(drawn)
    assert scan.chart("p_values").to_html().count("h0") == 6
    assert "Effects of test_2 and test_3 on revenue" in words(scan.chart("effects"))


@pytest.mark.slow
def test_combined_effects_and_portfolios_are_drawn() -> None:
    rng = np.random.default_rng(4)

    def released(effect: float) -> kb.Release:
        arm = rng.choice(["A", "B"], 600)
        rows = {"checkout": arm, "spend": rng.poisson(4 + effect * (arm == "B"))}
        return kb.release(kb.count(rows, arm="checkout", metrics=[kb.Mean("spend", bounds=(0, 100))]))

    releases = {name: released(1.0) for name in ("de", "fr", "it")}
    assert [text for text in words(combine(releases).chart()) if text in (*releases, "together")] == [
        "de", "fr", "it", "together",
    ]  # fmt: skip
    with pytest.raises(AnalysisError, match=r"Name one of: spend\."):
        combine(releases).chart(metric="clicks")
    assert sum("→" in text for text in words(read_portfolio(releases).chart())) == 3


def test_forecasts_and_power_curves_are_drawn() -> None:
    plan = kb.make_plan(arm="checkout", metrics=["bought"], arms={"A": 1, "B": 1})
    forecast = forecast_plan(plan, per_day=500, days=14, baseline=Baseline(rates={"bought": 0.1}))
    assert "0.02099 (+21 %)" in words(forecast.chart())
    assert "The smallest change of bought that is found with power" in words(forecast.chart())[0]
    curve = power_curve(spread_of_rate(0.1), people=[1_000, 4_000], effect=0.02)
    picture = curve.chart().to_html()
    assert picture.count("h0") == 1  # the answer of the first point
    assert f"4,000 people, {100 * curve[1].power:.3g} %" in picture
    assert "asked" not in picture
    internal = PowerCurve(replace(point, own_rows=True) for point in curve)
    assert internal.chart().note == INTERNAL
    with pytest.raises(AnalysisError, match="nothing to draw of effect"):
        power_curve(spread_of_rate(0.1), people=[1_000], power=0.8).chart()
