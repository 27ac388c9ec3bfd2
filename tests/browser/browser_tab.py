"""Somebody with a browser of their own, in front of a page that has loaded the client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from playwright.sync_api import BrowserContext, Page
from tests.browser.shop_site import Site

KEY = "kanab/1 "


class Tab:
    """One tab of a person: a page of the shop, and the client on it."""

    def __init__(self, context: BrowserContext, site: Site, path: str = "") -> None:
        self.context, self.site = context, site
        self.page: Page = context.new_page()
        self.heard: list[str] = []
        self.page.on("console", lambda message: self.heard.append(message.text))
        self.page.on("pageerror", lambda problem: self.heard.append(f"error: {problem}"))
        self.visit(path)

    def visit(self, path: str = "") -> Tab:
        self.page.goto(self.site.url + path)
        self.page.wait_for_function("() => window.init")
        return self

    def start(self, **options: Any) -> Tab:
        """``init`` with options; the collector is where the page is."""
        self.page.evaluate("async (options) => { window.kanab = await init(options); }", {"url": "/"} | options)
        return self

    def variant(self, name: str) -> str | None:
        found: str | None = self.page.evaluate("(name) => kanab.variant(name)", name)
        return found

    def arms(self, *names: str) -> list[str | None]:
        return [self.variant(name) for name in names]

    def enroll(self, name: str, **levels: Any) -> Tab:
        self.page.evaluate("([name, levels]) => kanab.enroll(name, levels)", [name, levels])
        return self

    def track(self, metric: str, *amount: Any) -> Tab:
        self.page.evaluate("([metric, amount]) => kanab.track(metric, ...amount)", [metric, list(amount)])
        return self

    def flush(self) -> Tab:
        self.page.evaluate("() => kanab.flush()")
        return self

    def opt_out(self) -> Tab:
        self.page.evaluate("() => kanab.optOut()")
        return self

    @property
    def stored(self) -> dict[str, str]:
        found: dict[str, str] = self.page.evaluate("() => ({ ...localStorage, ...sessionStorage })")
        return found

    @property
    def state(self) -> Any:
        """What the client remembers."""
        return json.loads(self.stored[self._key("")])

    def tamper(self, change: Callable[[Any], None], path: str = "") -> None:
        """Change what is remembered, as somebody could in the browser's tools."""
        key = self._key(path)
        state = json.loads(self.stored[key])
        change(state)
        self.page.evaluate("([key, text]) => { localStorage[key] = text; }", [key, json.dumps(state)])

    def _key(self, path: str) -> str:
        return KEY + self.site.url.rstrip("/") + (path or "/")

    def wait(self, fact: Callable[[], bool], seconds: float = 15) -> None:
        wait_for(fact, seconds, lambda: self.page.wait_for_timeout(20))


def wait_for(
    fact: Callable[[], bool], seconds: float = 15, pause: Callable[[], None] = lambda: time.sleep(0.02)
) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it did not happen"
        pause()
