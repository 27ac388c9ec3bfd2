"""kanab release: the one file that leaves the building."""

from __future__ import annotations

from typing import Any

import click

from kanab.cli.counting import counted_source
from kanab.cli.options import plan_of, source_options
from kanab.files import write_release
from kanab.privacy.gate import release as release_counted


@click.command()
@click.argument("source")
@source_options
@click.option("--covariate", "segment", help="Covariates to adjust for and to segment by, each in a table of its own.")
@click.option("-o", "--output", required=True, type=click.Path(dir_okay=False), help="The file to write.")
def release(source: str, **given: Any) -> None:
    """Count SOURCE and write what may leave it as one JSON file; refuse with exit 1.

    \b
    kanab release visits.parquet --plan kanab.toml -o checkout.release.json
    kanab release visits.parquet --arm variant --metric spend --bounds spend=0:500 --covariate tier -o FILE
    """
    given["adjust"] = given["segment"]
    found = release_counted(counted_source(source, plan_of(given), given), given["k"], override=given["override"])
    write_release(found, given["output"])
    receipt = found.receipt
    tables = f"{len(found.tables)} table{'s' if len(found.tables) > 1 else ''}"
    click.echo(f"{given['output']}: {tables}, k-anonymous at k = {receipt.k}.")
    for sentence in receipt.left_out.values():
        click.echo(f"- {sentence}.")
    for sentence in receipt.deviations:
        click.echo(f"- Deviation: {sentence}.")
