from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from kanab.report.forest import Forest, effect_forest, segment_forest, shortened
from kanab.report.palette import DOWN, QUIET, UP, WIDTH
from kanab.report.pictures import forest_svg, report_pictures

Readout = dict[str, Any]
Maker = Callable[..., Readout]
SVG = "{http://www.w3.org/2000/svg}"


def rows_of(forest: Forest) -> list[Readout]:
    """Return the rows of the first panel."""
    return list(forest.panels[0].rows)


def test_the_forest_plot_draws_the_numbers_of_the_readout(hillstrom: Readout) -> None:
    forest = effect_forest(hillstrom, "spend")
    assert forest is not None
    effects = [row for row in hillstrom["effects"] if row["metric"] == "spend"]
    drawn = {(row["low"], row["estimate"], row["high"]) for row in rows_of(forest)}
    assert drawn == {(row["interval"][0], row["estimate"], row["interval"][1]) for row in effects}
    assert [row["label"] for row in rows_of(forest)] == [
        "Mens E-Mail",
        "↳ adjusted for recency",
        "Womens E-Mail",
        "↳ adjusted for recency",
    ]
    assert rows_of(forest)[0]["text"] == "+0.77 (0.49 to 1.05)"


def test_shares_are_drawn_in_points(hillstrom: Readout) -> None:
    forest = effect_forest(hillstrom, "visit")
    assert forest is not None
    assert rows_of(forest)[0]["estimate"] == pytest.approx(7.658956)
    assert forest.panels[0].axis == "effect on visit, percentage points"


@pytest.mark.slow
def test_every_metric_has_a_panel_and_a_scale_of_its_own(hillstrom: Readout) -> None:
    forest = effect_forest(hillstrom)
    assert forest is not None
    assert len(forest.panels) == 2
    domains = [panel.domain for panel in forest.panels]
    assert domains[0] != domains[1]
    assert all(low < 0 < high for low, high in domains)


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
    forest = effect_forest(small(effect(**changes)))
    assert forest is not None
    assert rows_of(forest)[0]["colour"] == colour


def test_open_ends_reach_the_edge_with_an_arrow(small: Maker, effect: Maker) -> None:
    forest = effect_forest(small(effect(interval=[0.3, None]), alternative="greater"))
    assert forest is not None
    (row,) = rows_of(forest)
    assert (row["high"], row["text"]) == (None, "+0.50 (at least 0.30)")
    drawn = forest_svg(forest)
    assert f'<path d="M{WIDTH} 37l-8 -5v10z"' in drawn
    assert '<path d="M0 37l8 -5v10z"' not in drawn


def test_what_cannot_be_tested_is_a_grey_dot(small: Maker, effect: Maker, untestable: Readout) -> None:
    forest = effect_forest(small(effect(**untestable)))
    assert forest is not None
    (row,) = rows_of(forest)
    assert (row["low"], row["high"], row["colour"]) == (0.5, 0.5, QUIET)
    assert row["text"] == "+0.5000, not testable"


def test_where_there_is_nothing_to_draw_there_is_no_chart(small: Maker, effect: Maker, untestable: Readout) -> None:
    data = small(effect(**untestable, estimate=None))
    assert effect_forest(data) is None
    assert segment_forest(data) is None
    assert report_pictures(data) == {}


def test_an_effect_of_exactly_nothing_still_has_an_axis(small: Maker, effect: Maker, untestable: Readout) -> None:
    forest = effect_forest(small(effect(**untestable, estimate=0.0)))
    assert forest is not None
    assert list(forest.panels[0].domain) == [-1.0, 1.0]


def test_the_segment_plot_has_the_effect_at_each_level_with_intervals_that_hold_together(hillstrom: Readout) -> None:
    hillstrom["segment_effects"] = [row for row in hillstrom["segment_effects"] if row["covariate"] == "womens"]
    forest = segment_forest(hillstrom, "visit")
    assert forest is not None
    level = hillstrom["segment_effects"][3]
    row = rows_of(forest)[3]
    assert row["label"] == "womens = 1, Womens E-Mail"
    assert (row["estimate"], row["low"]) == (100 * level["estimate"], 100 * level["interval_adjusted"][0])
    assert row["text"] == "+7.31 (6.16 to 8.46)"
    assert (row["colour"], row["weight"]) == (UP, "bold")
    assert forest.title == "The effect at each level: visit by womens"


