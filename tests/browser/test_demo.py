"""The demonstration as a person meets it: the summary, the shop, what leaves, the dashboard."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

KANAB = Path(sys.executable).with_name("kanab")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its whole summary, while it stays up."""
    folder = tmp_path_factory.mktemp("demo") / "shop"
    command = [KANAB, "demo", str(folder), "--people", "60", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        told = ""
        for line in running.stdout:
            told += line
            if "Ctrl-C" in line or line.startswith("kanab: an"):
                break
        yield told
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0


def address(demo: str) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", demo)
    assert found, demo
    return found[0]


def test_weeks_pass_and_the_sums_are_the_truth_of_the_driver(demo: str) -> None:
    assert "300 people came; " in demo
    assert "4 batches are sealed" in demo
    assert "12 sums and all counts equal what the driver knew, to the last digit." in demo


def test_the_shop_shows_every_byte_that_leaves(demo: str, peoples_browser: Browser) -> None:
    context = peoples_browser.new_context()
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.goto(f"{address(demo)}/shop")
    page.wait_for_selector("#checkout button")
    with page.expect_response("**/v1/t"):
        page.click("#stay")
    page.wait_for_function("() => document.getElementById('log').textContent.includes('minutes')")
    log = page.inner_text("#log")
    assert re.search(r"POST /v1/t  →  204\nkanab/1 [0-9a-f]{32}\n", log)
    assert re.search(r"checkout/tier:[AB]:2@\d{4}-W\d\d:minutes:0>2", log)
    assert heard == []
    page.click("#leave")
    page.wait_for_function("() => document.getElementById('arms').textContent.includes('deleted')")
    assert page.evaluate("() => localStorage.length + sessionStorage.length") <= 1  # that they want to be left alone
    context.close()


def test_the_dashboard_has_the_demos_numbers(demo: str, peoples_browser: Browser) -> None:
    page = peoples_browser.new_page()
    page.goto(f"{address(demo)}/experiments/checkout")
    page.wait_for_selector("main table")
    assert "240 people" in page.inner_text("main")  # four sealed weeks
    page.goto(f"{address(demo)}/")
    names = page.locator("tbody th a").all_inner_texts()
    assert sorted(names) == ["banner", "checkout", "search"]
    page.close()


def test_it_ends_after_the_summary_when_asked_and_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "kanab-data").mkdir()
    for name in ("kanab.toml", "kanab-data.key", "kanab-data/store.db"):  # what an earlier one left
        (tmp_path / name).write_text("old", encoding="utf-8")
    command = [KANAB, "demo", str(tmp_path), "--people", "60", "--port", "0", "--exit"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "to the last digit" in done.stdout


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear", encoding="utf-8")
    done = subprocess.run(
        [KANAB, "demo", str(tmp_path), "--exit"], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "holds something else" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]
