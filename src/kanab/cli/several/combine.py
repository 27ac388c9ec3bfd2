"""kanab combine: one experiment over batches, regions or releases."""

from typing import Any, get_args

import click

from kanab.choices import MetaMethod
from kanab.cli.output import html_option, json_option, show
from kanab.cli.released_sources import releases_by_name
from kanab.cli.source_options import SHARE


@click.command()
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
@click.option("--confidence", type=SHARE, default=0.95, show_default=True, help="Of intervals.")
@json_option
@html_option
def combine(source: tuple[str, ...], **flags: Any) -> None:
    """Combine effects over batches, regions or releases.

    SOURCE are release files about different people, a ledger of cohorts, or a folder of release files.

    \b
    kanab combine de.json fr.json nl.json
    kanab combine kanab.ledger --method fixed
    """
    from kanab.portfolio.together import combine as combine_releases

    combined = combine_releases(
        releases_by_name(source), flags["experiment"], metric=flags["metric"], control=flags["control"],
        method=flags["method"], knapp_hartung=not flags["normal"], confidence=flags["confidence"],
    )  # fmt: skip
    show(flags, text=combined.__str__, data=combined.to_dict, page=combined.to_html)
