"""What commands print: plain data for programs, progress for people at a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print plain data, as documented.")


def echo_json(data: Any) -> None:
    """Print plain data; a number without a value in JSON is a bug, and raises `ValueError`."""
    click.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress(words: str) -> Iterator[None]:
    """Show a spinner on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - slow to import

    with Console(stderr=True).status(words):
        yield


@contextmanager
def people_bar() -> Iterator[Any]:
    """Show people per second on a terminal, nothing in a pipe; yields what is to be called with the progress."""
    from rich.console import Console  # noqa: PLC0415 - slow to import
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415

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
