"""kanab restore: sealed batches back into a store that was restored from an older backup."""

from __future__ import annotations

import click

from kanab.cli.stores import opened_store
from kanab.collector.sealing import put_back
from kanab.privacy.ledger import read_ledger


@click.command()
@click.argument("ledger", type=click.Path(exists=True, dir_okay=False))
@click.option("--data", type=click.Path(file_okay=False, exists=True), help="The data directory of one collector.")
@click.option("--store", metavar="URL", help="A PostgreSQL database for several collectors.")
def restore(ledger: str, data: str | None, store: str | None) -> None:
    """Put the batches of an exported ledger back into a store that lacks them; no key is needed.

    A store from a backup that is older than the last seal has records again that no key opens, and they would keep
    everything from being sealed. With the batches back they are gone, and collecting goes on.

    \b
    kanab restore kanab.ledger --data ./kanab-data
    """
    found = read_ledger(ledger)
    opened = opened_store(data, store)
    try:
        batches = put_back(opened, found)
    finally:
        opened.close()
    if batches:
        click.echo(f"{batches} sealed batch{'es' if batches > 1 else ''} put back.")
    else:
        click.echo("The store has every batch of the ledger: nothing was put back.")
