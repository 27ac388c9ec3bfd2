import base64
import hashlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from kanab.analysis.sections import readout_html, report_html

Readout = dict[str, Any]
Maker = Callable[..., Readout]
VOID = {"meta", "br"}
EVIL = '<script>alert("x")</script>&'


class Outline(HTMLParser):
    """Every tag in order, the texts, and whether each tag was closed where it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.stack: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", "".join(self.texts))


@pytest.fixture(scope="module")
def report(published: Readout) -> str:
    """Drawn once: nobody changes a text."""
    return report_html(published)


@pytest.mark.slow
@pytest.mark.parametrize("crowd", ["hillstrom", "crowded"])
def test_every_tag_is_closed(request: pytest.FixtureRequest, crowd: str) -> None:
    data = request.getfixturevalue(crowd)
    for html in (readout_html(data), report_html(data)):
        assert Outline(html).stack == []


@pytest.mark.slow
def test_the_report_asks_nothing_of_the_network(report: str) -> None:
    bare = report.replace('xmlns="http://www.w3.org/2000/svg"', "").replace("http-equiv", "")
    assert "http" not in bare
    assert "//" not in bare
    assert not re.search(r"url\(|@import|\ssrc=|\shref=|<link|<script|<img|<iframe", report)


@pytest.mark.slow
def test_the_policy_allows_this_style_sheet_and_nothing_else(report: str) -> None:
    style = re.search(r"<style>(.*?)</style>", report, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style.group(1).encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'" in report
    assert " style=" not in report
    assert not re.search(r"\son\w+=", report)


@pytest.mark.slow
def test_headings_go_down_one_step_at_a_time(report: str) -> None:
    levels = [int(tag[1]) for tag, _ in Outline(report).tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_identifiers_are_unique(report: str) -> None:
    found = re.findall(r'\sid="([^"]*)"', report)
    assert len(found) == len(set(found))


def test_every_cell_names_its_column_and_every_row_its_arm(report: str) -> None:
    tags = Outline(report).tags
    assert all(attributes.get("data-label") for tag, attributes in tags if tag == "td")
    assert {attributes["scope"] for tag, attributes in tags if tag == "th"} == {"col", "row"}
    assert all(attributes["aria-label"] for tag, attributes in tags if tag == "table")


def test_each_metric_has_its_own_pictures(report: str) -> None:
    assert report.count("<figure>") == report.count('role="img"') == 4
    assert "pip install" not in report


def test_an_alarm_is_announced(hillstrom: Readout) -> None:
    hillstrom["sample_ratio"]["p"] = 1e-9
    assert '<p class="call alarm" role="alert"><strong>Sample ratio: ALARM.</strong>' in report_html(hillstrom)
    assert "border-left:6px solid #d1242f" in readout_html(hillstrom)


def poisoned(data: Readout) -> Readout:
    """The same readout with markup in every name that a person can choose."""
    names = {"segment", "visit", "spend", "womens", "recency", "history_segment", *data["arms"], "1"}

    def poison(value: Any) -> Any:
        if isinstance(value, str):
            return value + EVIL if value in names else value
        if isinstance(value, dict):
            return {poison(key) if key in data["arms"] else key: poison(item) for key, item in value.items()}
        return [poison(item) for item in value] if isinstance(value, list) else value

    made: Readout = poison(data)
    made["notes"].append(EVIL)
    made["privacy"]["merged"] = {EVIL: {EVIL: [EVIL]}}
    made["privacy"]["left_out"] = {EVIL: EVIL}
    return made


def test_what_is_folded_is_on_the_page_and_what_it_cost_and_every_scale_of_noise(small: Maker) -> None:
    noise = {
        "epsilon": 1.0, "delta": 1e-6, "mechanism": "discrete Gaussian", "total": 2.0, "spent": 1.0, "left": 0.6,
        "rates": [], "scales": {"checkout": {"people": 8.5}},
    }  # fmt: skip
    data = small()
    data["privacy"] |= {"costs": ["effects are not adjusted for zip"], "noise": noise}
    page = report_html(data)
    assert "<summary>What it cost</summary>\n<p>Effects are not adjusted for zip.</p></details>" in page
    assert "<summary>Noise of every number</summary>" in page
    assert '<td role="cell" data-label="one standard deviation" class="n">8.5</td>' in page
    assert "not adjusted for zip" not in readout_html(data)


@pytest.mark.slow
def test_markup_in_names_is_escaped_everywhere(hillstrom: Readout) -> None:
    data = poisoned(hillstrom)
    report = report_html(data)
    assert report.count("&lt;script&gt;") > 100
    for html in (report, readout_html(data)):
        assert "<script" not in html
        outline = Outline(html)
        assert outline.stack == []
        assert EVIL in outline.text


def test_the_notebook_fragment_brings_no_sheet_and_no_colours(hillstrom: Readout) -> None:
    fragment = readout_html(hillstrom)
    assert fragment.startswith('<div class="kanab-readout">')
    assert not re.search(r"<style|<script|<html|<h\d|#[0-9a-f]{6}|background", fragment)
    assert fragment.count("<table") == 8
    assert "Mens E-Mail raises visit by 7.68 points (+72.4 %)" in Outline(fragment).text
