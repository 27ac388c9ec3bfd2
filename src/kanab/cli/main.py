"""The group of commands, and what happens when one fails."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import chain
from typing import Any

import click

from kanab import __version__
from kanab.cli.help_pages import TASKS
from kanab.cli.operating.settings import clear_service_links, take_settings
from kanab.cli.output import accept_every_encoding
from kanab.errors import KanabError, PrivacyError


class QuietGroup(click.Group):
    """A group of commands that end quietly where their reader closes the pipe: ``kanab attack … | head``."""

    def make_context(self, *args: Any, **named: Any) -> click.Context:
        """Read the words of the command line; a page of help may be more than its reader wants."""
        with _closed_pipe_is_fine():
            return super().make_context(*args, **named)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and hand over what it printed."""
        with _closed_pipe_is_fine():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write every command with what it does, by task, without importing it."""
        widest = max(map(len, _NAMES))
        for task, commands in TASKS.items():
            with formatter.section(task):
                formatter.write_dl([(name.ljust(widest), words) for name, words in commands.items()])


@contextmanager
def _closed_pipe_is_fine() -> Iterator[None]:
    """End with 0 where nobody reads on: what had to be written was written before."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at its end
        raise click.exceptions.Exit(0) from None


_NAMES = tuple(chain.from_iterable(TASKS.values()))
_FOLDERS = dict.fromkeys(("combine", "portfolio", "mcp"), "several.")
_FOLDERS |= dict.fromkeys(("drill", "status", "doctor", "notify"), "operating.")


class Commands(Mapping[str, click.Command]):
    """Commands by name, each imported when it is first asked for, from the module of its name."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in _NAMES:
            raise KeyError(name)
        if name not in self._loaded:
            function = name.replace("-", "_")
            command: click.Command = getattr(import_module(f"kanab.cli.{_FOLDERS.get(name, '')}{function}"), function)
            take_settings(command)
            self._loaded[name] = command
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


COMMANDS = Commands()


@click.group(
    cls=QuietGroup,
    commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="kanab")
def cli() -> None:
    """A/B testing that keeps counts and sums, not people."""


def main() -> None:
    """Run a command; a known problem becomes one clear line: exit 1 for a refusal, 2 for the rest."""
    clear_service_links()
    accept_every_encoding()
    try:
        cli(standalone_mode=False)
    except click.ClickException as problem:
        with suppress(BrokenPipeError):
            problem.show()
        sys.exit(problem.exit_code)
    except click.Abort:
        click.echo("\nkanab: interrupted. Nothing was written.", err=True)
        sys.exit(2)
    except KanabError as problem:
        with suppress(BrokenPipeError):
            click.echo(f"kanab: {problem}", err=True)
        sys.exit(1 if isinstance(problem, PrivacyError) else 2)
