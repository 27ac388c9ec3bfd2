"""Everything that the documentation shows is run: Python sessions and console sessions."""

import contextlib
import doctest
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kanab.cli.main import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SHOWN_ONLY = ("make ", "git ", "pip ", "python3 -m venv")  # run by CI itself, not here
SLOW = {"clusters.md", "notebooks.md", "windows.md"}


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.name in SLOW else ())
        for page in PAGES
        if blocks(page, "python")
    ],
    ids=name,
)
def test_python_sessions_print_what_is_shown(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    session = "\n".join(blocks(page, "python"))
    assert ">>>" in session, "show a session with its output"
    test = doctest.DocTestParser().get_doctest(session, {}, name(page), str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    problems: list[str] = []
    runner.run(test, out=problems.append)
    assert runner.failures == 0, "".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")], ids=name)
def test_console_sessions_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for block in blocks(page, "console"):
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            if command.startswith(SHOWN_ONLY):
                continue
            run(shlex.split(command), monkeypatch)
            out, err = capfd.readouterr()
            pattern = ".*".join(re.escape(part) for part in shown.strip().split("..."))
            assert re.fullmatch(pattern, (out + err).strip(), re.DOTALL), out + err


def run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command; `kanab` in this process, because to start and import it takes a second each time."""
    if words[0] == "python":  # a program of the repository, as somebody runs it who stands there
        subprocess.run([sys.executable, *words[1:]], check=False, cwd=ROOT)
        return
    if words[0] != "kanab":
        subprocess.run(words, check=False)
        return
    monkeypatch.setattr(sys, "argv", words)
    with contextlib.suppress(SystemExit):
        main()


def test_every_link_between_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}"
