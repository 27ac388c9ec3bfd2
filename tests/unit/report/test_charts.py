from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from kanab.errors import MissingExtraError
from kanab.report.charts import forest_chart, segment_chart
from kanab.report.palette import DOWN, QUIET, UP
from kanab.report.pictures import report_pictures

Readout = dict[str, Any]
Maker = Callable[..., Readout]
SVG = "{http://www.w3.org/2000/svg}"


def rows_of(spec: Readout) -> list[Readout]:
    """The rows drawn by a panel."""
    rows: list[Readout] = spec["data"]["values"]
    return rows


def test_the_forest_plot_draws_the_numbers_of_the_readout(hillstrom: Readout) -> None:
    spec = forest_chart(hillstrom, "spend")
    assert spec is not None
    effects = [row for row in hillstrom["effects"] if row["metric"] == "spend"]
    drawn = {(row["low"], row["estimate"], row["high"]) for row in rows_of(spec)}
    assert drawn == {(row["interval"][0], row["estimate"], row["interval"][1]) for row in effects}
    assert [row["label"] for row in rows_of(spec)] == [
        "Mens E-Mail",
        "↳ adjusted for recency",
        "Womens E-Mail",
        "↳ adjusted for recency",
    ]
    assert rows_of(spec)[0]["text"] == "+0.77 (0.49 to 1.05)"


def test_shares_are_drawn_in_points(hillstrom: Readout) -> None:
    spec = forest_chart(hillstrom, "visit")
    assert spec is not None
    assert rows_of(spec)[0]["estimate"] == pytest.approx(7.658956)
    assert "effect on visit, percentage points" in str(spec)


@pytest.mark.slow
def test_every_metric_has_a_panel_and_a_scale_of_its_own(hillstrom: Readout) -> None:
    spec = forest_chart(hillstrom)
    assert spec is not None
    assert len(spec["vconcat"]) == 2
    assert "resolve" not in spec
    domains = [panel["layer"][1]["encoding"]["x"]["scale"]["domain"] for panel in spec["vconcat"]]
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
    spec = forest_chart(small(effect(**changes)))
    assert spec is not None
    assert rows_of(spec)[0]["colour"] == colour


def test_open_ends_reach_the_edge_with_an_arrow(small: Maker, effect: Maker) -> None:
    spec = forest_chart(small(effect(interval=[0.3, None]), alternative="greater"))
    assert spec is not None
    shapes = [layer["mark"].get("shape") for layer in spec["layer"]]
    assert "triangle-right" in shapes
    assert "triangle-left" not in shapes
    (row,) = rows_of(spec)
    assert row["to"] == max(spec["layer"][1]["encoding"]["x"]["scale"]["domain"])
    assert row["text"] == "+0.50 (≥ 0.30)"


def test_what_cannot_be_tested_is_a_grey_dot(small: Maker, effect: Maker, untestable: Readout) -> None:
    spec = forest_chart(small(effect(**untestable)))
    assert spec is not None
    (row,) = rows_of(spec)
    assert (row["low"], row["high"], row["colour"]) == (0.5, 0.5, QUIET)
    assert row["text"] == "+0.5000, not testable"


def test_where_there_is_nothing_to_draw_there_is_no_chart(small: Maker, effect: Maker, untestable: Readout) -> None:
    data = small(effect(**untestable, estimate=None))
    assert forest_chart(data) is None
    assert segment_chart(data) is None
    assert report_pictures(data) == {}


def test_an_effect_of_exactly_nothing_still_has_an_axis(small: Maker, effect: Maker, untestable: Readout) -> None:
    spec = forest_chart(small(effect(**untestable, estimate=0.0)))
    assert spec is not None
    assert spec["layer"][1]["encoding"]["x"]["scale"]["domain"] == [-1.0, 1.0]


def test_the_segment_plot_has_the_effect_at_each_level_with_intervals_that_hold_together(hillstrom: Readout) -> None:
    hillstrom["segment_effects"] = [row for row in hillstrom["segment_effects"] if row["covariate"] == "womens"]
    spec = segment_chart(hillstrom, "visit")
    assert spec is not None
    level = hillstrom["segment_effects"][3]
    row = rows_of(spec)[3]
    assert row["label"] == "womens = 1, Womens E-Mail"
    assert (row["estimate"], row["low"]) == (100 * level["estimate"], 100 * level["interval_adjusted"][0])
    assert row["text"] == "+7.31 (6.16 to 8.46)"
    assert (row["colour"], row["weight"]) == (UP, "bold")
    assert spec["usermeta"]["title"] == "The effect at each level: visit by womens"


def test_exploratory_levels_are_grey_however_small_their_p(hillstrom: Readout) -> None:
    rows = [row for row in hillstrom["segment_effects"] if (row["metric"], row["covariate"]) == ("spend", "womens")]
    assert rows[2]["p_adjusted"] < 0.001
    spec = segment_chart(hillstrom | {"segment_effects": rows})
    assert spec is not None
    assert {(row["colour"], row["weight"]) for row in rows_of(spec)} == {(QUIET, "normal")}
    assert "effect on spend by womens, exploratory" in str(spec)


def test_a_thin_level_is_drawn_without_an_interval(hillstrom: Readout) -> None:
    thin = hillstrom["segment_effects"][0] | {"p": None, "p_adjusted": None, "interval_adjusted": None}
    spec = segment_chart(hillstrom | {"segment_effects": [thin, hillstrom["segment_effects"][1]]})
    assert spec is not None
    assert rows_of(spec)[0]["text"] == "+6.92, not testable"


def test_of_very_many_levels_the_clearest_are_drawn(hillstrom: Readout) -> None:
    level = hillstrom["segment_effects"][3]
    hillstrom["segment_effects"] = [level | {"level": str(place), "p_adjusted": 1 / (place + 1)} for place in range(40)]
    spec = segment_chart(hillstrom)
    assert spec is not None
    assert rows_of(spec)[0]["label"] == "womens = 16, Womens E-Mail"
    assert len(rows_of(spec)) == 24
    assert "the 24 clearest of 40" in str(spec)


def test_long_names_leave_room_for_the_numbers(small: Maker, effect: Maker) -> None:
    spec = forest_chart(small(effect(arm="a very long name " * 9)))
    assert spec is not None
    (row,) = rows_of(spec)
    assert row["name"].endswith("…")
    assert len(row["name"]) + len(row["text"]) < 60
    assert ("a very long name " * 9).strip() in spec["description"]


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


def test_without_the_extra_charts_for_notebooks_say_the_pip_line(
    hillstrom: Readout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"drawing charts needs an extra. Run: pip install 'kanab\[charts\]'"):
        forest_chart(hillstrom)


@pytest.mark.slow
def test_importing_the_display_loads_no_chart_library() -> None:
    code = "import sys, kanab.report.html, kanab.report.charts; print({'altair', 'vl_convert'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
