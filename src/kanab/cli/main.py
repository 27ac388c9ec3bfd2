"""The group of commands, and what happens when one fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

from kanab import __version__
from kanab.cli.analyze import analyze
from kanab.cli.attack import attack
from kanab.cli.audit import audit
from kanab.cli.dashboard import dashboard
from kanab.cli.demo import demo
from kanab.cli.example import example
from kanab.cli.export import export
from kanab.cli.init import init
from kanab.cli.operating.doctor import doctor
from kanab.cli.operating.drill import drill
from kanab.cli.operating.settings import clear_service_links, take_settings
from kanab.cli.operating.status import status
from kanab.cli.paper import paper
from kanab.cli.plan import plan_command
from kanab.cli.power import power
from kanab.cli.privacy_report import privacy_report
from kanab.cli.release import release
from kanab.cli.restore import restore
from kanab.cli.scan import scan
from kanab.cli.seal import seal
from kanab.cli.serve import serve
from kanab.cli.several.combine import combine_command
from kanab.cli.several.portfolio import portfolio
from kanab.cli.several.reweigh import reweigh
from kanab.cli.void import void
from kanab.errors import KanabError, PrivacyError


class QuietGroup(click.Group):
    """A group of commands that end quietly where their reader closes the pipe: ``kanab paper | head``."""

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


@contextmanager
def _closed_pipe_is_fine() -> Iterator[None]:
    """End with 0 where nobody reads on: what had to be written was written before."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at its end
        raise click.exceptions.Exit(0) from None


@click.group(cls=QuietGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="kanab")
def cli() -> None:
    """A/B testing that keeps counts and sums, not people."""


COMMANDS = (
    analyze, scan, combine_command, portfolio, reweigh, power, plan_command, release, audit, attack, privacy_report,
    init, serve, seal, void, export, restore, drill, status, doctor, dashboard, demo, example, paper,
)  # fmt: skip
for command in COMMANDS:
    take_settings(command)
    cli.add_command(command)


def main() -> None:
    """Run a command; a known problem becomes one clear line: exit 1 for a refusal, 2 for the rest."""
    clear_service_links()
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
