"""Distributions and effects over time as SVG: every number stands where the axes say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from tests.described import as_values

import kanab as kb
from kanab.report.axes import ChartAxis, Frame, legend, round_axis
from kanab.report.curve_pictures import curve_pictures, distribution_svg, windows_svg
from kanab.report.curves import DrawnDistribution, distribution_of
from kanab.report.forest import Forest, Panel
from kanab.report.palette import ARMS, QUIET, UP, WIDTH

SVG = "{http://www.w3.org/2000/svg}"
READ: dict[str, Any] = {
    "control": "A",
    "confidence": 0.95,
    "effects": [{"metric": "time"}],
    "distributions": [{"metric": "time", "edges": [0, 10, 20, 40], "people": {"A": [0, 50, 25, 25, 0], "B": [0] * 5}}],
    "quantiles": [
        {"metric": "time", "control": "A", "arm": "B", "probability": 0.5, "quantile_control": 10, "quantile_arm": None}
    ],
}


def paths(svg: str, **attributes: str) -> list[str]:
    root = ElementTree.fromstring(svg)
    wanted = {name.replace("_", "-"): value for name, value in attributes.items()}
    return [path.attrib["d"] for path in root.iter(f"{SVG}path") if wanted.items() <= path.attrib.items()]


def numbers(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


def test_bars_are_as_high_as_people_are_dense_and_shares_add_up() -> None:
    shown = distribution_of(READ, "time")
    assert shown is not None
    assert [bar["value"] for bar in shown.bars if bar["arm"] == "A"] == [0.05, 0.025, 0.0125]
    assert [step["value"] for step in shown.steps if step["arm"] == "A"] == [0.0, 0.5, 0.75, 1.0]
    assert (shown.start, shown.end, dict(shown.colours)) == (0, 20, {"A": ARMS[0], "B": ARMS[1]})
    svg = distribution_svg(shown)
    (outline,) = paths(svg, stroke=QUIET, stroke_width="1.5", fill="none", stroke_linejoin="round")
    bottom, top, middle = (numbers(outline)[place][1] for place in (0, 1, 3))
    assert bottom - top == pytest.approx(2 * (bottom - middle)) == pytest.approx(150)
    assert "median of A 10." in svg
    assert "of B" not in svg


def test_dots_of_quantiles_lie_on_the_line_of_shares() -> None:
    shown = distribution_of(READ, "time")
    assert shown is not None
    svg = distribution_svg(shown)
    (line,) = paths(svg, stroke=QUIET, stroke_width="2.5")
    dots = [dot.attrib for dot in ElementTree.fromstring(svg).iter(f"{SVG}circle") if dot.attrib["r"] == "4.5"]
    assert [(float(dot["cx"]), float(dot["cy"])) for dot in dots] == [numbers(line)[1]]


def test_without_quantiles_or_windows_there_are_no_curves() -> None:
    nothing = {"control": "A", "effects": [{"metric": "time", "arm": "B", "carries_verdict": True}], "confidence": 0.95}
    assert curve_pictures(nothing) == {}


def test_windows_are_lines_across_their_days_and_open_ends_reach_the_edge() -> None:
    row = {"start": 0, "end": 7, "middle": 3.5, "colour": UP, "estimate": 1.0, "low": 0.5, "high": None}
    later = row | {"start": 7, "end": 14, "estimate": None, "low": None, "high": None}
    svg = windows_svg(Forest([Panel([row, later], "effect of B")], "Effects", "Said."))
    (line,) = paths(svg, stroke=UP)
    (start, level), (end, _) = numbers(line)
    (band,) = paths(svg, fill=UP)
    (zero,) = paths(svg, stroke_width="1")
    assert numbers(zero)[1][0] - start == pytest.approx(2 * (end - start), abs=0.02)
    none = numbers(zero)[0][1]
    heights = sorted({y for _, y in numbers(band)})
    assert heights[0] == 30
    assert none - level == pytest.approx(2 * (none - heights[1]), abs=0.02)


def test_long_names_stay_within_the_picture() -> None:
    name = "a very long name of an arm " * 4
    parts, bottom = legend({name: UP, "B": QUIET}, 0)
    assert bottom == 40
    assert len(re.findall(r">(a very[^<]*…)<", "".join(parts))[0]) * 7 < WIDTH


def test_words_without_room_on_the_right_stand_on_the_left() -> None:
    frame = Frame(ChartAxis(0, 1, []), ChartAxis(0, 1, []), 0, 100, 10)
    assert 'text-anchor="end"' in frame.words((1, 0.5), ["29,498 people"], below=True)
    assert "text-anchor" not in frame.words((0.5, 0.5), ["29,498 people"], below=True)


@pytest.mark.parametrize(
    ("least", "most", "labels"),
    [
        (0, 0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-0.3, 2.1, ["−0.5", "0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]),
    ],
)
def test_an_axis_ends_at_round_numbers(least: float, most: float, labels: list[str]) -> None:
    assert [label for _, label in round_axis(least, most, "effect").ticks] == labels


def test_a_distribution_of_nobody_is_an_empty_picture() -> None:
    empty = DrawnDistribution("time", {"A": QUIET}, [], [], [], 0.0, 1.0)
    ElementTree.fromstring(distribution_svg(empty))


# ── on the pages of commands ───────────────────────────────────────────────────────────────────

COMMANDS = """
import contextlib, io, re, sys
from kanab.cli.main import cli
folder = sys.argv[1]
commands = [
    ["analyze", f"{folder}/people.json"], ["analyze", f"{folder}/windows.json"],
    ["power", "--rate", "0.1", "--effect", "0.01", "--power", "0.8"],
    ["plan", f"{folder}/kanab.toml", "--per-day", "60", "--days", "28", "--rate", "bought=0.1", "--epsilon", "1,2"],
]
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        cli([*command, "--html", f"{folder}/page.html"], standalone_mode=False)
    page = open(f"{folder}/page.html", encoding="utf-8").read()
    print(*re.findall(r'<svg role="img" aria-label="([^"]*)"', page), sep="\\n")
