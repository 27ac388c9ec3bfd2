"""kanab restore: a store that was put back from a backup goes on in a new epoch, with the batches that it lacks."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from kanab.cli.stores import Place, store_options, witness_of
from kanab.errors import StoreError

if TYPE_CHECKING:
    from kanab.collector.keys.keyring import Keyring
    from kanab.collector.restoring import Missing
    from kanab.collector.stores.store import Store


@click.command()
@click.argument("ledger", required=False, type=click.Path(exists=True, dir_okay=False))
@store_options
@click.option("--witness", type=click.Path(dir_okay=False), help="Witness of the store; default beside the key file.")
@click.option("--keep-open", is_flag=True, help="Keep open cohorts as they are; their receipts say what was lost.")
@click.option("--without-ledger", is_flag=True, help="Go on without the batches that the store lacks: they are lost.")
@click.option("--delete-open", is_flag=True, help="Delete open cohorts that the ledger has sealed, also with a key.")
@click.option("--new-epoch", is_flag=True, help="Begin a new epoch although nothing shows that the store is older.")
@click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
def restore(
    ledger: str | None,
    place: Place,
    witness: str | None,
    *,
    keep_open: bool,
    without_ledger: bool,
    delete_open: bool,
    new_epoch: bool,
    dry_run: bool,
) -> None:
    """Go on with a store from a backup.

    Put back the batches of an exported LEDGER that the store lacks, and begin a new epoch: people who enrolled before
    send nothing any more, because the store has lost a part of their totals; open cohorts are destroyed, or kept as
    they are with --keep-open; newcomers are counted. A ledger that is not this store's is refused.

    \b
    kanab restore kanab.ledger --data ./kanab-data --dry-run
    kanab restore kanab.ledger --data ./kanab-data
    kanab restore --store postgresql://localhost/kanab --key kanab.key --keep-open
    """
    from kanab.collector import restoring
    from kanab.collector.store_ledger import append_void
    from kanab.privacy.ledger import read_ledger

    now = datetime.now(UTC)
    with closing(place.open()) as opened:
        keyring = place.keyring_at_hand()
        if keyring is not None:
            opened.claim(keyring.fingerprint)
        seen = None if keyring is None else witness_of(keyring, witness)
        missing = restoring.Missing()
        if ledger is not None:
            missing = restoring.missing_entries(opened, read_ledger(ledger), now, keyring, delete_open=delete_open)
        if not missing.entries and restoring.older_error(opened, keyring, seen) is None and not new_epoch:
            if ledger is not None:
                click.echo("The store has every batch of the ledger: nothing was put back.")
            click.echo("Nothing shows that the store is older than what was acknowledged: its epoch goes on.")
            click.echo("If a backup was put back all the same, add --new-epoch.")
            return
        lost = _lost_batches(opened, keyring, missing, without_ledger=without_ledger)
        _, label = restoring.last_open(opened, now)
        sentences = _sentences(len(missing.entries), label, lost=lost is not None, keep_open=keep_open)
        if not dry_run:
            restoring.expect_epoch(opened, seen)
            missing.put_back(opened)
            if lost is not None:
                append_void(opened, lost, "their batch was lost with the store, and no ledger had it", now)
            restoring.begin_epoch(opened, restoring.RESTORED, now, keep=keep_open, witness=seen, keyring=keyring)
    for sentence in sentences:
        click.echo(f"Would do: {sentence}" if dry_run else sentence)


def _lost_batches(store: Store, keyring: Keyring | None, missing: Missing, *, without_ledger: bool) -> int | None:
    """Return the last cohort whose batch neither the store nor the ledger has; raises `StoreError` unless allowed."""
    from kanab.collector.restoring import lost_through

    lost = None if keyring is None else lost_through(store, keyring)
    if lost is None or lost <= max(missing.through, default=-1):
        return None
    if not without_ledger:
        raise StoreError(
            "cohorts were sealed after this backup, and their batches are not in the store",
            "Give the exported LEDGER that has them; if there is none, add --without-ledger: these batches are lost.",
        )
    return lost


def _sentences(entries: int, label: str, *, lost: bool, keep_open: bool) -> list[str]:
    sentences = []
    if entries:
        sentences.append(f"{entries} sealed batch{'es' if entries > 1 else ''} put back.")
    if lost:
        sentences.append("Cohorts whose batches were lost are closed.")
    fate = "kept as they are, and their receipts say so" if keep_open else "destroyed, and the ledger says so"
    sentences.append(f"A new epoch: open cohorts through {label} are {fate}; nobody who enrolled before sends more.")
    return sentences
