from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.described import as_values

import kanab as kb
from kanab.cli.main import cli, main
from kanab.inspection.officer.account import privacy_account
from kanab.plan.file import plan_digest, plan_from_dict
from kanab.privacy.ledger import read_ledger
from kanab.privacy.release_json import hash_of

Run = Callable[..., int]


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["privacy-report", *map(str, words)])


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Run:
    """The exit code of the whole program."""

    def ran(*words: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", ["kanab", "privacy-report", *map(str, words)])
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    return ran


def shop(n: int = 900, seed: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "variant": rng.choice(["A", "B"], n),
        "tier": rng.choice([1, 2, 3], n),
        "device": rng.choice(["phone", "desktop"], n),
        "spend": np.round(rng.gamma(2, 10, n), 2),
        "bought": rng.random(n) < 0.3,
    }


def counted(rows: dict[str, Any] | None = None, **choices: Any) -> kb.Counted:
    given: dict[str, Any] = {"bounds": {"spend": (0, 500)}, "resolution": {"spend": 0.01}, "covariates": ["tier"]}
    return kb.count(rows or shop(), **as_values("count", arm="variant", metrics=["spend", "bought"], **given | choices))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = kb.release(counted(), ledger=tmp_path / "kanab.ledger", new_ledger=True)
    kb.write_release(found, tmp_path / "shop.release.json")
    return tmp_path / "shop.release.json"


def changed(file: Path, change: Callable[[dict[str, Any]], None], name: str = "changed.json") -> Path:
    """The file with a change and a hash that fits it."""
    data = json.loads(file.read_text(encoding="utf-8"))
    change(data)
    data["hash"] = hash_of(data)
    other = file.with_name(name)
    other.write_text(json.dumps(data), encoding="utf-8")
    return other


def test_a_page_is_written_and_the_verdict_printed(file: Path, code: Run, capsys: pytest.CaptureFixture[str]) -> None:
    page = file.with_name("report.html")
    assert code(file, "-o", page) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{page}: k-anonymous at k = 10; audit passed; residual risks: the curator's rows, ")
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_plain_data_are_those_of_the_account(file: Path) -> None:
    result = run(file, "--json")
    assert result.exit_code == 0
    ledger = read_ledger(file.with_name("kanab.ledger"))
    assert json.loads(result.output) == privacy_account({file.name: kb.read_release(file)}, ledger)
    assert not file.with_name("report.html").exists()


def test_no_folder_of_this_machine_is_in_the_report(file: Path) -> None:
    page = file.with_name("report.html")
    result = run(file, "--json", "-o", page)
    for text in (result.output, page.read_text(encoding="utf-8")):
        assert str(file.parent) not in text
        assert file.parent.name not in text


def test_the_same_files_give_the_same_bytes(file: Path) -> None:
    pages = [file.with_name(name) for name in ("one.html", "two.html")]
    assert [run(file, "-o", page).exit_code for page in pages] == [0, 0]
    assert pages[0].read_bytes() == pages[1].read_bytes()


def test_files_of_the_same_name_are_told_apart(file: Path) -> None:
    folder = file.parent / "later"
    folder.mkdir()
    other = folder / file.name
    kb.write_release(kb.release(counted(shop(seed=2))), other)
    data = json.loads(run(file, other, "--json").output)
    assert [one["file"] for one in data["releases"]] == ["shop.release.json", "shop.release.json (2)"]


def test_a_broken_rule_is_written_down_and_exits_with_1(
    file: Path, code: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = changed(file, lambda data: data["receipt"].update(effective_k=2))
    page = file.with_name("report.html")
    assert code(bad, "-o", page) == 1
    assert ": BROKEN: overlap in changed.json, ledger in changed.json." in capsys.readouterr().out
    assert '<p class="call verdict alarm" role="alert"><strong>BROKEN: overlap' in page.read_text(encoding="utf-8")


def test_another_ledger_can_be_named(file: Path, code: Run) -> None:
    apart = file.with_name("apart.ledger")
    file.with_name("kanab.ledger").rename(apart)
    assert json.loads(run(file, "--json").output)["verdict"]["not_evaluated"] == ["ledger"]
    assert json.loads(run(file, "--json", "--ledger", apart).output)["verdict"]["not_evaluated"] == []
    assert code(file, "--json", "--ledger", file.with_name("gone.ledger")) == 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace('"k": 10', '"k": 11', 1), "the release has been changed since it was made"),
        (lambda text: text[:100], "shop.release.json is not a JSON file"),
        (lambda text: text[:0] + "{}", "this is not a release"),
    ],
)
def test_a_file_that_is_no_release_exits_with_2_and_nothing_is_written(
    file: Path, code: Run, capsys: pytest.CaptureFixture[str], spoil: Callable[[str], str], said: str
) -> None:
    file.write_text(spoil(file.read_text(encoding="utf-8")), encoding="utf-8")
    page = file.with_name("report.html")
    assert code(file, "-o", page) == 2
    assert said in capsys.readouterr().err
    assert not page.exists()


def test_a_file_with_a_class_below_k_is_not_reported_on(
    file: Path, code: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def shrink(data: dict[str, Any]) -> None:
        data["plan"]["k"] = data["receipt"]["k"] = 400
        data["plan_digest"] = plan_digest(plan_from_dict(data["plan"]))

    page = file.with_name("report.html")
    assert code(changed(file, shrink), "-o", page) == 2
    assert "holds a class with fewer than k = 400 people" in capsys.readouterr().err
    assert not page.exists()


def test_missing_files_missing_output_and_repeated_files_exit_with_2(file: Path, code: Run) -> None:
    page = file.with_name("report.html")
    assert code(file.with_name("gone.json"), "-o", page) == 2
    assert code(file) == 2
    assert code(file, file, "-o", page) == 2
    assert code("-o", page) == 2
    assert code(file, "-o", file.parent / "no such folder" / "report.html") == 2
    assert not page.exists()


PLAN = """
[metrics]
bought = { kind = "binary" }
[experiments.checkout]
arms = { A = 1, B = 1 }
[sheet]
controller = "Shop Ltd"
"""


def test_sheet_writes_a_page_and_says_what_is_left_to_fill_in(tmp_path: Path) -> None:
    (tmp_path / "kanab.toml").write_text(PLAN)
    result = run(tmp_path / "kanab.toml", "--sheet", "-o", tmp_path / "sheet.html")
    assert result.exit_code == 0
    assert "legal_basis" in result.output
    assert "controller" not in result.output
    assert "Shop Ltd" in (tmp_path / "sheet.html").read_text()


def test_sheet_as_json_has_its_format(tmp_path: Path) -> None:
    (tmp_path / "kanab.toml").write_text(PLAN)
    data = json.loads(run(tmp_path / "kanab.toml", "--sheet", "--json").output)
    assert data["format"] == "kanab-sheet/1"
    assert data["entries"]["controller"] == "Shop Ltd"


def test_sheet_takes_one_plan_and_no_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kanab.toml").write_text(PLAN)
    for extra in (["--ledger", "kanab.ledger"], ["kanab.toml"]):
        result = run("kanab.toml", *extra, "--sheet", "-o", "sheet.html")
        assert result.exit_code == 2
        assert "--sheet takes one plan file" in result.output
        assert not Path("sheet.html").exists()


def test_sheet_of_something_that_is_no_plan_is_an_error_and_writes_nothing(tmp_path: Path, code: Run) -> None:
    (tmp_path / "release.json").write_text("{}")
    assert code(tmp_path / "release.json", "--sheet", "-o", tmp_path / "sheet.html") == 2
    assert not (tmp_path / "sheet.html").exists()
