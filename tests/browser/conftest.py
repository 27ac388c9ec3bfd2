"""A real browser: the system's chromium, else Debian's, else playwright's own. Never skipped."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, Playwright, sync_playwright
from tests.browser.browser_tab import Tab
from tests.browser.documents import document, real
from tests.browser.shop_site import Site
from tests.collector.collector_process import ForkServer, Place
from tests.programs import find_program, missing

QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def from_playwright() -> bool:
    """Let playwright download its own."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Browsers:
    """Browsers that are started once, and closed when the next test needs none.

    Playwright marks its event loop as running: until it is stopped, no other test of this process could start one.
    """

    def __init__(self) -> None:
        self._playwright: Playwright | None = None
        self._started: dict[tuple[str, ...], Browser] = {}

    def get(self, *more: str) -> Browser:
        """A browser with some further arguments."""
        if more not in self._started:
            path = find_program(*NAMES, package="chromium")
            if path is None and not from_playwright():
                pytest.fail(missing("chromium", "chromium"))
            self._playwright = self._playwright or sync_playwright().start()
            try:
                found = self._playwright.chromium.launch(executable_path=path, args=[*QUIET, *more])
            except Error as problem:
                pytest.fail(f"the browser does not start. Install chromium and its libraries. {problem.message}")
            self._started[more] = found
        return self._started[more]

    def close(self) -> None:
        if self._playwright is not None:
            for one in self._started.values():
                one.close()
            self._started.clear()
            self._playwright.stop()
            self._playwright = None


BROWSERS = Browsers()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After the last of these tests."""
    yield
    if nextitem is None or not nextitem.path.is_relative_to(Path(__file__).parent):
        BROWSERS.close()


@pytest.fixture
def browser() -> Browser:
    """A browser that says that it is automated."""
    return BROWSERS.get()


@pytest.fixture
def hillstrom() -> dict[str, Any]:
    return real()


@pytest.fixture
def report() -> str:
    return document("readout")


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Write HTML to a file and open it; every message and request is kept on ``page.heard``."""
    pages: list[Page] = []

    def opened(html: str, *, width: int = 1200, scheme: Any = "light") -> Page:
        file = tmp_path / f"report{len(pages)}.html"
        file.write_text(html, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        heard: list[str] = []
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda problem: heard.append(f"error: {problem}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: heard.append(request.url) if request.url != file.as_uri() else None)
        page.goto(file.as_uri())
        page.heard = heard  # type: ignore[attr-defined]
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()


SHOP = """
k = 10

[cohorts]
every = "7d"
window = "7d"

[covariates]
tier = [1, 2, 3]
device = ["phone", "desktop", "other"]

[metrics]
bought = { kind = "binary" }
minutes = { bounds = [0, 600], resolution = 0.01 }
revenue = { bounds = [0, 500], resolution = 0.01 }
orders = { bounds = [0, 50], resolution = 1 }
rating = { bounds = [1, 5], resolution = 1, missing = "exclude" }
aov = { ratio = ["revenue", "orders"] }
joy = { ratio = ["rating", "orders"] }

[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
segments = ["device"]

[experiments.banner]
arms = { off = 1, on = 1 }
interactions = ["checkout"]
"""


@pytest.fixture
def peoples_browser() -> Browser:
    """A browser that does not say that it is automated: the client would not count it."""
    return BROWSERS.get("--disable-blink-features=AutomationControlled")


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """Forks commands."""
    found = ForkServer()
    yield found
    found.close()


@pytest.fixture
def site(tmp_path: Path, fork_server: ForkServer) -> Iterator[Site]:
    """A shop with a collector of its own."""
    found = Site(Place(tmp_path / "place", fork_server), SHOP)
    yield found
    found.close()


@pytest.fixture
def someone(peoples_browser: Browser, site: Site) -> Iterator[Callable[..., Tab]]:
    """Opens the shop for somebody new; scripts run in their pages before anything else."""
    opened: list[BrowserContext] = []

    def made(*scripts: str, path: str = "") -> Tab:
        context = peoples_browser.new_context()
        opened.append(context)
        for script in scripts:
            context.add_init_script(script)
        return Tab(context, site, path)

    yield made
    for context in opened:
        context.close()
