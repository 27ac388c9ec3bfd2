"""The report of a scan, looked at with a real browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kanab.scan.report.scan_page import scan_report

Open = Callable[..., Page]
Scan = dict[str, Any]
STORED = Path(__file__).parents[1] / "unit" / "scan" / "report" / "scan.json"

CONTRASTS = """() => {
    const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
    const light = colour => rgb(colour).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const page = light(getComputedStyle(document.body).backgroundColor);
    const found = {};
    for (const element of document.querySelectorAll('body *')) {
        const words = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!words || ['title', 'desc'].includes(element.tagName)) continue;
        const style = getComputedStyle(element);
        const own = light(element.closest('svg') ? style.fill : style.color);
        const ratio = (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
        const key = `${element.tagName}.${element.className.baseVal ?? element.className}`;
        found[key] = Math.min(found[key] ?? 99, ratio);
    }
    return found;
}"""

OVERLAPS = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    return boxes.flatMap(([a, x], i) => boxes.slice(i + 1)
        .filter(([b, y]) => x.left < y.right && y.left < x.right && x.top + 2 < y.bottom && y.top + 2 < x.bottom)
        .map(([b]) => `${a} / ${b}`));
})"""

OUTSIDE = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(t => {
        const own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 || own.bottom > box.bottom + 3;
    }).map(t => t.textContent);
})"""


def both() -> dict[str, Scan]:
    made: dict[str, Scan] = json.loads(STORED.read_text(encoding="utf-8"))
    return made


def hundred() -> Scan:
    """A hundred experiments with long names; thirty pairs ring, five are explained."""
    six = both()["pairs"]
    loud = next(row for row in six["pairs"] if row["verdict"] == "interference")
    quiet = next(row for row in six["pairs"] if row["verdict"] == "nothing found")
    names = [f"an_experiment_with_a_very_long_name_{place}" for place in range(100)]
    rows = [
        (loud if place % 165 == 0 else quiet | {"p_robust": (place * 1009 % 4950 + 0.5) / 4950}) | {"a": a, "b": b}
        for place, (a, b) in enumerate(combinations(names, 2))
    ]
    effects = [six["effects"][0] | {"a": names[0], "b": name} for name in names[1:6]]
    rows = [row | {"metric": "revenue"} for row in rows]
    return six | {"pairs": rows, "experiments": names, "metrics": ["revenue"], "effects": effects}


@pytest.fixture(scope="session")
def scans() -> dict[str, str]:
    return {"six": scan_report(**both()), "hundred": scan_report(pairs=hundred())}


def test_headings_pictures_and_tables_have_names(open_page: Open, scans: dict[str, str]) -> None:
    page = open_page(scans["six"])
    expect(page.get_by_role("heading", level=1)).to_have_text("6 experiments")
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[:3] == ["Which experiments interfere?", "What flagged tests look like", "Every pair at a glance"]
    assert len(set(headings)) == len(headings)
    for name in (
        "Pairs of experiments on revenue",
        "Observed against expected p-values of bought",
        "Effects of banner and price on revenue",
        "Key to the map",
    ):
        expect(page.get_by_role("img", name=name)).to_be_visible()
    row = page.get_by_role("table", name="Tests by urgency").first.get_by_role("row").nth(1)
    assert row.inner_text().split("\t")[:5] == ["banner × price", "revenue", "10.5", "0.00120", "0.0120"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["six", "hundred"])
def test_nothing_is_requested_and_nothing_complains(
    open_page: Open, scans: dict[str, str], name: str, scheme: str
) -> None:
    page = open_page(scans[name], scheme=scheme)
    page.wait_for_load_state("networkidle")
    assert page.heard == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
@pytest.mark.parametrize("name", ["six", "hundred"])
def test_the_page_never_scrolls_sideways(open_page: Open, scans: dict[str, str], name: str, width: int) -> None:
    page = open_page(scans[name], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("name", ["six", "hundred"])
def test_words_in_pictures_neither_overlap_nor_leave_them(
    open_page: Open, scans: dict[str, str], name: str, width: int
) -> None:
    page = open_page(scans[name], width=width)
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    letters = page.locator(".maps text").first
    assert letters.evaluate("text => text.getBoundingClientRect().height") > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_have_enough_contrast(open_page: Open, scans: dict[str, str], scheme: str) -> None:
    contrasts = open_page(scans["six"], scheme=scheme).evaluate(CONTRASTS)
    assert len(contrasts) > 12
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}


def test_a_mark_on_the_map_unfolds_its_pair(open_page: Open, scans: dict[str, str]) -> None:
    page = open_page(scans["hundred"])
    hidden = page.locator("#flag-4")
    expect(hidden).not_to_be_visible()
    page.get_by_text("an_experiment_with_a_very_long_name_5").locator("visible=true").last.click()
    expect(hidden).to_be_visible()
    small = open_page(scans["six"])
    small.locator(".maps a[href='#flag-1']").first.locator("path").first.click()
    expect(small.locator("#flag-1")).to_be_in_viewport()


def test_dark_is_dark_on_the_map_too(open_page: Open, scans: dict[str, str]) -> None:
    look = "getComputedStyle(document.querySelector('.maps rect')).fill"
    light, dark = (open_page(scans["six"], scheme=scheme).evaluate(look) for scheme in ("light", "dark"))
    assert (light, dark) == ("rgb(240, 243, 246)", "rgb(28, 35, 43)")


def test_print_is_light_and_unfolds_everything(open_page: Open, scans: dict[str, str]) -> None:
    page = open_page(scans["hundred"], scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(page.locator("#flag-4")).to_be_visible()
    assert page.locator(".maps svg").evaluate("map => map.getBoundingClientRect().width") <= 1200
    assert 3 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 8


def test_on_a_phone_a_large_map_scrolls_by_itself(open_page: Open, scans: dict[str, str]) -> None:
    page = open_page(scans["hundred"], width=390)
    figure = page.get_by_role("region", name="Map of revenue")
    assert figure.evaluate("box => box.scrollWidth > box.clientWidth && box.clientWidth < 390")
    cell = page.locator("td[data-label=verdict]").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"verdict"'


def test_a_script_that_got_in_would_not_run(open_page: Open, scans: dict[str, str]) -> None:
    page = open_page(scans["six"].replace("</main>", "<script>window.hacked = true</script></main>"))
    assert page.evaluate("window.hacked") is None
    assert "Content Security Policy" in page.heard[0]  # type: ignore[attr-defined]
