"""examples/paper.py: every number of the paper, from six classes and from eighteen rows."""

import json
import re
import runpy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "paper.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def lines(example: dict[str, Any]) -> list[Any]:
    return example["compare"]()


def printed(*words: str) -> str:
    return subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_it_prints_three_columns_and_exits_0() -> None:
    text = printed()
    assert "partial F(2, 12)   41.705   41.7046498029   41.7046498029  agrees" in text
    assert text.count("misprint:") == 6
    assert "163 numbers: 157 as printed, 6 misprints of the paper." in text
    last = text.splitlines()[-1]
    assert re.fullmatch(r"Largest relative difference between six classes and eighteen rows: \d\.\de-1[4-6]\.", last)


@pytest.mark.slow
def test_json_holds_full_precision() -> None:
    data = json.loads(printed("--json"))
    assert data["agree"] is True
    assert data["largest_difference"] < 1e-12
    f = next(line for line in data["lines"] if line["name"] == "partial F(2, 12)")
    assert f["classes"] == pytest.approx(41.7046498028901, rel=1e-14)
    assert f["rows"] == pytest.approx(41.7046498028901, rel=1e-13)


def test_every_number_agrees_or_is_a_known_misprint(lines: list[Any]) -> None:
    assert [line.name for line in lines if line.verdict == "DIFFERS"] == []
    assert len(lines) == 163


def test_it_exits_1_when_classes_and_rows_differ(
    example: dict[str, Any], lines: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = [replace(lines[0], classes=lines[0].classes * (1 + 2e-12)), *lines[1:]]
    monkeypatch.setitem(example["main"].__globals__, "compare", lambda: broken)
    monkeypatch.setattr(sys, "argv", ["paper.py"])
    assert example["main"]() == 1
    assert "DIFFERS" in capsys.readouterr().out


@pytest.mark.parametrize(("name", "value"), [("Var(SATE)", 0.08114), ("Σxy of A", -0.6339)])
def test_what_does_not_round_to_the_printed_number_or_is_no_misprint_differs(
    lines: list[Any], name: str, value: float
) -> None:
    line = next(line for line in lines if line.name == name)
    assert line.verdict != "DIFFERS"
    assert replace(line, classes=value, rows=value).verdict == "DIFFERS"
