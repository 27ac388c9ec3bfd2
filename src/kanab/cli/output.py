"""What commands print: texts in whatever encoding, plain data for programs, progress for people at a terminal."""

import codecs
import io
import json
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from kanab.atomicfile import write_whole
from kanab.cli.help_pages import Command, flags_together
from kanab.errors import SourceError

json_option = click.option("--json", "as_json", is_flag=True, help="Print plain data, as documented.")

PAGE = '<meta name="generator" content="Kanab">'
RELEASE = '"format": "kanab-release/'
LEDGER = '"format": "kanab-ledger/'
"""What stands near the beginning of a file that Kanab wrote, by its kind."""

_FORCE = "kanab.force"
_BEGINNING = 1_000


def force_option(command: Command) -> Command:
    """Give a command --force, which `refuse_foreign_file` obeys."""

    def remember(context: click.Context, _: click.Parameter, said: Any) -> None:
        context.meta[_FORCE] = said

    words = "Overwrite a file that is there, whoever wrote it."
    return click.option("--force", is_flag=True, is_eager=True, expose_value=False, callback=remember, help=words)(
        command
    )


def refuse_foreign_file(mark: str, context: click.Context, _: click.Parameter, path: str | None) -> str | None:
    """Return the path of a file to write; raise `SourceError` where one is there that has no such mark.

    Without a mark no file is overwritten, unless the command line says --force.
    """
    if path is None or context.meta.get(_FORCE) or not Path(path).is_file():
        return path
    with suppress(OSError), Path(path).open(encoding="utf-8", errors="replace") as file:
        if mark and mark in file.read(_BEGINNING):
            return path
    foreign = " and was not written by kanab" if mark else ""
    raise SourceError(f"{Path(path).name} is there{foreign}", "Choose another name, or say --force.")


def output_option(*names: str, mark: str, words: str, **settings: Any) -> Callable[[Command], Command]:
    """Return what gives a command the name of a file to write, and --force."""
    option = click.option(
        *names, type=click.Path(dir_okay=False), callback=partial(refuse_foreign_file, mark), help=words, **settings
    )
    return flags_together(option, force_option)


html_option = output_option("--html", mark=PAGE, words="Write a report to this file.")

_SPELT = str.maketrans({
    "─": "-", "−": "-", "–": "-", "—": "-", "‑": "-", "→": ">", "↳": ">", "►": ">", "▲": "^", "▼": "v", "●": "*",
    "•": "*", "…": "...", "≥": ">=", "≤": "<=", "±": "+/-", "×": "x", "·": ".", "χ": "X", "ε": "epsilon",
    "δ": "delta", "ρ": "rho", "Σ": "sum ", "√": "sqrt ", "’": "'", "“": '"', "”": '"',
})  # fmt: skip
"""What stands for a letter in an encoding that does not have it; those of tables are as wide as it is."""


def _spelt(problem: UnicodeError) -> tuple[str, int]:
    """Return something readable for letters that an encoding does not have, accents dropped; else a question mark."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    letters = problem.object[problem.start : problem.end].translate(_SPELT)
    bare = (unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode() or "?" for letter in letters)
    return "".join(bare), problem.end


def accept_every_encoding() -> None:
    """Let everything be printed: where the output's encoding lacks a letter, something readable stands for it."""
    codecs.register_error("kanab.spelt", _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="kanab.spelt")


def echo_json(data: Any) -> None:
    """Print plain data, exact in every encoding; a number without a value in JSON is a bug, and raises `ValueError`."""
    whole = codecs.lookup(getattr(sys.stdout, "encoding", None) or "ascii").name.startswith("utf")
    click.echo(json.dumps(data, indent=2, ensure_ascii=not whole, allow_nan=False))


def show(
    flags: Mapping[str, Any],
    *,
    text: Callable[[], str],
    data: Callable[[], Any],
    page: Callable[[], str],
    name: str = "Report",
) -> None:
    """Write a page to the file of --html, if there is one; print plain data with --json, else a text."""
    if flags["html"]:
        write_whole(flags["html"], page())
    if flags["as_json"]:
        echo_json(data())
        return
    click.echo(text())
    if flags["html"]:
        click.echo(f"\n{name}: {flags['html']}")


def terminal_width() -> int | None:
    """Return how many columns a terminal has; None in a pipe or a file, where tables are as wide as they need."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show_report(report: Any, *, as_json: bool, failed: bool) -> None:
    """Print a report, and exit with 1 where it found something."""
    if as_json:
        echo_json(report.to_dict())
    else:
        click.echo(str(report))
    if failed:
        sys.exit(1)


@contextmanager
def progress(words: str) -> Iterator[None]:
    """Show a spinner on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


@contextmanager
def people_bar() -> Iterator[Any]:
    """Show people per second on a terminal, nothing in a pipe; yields what is to be called with the progress."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("counting people", total=None, rate="")

        def update(done: int, total: int | None) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, completed=done, total=total, rate=f"{speed:,.0f} people/s" if speed else "")

        yield update
