from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from tests.unit.cli.program import Program

from kanab.paper import compare as paper_compare
from kanab.paper.compare import TOLERANCE, compare, to_text


def test_kanab_paper_prints_three_columns_and_exits_0(program: Program) -> None:
    done = program("paper")
    assert done.code == 0
    assert "partial F(2, 12)   41.705   41.7046498029   41.7046498029  agrees" in done.out
    assert done.out.count("misprint:") == 6
    assert "163 numbers: 157 as printed, 6 misprints of the paper." in done.out


def test_kanab_paper_json_holds_full_precision(program: Program) -> None:
    data = json.loads(program("paper", "--json").out)
    assert data["agree"] is True
    assert data["largest_difference"] < TOLERANCE
    f = next(line for line in data["lines"] if line["name"] == "partial F(2, 12)")
    assert f["classes"] == pytest.approx(41.7046498028901, rel=1e-14)
    assert f["rows"] == pytest.approx(41.7046498028901, rel=1e-13)


def test_kanab_paper_exits_1_when_classes_and_rows_differ(monkeypatch: pytest.MonkeyPatch, program: Program) -> None:
    lines = compare()
    broken = (replace(lines[0], classes=lines[0].classes * (1 + 2e-12)), *lines[1:])
    monkeypatch.setattr(paper_compare, "compare", lambda: broken)
    done = program("paper")
    assert done.code == 1
    assert "DIFFERS" in done.out


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
