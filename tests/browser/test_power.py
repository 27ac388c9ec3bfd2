"""The page of a planned experiment, looked at with a real browser."""

from collections.abc import Callable

from playwright.sync_api import Page, expect
from tests.browser.documents import document

Open = Callable[..., Page]


def test_the_curves_stand_side_by_side_and_have_names(open_page: Open) -> None:
    page = open_page(document("rate"))
    expect(page.get_by_role("heading", level=1)).to_have_text("How many people?")
    first, second = (page.locator("figure").nth(place).bounding_box() for place in (0, 1))
    assert first is not None
    assert second is not None
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    expect(page.get_by_role("img", name="The power for a change of 1 point")).to_be_visible()


def test_a_forecast_has_two_pictures(open_page: Open) -> None:
    assert open_page(document("forecast")).locator("figure svg").count() == 2
