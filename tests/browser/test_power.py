"""The page of a planned experiment, looked at with a real browser."""

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.documents import document

Open = Callable[..., Page]


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
