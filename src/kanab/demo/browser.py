"""A few visitors in a real browser, where there is one: they click through the shop's page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
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
        pages = [browser.new_context().new_page() for _ in range(visits)]
        for page in pages:
            page.goto(f"{address}/shop")
            page.wait_for_selector("#checkout button")
        _act(pages, lambda page: page.click("#stay"))
        _act(pages[1::2], _buy)  # every other one
        for page in pages:
            page.context.close()  # the last post goes out on leaving
            came += 1
        browser.close()
    return came


def _act(pages: Sequence[Any], act: Callable[[Any], None]) -> None:
    """Let all of them do something, and wait until what it changes is counted."""
    with ExitStack() as answers:
        for page in pages:
            answers.enter_context(page.expect_response("**/v1/t"))
            act(page)


def _buy(page: Any) -> None:
    """Buy, in one arm by way of the basket."""
    while not page.inner_text("#thanks"):
        page.click("#checkout button")
