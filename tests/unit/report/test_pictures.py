"""Forest plots as SVG: every number stands where the axis says."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest

from kanab.report.axes import round_numbers
from kanab.report.forest import Forest, Panel, effect_forest
from kanab.report.palette import DOWN, UP, WIDTH
from kanab.report.pictures import forest_svg

Maker = Callable[..., dict[str, Any]]
SVG = "{http://www.w3.org/2000/svg}"


def drawn(**changes: Any) -> dict[str, Any]:
    row = {"row": "0", "label": "B", "weight": "bold", "text": "+1", "estimate": 1.0, "low": 0.5, "high": 2.0}
    return row | {"colour": UP} | changes


def test_estimate_interval_and_no_difference_stand_on_the_scale_of_the_axis(small: Maker, effect: Maker) -> None:
    forest = effect_forest(small(effect(estimate=1.0, interval=[0.5, 2.0])))
    assert forest is not None
    least, most = forest.panels[0].domain
    root = ElementTree.fromstring(forest_svg(forest))
    (dot,) = root.iter(f"{SVG}circle")
    lines = [path.attrib["d"] for path in root.iter(f"{SVG}path") if path.attrib.get("stroke-width") == "3"]

    def x(value: float) -> float:
        return (value - least) / (most - least) * WIDTH

    assert float(dot.attrib["cx"]) == pytest.approx(x(1.0), abs=0.01)
    (low, high) = re.findall(r"M([\d.]+) .*H([\d.]+)", lines[0])[0]
    assert (float(low), float(high)) == pytest.approx((x(0.5), x(2.0)), abs=0.01)


@pytest.mark.parametrize(
    ("ends", "arrows"), [({"low": None}, ["M0 37l8"]), ({"high": None}, [f"M{WIDTH} 37l-8"]), ({}, [])]
)
def test_an_open_end_runs_to_the_edge_with_an_arrow(ends: dict[str, Any], arrows: list[str]) -> None:
    svg = forest_svg(Forest([Panel([drawn(colour=DOWN, **ends)], "effect")], "t", "d"))
    assert re.findall(r"M\d+ 37l-?8", svg) == arrows


def test_two_pieces_of_one_interval_share_a_row() -> None:
    rows = [drawn(high=None), drawn(label="", text="", low=None, high=-3.0, estimate=1.0)]
    root = ElementTree.fromstring(forest_svg(Forest([Panel(rows, "effect")], "t", "d")))
    assert len(list(root.iter(f"{SVG}rect"))) == 1


def test_labels_of_the_axis_stay_within_the_picture() -> None:
    panel = Panel([drawn(estimate=-2e6, low=-2.1e6, high=0.0)], "effect")
    root = ElementTree.fromstring(forest_svg(Forest([panel], "t", "d")))
    labels = [text for text in root.iter(f"{SVG}text") if text.attrib["font-size"] == "13"]
    assert [text.text for text in labels] == ["−2,000,000", "−1,500,000", "−1,000,000", "−500,000", "0"]
    assert all(37 <= float(text.attrib["x"]) <= WIDTH - 3 for text in labels)


@pytest.mark.parametrize(
    ("least", "most", "labels"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (-0.003, 0.004, ["−0.003", "−0.002", "−0.001", "0.000", "0.001", "0.002", "0.003", "0.004"]),
    ],
)
def test_an_axis_has_a_handful_of_round_numbers(least: float, most: float, labels: list[str]) -> None:
    assert [label for _, label in round_numbers(least, most)] == labels
