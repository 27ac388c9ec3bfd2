"""Files that commands write: somebody else's are not overwritten."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanab.cli.main import cli

RELEASE = ["release", "visits.csv", "--arm", "variant", "--metric", "bought", "--no-ledger", "-o", "out.json"]
PAGES = [
    ["analyze", "visits.csv", "--arm", "variant", "--metric", "bought", "--html", "out.html"],
    ["power", "--rate", "0.1", "--effect", "0.01", "--power", "0.8", "--html", "out.html"],
    ["plan", "kanab.toml", "--per-day", "500", "--days", "28", "--rate", "bought=0.1", "--html", "out.html"],
    ["scan", "visits.csv", "--experiments", "variant,device", "--metric", "bought", "--html", "out.html"],
    ["privacy-report", "kanab.toml", "--sheet", "-o", "out.html"],
]


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run(["example", "visits.csv", "--people", "2000"])
    run(["init"])


def run(words: Sequence[str]) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.mark.parametrize("words", [*PAGES, RELEASE], ids=lambda words: words[0])
def test_only_a_file_of_the_same_kind_is_overwritten_unless_forced(words: list[str]) -> None:
    file = Path(words[-1])
    assert run(words).exit_code == 0
    assert run(words).exit_code == 0
    other = "checkout" if file.suffix == ".html" else "<!doctype html>"
    file.write_text(other, encoding="utf-8")
    refused = run(words)
    assert str(refused.exception) == (
        f"{file.name} is there and was not written by kanab. Choose another name, or say --force."
    )
    assert file.read_text(encoding="utf-8") == other
    assert run([*words, "--force"]).exit_code == 0
    assert "anab" in file.read_text(encoding="utf-8")[:1000]


def test_a_page_does_not_replace_a_release() -> None:
    assert run(RELEASE).exit_code == 0
    release = Path("out.json").read_bytes()
    assert "was not written by kanab" in str(run([*PAGES[0][:-1], "out.json"]).exception)
    assert Path("out.json").read_bytes() == release


@pytest.mark.parametrize("words", [["example", "visits.csv", "--people", "10"], ["init"]], ids=lambda words: words[0])
def test_what_may_have_been_edited_is_never_overwritten_unless_forced(words: list[str]) -> None:
    file = Path("visits.csv" if "example" in words else "kanab.toml")
    before = file.read_bytes()
    assert str(run(words).exception) == f"{file.name} is there. Choose another name, or say --force."
    assert file.read_bytes() == before
    file.write_bytes(b"x")
    assert run([*words, "--force"]).exit_code == 0
    assert len(file.read_bytes()) > 1
