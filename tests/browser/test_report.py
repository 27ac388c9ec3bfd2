"""Reports, looked at with a real browser."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.browser.documents import document
from tests.browser.test_every_report import CONTRASTS

from kanab.analysis.sections import readout_html, report_html

Readout = dict[str, Any]
Open = Callable[..., Page]


def whole(data: Readout) -> str:
    return report_html(data)


def test_headings_pictures_and_tables_have_names(open_page: Open, report: str) -> None:
    page = open_page(report)
    expect(page).to_have_title("segment: 64,000 people in 3 arms, control No E-Mail")
    expect(page.get_by_role("heading", level=1)).to_have_text("segment")
    assert page.get_by_role("heading", level=2).all_inner_texts() == [
        "Did people arrive as planned?",
        "What happened?",
        "Does the effect differ by segment?",
        "Privacy",
        "Notes",
        "How it was computed",
    ]
    for name in (
        "Effects on visit against No E-Mail",
        "Effects on spend against No E-Mail",
        "The effect at each level: visit by womens",
    ):
        picture = page.get_by_role("img", name=name)
        expect(picture).to_be_visible()
        box = picture.bounding_box()
        assert box is not None
        assert box["width"] > 400
        assert box["height"] > 80
    row = page.get_by_role("table", name="visit against No E-Mail").get_by_role("row").nth(1)
    assert row.inner_text().split("\t")[3:6] == ["+7.66", "0.34", "7.00 to 8.32"]


def test_names_that_are_markup_stay_words(open_page: Open, hillstrom: Readout) -> None:
    evil = '<img src=x onerror="alert(1)">'
    for row in hillstrom["effects"]:
        row["metric"] += evil
    page = open_page(whole(hillstrom))
    assert page.heard == []  # type: ignore[attr-defined]
    expect(page.get_by_role("heading", level=3).first).to_have_text(f"visit{evil}")


def test_on_a_phone_rows_become_cards_that_name_their_numbers(open_page: Open, report: str) -> None:
    page = open_page(report, width=390)
    cell = page.locator("td[data-label=effect]").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"effect"'
    assert cell.evaluate("cell => getComputedStyle(cell.parentElement).display") == "grid"
    letters = page.locator("figure svg text").first
    assert letters.evaluate("text => text.getBoundingClientRect().height") > 10


def test_print_keeps_its_tables(open_page: Open, report: str) -> None:
    page = open_page(report, width=390, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("td").first.evaluate("cell => getComputedStyle(cell).display") == "table-cell"
    assert 2 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 7


def test_pages_of_print_keep_tables_pictures_and_headings_with_their_words(open_page: Open, report: str) -> None:
    page = open_page(report)
    page.emulate_media(media="print")

    def looks(selector: str, side: str) -> set[str]:
        elements = page.locator(selector)
        assert elements.count() > 0, selector
        return set(elements.evaluate_all(f"all => all.map(one => getComputedStyle(one).{side})"))

    assert looks("table, figure, tr, li", "breakInside") == {"avoid"}
    assert looks("h1, h2, h3, .key, p:has(+ .scroll)", "breakAfter") == {"avoid"}
    assert looks("footer", "breakBefore") == {"avoid"}


@pytest.mark.parametrize(("scheme", "colour"), [("light", "rgb(0, 0, 0)"), ("dark", "rgb(255, 255, 255)")])
def test_the_notebook_fragment_takes_the_notebooks_colours(
    open_page: Open, hillstrom: Readout, scheme: str, colour: str
) -> None:
    page = open_page(
        f'<!doctype html><meta name="color-scheme" content="light dark">{readout_html(hillstrom)}', scheme=scheme
    )
    assert page.locator("td").first.evaluate("cell => getComputedStyle(cell).color") == colour
    assert page.heard == []  # type: ignore[attr-defined]


def asked(data: Readout) -> Readout:
    """The same report with cautions, claims and a prior."""
    row = data["effects"][0]
    pair = {name: row[name] for name in ("metric", "control", "arm", "method", "covariates", "estimate")}
    claim = {"claim": "equivalence", "better": "higher", "limits": [-0.1, 0.1], "relative": False, "confidence": 0.95}
    believed = {"arm": row["arm"], "mean": 0.07, "sd": 0.01, "interval": [0.05, 0.09], "positive": 0.99}
    data["margins"] = [
        pair | claim | {"interval": [0.07, 0.08], "t": 9.0, "p": 0.001, "p_adjusted": 0.001, "shown": True}
    ]
    data["bayes"] = [
        {
            "metric": row["metric"], "method": row["method"], "covariates": [], "better": "higher",
            "prior": {"mean": 0.0, "sd": 0.01}, "effects": [believed],
            "arms": [{"arm": row["arm"], "mean": 0.07, "best": 0.99, "loss": 0.0001}],
        }
    ]  # fmt: skip
    data["contrasts"] = [row | {"contrast": {row["arm"]: 0.5, "Womens E-Mail": 0.5, "No E-Mail": -1.0}}]
    data["cautions"] = [{"kind": "clamped", "metric": "spend", "sentence": "At least 3 % of people had odd values."}]
    return data


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_what_else_was_asked_fits_the_page_and_cautions_come_first(
    open_page: Open, hillstrom: Readout, width: int
) -> None:
    page = open_page(report_html(asked(hillstrom)), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[0] == "Before you act on it"
    assert headings[3:5] == ["Other comparisons of arms", "Are the claims shown?"]
    note = page.get_by_role("note")
    expect(note).to_have_text("At least 3 % of people had odd values.")
    assert note.evaluate("note => getComputedStyle(note).borderLeftColor") == "rgb(168, 74, 0)"
    contrasts = page.evaluate(CONTRASTS)
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}


# ── a scan ──────────────────────────────────────────────────────────────────────────────────────────


def test_headings_pictures_and_tables_of_a_scan_have_names(open_page: Open) -> None:
    page = open_page(document("scan"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Which experiments interfere?")
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[:3] == ["What needs attention", "What flagged tests look like", "Every pair at a glance"]
    assert len(set(headings)) == len(headings)
    for name in (
        "Pairs of experiments on revenue",
        "Observed against expected p-values of bought",
        "Effects of banner and price on revenue",
        "Key to the map",
    ):
        expect(page.get_by_role("img", name=name)).to_be_visible()
    row = page.get_by_role("table", name="What needs attention pair").first.get_by_role("row").nth(1)
    assert row.inner_text().split("\t")[:5] == ["banner × price", "revenue", "10.5", "0.00120", "0.0120"]


def test_a_mark_on_the_map_leads_to_its_pair(open_page: Open) -> None:
    page = open_page(document("scan"))
    page.locator("a[href='#flag-1']").first.locator("path").first.click()
    expect(page.locator("#flag-1")).to_be_in_viewport()


def test_dark_is_dark_on_the_map_too(open_page: Open) -> None:
    look = "getComputedStyle(document.querySelector('#maps ~ article rect')).fill"
    light, dark = (open_page(document("scan"), scheme=scheme).evaluate(look) for scheme in ("light", "dark"))
    assert (light, dark) == ("rgb(240, 243, 246)", "rgb(28, 35, 43)")


def test_a_large_map_fits_on_paper(open_page: Open) -> None:
    page = open_page(document("scan of a hundred"))
    page.emulate_media(media="print")
    assert page.locator("svg.large").evaluate("map => map.getBoundingClientRect().width") <= 1200
    assert 3 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 8


def test_on_a_phone_a_large_map_scrolls_by_itself(open_page: Open) -> None:
    page = open_page(document("scan of a hundred"), width=390)
    figure = page.locator("figure:has(svg.large)")
    assert figure.evaluate("box => box.scrollWidth > box.clientWidth && box.clientWidth < 390")
    cell = page.locator("td[data-label=verdict]").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"verdict"'


# ── the privacy officer's ───────────────────────────────────────────────────────────────────────────


def test_headings_and_tables_of_the_account_have_names(open_page: Open) -> None:
    page = open_page(document("officer"))
    expect(page).to_have_title("Privacy report: checkout")
    expect(page.get_by_role("heading", level=1)).to_have_text("checkout")
    assert page.get_by_role("heading", level=2).all_inner_texts() == [
        "What is promised",
        "Where the data go",
        "Released: checkout.release.json",
        "Released: city.release.json",
        "Three questions",
        "What an attacker could learn",
        "Residual risks",
        "The ledger",
    ]
    expect(page.get_by_text("k-anonymous at k = 10; audit passed", exact=True)).to_be_visible()
    expect(page.get_by_role("table", name="Where the data go step").get_by_role("row")).to_have_count(7)
    expect(page.get_by_role("table", name="The rules behind k rule").get_by_role("row")).to_have_count(5)
    rows = page.get_by_role("table", name="Every check rule").last.get_by_role("row")
    expect(rows).to_have_count(9)
    assert rows.nth(1).inner_text().split("\t")[:2] == ["k", "✓ holds"]
    expect(page.get_by_role("table", name="The ledger entry").get_by_role("row")).to_have_count(3)


def test_the_contents_lead_to_their_sections(open_page: Open) -> None:
    page = open_page(document("officer"))
    page.get_by_role("link", name="Residual risks").click()
    expect(page.get_by_role("heading", name="Residual risks")).to_be_in_viewport()


def test_what_is_broken_stands_out_in_red(open_page: Open) -> None:
    page = open_page(document("crowded officer"))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("BROKEN: k in")
    assert alert.evaluate("alert => getComputedStyle(alert).borderLeftColor") == "rgb(180, 35, 24)"
    state = page.get_by_text("✕ BROKEN").first
    assert state.evaluate("state => getComputedStyle(state).color") == "rgb(180, 35, 24)"


# ── a planned experiment ────────────────────────────────────────────────────────────────────────────


def stand_side_by_side(page: Page) -> bool:
    first, second = (page.locator("figure").nth(place).bounding_box() for place in (0, 1))
    assert first is not None
    assert second is not None
    return first["y"] == second["y"] and first["x"] + first["width"] <= second["x"]


def test_the_curves_stand_side_by_side_and_have_names(open_page: Open) -> None:
    page = open_page(document("rate"))
    expect(page.get_by_role("heading", level=1)).to_have_text("How many people?")
    assert stand_side_by_side(page)
    expect(page.get_by_role("img", name="The power for a change of 1 point")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 800})
    assert not stand_side_by_side(page)


def test_both_pictures_of_a_forecast_stand_side_by_side(open_page: Open) -> None:
    page = open_page(document("forecast"))
    assert page.locator("figure svg").count() == 2
    assert stand_side_by_side(page)