"""
PICTURES = """\
Effects on spend against A
The distribution of spend in each arm
Effects on spend@0d..7d against A
Effects on spend@7d..14d against A
Effects on spend by days since the first exposure
The smallest change with power 80 %, percentage points
The power for a change of 1 point
The smallest change of bought, % of the mean in shop, by days
What noise costs, by ε
"""


@pytest.mark.slow
def test_every_picture_is_drawn(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arms, days = np.resize(["A", "B"], 2_000), rng.integers(0, 5, 2_000)
    rows = {"shop": arms, "spend": rng.integers(0, 40, 2_000)}
    asked = {"quantiles": {"spend": [0.5]}, "bins": {"spend": [0, 10, 20, 30]}}
    people = kb.count(rows, **as_values("count", arm="shop", metrics=["spend"], bounds={"spend": (0, 40)}, **asked))
    start = pd.Timestamp("2026-03-01")
    exposed = pd.DataFrame({"user": np.arange(2_000), "shop": arms, "time": start})
    later = start + pd.to_timedelta(rng.integers(0, 14, 2_000), unit="D")
    events = pd.DataFrame({"user": np.arange(2_000), "time": later, "spend": 1 + days})
    metrics = ["spend@0d..7d", "spend@7d..14d"]
    bounds = {"bounds": dict.fromkeys(metrics, (0, 5))}
    windows = kb.count(
        exposed, **as_values("count", arm="shop", unit="user", events=events, window="14d", metrics=metrics, **bounds)
    )
    for name, counted in {"people": people, "windows": windows}.items():
        kb.write_release(kb.release(counted), tmp_path / f"{name}.json")
    plan = 'metrics.bought = { kind = "binary" }\nexperiments.shop = { arms = { A = 1, B = 1 } }\n'
    (tmp_path / "kanab.toml").write_text(plan, encoding="utf-8")
    command = [sys.executable, "-c", COMMANDS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == PICTURES, done.stderr
