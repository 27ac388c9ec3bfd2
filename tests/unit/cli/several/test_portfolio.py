"""kanab portfolio: a folder of releases; text, JSON and a page."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.main import cli
from kanab.portfolio import read_portfolio


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with four experiments and a table of rows."""
    path = tmp_path_factory.mktemp("releases")
    (path / "rows.json").write_text('[{"a": 1}]', encoding="utf-8")
    for seed, name in enumerate(("banner", "checkout", "price", "search")):
        rng = np.random.default_rng(seed)
        arm = rng.choice(["A", "B"], 900)
        rows = {name: arm, "orders": rng.poisson(3 + 0.7 * (name == "price") * (arm == "B"))}
        counted = kb.count(rows, arm=name, metrics=[kb.Mean("orders", bounds=(0, 30))])
        kb.write_release(kb.release(counted), path / f"{name}.json")
    return path


def done(*words: str) -> str:
    result = CliRunner().invoke(cli, ["portfolio", *words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_folder_gives_what_python_gives(folder: Path) -> None:
    names = ("banner", "checkout", "price", "search")
    releases = {name: kb.read_release(folder / f"{name}.json") for name in names}
    assert done(str(folder)) == f"{read_portfolio(releases)}\n"


def test_flags_are_the_keywords(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "portfolio.html"
    words = ("--metric", "orders", "--confidence", "0.9", "--html", str(page))
    data = json.loads(done(str(folder), *words, "--json"))
    assert (data["metric"], data["confidence"]) == ("orders", 0.9)
    assert [row["name"] for row in data["effects"] if row["winner"]] == ["price"]
    assert "<svg" in page.read_text(encoding="utf-8")
    assert done(str(folder), "--html", str(page)).endswith(f"Report: {page}\n")
