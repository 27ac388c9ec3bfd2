"""The privacy officer's report, looked at with a real browser."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from tests.browser.documents import document

Open = Callable[..., Page]


@pytest.fixture
def report() -> str:
    return document("officer")


def test_headings_and_tables_have_names(open_page: Open, report: str) -> None:
    page = open_page(report)
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


def test_the_contents_lead_to_their_sections(open_page: Open, report: str) -> None:
    page = open_page(report)
    page.get_by_role("link", name="Residual risks").click()
    expect(page.get_by_role("heading", name="Residual risks")).to_be_in_viewport()


def test_what_is_broken_stands_out_in_red(open_page: Open) -> None:
    page = open_page(document("crowded officer"))
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("BROKEN: k in")
    assert alert.evaluate("alert => getComputedStyle(alert).borderLeftColor") == "rgb(180, 35, 24)"
    state = page.get_by_text("✕ BROKEN").first
    assert state.evaluate("state => getComputedStyle(state).color") == "rgb(180, 35, 24)"
