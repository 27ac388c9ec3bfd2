"""kanab combine: one experiment over batches, regions or releases."""

from __future__ import annotations

from typing import Any, get_args

import click

from kanab.atomicfile import write_whole
from kanab.choices import MetaMethod
from kanab.cli.output import echo_json, json_option
from kanab.cli.released_sources import releases_by_name


@click.command("combine")
@click.argument("source", nargs=-1, required=True)
@click.option("--experiment", help="One experiment of several.")
@click.option("--metric", help="One metric of several.")
@click.option("--control", help="Arm to compare with.")
@click.option(
    "--method",
    type=click.Choice(get_args(MetaMethod)),
    default="reml",
    show_default=True,
    help="One effect for all (fixed), or random effects: DerSimonian–Laird, Paule–Mandel, restricted likelihood.",
)
@click.option("--normal", is_flag=True, help="Random effects without Knapp and Hartung's error.")
@click.option("--confidence", type=float, default=0.95, show_default=True, help="Of intervals.")
@json_option
@click.option("--html", type=click.Path(dir_okay=False), help="Write a report to this file.")
def combine_command(source: tuple[str, ...], **flags: Any) -> None:
    """Combine effects over batches, regions or releases.

    SOURCE are release files about different people, a ledger of cohorts, or a folder of release files.

    \b
    kanab combine de.json fr.json nl.json
    kanab combine kanab.ledger --method fixed
    """
    from kanab.portfolio.combine import combine

    combined = combine(
        releases_by_name(source), flags["experiment"], metric=flags["metric"], control=flags["control"],
        method=flags["method"], knapp_hartung=not flags["normal"], confidence=flags["confidence"],
    )  # fmt: skip
    if flags["html"]:
        write_whole(flags["html"], combined.to_report())
    if flags["as_json"]:
        echo_json(combined.to_dict())
        return
    click.echo(str(combined))
    if flags["html"]:
        click.echo(f"\nReport: {flags['html']}")
