"""kanab restore: sealed batches back into a store that was restored from an older backup."""

from __future__ import annotations

import click

from kanab.cli.stores import opened_store
from kanab.collector.sealing import put_back
from kanab.privacy.ledger import read_ledger


@click.command()
@click.argument("ledger", type=click.Path(exists=True, dir_okay=False))
@click.option("--data", type=click.Path(file_okay=False, exists=True), help="Data directory of one collector.")
@click.option("--store", metavar="URL", help="PostgreSQL database shared by several collectors.")
def restore(ledger: str, data: str | None, store: str | None) -> None:
    """Put sealed batches back into a restored store.

    A store from a backup that is older than the last seal has records that no key opens any more, and they would keep
    everything from being sealed. Once the batches of an exported LEDGER are back, these records are gone and
    collecting goes on. No key is needed.

    \b
    kanab restore kanab.ledger --data ./kanab-data
    """
    exported = read_ledger(ledger)
    opened = opened_store(data, store)
    try:
        batches = put_back(opened, exported)
    finally:
        opened.close()
    if batches:
        click.echo(f"{batches} sealed batch{'es' if batches > 1 else ''} put back.")
    else:
        click.echo("The store has every batch of the ledger: nothing was put back.")
