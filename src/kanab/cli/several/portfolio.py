"""kanab portfolio: all experiments of a folder of releases, read together."""

from typing import Any

import click

from kanab.cli.output import html_option, json_option, show
from kanab.cli.released_sources import releases_by_name
from kanab.cli.source_options import SHARE


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--metric", help="The metric that all effects are on.")
@click.option("--confidence", type=SHARE, default=0.95, show_default=True, help="Of intervals.")
@json_option
@html_option
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
    show(flags, text=read.__str__, data=read.to_dict, page=read.to_html)
