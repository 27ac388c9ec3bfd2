"""The report of a scan: one file, everything escaped, pictures that say what they show."""

from __future__ import annotations

import json
import re
from collections import Counter
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from kanab.errors import AnalysisError
from kanab.report.colours import ALARM, DOWN, INK, UP
from kanab.report.figure import Dots, HeatMap, Line, Plot
from kanab.scan.report.scan_page import scan_report
from kanab.scan.report.scan_pictures import effects_figure, expected_figure, heat_map

Scan = dict[str, Any]
STORED = Path(__file__).parent / "scan.json"
EVIL = '<img src=x onerror="alert(1)">'


class Outline(HTMLParser):
    """Opened and closed tags, and whatever could run or load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.wrong: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self._look(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._look(tag, attrs)

    def _look(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if tag in ("script", "img", "link") or name.startswith("on") or name in ("src", "style"):
                self.wrong.append(f"{tag} {name}")
            if name == "id":
                self.ids.append(value or "")
            if name == "href":
                self.links.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if self.open.pop() != tag:
            self.wrong.append(f"/{tag}")


def outline(page: str) -> Outline:
    found = Outline()
    found.feed(page)
    assert found.open == []
    return found


@pytest.fixture
def stored() -> dict[str, Scan]:
    made: dict[str, Scan] = json.loads(STORED.read_text(encoding="utf-8"))
    return made


@pytest.fixture
def six(stored: dict[str, Scan]) -> Scan:
    return stored["pairs"]


def hundred(six: Scan) -> Scan:
    """A hundred experiments, every p-value once, one metric."""
    quiet = next(row for row in six["pairs"] if row["verdict"] == "nothing found")
    names = [f"test_{place:03}" for place in range(100)]
    pairs = list(combinations(names, 2))
    ps = [((place * 1009) % 4950 + 0.5) / 4950 for place in range(4950)]
    rows = [quiet | {"a": a, "b": b, "metric": "revenue", "p_robust": p} for (a, b), p in zip(pairs, ps, strict=True)]
    return six | {
        "pairs": rows, "experiments": names, "metrics": ["revenue"], "effects": [],
        "quantiles": {"revenue": {"expected": sorted(ps)[::10], "observed": sorted(ps)[::10]}},
    }  # fmt: skip


def test_the_page_is_whole_and_loads_nothing(stored: dict[str, Scan]) -> None:
    page = scan_report(pairs=stored["pairs"], segments=stored["segments"])
    found = outline(page)
    assert found.wrong == []
    assert len(set(found.ids)) == len(found.ids)
    assert {link.removeprefix("#") for link in found.links} <= set(found.ids)
    assert "default-src 'none'" in page
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_names_from_data_never_become_markup(stored: dict[str, Scan]) -> None:
    text = json.dumps(stored).replace("banner", json.dumps(EVIL)[1:-1]).replace("revenue", json.dumps(EVIL)[1:-1] + "$")
    evil = json.loads(text)
    page = scan_report(pairs=evil["pairs"], segments=evil["segments"])
    assert outline(page).wrong == []
    assert "<img" not in page
    assert "&lt;img src=x" in page


def test_without_any_scan_there_is_no_report() -> None:
    with pytest.raises(AnalysisError, match="no scan to report"):
        scan_report()


def test_an_alarm_is_called_out_and_so_is_a_broken_assignment(six: Scan) -> None:
    page = scan_report(pairs=six)
    assert 'role="alert"><strong>Interference in 1 test; 1 to watch' in page
    six["verdicts"] = {"nothing found": 18, "assignment broken": 2}
    assert 'role="alert"><strong>Interference in no test; 2 with a broken assignment.' in scan_report(pairs=six)
    six["verdicts"] = {"nothing found": 20}
    six["pairs"] = [row for row in six["pairs"] if row["verdict"] == "nothing found"]
    assert 'role="alert"' not in scan_report(pairs=six)


def test_each_flagged_pair_can_be_unfolded_and_is_linked_from_the_map(six: Scan) -> None:
    page = scan_report(pairs=six)
    assert page.count("<details open>") == 2
    assert '<a href="#flag-0"><g><title>banner × price: interference, p = 0.00120</title>' in page
    assert '<div id="flag-0">' in page
    six["effects"] *= 3
    assert scan_report(pairs=six).count("<details>") == 3


def test_two_experiments_need_no_map(six: Scan) -> None:
    two = six | {"pairs": six["pairs"][:2], "experiments": ["banner", "price"]}
    assert "Every pair at a glance" not in scan_report(pairs=two)
    assert "Every pair at a glance" in scan_report(pairs=six)


def test_a_map_marks_verdicts_and_is_darker_for_smaller_p(six: Scan) -> None:
    drawn = heat_map(six, "revenue")
    (panel,) = drawn.panels
    assert isinstance(panel, HeatMap)
    marks = [(cell.a, cell.b, cell.paint.colour) for cell in panel.cells if cell.words]
    assert marks == [(0, 1, ALARM), (0, 3, INK), (1, 3, DOWN)]
    assert "marked: banner × price interference; banner × search assignment broken; price × search watch." in (
        drawn.description
    )


def test_a_map_of_a_hundred_experiments_stays_small(six: Scan) -> None:
    drawn = heat_map(hundred(six), "revenue")
    assert len(drawn.to_html()) < 40_000
    (panel,) = drawn.panels
    assert isinstance(panel, HeatMap)
    squares = Counter(cell.paint.opacity for cell in panel.cells)
    # of p = (i + 0.5) / 4950 there are 247 below 0.05, 49 below 0.01, 5 below 0.001
    assert squares == {0.22: 247 - 49, 0.42: 49 - 5, 0.68: 5}


def plotted(six: Scan) -> Plot:
    drawn = expected_figure(six, "revenue")
    assert drawn is not None
    (panel,) = drawn.panels
    assert isinstance(panel, Plot)
    return panel


def test_p_values_on_the_line_are_drawn_on_the_line(six: Scan) -> None:
    line, points, beyond = plotted(hundred(six)).marks
    assert isinstance(line, Line)
    assert isinstance(points, Dots)
    assert (line.points[0], len(points.points)) == ((0.0, 0.0), 495)
    assert all(x == y for x, y in [*line.points, *points.points])
    assert isinstance(beyond, Dots)
    assert beyond.points == []


def test_p_of_zero_is_drawn_at_the_edge_and_no_p_at_all_not(six: Scan) -> None:
    six["quantiles"]["revenue"]["observed"][0] = 0.0
    *_, beyond = plotted(six).marks
    assert isinstance(beyond, Dots)
    assert (len(beyond.points), beyond.shape) == (1, "triangle")
    six["quantiles"]["revenue"] = {"expected": [], "observed": []}
    assert expected_figure(six, "revenue") is None
    assert outline(scan_report(pairs=six)).wrong == []


def test_effects_within_arms_are_drawn_with_their_intervals(six: Scan) -> None:
    drawn = effects_figure(six, six["effects"][0]).to_html()
    assert 'aria-label="Effects of banner and price on revenue"' in drawn
    assert "+6.11 (4.39 to 7.83)" in drawn
    assert (drawn.count("<circle"), drawn.count(f'fill="{UP}"')) == (4, 3)
    six["effects"][0]["effects"].append(six["effects"][0]["effects"][0] | {"arm": "loud"})
    assert "banner loud − off, price off" in effects_figure(six, six["effects"][0]).to_html()


def test_segments_alone_make_a_report(stored: dict[str, Scan]) -> None:
    page = scan_report(segments=stored["segments"])
    assert "<h1>2 experiments by 2 covariates</h1>" in page
    assert "Each level" not in page
    assert '<th scope="row" role="rowheader">gold</th>' in page
    assert "<svg" not in page


def test_a_scan_in_which_nothing_could_be_tested_is_reported(six: Scan) -> None:
    for row in six["pairs"]:
        row |= {"verdict": "not testable", "note": "no squares were kept", "p_robust": None, "p_adjusted": None}
    none = six | {
        "tests": {"revenue": 0, "bought": 0},
        "expected": 0.0,
        "verdicts": {"not testable": 30},
        "effects": [],
    }
    page = scan_report(pairs=none)
    assert "Nothing could be tested." in page
    assert "30 tests: no squares were kept." in page


def test_many_alarms_are_cut_with_their_number(six: Scan) -> None:
    ringing = next(row for row in six["pairs"] if row["verdict"] == "interference")
    six["pairs"] = [ringing | {"a": f"first {place}"} for place in range(30)]
    six["experiments"] = ["price", *(row["a"] for row in six["pairs"])]
    page = scan_report(pairs=six)
    assert "The 20 most urgent of 30." in page
    assert page.count('<span class="interference">') == 20
    assert "and 10 more." in page
