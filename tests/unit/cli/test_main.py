"""Exit codes, of the program in this process and once each of the installed script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.program import Program

from kanab.cli import main as main_module
from kanab.cli import source_options
from kanab.errors import KanabError, PrivacyError, SourceError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--version",), 0, "kanab, version 0.1.0"),
        (("attack", "--example", "paper"), 1, "BROKEN"),
        (("nonsense",), 2, "No such command 'nonsense'."),
    ],
)
def test_the_installed_script_ends_with_the_code_of_its_command(words: tuple[str, ...], code: int, told: str) -> None:
    script = Path(sys.executable).with_name("kanab")
    done = subprocess.run([script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert told in done.stdout + done.stderr


def test_help_names_the_commands_and_options_are_checked(program: Program) -> None:
    assert "paper" in program("--help").out
    done = program("analyze", "visits.csv", "--correction", "tukey")
    assert (done.code, done.out) == (2, "")
    assert "Invalid value for '--correction'" in done.err


@pytest.mark.parametrize(
    ("problem", "code"),
    [(SourceError("there is no file 'x.csv'", "Check the path."), 2), (PrivacyError("an arm holds too few people"), 1)],
)
def test_a_known_problem_is_one_line_and_a_refusal_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, program: Program, problem: KanabError, code: int
) -> None:
    def fail(**_: object) -> None:
        raise problem

    monkeypatch.setattr(main_module, "cli", fail)
    done = program()
    assert (done.code, done.err) == (code, f"kanab: {problem}\n")


def test_an_interrupted_release_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(source_options, "count_source", stop)
    file = tmp_path / "x.json"
    done = program(
        "release",
        str(tmp_path / "visits.csv"),
        "--arm",
        "variant",
        "--metric",
        "bought",
        "-o",
        str(file),
        "--new-ledger",
    )
    assert done.code == 2
    assert done.err.strip() == "kanab: interrupted. Nothing was written."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--help", "paper", "power --rate 0.1 --effect 0.02 --power 0.8", "attack --help"])
def test_a_reader_that_closes_the_pipe_is_no_failure(words: str) -> None:
    script = Path(sys.executable).with_name("kanab")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script} {words} | true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
