"""Ctrl-C in the middle of a command is one line, and leaves nothing half-written."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanab.cli import counting
from kanab.cli.main import cli, main


@pytest.mark.slow
def test_an_interrupted_release_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CliRunner().invoke(cli, ["example", str(tmp_path / "visits.csv"), "--people", "500"])

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(counting, "count", stopped)
    arguments = ["release", str(tmp_path / "visits.csv"), "--arm", "variant", "--metric", "bought"]
    monkeypatch.setattr(sys, "argv", ["kanab", *arguments, "-o", str(tmp_path / "x.json")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.strip() == "kanab: interrupted. Nothing was written."
    assert [path.name for path in tmp_path.iterdir()] == ["visits.csv"]
