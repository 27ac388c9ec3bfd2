"""The privacy officer's report, looked at with a real browser."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from kanab.counting.in_memory import count_rows
from kanab.inspection.officer.account import privacy_account
from kanab.inspection.officer.officer_page import privacy_html
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release
from kanab.privacy.ledger import read_ledger

Account = dict[str, Any]
Open = Callable[..., Page]

CONTRASTS = """() => {
    const rgb = text => (text.match(/[\\d.]+/g) || [0, 0, 0]).slice(0, 3).map(Number);
    const light = colour => rgb(colour).map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const page = light(getComputedStyle(document.body).backgroundColor);
    const found = {};
    for (const element of document.querySelectorAll('body *')) {
        const words = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
        if (!words || ['title', 'desc'].includes(element.tagName)) continue;
        const style = getComputedStyle(element);
        const own = light(style.color);
        const ratio = (Math.max(own, page) + 0.05) / (Math.min(own, page) + 0.05);
        const key = `${element.tagName}.${element.className.baseVal ?? element.className}`;
        found[key] = Math.min(found[key] ?? 99, ratio);
    }
    return found;
}"""


@pytest.fixture(scope="session")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Account]:
    """A report on two chained releases, and the same with long names and a broken rule."""
    rng = np.random.default_rng(3)
    n = 3000
    spend = np.round(np.where(rng.random(n) < 0.3, rng.gamma(2, 20, n), 0), 2)
    rows = {
        "checkout": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3, 4], n, p=[0.5, 0.3, 0.195, 0.005]),
        "city": rng.choice(["Oslo", "Bergen", "Hamar", "Narvik"], n, p=[0.6, 0.3, 0.09, 0.01]),
        "spend": spend,
        "bought": spend > 0,
    }
    plans = [
        Plan(
            (MetricPlan("bought", binary=True), MetricPlan("spend", (0, 120), 0.01, of="bought")),
            (ExperimentPlan("checkout", (("A", 1), ("B", 1)), adjust=("tier",), segments=("tier",)),),
            (CovariatePlan("tier", (1, 2, 3, 4)),),
        ),
        Plan(
            (MetricPlan("bought", binary=True),),
            (ExperimentPlan("checkout", segments=("city",)),),
            (CovariatePlan("city", ("Oslo", "Bergen", "Hamar", "Narvik")),),
        ),
    ]
    path = tmp_path_factory.mktemp("officer") / "kanab.ledger"
    first = release(count_rows(rows, plans[0]), ledger=path, new_ledger=True)
    second = release(count_rows(rows, plans[1], earlier=(plans[0],)), ledger=path)
    real = privacy_account({"checkout.release.json": first, "city.release.json": second}, read_ledger(path))
    return {"real": real, "crowded": crowded(real)}


def crowded(real: Account) -> Account:
    data = copy.deepcopy(real)
    long = "a_name_that_is_longer_than_anybody_would_ever_want_to_read"
    one = data["releases"][0]
    one["file"] = f"{long}.release.json"
    one["experiments"] = [long]
    one["tables"] = [{**one["tables"][0], "table": f"{long}/{place}"} for place in range(12)]
    one["tables"][0]["covariate"] = {
        **one["tables"][0]["covariate"], "levels": [f"{long}_{place}" for place in range(30)],
        "merged": {"other": [f"{long}_{place}" for place in range(30)]},
    }  # fmt: skip
    one["checks"][0] |= {"holds": False, "classes": 4, "remedy": "Do not use it; release it again."}
    data["verdict"] |= {"state": "broken", "short": f"BROKEN: k in {long}.", "says": f"BROKEN: k in {long}. Stop."}
    return data


@pytest.fixture(scope="session")
def pages(accounts: dict[str, Account]) -> dict[str, str]:
    return {name: privacy_html(account) for name, account in accounts.items()}


@pytest.fixture
def report(pages: dict[str, str]) -> str:
    return pages["real"]


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
    expect(page.get_by_role("table", name="The way of the data").get_by_role("row")).to_have_count(7)
    expect(page.get_by_role("table", name="Rules").get_by_role("row")).to_have_count(5)
    rows = page.get_by_role("table", name="Checks of city.release.json").get_by_role("row")
    expect(rows).to_have_count(9)
    assert rows.nth(1).inner_text().split("\t")[:2] == ["k", "✓ holds"]
    expect(page.get_by_role("table", name="Entries of the ledger").get_by_role("row")).to_have_count(3)


def test_the_contents_lead_to_their_sections(open_page: Open, report: str) -> None:
    page = open_page(report)
    page.get_by_role("link", name="Residual risks").click()
    expect(page.get_by_role("heading", name="Residual risks")).to_be_in_viewport()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_requested_and_nothing_complains(open_page: Open, report: str, scheme: str) -> None:
    page = open_page(report, scheme=scheme)
    page.wait_for_load_state("networkidle")
    assert page.heard == []  # type: ignore[attr-defined]


def test_a_script_that_got_in_would_not_run(open_page: Open, report: str) -> None:
    page = open_page(report.replace("</main>", "<script>window.hacked = true</script></main>"))
    assert page.evaluate("window.hacked") is None
    assert "Content Security Policy" in page.heard[0]  # type: ignore[attr-defined]


def test_names_that_are_markup_stay_words(open_page: Open, accounts: dict[str, Account]) -> None:
    evil = '<img src=x onerror="alert(1)">'
    data = copy.deepcopy(accounts["real"])
    data["releases"][0] |= {"experiments": [evil], "file": evil, "deviations": [evil]}
    page = open_page(privacy_html(data))
    assert page.heard == []  # type: ignore[attr-defined]
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{evil}, checkout")


@pytest.mark.parametrize("width", [320, 390, 768, 1200])
@pytest.mark.parametrize("numbers", ["real", "crowded"])
def test_the_page_never_scrolls_sideways(open_page: Open, pages: dict[str, str], numbers: str, width: int) -> None:
    page = open_page(pages[numbers], width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("numbers", ["real", "crowded"])
def test_words_have_enough_contrast(open_page: Open, pages: dict[str, str], numbers: str, scheme: str) -> None:
    contrasts = open_page(pages[numbers], scheme=scheme).evaluate(CONTRASTS)
    assert len(contrasts) > 15
    assert {name: ratio for name, ratio in contrasts.items() if ratio < 4.5} == {}


def test_dark_is_dark(open_page: Open, report: str) -> None:
    dark = open_page(report, scheme="dark")
    assert dark.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 25)"


def test_on_a_phone_rows_become_cards(open_page: Open, report: str) -> None:
    page = open_page(report, width=390)
    cell = page.locator("td[data-label='who can see it']").first
    assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"who can see it"'
    assert cell.evaluate("cell => getComputedStyle(cell.parentElement).display") == "grid"


def test_print_is_light_and_keeps_its_tables(open_page: Open, report: str) -> None:
    page = open_page(report, width=390, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("td").first.evaluate("cell => getComputedStyle(cell).display") == "table-cell"
    assert not page.locator("nav").is_visible()
    printed = page.pdf(format="A4")
    assert 4 <= printed.count(b"/Type /Page\n") <= 8


def test_what_is_broken_stands_out_in_red(open_page: Open, pages: dict[str, str]) -> None:
    page = open_page(pages["crowded"])
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("BROKEN: k in")
    assert alert.evaluate("alert => getComputedStyle(alert).borderLeftColor") == "rgb(180, 35, 24)"
    state = page.get_by_text("✕ BROKEN").first
    assert state.evaluate("state => getComputedStyle(state).color") == "rgb(180, 35, 24)"


def test_a_page_can_be_opened_from_a_folder_without_anything_beside_it(
    open_page: Open, report: str, tmp_path: Path
) -> None:
    page = open_page(report)
    expect(page.get_by_text("This file loads nothing from elsewhere.")).to_be_visible()
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".html"] == ["report0.html"]
