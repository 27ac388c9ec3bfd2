"""Exit codes, of the program in this process and once each of the installed script."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.approved import assert_approved
from tests.unit.cli.program import Program

from kanab.cli import main as main_module
from kanab.cli.help_pages import FLAGS, TASKS
from kanab.cli.main import COMMANDS, cli
from kanab.cli.output import accept_every_encoding, echo_json
from kanab.counting import dispatch
from kanab.datasets import eighteen
from kanab.errors import KanabError, PrivacyError, SourceError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("--version",), 0, "kanab, version 0.1.0"),
        (("attack", "small.json"), 1, "BROKEN"),
        (("nonsense",), 2, "No such command 'nonsense'."),
    ],
)
def test_the_installed_script_ends_with_the_code_of_its_command(
    words: tuple[str, ...], code: int, told: str, tmp_path: Path
) -> None:
    (tmp_path / "small.json").write_text(json.dumps({"tables": {"treatment/tier": eighteen().to_dict()}}))
    script = Path(sys.executable).with_name("kanab")
    done = subprocess.run([script, *words], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == code
    assert told in done.stdout + done.stderr


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

    monkeypatch.setattr(dispatch, "count_source", stop)
    file = tmp_path / "x.json"
    words = ("--arm", "variant", "--metric", "bought", "--new-ledger", "-o", str(file))
    done = program("release", str(tmp_path / "visits.csv"), *words)
    assert done.code == 2
    assert done.err.strip() == "kanab: interrupted. Nothing was written."
    assert list(tmp_path.iterdir()) == []


LIGHT = """
import contextlib, io, sys
from kanab.cli.main import COMMANDS, cli
with contextlib.redirect_stdout(io.StringIO()):
    for words in (["--version"], ["--help"]):
        cli(words, standalone_mode=False)
    commands = [name for name in sys.modules if name.startswith("kanab.cli.")]
    for name in COMMANDS:
        cli([name, "--help"], standalone_mode=False)
heavy = "numpy scipy msgspec rich asyncio ssl uvicorn starlette ibis duckdb cryptography".split()
print([name for name in heavy if name in sys.modules], sorted(name for name in commands if name.count(".") == 2))
"""


@pytest.mark.slow
def test_help_imports_neither_numpy_nor_scipy_nor_the_other_commands() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)
    shared = ["kanab.cli.help_pages", "kanab.cli.main", "kanab.cli.operating", "kanab.cli.output"]
    assert done.stdout == f"[] {shared}\n"


READS = """
import contextlib, io, sys
from kanab.cli.main import cli
with contextlib.redirect_stdout(io.StringIO()):
    cli(["analyze", sys.argv[1]], standalone_mode=False)
heavy = "scipy.optimize scipy.stats scipy.linalg scipy.sparse rich ssl asyncio sqlite3".split()
heavy += ["kanab.counting.dispatch", "kanab.privacy.gate", "kanab.analysis.own_rows"]
print([name for name in heavy if name in sys.modules])
"""


@pytest.mark.slow
def test_to_analyze_a_release_imports_neither_optimizers_nor_what_counts_and_releases(
    tmp_path: Path, program: Program
) -> None:
    people, file = tmp_path / "people.csv", tmp_path / "shop.release.json"
    assert program("example", str(people), "--people", "2000").code == 0
    flags = "--arm variant --metric bought,spend --bounds spend=0:500 --adjust tier --no-ledger"
    assert program("release", str(people), *flags.split(), "-o", str(file)).code == 0
    done = subprocess.run([sys.executable, "-c", READS, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_has_every_command_once_with_the_first_sentence_of_its_own_help(program: Program) -> None:
    listed = [(name, words) for commands in TASKS.values() for name, words in commands.items()]
    assert sorted(listed) == sorted((name, command.get_short_help_str(200)) for name, command in COMMANDS.items())
    lines = program("--help").out.splitlines()
    assert "  privacy-report  Write a report for a privacy officer." in lines
    assert [line.rstrip(":") for line in lines if line.endswith(":")] == ["Options", *TASKS]


@pytest.mark.slow
def test_every_command_has_its_help() -> None:
    pages = []
    for name in COMMANDS:
        shown = CliRunner().invoke(cli, [name, "--help"], prog_name="kanab", terminal_width=100).output
        shown = re.sub(r"^  (-h, )?--help +", "  -h, --help  ", shown, flags=re.MULTILINE)  # short if called before
        pages += [f"$ kanab {name} --help", shown]
    assert_approved("cli/help.txt", "\n".join(pages))


def test_no_group_names_a_flag_that_no_command_has() -> None:
    flags = {option.opts[0] for name in ("analyze", "release", "scan") for option in COMMANDS[name].params}
    assert {flag for group in FLAGS.values() for flag in group} - flags == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("kanab pri", ["privacy-report"]),
        ("kanab analyze --se", ["--segment", "--sep", "--sequential"]),
        ("kanab analyze --correction b", ["bh", "bonferroni", "by"]),
    ],
)
def test_tab_completes_commands_flags_and_choices(words: str, offered: list[str]) -> None:
    typed = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_KANAB_COMPLETE": "bash_complete"}
    script = Path(sys.executable).with_name("kanab")
    done = subprocess.run([script], capture_output=True, text=True, env={**os.environ, **typed}, check=False)
    assert sorted(line.removeprefix("plain,") for line in done.stdout.splitlines()) == offered


@pytest.mark.slow
def test_an_encoding_without_rulers_can_be_printed(tmp_path: Path) -> None:
    plan = tmp_path / "kanab.toml"
    plan.write_text('experiments.e.arms = { A = 1, B = 1 }\nmetrics.bought = { kind = "binary" }\n', "utf-8")
    script = Path(sys.executable).with_name("kanab")
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = subprocess.run([script, "plan", plan], capture_output=True, env=environment, check=True)
    assert "---" in done.stdout.decode("cp1252")
    assert done.stderr == b""


def test_letters_that_an_encoding_lacks_are_spelt(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stdout", written)
    accept_every_encoding()
    written.write("─ 0.5 − 1 … χ² ≥ Šidák č \udcff 漢")
    echo_json({"metric": "Größe − Δ"})
    written.flush()
    assert written.buffer.getvalue().decode("cp1252") == (  # type: ignore[attr-defined]
        '- 0.5 - 1 … X² >= Šidák c ? ?{\n  "metric": "Gr\\u00f6\\u00dfe \\u2212 \\u0394"\n}\n'
    )


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--help", "power --rate 0.1 --effect 0.02 --power 0.8"])
def test_a_reader_that_closes_the_pipe_is_no_failure(words: str) -> None:
    script = Path(sys.executable).with_name("kanab")
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {script} {words} | true"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
