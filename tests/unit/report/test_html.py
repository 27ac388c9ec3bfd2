from __future__ import annotations

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


def test_sections_are_named_by_their_headings(report: str) -> None:
    tags = Outline(report).tags
    names = {attributes["id"] for tag, attributes in tags if tag == "h2"}
    assert names == {attributes["aria-labelledby"] for tag, attributes in tags if tag == "section"}
    assert names == {"arrival", "effects", "segments", "privacy", "notes", "method"}


def test_identifiers_are_unique(report: str) -> None:
    found = re.findall(r'\sid="([^"]*)"', report)
    assert len(found) == len(set(found))


def test_the_report_shows_sentences_tables_and_receipt(report: str) -> None:
    text = Outline(report).text
    for sentence in (
        "64,000 people in 3 arms, control No E-Mail.",
        "Sample ratio: fine. People arrived in equal shares",
        "Mens E-Mail raises visit by 7.68 points (+72.4 %)",
        "95 % interval 7.02 to 8.34; p < 1e-100 (adjusted for recency).",
        "The effect on visit differs by womens",
        "k-anonymous at k = 10",
        "416 people",
        "Bounds were taken from the data",
        "each arm with its own variance (Welch)",
    ):
        assert sentence in text
    for cell in ("+7.66", "7.00 to 8.32", "+72.1 %", "1.36e-112", "–", "F(2, 41,682) = 49.6", "33.29 %", "+6.20"):
        assert f">{cell}</td>" in report
    assert not re.search(r"(?<!k-)anonymous|compliant|no personal data", text, re.IGNORECASE)


def test_every_cell_names_its_column_and_every_row_its_arm(report: str) -> None:
    tags = Outline(report).tags
    assert all(attributes.get("data-label") for tag, attributes in tags if tag == "td")
    assert {attributes["scope"] for tag, attributes in tags if tag == "th"} == {"col", "row"}
    assert all(attributes["aria-label"] for tag, attributes in tags if tag == "table")


def test_numbers_are_aligned_right_and_words_left(report: str) -> None:
    assert '<td role="cell" data-label="effect" class="n">+7.66</td>' in report
    assert '<td role="cell" data-label="differs">yes</td>' in report


def test_tests_without_follow_ups_have_no_table_of_levels(hillstrom: Readout) -> None:
    report = report_html(hillstrom | {"follow_ups": []})
    assert "Tests of whether the effect differs" in report
    assert "Each level against the rest" not in report


def test_each_metric_has_its_own_pictures(report: str) -> None:
    assert report.count("<figure>") == report.count('role="img"') == 4
    assert "pip install" not in report


def test_an_alarm_is_announced(hillstrom: Readout) -> None:
    hillstrom["sample_ratio"]["p"] = 1e-9
    assert '<p class="call alarm" role="alert"><strong>Sample ratio: ALARM.</strong>' in report_html(hillstrom)
    assert "border-left:6px solid #d1242f" in readout_html(hillstrom)


def test_the_receipt_shows_merged_levels_deviations_and_what_was_left_out(small: Maker) -> None:
    data = small()
    data["privacy"] |= {
        "merged": {"checkout/tier": {"3 … 5": ["3", "4", "5"]}},
        "left_out": {"checkout/zip": "zip is left out: sparse"},
        "deviations": ["k = 3: pilot"], "effective_k": 120, "audit": "passed",
        "costs": ["effects of checkout are not adjusted for zip"],
    }  # fmt: skip
    report = report_html(data)
    for term, said in (
        ("Merged levels of tier", "3, 4, 5 → 3 … 5"),
        ("Left out: checkout/zip", "zip is left out: sparse"),
        ("What it cost", "effects of checkout are not adjusted for zip."),
        ("Differs from defaults", "k = 3: pilot"),
        ("Effective k of class sums", "at least 120, over all tables"),
        ("Audit", "passed"),
    ):
        assert f"<dt>{term}</dt><dd>{said}</dd>" in report
    assert "<dt>Merged levels</dt><dd>none</dd>" in report_html(small())


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


def test_rows_that_cannot_be_tested_are_shown(small: Maker, effect: Maker, untestable: Readout) -> None:
    nothing = dict.fromkeys(("mean_control", "mean_arm", "estimate", "se", "se_population"))
    data = small(effect(**(untestable | nothing)), effect(metric="visits", **untestable))
    report = report_html(data)
    assert "B cannot be tested on spend" in report
    assert report.count('<li class="untestable">') == 2
    assert 'data-label="effect" class="n">–</td>' in report


def test_a_readout_without_effects_segments_or_notes_is_a_whole_report(small: Maker) -> None:
    report = report_html(small() | {"effects": []})
    assert "No effect was computed: no metric is compared." in report
    assert 'id="segments"' not in report
    assert 'id="notes"' not in report


def test_the_notebook_fragment_brings_no_sheet_and_no_colours(hillstrom: Readout) -> None:
    fragment = readout_html(hillstrom)
    assert fragment.startswith('<div class="kanab-readout">')
    assert not re.search(r"<style|<script|<html|<h\d|#[0-9a-f]{6}|background", fragment)
    assert fragment.count("<table") == 8
    assert "Mens E-Mail raises visit by 7.68 points (+72.4 %)" in Outline(fragment).text
