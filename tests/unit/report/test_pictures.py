"""What the figures of a readout show: its numbers, in the colours of its verdicts, and in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kanab.analysis.sections import readout_figures
from kanab.report.drawing import ARMS, DOWN, MUTED, QUIET, UP
from kanab.report.figure import Area, Dots, Figure, Forest, ForestRow, Line, Plot
from kanab.report.pictures import distribution_figure, effect_figure, segment_figure

Readout = dict[str, Any]
Maker = Callable[..., Readout]


def rows_of(figure: Figure | None) -> list[ForestRow]:
    """The rows of the first panel, which have one interval each."""
    assert figure is not None
    assert isinstance(figure.panels[0], Forest)
    return list(figure.panels[0].rows)


def axis_of(figure: Figure | None) -> str:
    assert figure is not None
    assert isinstance(figure.panels[0], Forest)
    return figure.panels[0].axis


# ── forests ────────────────────────────────────────────────────────────────────────────────────


def test_the_forest_draws_the_numbers_of_the_readout(hillstrom: Readout) -> None:
    rows = rows_of(effect_figure(hillstrom, "spend"))
    effects = [row for row in hillstrom["effects"] if row["metric"] == "spend"]
    assert {(bar.low, bar.at, bar.high) for row in rows for bar in row.bars} == {
        (row["interval"][0], row["estimate"], row["interval"][1]) for row in effects
    }
    assert [(row.label, row.bold) for row in rows] == [
        ("Mens E-Mail", True),
        ("↳ adjusted for recency", False),
        ("Womens E-Mail", True),
        ("↳ adjusted for recency", False),
    ]
    assert rows[0].text == "+0.77 (0.49 to 1.05)"


def test_shares_are_drawn_in_points_and_everything_is_said(hillstrom: Readout) -> None:
    figure = effect_figure(hillstrom, "visit")
    assert rows_of(figure)[0].bars[0].at == pytest.approx(7.658956)
    assert axis_of(figure) == "effect on visit, percentage points"
    assert figure is not None
    assert figure.title == "Effects on visit against No E-Mail"
    assert figure.description.startswith(
        "95 % intervals. Mens E-Mail +7.66 (7.00 to 8.32); ↳ adjusted for recency +7.68 (7.02 to 8.34)"
    )
    assert list(readout_figures(hillstrom)) == [
        "effects: visit",
        "effects: spend",
        "segments: visit",
        "segments: spend",
    ]


@pytest.mark.parametrize(
    ("changes", "colour"),
    [
        ({}, UP),
        ({"estimate": -0.5}, DOWN),
        ({"p_adjusted": 0.06}, QUIET),
        ({"p": 0.4, "p_adjusted": 0.4}, QUIET),
    ],
)
def test_the_corrected_p_decides_the_colour(small: Maker, effect: Maker, changes: Readout, colour: str) -> None:
    (row,) = rows_of(effect_figure(small(effect(**changes)), "spend"))
    assert row.bars[0].colour == colour


def test_an_open_end_is_said_and_what_cannot_be_tested_is_a_grey_dot(
    small: Maker, effect: Maker, untestable: Readout
) -> None:
    (row,) = rows_of(effect_figure(small(effect(interval=[0.3, None]), alternative="greater"), "spend"))
    assert (row.bars[0].high, row.text) == (None, "+0.50 (at least 0.30)")
    (row,) = rows_of(effect_figure(small(effect(**untestable)), "spend"))
    assert (row.bars[0].low, row.bars[0].high, row.bars[0].colour) == (0.5, 0.5, QUIET)
    assert row.text == "+0.5000, not testable"


def test_where_there_is_nothing_to_draw_there_is_no_figure(small: Maker, effect: Maker, untestable: Readout) -> None:
    assert readout_figures(small(effect(**untestable, estimate=None))) == {}


def test_the_effect_at_each_level_has_intervals_that_hold_together(hillstrom: Readout) -> None:
    hillstrom["segment_effects"] = [row for row in hillstrom["segment_effects"] if row["covariate"] == "womens"]
    figure = segment_figure(hillstrom, "visit")
    level, row = hillstrom["segment_effects"][3], rows_of(figure)[3]
    assert row.label == "womens = 1, Womens E-Mail"
    assert (row.bars[0].at, row.bars[0].low) == (100 * level["estimate"], 100 * level["interval_adjusted"][0])
    assert row.text == "+7.31 (6.16 to 8.46)"
    assert (row.bars[0].colour, row.bold) == (UP, True)
    assert figure is not None
    assert figure.title == "The effect at each level: visit by womens"
    assert figure.description.startswith("95 % intervals that hold together in each panel. womens = 0")


def test_exploratory_levels_are_grey_however_small_their_p(hillstrom: Readout) -> None:
    rows = [row for row in hillstrom["segment_effects"] if (row["metric"], row["covariate"]) == ("spend", "womens")]
    assert rows[2]["p_adjusted"] < 0.001
    figure = segment_figure(hillstrom | {"segment_effects": rows}, "spend")
    assert {(row.bars[0].colour, row.bold) for row in rows_of(figure)} == {(QUIET, False)}
    assert "effect on spend by womens, exploratory" in axis_of(figure)


def test_of_very_many_levels_the_clearest_are_drawn(hillstrom: Readout) -> None:
    level = hillstrom["segment_effects"][3]
    thin = level | {"level": "thin", "p": None, "p_adjusted": 0.0, "interval_adjusted": None}
    levels = [level | {"level": str(place), "p_adjusted": 1 / (place + 1)} for place in range(40)]
    figure = segment_figure(hillstrom | {"segment_effects": [thin, *levels]}, "visit")
    assert rows_of(figure)[0].text.endswith(", not testable")
    assert rows_of(figure)[1].label == "womens = 17, Womens E-Mail"
    assert len(rows_of(figure)) == 24
    assert "the 24 clearest of 41" in axis_of(figure)


# ── distributions and windows ──────────────────────────────────────────────────────────────────

READ: dict[str, Any] = {
    "control": "A",
    "confidence": 0.95,
    "effects": [{"metric": "time"}],
    "distributions": [{"metric": "time", "edges": [0, 10, 20, 40], "people": {"A": [0, 50, 25, 25, 0], "B": [0] * 5}}],
    "quantiles": [
        {"metric": "time", "control": "A", "arm": "B", "probability": 0.5, "quantile_control": 10, "quantile_arm": None}
    ],
}


def test_bars_are_as_high_as_people_are_dense_and_shares_add_up() -> None:
    figure = distribution_figure(READ, "time")
    assert figure is not None
    assert {arm: paint.colour for arm, paint in figure.legend.items()} == {"A": ARMS[0], "B": ARMS[1]}
    crowd, shares = figure.panels
    assert isinstance(crowd, Plot)
    assert isinstance(shares, Plot)
    assert (crowd.x.least, crowd.x.most, crowd.y.most) == (0, 20, 0.05)
    outline = [(0, 0.0), (0, 0.05), (10, 0.05), (10, 0.025), (20, 0.025), (20, 0.0)]
    assert crowd.marks[:2] == [Area(outline, QUIET), Line(outline, QUIET, wide=1.5)]
    assert shares.marks[0] == Line([(0, 0.0), (10, 0.5), (20, 0.75)], QUIET, wide=2.5)
    assert Dots([(10, 0.5)], QUIET, size=4.5) in shares.marks
    assert figure.description == "median of A 10.00."
    assert distribution_figure(READ | {"distributions": []}, "time") is None
    nobody = READ | {"quantiles": [], "distributions": [READ["distributions"][0] | {"people": {}}]}
    assert distribution_figure(nobody, "time") is not None


def test_windows_are_lines_across_their_days_and_open_ends_reach_the_edge(small: Maker, effect: Maker) -> None:
    first = effect(metric="spend@0d..7d", estimate=1.0, interval=[0.5, None])
    later = effect(metric="spend@7d..14d", estimate=None, interval=None, p=None)
    data = small(first, later)
    figure = readout_figures(data)["windows: spend"]
    (panel,) = figure.panels
    assert isinstance(panel, Plot)
    assert (panel.x.least, panel.x.most, panel.y.title) == (0, 14, "effect of B")
    zero, band, line = panel.marks
    assert zero == Line([(0, 0.0), (14, 0.0)], MUTED, wide=1)
    assert isinstance(band, Area)
    assert [y for _, y in band.points] == [0.5, panel.y.most, panel.y.most, 0.5]
    assert line == Line([(0, 1.0), (7, 1.0)], UP)
