"""kanab drill: would a restore of this backup work, and what would be lost?"""

import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from kanab.cli.operating.settings import has_password
from kanab.cli.stores import FILE, Place
from kanab.errors import StoreError


@click.command()
@click.argument("backup")
@click.option("--key", type=click.Path(dir_okay=False), help="Copy of the key file; default beside the backup.")
@click.option("--ledger", type=click.Path(dir_okay=False), help="Ledger that was exported from the store.")
def drill(backup: str, *, key: str | None, ledger: str | None) -> None:
    """Rehearse a restore.

    BACKUP is a copy of a data directory, or of its store.db, or the address of a scratch database with a dump in it. It
    is restored in a temporary folder and only read itself: does it open, does the key fit, do open cohorts decrypt,
    does the ledger verify, and how old is it? Exit 1 if a restore would not work.

    \b
    kanab drill backup/kanab-data --key apart/kanab-data.key --ledger kanab.ledger
    kanab drill copy.db --key kanab-data.key
    kanab drill postgresql://localhost/scratch --key kanab.key --ledger kanab.ledger
    """
    from kanab.collector.restoring import rehearse
    from kanab.privacy.ledger import read_ledger

    exported = read_ledger(ledger) if ledger is not None else None
    now = datetime.now(UTC)
    if "://" in backup:
        if has_password(backup):
            remedy = "Leave it out, and give it in PGPASSWORD or ~/.pgpass."
            raise StoreError("the password in the address would stand in the list of processes", remedy)
        place = Place(None, backup, key)
        with closing(place.read()) as database:
            report = rehearse(database, place.keyring_at_hand(), exported, now)
    else:
        copy = Path(backup)
        file = copy / FILE if copy.is_dir() else copy
        if not file.exists():
            remedy = "Name a copy of a data directory, or of its store.db."
            raise StoreError(f"there is no store in {copy.name!r}", remedy)
        report = rehearse(file, Place(backup, None, key).keyring_at_hand(), exported, now)
    click.echo(report.text)
    if not report.works:
        sys.exit(1)
