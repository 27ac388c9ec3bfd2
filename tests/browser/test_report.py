"""The report, looked at with a real browser."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
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


def test_print_is_light_and_keeps_its_tables(open_page: Open, report: str) -> None:
    page = open_page(report, width=390, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("td").first.evaluate("cell => getComputedStyle(cell).display") == "table-cell"
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert 2 <= printed.count(b"/Type /Page\n") <= 7


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


def test_an_alarm_stands_out_in_red(open_page: Open, hillstrom: Readout) -> None:
    hillstrom["sample_ratio"]["p"] = 1e-9
    alert = open_page(whole(hillstrom)).get_by_role("alert")
    expect(alert).to_contain_text("Sample ratio: ALARM.")
    assert alert.evaluate("alert => getComputedStyle(alert).borderLeftColor") == "rgb(180, 35, 24)"


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
