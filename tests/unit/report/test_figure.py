"""Figures as SVG: every number stands where the axes say, names are text, and nothing is loaded."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest

from kanab.errors import AnalysisError
from kanab.report.colours import ALARM, DOWN, LINE, QUIET, UP
from kanab.report.drawing import WIDTH, ChartAxis, round_axis, round_numbers
from kanab.report.figure import (
    Area,
    Bar,
    Cell,
    Dots,
    Figure,
    Forest,
    ForestRow,
    HeatMap,
    Label,
    Line,
    Mark,
    Paint,
    Plot,
    chosen_figure,
)

SVG = "{http://www.w3.org/2000/svg}"
EVIL = '<script>alert("x")</script>'


def drawn(*panels: Forest | Plot | HeatMap, **more: dict[str, Paint]) -> ElementTree.Element:
    return ElementTree.fromstring(Figure("Title", "Described.", panels, **more).to_html())


def paths(root: ElementTree.Element, **attributes: str) -> list[str]:
    wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
    return [path.attrib["d"] for path in root.iter(f"{SVG}path") if wanted.items() <= path.attrib.items()]


def numbers(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"[\d.]+", path)]


def test_an_interval_and_no_difference_stand_on_the_scale_of_the_axis() -> None:
    bar = Bar(0.5, 1.0, 2.0, UP)
    root = drawn(Forest([ForestRow("B", "+1 (0.5 to 2)", [bar])], "effect"))
    (line,) = paths(root, stroke=UP)
    (none,) = paths(root, stroke_width="1.5")
    (dot,) = root.iter(f"{SVG}circle")
    places = [numbers(none)[0], numbers(line)[0], float(dot.attrib["cx"]), numbers(line)[-1]]
    assert places == pytest.approx([WIDTH * part / 2.2 for part in (0.1, 0.6, 1.1, 2.1)], abs=0.001)


@pytest.mark.parametrize(
    ("low", "high", "arrows"),
    [(None, 2.0, ["M0 37l8 -5v10z"]), (0.5, None, [f"M{WIDTH} 37l-8 -5v10z"]), (0.5, 2.0, [])],
)
def test_an_open_end_runs_to_the_edge_with_an_arrow(low: float | None, high: float | None, arrows: list[str]) -> None:
    root = drawn(Forest([ForestRow("B", "", [Bar(low, 1.0, high, DOWN)])], "effect"))
    assert paths(root, fill=DOWN) == arrows


def test_pieces_of_an_interval_share_a_row_and_a_diamond_reaches_from_end_to_end() -> None:
    pieces = ForestRow("B", "", [Bar(0.5, 1.0, None, UP), Bar(None, 1.0, -3.0, UP)])
    whole = ForestRow("together", "", [Bar(-1.0, 0.0, 1.0, QUIET, shape="diamond")])
    root = drawn(Forest([pieces, whole], "effect", upright=(0.0, 0.5)))
    assert len(list(root.iter(f"{SVG}rect"))) == 2
    (diamond,) = paths(root, fill=QUIET)
    assert [numbers(diamond)[place] for place in (1, 3, 5, 7)] == [87, 79, 87, 95]
    assert len(paths(root, stroke_dasharray="3 2")) == 2


def test_names_and_numbers_of_the_axis_stay_within_the_picture() -> None:
    row = ForestRow("a very long name " * 9, "+2,000,000", [Bar(-2.1e6, -2e6, 0.0, UP)])
    texts = list(drawn(Forest([row], "effect")).iter(f"{SVG}text"))
    labels = [text for text in texts if text.attrib["font-size"] == "13"]
    assert [text.text for text in labels] == ["−2,000,000", "−1,500,000", "−1,000,000", "−500,000", "0"]
    assert all(37 <= float(text.attrib["x"]) <= WIDTH - 3 for text in labels)
    assert texts[0].text == "a very long name a very long name a very long…"


def test_marks_of_a_plot_stand_where_its_axes_say() -> None:
    x, y = ChartAxis(1, 100, [(10, "ten")], "people", ratio=True), ChartAxis(0.0, 1.0, [(0.5, "half")], "power")
    marks: list[Mark] = [Line([(1, 0.0), (100, 1.0)], UP), Dots([(10, 0.5), (1, 2.0)], DOWN), Area([(1, 0)], QUIET)]
    root = drawn(Plot(x, y, marks, high=100, text="newest"))
    left, right = 4 * 7.5 + 10, WIDTH - 7
    assert paths(root, stroke=UP) == [f"M{left:g} 130L{right} 30"]
    assert paths(root, stroke=DOWN) == [f"M{(left + right) / 2:g} 80h0M{left:g} 30h0"]  # what is beyond an end is there
    assert paths(root, fill=QUIET) == [f"M{left:g} 130z"]
    assert {text.text for text in root.iter(f"{SVG}text")} == {"power", "newest", "half", "ten", "people"}
    assert float(root.attrib["height"]) == 30 + 100 + 46


def test_plots_under_each_other_have_one_gutter_and_one_without_words_is_small() -> None:
    wide, bare = ChartAxis(0, 1, [(0, "100,000")]), ChartAxis(0, 1)
    root = drawn(Plot(bare, wide, [Line([(0, 0)], UP)]), Plot(wide, bare, [Line([(0, 0)], UP)]))
    first, second = paths(root, stroke=UP)
    assert numbers(first)[0] == numbers(second)[0]
    small = drawn(Plot(bare, bare, [Line([(0, 0), (1, 1)], UP)], high=28, wide=132))
    assert (small.attrib["width"], small.attrib["height"]) == ("132", "36")
    assert paths(small, stroke=UP) == ["M4 32L128 4"]


def test_words_without_room_on_the_right_stand_on_the_left() -> None:
    axis = ChartAxis(0, 1)
    label = Label((1, 0.5), ["29,498 people"])
    beside = [drawn(Plot(axis, axis, [each])).find(f".//{SVG}text") for each in (label, Label((0.5, 0.5), label.lines))]
    assert [text is not None and text.attrib.get("text-anchor") for text in beside] == ["end", None]


@pytest.mark.parametrize(
    ("least", "most", "labels"),
    [
        (0, 0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-0.3, 2.1, ["−0.5", "0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
    ],
)
def test_an_axis_ends_at_round_numbers(least: float, most: float, labels: list[str]) -> None:
    assert [label for _, label in round_axis(least, most, "effect").ticks] == labels


@pytest.mark.parametrize(
    ("least", "most", "labels"),
    [
        (0, 10, ["0", "2", "4", "6", "8", "10"]),
        (-0.003, 0.004, ["−0.003", "−0.002", "−0.001", "0.000", "0.001", "0.002", "0.003", "0.004"]),
    ],
)
def test_an_axis_has_a_handful_of_round_numbers(least: float, most: float, labels: list[str]) -> None:
    assert [label for _, label in round_numbers(least, most)] == labels


def test_a_heat_map_has_both_sides_of_the_diagonal_and_links_of_marks() -> None:
    cells = [Cell(0, 1, Paint(UP, "square", 0.5)), Cell(0, 1, Paint(ALARM), "a × b: loud", "flag-0")]
    root = drawn(HeatMap(["a", "b", "c"], cells))
    assert paths(root, fill=UP) == ["M1 0h1v1H1zM0 1h1v1H0z"]
    assert paths(root, fill=LINE) == ["M0 0h1v1H0zM1 1h1v1H1zM2 2h1v1H2z"]
    (link,) = root.iter(f"{SVG}a")
    assert (link.attrib["href"], link.findtext(f"{SVG}g/{SVG}title")) == ("#flag-0", "a × b: loud")
    assert [(dot.attrib["cx"], dot.attrib["cy"]) for dot in link.iter(f"{SVG}circle")] == [("60", "20"), ("20", "60")]


def test_a_map_of_a_hundred_names_is_large_but_short() -> None:
    shades = [Paint(UP, "square", opacity) for opacity in (0.2, 0.4, 0.7)]
    cells = [Cell(a, b, shades[(a + b) % 3]) for a, b in combinations(range(100), 2)]
    root = drawn(HeatMap([f"an experiment with a long name {place}" for place in range(100)], cells))
    assert len(ElementTree.tostring(root)) < 150_000
    assert root.attrib["class"] == "large"
    assert [text.text for text in root.iter(f"{SVG}text")][:3] == ["an exper… name 0 1", "1", "an exper… name 4 5"]
    assert len(list(root.iter(f"{SVG}text"))) == 21 + 21
    widths = [sum(map(int, re.findall(r"h(\d+)", path))) for path in paths(root, fill=UP)]
    assert sum(widths) == 100 * 99  # every pair, on both sides


def test_a_figure_is_read_out_and_names_are_text() -> None:
    panels = [
        Forest([ForestRow(EVIL, EVIL, [])], EVIL),
        Plot(ChartAxis(0, 1, [(0, EVIL)], EVIL), ChartAxis(0, 1, title=EVIL), [Label((0, 0), [EVIL])], text=EVIL),
        HeatMap([EVIL, "b"], [Cell(0, 1, Paint(UP), EVIL, EVIL)]),
    ]
    svg = Figure(EVIL, EVIL, panels, {EVIL: Paint(UP)}).to_html()
    assert "<script" not in svg
    assert not re.search(r"<style|\sstyle=|url\(|<image", svg)
    assert svg.count("http") == 1
    root = ElementTree.fromstring(svg)
    assert (root.attrib["role"], root.attrib["aria-label"], root.findtext(f"{SVG}title")) == ("img", EVIL, EVIL)
    description = root.find(f"{SVG}desc")
    assert description is not None
    assert (description.text, description.attrib["id"]) == (EVIL, root.attrib["aria-describedby"])


def test_a_legend_stays_within_the_picture() -> None:
    root = drawn(legend={"a very long name of an arm " * 4: Paint(UP), "B": Paint(QUIET, "square")})
    first, second = (text.text or "" for text in root.iter(f"{SVG}text"))
    assert len(first) * 7 < WIDTH
    assert (first[-1], second, root.attrib["height"]) == ("…", "B", "40")


def test_figures_of_a_kind_stand_under_each_other_on_white_with_a_note(tmp_path: Path) -> None:
    one, two = (Figure(name, "", [Forest([], "effect")]) for name in ("one 5 %", "two"))
    both = chosen_figure({"effects": lambda: {"a": [one], "b": [two]}}, "effects", note="Internal.")
    assert repr(both) == "Figure(one 5 %; two)"
    root = ElementTree.fromstring(both.to_svg())
    first, second = root.findall(f"{SVG}svg")
    assert float(second.attrib["y"]) > float(first.attrib["y"]) + float(first.attrib["height"])
    assert float(root.attrib["height"]) > float(second.attrib["y"]) + float(second.attrib["height"])
    assert [part.attrib["fill"] for part in root.findall(f"{SVG}rect")] == ["#ffffff"]
    titles = [text.text for text in root.findall(f"{SVG}text")]
    assert titles == ["one 5\N{NO-BREAK SPACE}%", "two", "Internal."]
    assert chosen_figure({"effects": lambda: {"a": [one], "b": [two]}}, "effects", "b") == two
    both.save(tmp_path / "both.svg")
    assert (tmp_path / "both.svg").read_text(encoding="utf-8") == both.to_svg() == both._repr_svg_()
    with pytest.raises(AnalysisError, match=r"a chart is saved as SVG\. Give the file a name that ends in \.svg\."):
        both.save(tmp_path / "both.png")
    assert [path.name for path in tmp_path.iterdir()] == ["both.svg"]
