"""The command line: the same verbs as Python."""

from __future__ import annotations

import json
import sys

import click

from kanab import __version__
from kanab.errors import KanabError
from kanab.paper.compare import compare, to_dict, to_text


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kanab")
def cli() -> None:
    """A/B testing that keeps counts and sums, not people."""


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print plain data, numbers in full precision.")
def paper(*, as_json: bool) -> None:
    """Recompute every number of the paper, from six classes and from eighteen rows.

    Exits with 1 if classes and rows ever differ by more than 1e-12, relatively.
    """
    lines = compare()
    click.echo(json.dumps(to_dict(lines), indent=2, ensure_ascii=False) if as_json else to_text(lines))
    if not all(line.holds for line in lines):
        sys.exit(1)


def main() -> None:
    """Run a command; a known problem becomes one clear line and exit code 2."""
    try:
        cli()
    except KanabError as problem:
        click.echo(f"kanab: {problem}", err=True)
        sys.exit(2)
