"""kanab drill: would a restore of this backup work, and what would be lost?"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from kanab.cli.stores import FILE
from kanab.collector.drill import rehearse
from kanab.collector.keys.keyfile import key_beside
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.errors import StoreError
from kanab.privacy.ledger import read_ledger


@click.command()
@click.argument("backup", type=click.Path(exists=True))
@click.option("--key", type=click.Path(dir_okay=False), help="Copy of the key file; default beside the backup.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger that was exported from the store.")
def drill(backup: str, *, key: str | None, ledger: str | None) -> None:
    """Rehearse a restore.

    BACKUP is a copy of a data directory, or of its store.db. It is restored in a temporary folder and only read itself:
    does it open, does the key fit, do open cohorts decrypt, does the ledger verify, and how old is it? Exit 1 if a
    restore would not work.

    \b
    kanab drill backup/kanab-data --key apart/kanab-data.key --ledger kanab.ledger
    kanab drill copy.db --key kanab-data.key
    """
    place = Path(backup)
    file = place / FILE if place.is_dir() else place
    if not file.exists():
        raise StoreError(f"there is no store in {place.name!r}", "Name a copy of a data directory, or of its store.db.")
    exported = read_ledger(ledger) if ledger is not None else None
    report = rehearse(file, _keyring(key, place), exported, datetime.now(UTC))
    click.echo(report.text)
    if not report.works:
        sys.exit(1)


def _keyring(key: str | None, place: Path) -> Keyring | None:
    """Read a copy of the key, which nothing here moves or writes; None where there is none."""
    secret = os.environ.get("KANAB_KEY")
    if key is None and secret:
        return Keyring(KeyChain.from_secret(secret))
    path = Path(key) if key is not None else key_beside(place)
    return Keyring.from_file(path) if key is not None or path.exists() else None
