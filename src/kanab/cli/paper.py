"""kanab paper: the paper's numbers, recomputed."""

from __future__ import annotations

import sys

import click

from kanab.cli.output import echo_json, json_option


@click.command()
@json_option
def paper(*, as_json: bool) -> None:
    """Recompute every number of the paper.

    Once from six classes and once from eighteen rows. Exits with 1 if they ever differ by more than 1e-12, relatively.
    """
    from kanab.paper.compare import compare, to_dict, to_text

    lines = compare()
    if as_json:
        echo_json(to_dict(lines))
    else:
        click.echo(to_text(lines))
    if not all(line.holds for line in lines):
        sys.exit(1)
