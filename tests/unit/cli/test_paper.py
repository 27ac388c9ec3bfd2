from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanab.cli import main as program
from kanab.cli import paper as paper_command
from kanab.errors import SourceError
from kanab.paper.compare import TOLERANCE, compare, to_text


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    kanab = Path(sys.executable).with_name("kanab")
    return subprocess.run([str(kanab), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_kanab_paper_prints_three_columns_and_exits_0() -> None:
    done = run("paper")
    assert done.returncode == 0
    assert "partial F(2, 12)   41.705   41.7046498029   41.7046498029  agrees" in done.stdout
    assert done.stdout.count("misprint:") == 6
    assert "163 numbers: 157 as printed, 6 misprints of the paper." in done.stdout


@pytest.mark.slow
def test_kanab_paper_json_holds_full_precision() -> None:
    data = json.loads(run("paper", "--json").stdout)
    assert data["agree"] is True
    assert data["largest_difference"] < TOLERANCE
    f = next(line for line in data["lines"] if line["name"] == "partial F(2, 12)")
    assert f["classes"] == pytest.approx(41.7046498028901, rel=1e-14)
    assert f["rows"] == pytest.approx(41.7046498028901, rel=1e-13)


def test_kanab_paper_exits_1_when_classes_and_rows_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = compare()
    broken = (replace(lines[0], classes=lines[0].classes * (1 + 2e-12)), *lines[1:])
    monkeypatch.setattr(paper_command, "compare", lambda: broken)
    result = CliRunner().invoke(program.cli, ["paper"])
    assert result.exit_code == 1
    assert "DIFFERS" in result.output


def test_a_number_that_does_not_round_to_the_printed_one_differs() -> None:
    line = next(line for line in compare() if line.printed.name == "Var(SATE)")
    moved = replace(line, classes=0.08114, rows=0.08114)
    assert line.verdict == "agrees"
    assert moved.verdict == "DIFFERS"


def test_a_misprint_that_turns_out_right_differs() -> None:
    line = next(line for line in compare() if line.printed.name == "Σxy of A")
    assert replace(line, classes=-0.6339, rows=-0.6339).verdict == "DIFFERS"


def test_the_text_sums_up_at_its_end() -> None:
    last = to_text(compare()).splitlines()[-1]
    assert re.fullmatch(r"Largest relative difference between six classes and eighteen rows: \d\.\de-1[4-6]\.", last)


@pytest.mark.slow
def test_help_and_version() -> None:
    assert "paper" in run("--help").stdout
    assert run("--version").stdout.startswith("kanab, version 0.1.0")


def test_a_known_problem_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise SourceError("there is no file 'x.csv'", "Check the path.")

    monkeypatch.setattr(program, "cli", fail)
    with pytest.raises(SystemExit) as stop:
        program.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err == "kanab: there is no file 'x.csv'. Check the path.\n"


@pytest.mark.slow
def test_an_unknown_command_is_a_usage_error() -> None:
    done = run("nonsense")
    assert done.returncode == 2
    assert "No such command" in done.stderr
