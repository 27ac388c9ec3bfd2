"""The page of a planned experiment, looked at with a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from kanab.cli.plan import plan as plan_command
from kanab.cli.power import power

Open = Callable[..., Page]

OVERLAPS = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const boxes = [...svg.querySelectorAll('text')].map(t => [t.textContent, t.getBoundingClientRect()]);
    return boxes.flatMap(([a, x], i) => boxes.slice(i + 1)
        .filter(([b, y]) => x.left < y.right && y.left < x.right && x.top + 2 < y.bottom && y.top + 2 < x.bottom)
        .map(([b]) => `${a} / ${b}`));
})"""
OUTSIDE = """() => [...document.querySelectorAll('figure svg')].flatMap(svg => {
    const box = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('text')].filter(t => {
        const own = t.getBoundingClientRect();
        return own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1;
    }).map(t => t.textContent);
})"""
PLANS = {
    "rate": ("--rate", "0.1", "--effect", "0.01", "--power", "0.8"),
    "small arm": ("--sd", "30", "--mean", "12", "--people", "20000", "--effect", "0.6", "--shares", "A=9,B=1"),
    "margin": ("--rate", "0.05", "--effect", "0", "--power", "0.8", "--margin", "non-inferiority=0.02", "--relative"),
    "few": ("--rate", "0.5", "--people", "40", "--power", "0.8"),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("power")
    for name, words in PLANS.items():
        file = str(folder / f"{name}.html")
        assert CliRunner().invoke(power, [*words, "--html", file], catch_exceptions=False).exit_code == 0
    return {name: Path(folder / f"{name}.html").read_text(encoding="utf-8") for name in PLANS}


@pytest.mark.parametrize("width", [1200, 390])
@pytest.mark.parametrize("plan", PLANS)
def test_nothing_overlaps_or_sticks_out(open_page: Open, pages: dict[str, str], plan: str, width: int) -> None:
    page = open_page(pages[plan], width=width)
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.heard == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [1200, 390])
def test_a_forecast_fits_on_any_screen(open_page: Open, tmp_path: Path, width: int) -> None:
    plan, file = tmp_path / "kanab.toml", tmp_path / "page.html"
    plan.write_text(
        'metrics.bought = { kind = "binary" }\nmetrics.spend = { bounds = [0, 500] }\ncovariates.tier = [1, 2, 3]\n'
        'experiments.checkout = { arms = { A = 1, B = 1 }, adjust = ["tier"] }\n',
        encoding="utf-8",
    )
    words = [str(plan), "--per-day", "60", "--days", "28", "--rate", "bought=0.1", "--sd", "spend=300", "--html"]
    assert CliRunner().invoke(plan_command, [*words, str(file)], catch_exceptions=False).exit_code == 0
    page = open_page(file.read_text(encoding="utf-8"), width=width)
    assert page.locator("figure svg").count() == 2
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.heard == []  # type: ignore[attr-defined]


def test_the_curves_stand_side_by_side_and_have_names(open_page: Open, pages: dict[str, str]) -> None:
    page = open_page(pages["rate"])
    expect(page.get_by_role("heading", level=1)).to_have_text("How many people?")
    first, second = (page.locator("figure").nth(place).bounding_box() for place in (0, 1))
    assert first is not None
    assert second is not None
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] <= second["x"]
    expect(page.get_by_role("img", name="The power for a change of 1 point")).to_be_visible()
