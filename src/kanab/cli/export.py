"""kanab export: what a collector has sealed, as one file for elsewhere."""

from contextlib import closing

import click

from kanab.atomicfile import write_whole
from kanab.cli.output import LEDGER, output_option
from kanab.cli.stores import Place, place_options
from kanab.errors import SourceError


@click.command()
@place_options
@output_option(
    "-o", "--output", mark=LEDGER, words="Ledger to write: a file, or an address such as s3://… (fsspec).",
    default="kanab.ledger", show_default=True,
)  # fmt: skip
def export(place: Place, output: str) -> None:
    """Write a collector's sealed batches to a ledger.

    No key is needed.

    \b
    kanab export --store postgresql://localhost/kanab -o kanab.ledger
    kanab analyze kanab.ledger
    """
    from kanab.collector.export import is_address, write_address
    from kanab.collector.sealing import stored_ledger
    from kanab.privacy.ledger import ledger_text

    with closing(place.read()) as opened:
        ledger = stored_ledger(opened)
    if not ledger.entries:
        raise SourceError("nothing is sealed yet", "A cohort is sealed at the first tick after it is ripe.")
    (write_address if is_address(output) else write_whole)(output, ledger_text(ledger))
    batches = len(ledger.releases)
    click.echo(f"{output}: {batches} sealed batch{'es' if batches != 1 else ''}.")
