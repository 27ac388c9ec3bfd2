"""kanab reweigh: shares for the next period, from sealed batches."""

from __future__ import annotations

from typing import Any

import click

from kanab.atomicfile import write_whole
from kanab.choices import LEAST_SHARE
from kanab.cli.output import echo_json, json_option
from kanab.cli.several.sources import releases_by_name


@click.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--experiment", help="One experiment of several.")
@click.option("--metric", help="What an arm should be best at.")
@click.option("--control", help="Arm to compare with.")
@click.option(
    "--better", type=click.Choice(["higher", "lower"]), default="higher", show_default=True, help="What is good."
)
@click.option("--least-share", type=float, default=LEAST_SHARE, show_default=True, help="Share that every arm keeps.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of intervals.")
@json_option
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report to this file.")
def reweigh(source: tuple[str, ...], **flags: Any) -> None:
    """Propose the arms' shares for the next period.

    SOURCE is a ledger of cohorts, the data directory of a collector, or release files of one experiment's batches.

    \b
    kanab reweigh kanab.ledger --metric orders
    kanab reweigh week1.json week2.json --metric orders --least-share 0.05
    """
    from kanab.portfolio.reweigh import propose_shares

    proposed = propose_shares(
        releases_by_name(source), flags["experiment"], metric=flags["metric"], control=flags["control"],
        better=flags["better"], least_share=flags["least_share"], confidence=flags["confidence"],
    )  # fmt: skip
    if flags["html"]:
        write_whole(flags["html"], proposed.to_report())
    if flags["as_json"]:
        echo_json(proposed.to_dict())
        return
    click.echo(str(proposed))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")
