"""A few visitors in a real browser, where there is one: they click through the shop's page."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = ["--no-sandbox", "--disable-blink-features=AutomationControlled"]
"""The client leaves automated browsers out; these are visitors."""


def visit_in_browser(address: str, visits: int) -> int:
    """Visit the shop in a browser; return how many came: 0 where there is neither playwright nor a browser."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        return 0
    try:
        from playwright.sync_api import Error, sync_playwright  # noqa: PLC0415 - for development
    except ImportError:
        return 0
    came = 0
    with suppress(Error), sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=OPTIONS)
        for place in range(visits):
            _visit(browser, address, place)
            came += 1
        browser.close()
    return came


def _visit(browser: Any, address: str, place: int) -> None:
    """Stay a while; every other visitor buys, in one arm by way of the basket. The last post goes out on leaving."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address}/shop")
    page.wait_for_selector("#checkout button")
    with page.expect_response("**/v1/t"):
        page.click("#stay")
    if place % 2:
        with page.expect_response("**/v1/t"):
            while not page.inner_text("#thanks"):
                page.click("#checkout button")
    context.close()
