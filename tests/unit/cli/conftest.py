import sys

import pytest
from tests.unit.cli.program import Ended, Program

from kanab.cli.main import main


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """Run ``kanab WORDS…`` in this process."""

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["kanab", *words])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        return Ended(code, *capsys.readouterr())

    return run
