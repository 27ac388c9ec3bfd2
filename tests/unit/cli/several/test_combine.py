"""kanab combine and kanab portfolio: release files, folders and ledgers; text, JSON and a page."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.cli.released_sources import releases_by_name
from kanab.errors import KanabError
from kanab.portfolio import combine, read_portfolio
from kanab.privacy.release import Release


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three regions of one experiment."""
    path = tmp_path_factory.mktemp("regions")
    for seed, name in enumerate(("de", "fr", "nl")):
        rng = np.random.default_rng(seed)
        rows = {"checkout": rng.choice(["A", "B"], 800), "orders": rng.poisson(3, 800)}
        released = kb.release(kb.count(rows, arm="checkout", metrics=[kb.Mean("orders", bounds=(0, 30))]))
        kb.write_release(released, path / f"{name}.release.json")
    return path


def done(*words: str, command: str = "combine") -> str:
    result = CliRunner().invoke(cli, [command, *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_files_and_their_folder_give_what_python_gives(folder: Path) -> None:
    files = [str(folder / f"{name}.release.json") for name in ("de", "fr", "nl")]
    releases = {name: kb.read_release(folder / f"{name}.release.json") for name in ("de", "fr", "nl")}
    assert done(*files) == done(str(folder)) == f"{combine(releases)}\n"


def test_flags_are_the_keywords(folder: Path) -> None:
    words = ("--method", "dl", "--normal", "--confidence", "0.9", "--control", "B")
    data = json.loads(done(str(folder), *words, "--json"))
    assert (data["method"], data["knapp_hartung"], data["confidence"]) == ("dl", False, 0.9)
    assert [(row["control"], row["arm"], row["metric"]) for row in data["effects"]] == [("B", "A", "orders")]
    assert json.loads(done(str(folder), "--experiment", "checkout", "--metric", "orders", "--json"))["effects"]


def test_the_page_is_written_and_named(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "combined.html"
    assert done(str(folder), "--html", str(page)).endswith(f"Report: {page}\n")
    assert "<svg" in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_batches_of_a_ledger_are_combined_and_added_for_a_portfolio(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{'AB'[rng.integers(2)]},{rng.poisson(3)},2026-09-{rng.integers(7, 21):02}" for _ in range(1500)]
    (tmp_path / "rows.csv").write_text("\n".join(["checkout,orders,day", *rows]), encoding="utf-8")
    what = [
        str(tmp_path / "rows.csv"),
        "--arm",
        "checkout",
        "--metric",
        "orders",
        "--bounds",
        "orders=0:30",
        "--shares",
        "A=1,B=1",
    ]
    cohorts = ["--cohort", "day", "--every", "7d", "--window", "1d"]
    for number, day in enumerate(("2026-09-16", "2026-09-23"), start=1):
        words = ["release", *what, *cohorts, "--as-of", day, "-o", str(tmp_path / f"{number}.json")]
        words += ["--new-ledger"] if number == 1 else []
        CliRunner().invoke(cli, words, catch_exceptions=False)
    ledger = str(tmp_path / "kanab.ledger")
    (effect,) = json.loads(done(ledger, "--json"))["effects"]
    assert [part["name"] for part in effect["parts"]] == ["2026-W37", "2026-W38"]
    assert sum(part["people"] for part in effect["parts"]) == 1500
    assert {name: sum(released.totals("checkout").people) for name, released in added(ledger).items()} == {
        "kanab.ledger": 1500
    }


def added(ledger: str) -> dict[str, Release]:
    return releases_by_name((ledger,), add_batches=True)


@pytest.mark.parametrize(
    ("source", "fact"),
    [("nothing.json", "there is no file"), ("rows.csv", "is not a release"), (".", "holds no release")],
)
def test_what_holds_no_release_is_said(source: str, fact: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(KanabError, match=fact):
        CliRunner().invoke(cli, ["combine", source], catch_exceptions=False)


def test_a_portfolio_of_a_folder_is_what_python_gives_and_flags_are_its_keywords(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('[{"a": 1}]', encoding="utf-8")
    releases = {}
    for seed, name in enumerate(("banner", "checkout", "price", "search")):
        rng = np.random.default_rng(seed)
        arm = rng.choice(["A", "B"], 900)
        rows = {name: arm, "orders": rng.poisson(3 + 0.7 * (name == "price") * (arm == "B"))}
        releases[name] = kb.release(kb.count(rows, arm=name, metrics=[kb.Mean("orders", bounds=(0, 30))]))
        kb.write_release(releases[name], tmp_path / f"{name}.json")
    assert done(str(tmp_path), command="portfolio") == f"{read_portfolio(releases)}\n"
    page = tmp_path / "portfolio.html"
    words = (str(tmp_path), "--metric", "orders", "--confidence", "0.9", "--html", str(page))
    data = json.loads(done(*words, "--json", command="portfolio"))
    assert (data["metric"], data["confidence"]) == ("orders", 0.9)
    assert [row["name"] for row in data["effects"] if row["winner"]] == ["price"]
    assert "<svg" in page.read_text(encoding="utf-8")
    assert done(*words, command="portfolio").endswith(f"Report: {page}\n")
