"""kanab portfolio: all experiments of a folder of releases, read together."""

from __future__ import annotations

from typing import Any

import click

from kanab.atomicfile import write_whole
from kanab.choices import HOLDOUT, TUNED_AT
from kanab.cli.output import echo_json, json_option
from kanab.cli.several.sources import releases_by_name
from kanab.cli.source_options import names, names_option


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--metric", help="The metric that all effects are on.")
@click.option("--holdout", metavar="EXPERIMENT", help="The experiment that holds people out of everything shipped.")
@click.option("--holdout-arm", metavar="ARM", default=HOLDOUT, show_default=True, help="Its arm that saw nothing.")
@names_option(
    "--shipped",
    help="Experiments that were shipped, separated by commas; else all that are clearly better.",
)
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of intervals; e-BH is at the rest.")
@click.option(
    "--tuned-at",
    type=click.IntRange(2),
    default=TUNED_AT,
    show_default=True,
    help="People that e-values are tuned for.",
)
@json_option
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report to this file.")
def portfolio(source: tuple[str, ...], **flags: Any) -> None:
    """Read all experiments of a folder of releases together.

    SOURCE is a folder of release files, or files and ledgers. Effects are shrunk towards each other, discoveries are
    made by e-values, and what was shipped is compared with a holdout.

    \b
    kanab portfolio releases --metric revenue
    kanab portfolio releases --metric revenue --holdout global --html portfolio.html
    """
    from kanab.portfolio.together import read_portfolio

    read = read_portfolio(
        releases_by_name(source, add_batches=True), flags["metric"], holdout=flags["holdout"],
        holdout_arm=flags["holdout_arm"], shipped=names(flags["shipped"]) if flags["shipped"] else None,
        confidence=flags["confidence"], tuned_at=flags["tuned_at"],
    )  # fmt: skip
    if flags["html"]:
        write_whole(flags["html"], read.to_report())
    if flags["as_json"]:
        echo_json(read.to_dict())
        return
    click.echo(str(read))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")