def test_exploratory_levels_are_grey_however_small_their_p(hillstrom: Readout) -> None:
    rows = [row for row in hillstrom["segment_effects"] if (row["metric"], row["covariate"]) == ("spend", "womens")]
    assert rows[2]["p_adjusted"] < 0.001
    forest = segment_forest(hillstrom | {"segment_effects": rows})
    assert forest is not None
    assert {(row["colour"], row["weight"]) for row in rows_of(forest)} == {(QUIET, "normal")}
    assert "effect on spend by womens, exploratory" in forest.panels[0].axis


def test_a_thin_level_is_drawn_without_an_interval(hillstrom: Readout) -> None:
    thin = hillstrom["segment_effects"][0] | {"p": None, "p_adjusted": None, "interval_adjusted": None}
    forest = segment_forest(hillstrom | {"segment_effects": [thin, hillstrom["segment_effects"][1]]})
    assert forest is not None
    assert rows_of(forest)[0]["text"] == "+6.92, not testable"


def test_of_very_many_levels_the_clearest_are_drawn(hillstrom: Readout) -> None:
    level = hillstrom["segment_effects"][3]
    hillstrom["segment_effects"] = [level | {"level": str(place), "p_adjusted": 1 / (place + 1)} for place in range(40)]
    forest = segment_forest(hillstrom)
    assert forest is not None
    assert rows_of(forest)[0]["label"] == "womens = 16, Womens E-Mail"
    assert len(rows_of(forest)) == 24
    assert "the 24 clearest of 40" in forest.panels[0].axis


def test_long_names_leave_room_for_the_numbers(small: Maker, effect: Maker) -> None:
    forest = effect_forest(small(effect(arm="a very long name " * 9)))
    assert forest is not None
    (row,) = rows_of(forest)
    name = shortened(row["label"], row["text"])
    assert name.endswith("…")
    assert len(name) + len(row["text"]) < 60
    assert ("a very long name " * 9).strip() in forest.description


@pytest.mark.slow
def test_an_svg_says_in_words_what_it_shows(hillstrom: Readout) -> None:
    drawn = report_pictures(hillstrom)
    assert list(drawn) == ["forest: visit", "segments: visit", "forest: spend", "segments: spend"]
    root = ElementTree.fromstring(drawn["forest: visit"])
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-label"] == root.findtext(f"{SVG}title") == "Effects on visit against No E-Mail"
    assert not [one for one in root.iter() if one is not root and "aria-label" in one.attrib]  # no role
    description = root.find(f"{SVG}desc")
    assert description is not None
    assert description.attrib["id"] == root.attrib["aria-describedby"]
    assert "Mens E-Mail +7.66 (7.00 to 8.32); ↳ adjusted for recency +7.68 (7.02 to 8.34)" in (description.text or "")
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert "+7.66 (7.00 to 8.32)" in texts


@pytest.mark.slow
def test_an_svg_needs_no_script_no_style_and_no_network(hillstrom: Readout) -> None:
    for svg in report_pictures(hillstrom).values():
        assert not re.search(r"<script|<style|\sstyle=|href|url\(|<image", svg)
        assert svg.count("http") == 1
        assert len(re.findall(r"\srole=", svg)) == 1


def test_markup_in_names_is_text_in_an_svg(small: Maker, effect: Maker) -> None:
    evil = '<script>alert("x")</script>'
    data = small(effect(arm=evil, metric=evil), arms={"A": 500, evil: 500})
    (svg,) = report_pictures(data).values()
    assert "<script" not in svg
    root = ElementTree.fromstring(svg)
    assert evil in (root.findtext(f"{SVG}title") or "")
