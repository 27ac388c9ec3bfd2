"""The report of a scan, looked at with a real browser."""

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.documents import document

Open = Callable[..., Page]


def test_headings_pictures_and_tables_have_names(open_page: Open) -> None:
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


def test_print_is_light_and_a_large_map_fits(open_page: Open) -> None:
    page = open_page(document("scan of a hundred"), scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("svg.large").evaluate("map => map.getBoundingClientRect().width") <= 1200
    assert 3 <= page.pdf(format="A4").count(b"/Type /Page\n") <= 8


def test_on_a_phone_a_large_map_scrolls_by_itself(open_page: Open) -> None:
    page = open_page(document("scan of a hundred"), width=390)
    figure = page.locator("figure:has(svg.large)")
    assert figure.evaluate("box => box.scrollWidth > box.clientWidth && box.clientWidth < 390")
    cell = page.locator("td[data-label=verdict]").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"verdict"'
