"""kanab portfolio: all experiments of a folder of releases, read together."""

from __future__ import annotations

from typing import Any

import click

from kanab.atomicfile import write_whole
from kanab.cli.output import echo_json, json_option
from kanab.cli.released_sources import releases_by_name


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--metric", help="The metric that all effects are on.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of intervals.")
@json_option
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report to this file.")
def portfolio(source: tuple[str, ...], **flags: Any) -> None:
    """Read all experiments of a folder of releases together.

    SOURCE is a folder of release files, or files and ledgers. Effects are shrunk towards each other.

    \b
    kanab portfolio releases --metric revenue
    kanab portfolio releases --metric revenue --html portfolio.html
    """
    from kanab.portfolio.together import read_portfolio

    releases = releases_by_name(source, add_batches=True)
    read = read_portfolio(releases, flags["metric"], confidence=flags["confidence"])
    if flags["html"]:
        write_whole(flags["html"], read.to_report())
    if flags["as_json"]:
        echo_json(read.to_dict())
        return
    click.echo(str(read))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")
