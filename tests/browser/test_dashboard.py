"""The dashboard, looked at with a real browser."""

import re
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect
from tests.contract.node import program
from tests.unit.dashboard.shop_releases import ledger_bytes, write

import kanab as kb
from kanab.collector.http.access import Access
from kanab.collector.http.app import Collector
from kanab.collector.http.server import bind
from kanab.collector.http.service import Service
from kanab.collector.keys.keyring import Keyring
from kanab.collector.stores.sqlite import SqliteStore
from kanab.dashboard.dashboard import Dashboard, Site
from kanab.dashboard.release_sources import CollectorReleases, FileReleases
from kanab.plan.file import parse_plan
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

AXE = "axe-core@4.10.2"
TOKEN = "a long random text"
NOON = datetime(2026, 11, 11, 12, tzinfo=UTC)
PAGES = ("/", "/experiments/checkout", "/interactions", "/privacy", "/plan")
WAITING = parse_plan("""
k = 10
cohorts = { every = "7d", window = "7d", seal = "7d" }
metrics.spend = { bounds = [0, 500] }
experiments.checkout.arms = { A = 1, B = 1 }
""")

Go = Callable[..., Page]


class Served:
    """An application behind a real server, in a thread."""

    def __init__(self, app: Any) -> None:
        self._socket = bind("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="critical", access_log=False, ws="none", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [self._socket]}, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(20)


def hundred(folder: Path) -> None:
    """A hundred small experiments, each in a file of its own; every twentieth is split wrongly."""
    rng = np.random.default_rng(4)
    n = 600
    for number in range(100):
        name = f"test_{number:03d}"
        plan = Plan(
            (MetricPlan("bought", binary=True),),
            (ExperimentPlan(name, (("A", 1), ("B", 1)), "A", adjust=("tier",)),),
            (CovariatePlan("tier", (1, 2, 3)),),
        )
        arms = rng.choice(["A", "B"], n, p=[0.5, 0.5] if number % 20 else [0.4, 0.6])
        rows = {name: arms, "tier": rng.choice([1, 2, 3], n), "bought": rng.random(n) < 0.2}
        kb.write_release(kb.release(kb.count(rows, plan)), folder / f"{name}.release.json")


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Dashboards with data, with none, with a token, with a changed entry, with a hundred experiments."""
    root = tmp_path_factory.mktemp("dashboards")
    folders = {name: root / name for name in ("full", "empty", "broken", "hundred", "waiting")}
    for folder in folders.values():
        folder.mkdir()
    write(folders["full"], kanab_ledger=ledger_bytes())
    write(folders["broken"], kanab_ledger=ledger_bytes().replace(b'"2026-W37"', b'"2026-W99"', 1))
    hundred(folders["hundred"])
    apps: dict[str, Any] = {
        name: Dashboard(FileReleases([folders[name]], "store.db"), patience=30)
        for name in ("full", "empty", "broken", "hundred")
    }
    apps["hundred"].results.read().readouts()  # else the list refreshes while a test types
    apps["locked"] = Dashboard(FileReleases([folders["full"]], "store.db"), access=Access(TOKEN), patience=30)
    store = SqliteStore(folders["waiting"] / "store.db")
    service = Service(store, Keyring.create(root / "waiting.key"), WAITING, clock=lambda: NOON)
    apps["waiting"] = Site(Collector(service), Dashboard(CollectorReleases(service, lambda: NOON), patience=30))
    served = {name: Served(app) for name, app in apps.items()}
    yield {name: one.address for name, one in served.items()}
    for one in served.values():
        one.stop()
    store.close()


@pytest.fixture
def go(browser: Browser, sites: dict[str, str]) -> Iterator[Go]:
    """Open a page of a dashboard; messages and requests to elsewhere are kept on ``page.heard``."""
    contexts = []

    def opened(site: str, path: str = "/", *, width: int = 1200, scheme: Any = "light", script: bool = True) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
        )
        contexts.append(context)
        page = context.new_page()
        heard: list[str] = []
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda problem: heard.append(f"error: {problem}"))
        page.on("request", lambda one: None if one.url.startswith(sites[site]) else heard.append(one.url))
        page.heard = heard  # type: ignore[attr-defined]
        page.goto(sites[site] + path)
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The checker, fetched by npm into a folder of this run."""
    folder = tmp_path_factory.mktemp("axe")
    done = subprocess.run(
        [program("npm"), "pack", AXE, "--silent"], cwd=folder, capture_output=True, timeout=120, check=False
    )
    if done.returncode:
        pytest.skip("the checker cannot be fetched from here")
    with tarfile.open(next(folder.glob("*.tgz"))) as packed:
        member = packed.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


# ── every page ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_whole_quiet_ask_nobody_else_and_fit_every_screen_and_paper(go: Go, path: str) -> None:
    page = go("full", path)
    page.wait_for_load_state("load")
    assert page.heard == []  # type: ignore[attr-defined]
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    expect(page.get_by_role("navigation", name="Pages").locator("[aria-current=page]")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
    colours = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        colours.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colours == ["rgb(255, 255, 255)", "rgb(15, 20, 25)"]
    for width in (320, 390, 768, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.emulate_media(media="print")  # nothing to click is left
    expect(page.locator("button:visible, .button:visible, select:visible, input:visible")).to_have_count(0)


@pytest.mark.parametrize("site", ["empty", "waiting"])
def test_pages_of_nothing_and_before_the_first_seal_are_quiet(go: Go, site: str) -> None:
    for path in PAGES if site == "waiting" else [path for path in PAGES if "checkout" not in path]:
        page = go(site, path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert page.heard == []  # type: ignore[attr-defined]


def test_on_a_phone_the_list_is_lines_without_boxes_that_name_the_next_seal(go: Go) -> None:
    page = go("waiting", "/")
    page.set_viewport_size({"width": 390, "height": 900})
    cells = page.locator(".list tbody td")
    look = "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    assert set(cells.evaluate_all(look)) == {"rgba(0, 0, 0, 0)"}
    seal = page.locator(".list .seal").first
    assert "next seal" in seal.evaluate("cell => getComputedStyle(cell, '::before').content")


@pytest.mark.parametrize(
    ("site", "path"),
    [
        *(("full", path) for path in (*PAGES, "/experiments/price", "/nothing")), ("broken", "/"), ("empty", "/"),
        ("waiting", "/experiments/checkout"), ("locked", "/login"),
    ],
)  # fmt: skip
def test_a_checker_of_accessibility_finds_nothing_serious(go: Go, axe: str, site: str, path: str) -> None:
    page = go(site, path)
    page.evaluate(axe)  # the browser's tools may, a page under this policy could not
    found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
    page.emulate_media(color_scheme="dark")
    found += page.evaluate("axe.run({runOnly: ['color-contrast'], resultTypes: ['violations']})")["violations"]
    serious = {
        one["id"]: [node["html"][:120] for node in one["nodes"][:3]]
        for one in found
        if one["impact"] in ("serious", "critical")
    }
    assert serious == {}


# ── numbers ────────────────────────────────────────────────────────────────────────────────────


def test_the_history_is_a_picture_and_a_table(go: Go) -> None:
    page = go("full", "/experiments/checkout")
    picture = page.get_by_role("img", name="Effect of B on bought after each seal")
    expect(picture).to_be_visible()
    assert picture.locator("path[stroke-linecap='round'][stroke-width='9']").count() == 3
    page.get_by_text("The same as numbers").click()
    rows = page.get_by_role("table", name="The same as numbers").get_by_role("row")
    expect(rows).to_have_count(4)


def test_a_changed_release_is_a_red_banner(go: Go) -> None:
    page = go("broken", "/")
    banner = page.locator(".banner")
    expect(banner).to_contain_text("kanab.ledger, entry 2 is not shown: it has been changed.")
    assert banner.evaluate("one => getComputedStyle(one).borderLeftColor") == "rgb(180, 35, 24)"
    expect(page.get_by_role("row", name=re.compile("^checkout"))).to_contain_text("alarm")


# ── a hundred experiments ──────────────────────────────────────────────────────────────────────

PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def test_a_hundred_experiments_are_there_within_a_second(go: Go) -> None:
    page = go("hundred", "/")  # the first reader may wait for what the server began with
    taken = []
    for _ in range(3):
        page.reload()
        while not page.evaluate(PAINTED):  # the policy forbids what waits inside the page
            page.wait_for_timeout(20)
        taken.append(page.evaluate(f"Math.max({PAINTED}, performance.getEntriesByType('navigation')[0].domComplete)"))
    expect(page.locator("tbody tr")).to_have_count(100)
    assert min(taken) < 1000
    assert page.evaluate("performance.getEntriesByType('resource').length") <= 4


def test_the_list_narrows_while_a_name_is_typed(go: Go) -> None:
    page = go("hundred", "/")
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Name")).to_be_focused()
    page.keyboard.type("test_04")
    expect(page.locator("tbody tr:visible")).to_have_count(10)
    expect(page.get_by_role("status")).to_have_text("10 of 100 shown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"q=test_04"))
    expect(page.get_by_role("status")).to_have_text("10 of 100")


def test_without_script_forms_and_links_do_the_same(go: Go) -> None:
    page = go("hundred", "/", script=False)
    page.get_by_role("searchbox", name="Name").fill("test_04")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    page.get_by_role("link", name="experiment", exact=True).click()
    expect(page.get_by_role("columnheader", name="experiment")).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("link", name=re.compile("^experiment")).click()
    assert page.locator("tbody th a").all_inner_texts() == [f"test_{n:03d}" for n in range(49, 39, -1)]
    page.get_by_role("link", name=re.compile("with an alarm")).click()
    names = page.locator("tbody th a").all_inner_texts()
    assert names
    assert set(names) <= {f"test_{n:03d}" for n in range(0, 100, 20)}


# ── keyboard, login ────────────────────────────────────────────────────────────────────────────


def test_everything_is_reached_with_the_keyboard(go: Go) -> None:
    page = go("full", "/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "checkout":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="checkout")).to_be_visible()


def test_a_flagged_or_plain_pair_is_found_on_the_map_and_in_the_list(go: Go) -> None:
    page = go("full", "/interactions")
    expect(page.get_by_role("img", name="Pairs of experiments on bought")).to_be_visible()
    page.get_by_role("combobox", name="Metric").select_option("spend")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("table", name="Every pair").get_by_role("row")).to_have_count(2)


def test_readers_log_in_are_refused_and_log_out(go: Go) -> None:
    page = go("locked", "/experiments/checkout")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    field = page.get_by_label("Token (the server's KANAB_TOKEN)")
    expect(field).to_be_focused()
    field.fill("something else")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("That is not the token.")
    page.wait_for_timeout(700)  # its address waits
    page.get_by_label("Token (the server's KANAB_TOKEN)").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="checkout")).to_be_visible()
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == ("kanab_session", True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    assert page.context.cookies() == []


def test_a_script_that_got_in_would_not_run(go: Go) -> None:
    page = go("full", "/")
    page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'window.hacked = 1'}))")
    assert page.evaluate("window.hacked") is None
    assert "Content Security Policy" in page.heard[0]  # type: ignore[attr-defined]


def test_reports_open_under_their_own_policy(go: Go) -> None:
    for path in ("/reports/checkout", "/privacy/report"):
        page = go("full", path)
        page.wait_for_load_state("networkidle")
        assert [one for one in page.heard if "favicon" not in one] == []  # type: ignore[attr-defined]
        assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") == "960px"
