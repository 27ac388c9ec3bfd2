"""A restore drill with real backups: good, old, without a key, with another one's key, damaged."""

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Done, Place, Server, every_file
from tests.collector.many_visitors import PLAN_TEXT, Visitors, after_everything, cohort_label
from tests.collector.test_watched_store import copied_tables

from kanab.collector.keys.keyring import Keyring
from kanab.collector.restoring import rehearse
from kanab.collector.stores.postgres import PostgresStore
from kanab.privacy.ledger import read_ledger


@pytest.fixture
def backed_up(place: Place, tmp_path: Path, closing: Keep) -> Path:
    """A backup of a collector that was killed, and the ledger of the seal that came after."""
    plan = place.plan(PLAN_TEXT)
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    visitors = Visitors(71)
    asyncio.run(visitors.for_a_while([server.port], 60, most=400))
    server.kill()
    backup = tmp_path / "backup"
    shutil.copytree(place.data, backup / "data")
    shutil.copy(place.key, backup / "data.key")
    assert place.run("seal", "--plan", plan, "--data", place.data, "--as-of", after_everything()).code == 0
    assert place.run("export", "--data", place.data, "-o", backup / "kanab.ledger").code == 0
    return backup


def drilled(place: Place, backup: Path, *options: str | Path) -> Done:
    """Drill, and check that nothing of the backup has changed and nothing is left elsewhere."""
    before = every_file(backup)
    done = place.run("drill", backup / "data", *options)
    assert every_file(backup) == before
    assert list((place.root / "tmp").iterdir()) == []
    return done


def test_a_drill_says_whether_a_restore_would_work_and_what_would_be_lost(place: Place, backed_up: Path) -> None:
    good = drilled(place, backed_up)
    week = cohort_label(datetime.now(UTC))
    assert good.code == 0, good
    assert "The store opens, and all of it can be read.\nIts ledger verifies: 0 sealed batches.\n" in good.out
    assert "The key is the one of this store.\n" in good.out
    assert f"Open cohorts decrypt: {week}.\n" in good.out
    assert "Lost: posts to open cohorts that came after the hour of " in good.out
    assert good.out.endswith("\nA restore would work.\n")

    later = drilled(place, backed_up, "--key", place.key)  # the key as it is now, after the seal
    assert later.code == 1
    assert f"Wrong: {week} was sealed after this backup, and its batch is not in it. Give the exported" in later.out
    assert later.out.endswith("\nA restore would NOT work.\n")
    ledger, now = (
        read_ledger(backed_up / "kanab.ledger"),
        datetime.fromisoformat(after_everything()).replace(tzinfo=UTC),
    )
    report = rehearse(backed_up / "data" / "store.db", Keyring.from_file(place.key), ledger, now + timedelta(days=1))
    assert "The exported ledger continues it: 1 entry is put back (kanab restore)." in report.lines
    assert report.works, report.text
    early = drilled(place, backed_up, "--key", place.key, "--ledger", backed_up / "kanab.ledger")  # a rehearsed seal
    assert (early.code, early.out.splitlines()[-1]) == (1, "A restore would NOT work.")

    (backed_up / "data.key").unlink()
    without = drilled(place, backed_up)
    assert without.code == 1
    assert f"Lost: the open cohorts {week}; what is sealed needs no key.\n" in without.out
    assert "Wrong: there is no key. Give the key file (--key)" in without.out

    Keyring.create(backed_up / "data.key")
    other = drilled(place, backed_up)
    assert other.code == 1
    assert "Wrong: this is not the key of this store." in other.out


def test_a_broken_backup_is_called_broken(place: Place, backed_up: Path) -> None:
    file = backed_up / "data" / "store.db"
    log = file.with_name("store.db-wal")
    if log.exists():
        log.unlink()
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xaa" * max(len(whole) - 4096, 4096))
    broken = drilled(place, backed_up)
    assert broken.code == 1
    assert "Wrong: " in broken.out
    assert broken.out.endswith("\nA restore would NOT work.\n")
    file.write_bytes(b"not a database at all")
    nonsense = drilled(place, backed_up)
    assert (nonsense.code, nonsense.out.splitlines()[-1]) == (1, "A restore would NOT work.")
    assert "Wrong: the backup is damaged." in nonsense.out
    file.unlink()
    assert drilled(place, backed_up).code == 2


def test_a_dump_in_a_scratch_database_is_drilled_without_a_change_to_it(
    place: Place, postgres_url: str, closing: Keep, tmp_path: Path
) -> None:
    plan, key = place.plan(PLAN_TEXT), place.root / "shared.key"
    server = closing(Server(place, "--plan", plan, "--store", postgres_url, "--key", key))
    nobody = place.run("drill", postgres_url, "--key", key)
    assert (nobody.code, "there is no store in this database" in nobody.err) == (2, True)
    Keyring.create(key)
    server.start()
    asyncio.run(Visitors(72).for_a_while([server.port], 60, most=200))
    server.kill()
    early = tmp_path / "early.key"
    shutil.copy(key, early)
    week = cohort_label(datetime.now(UTC))
    before = everything_in(postgres_url)
    good = place.run("drill", postgres_url, "--key", early)
    assert good.code == 0, good
    assert "The key is the one of this store.\n" in good.out
    assert f"Open cohorts decrypt: {week}.\n" in good.out
    assert "Lost: posts to open cohorts that came after the hour of " in good.out
    assert good.out.endswith("\nA restore would work.\n")
    assert everything_in(postgres_url) == before
    assert list((place.root / "tmp").iterdir()) == []

    copied_tables(postgres_url, back=False)
    assert (
        place.run("seal", "--plan", plan, "--store", postgres_url, "--key", key, "--as-of", after_everything()).code
        == 0
    )
    assert place.run("export", "--store", postgres_url, "-o", tmp_path / "kanab.ledger").code == 0
    sealed = place.run("drill", postgres_url, "--key", key)
    assert (sealed.code, "Its ledger verifies: 1 sealed batch.\n" in sealed.out) == (0, True), sealed
    copied_tables(postgres_url, back=True)  # the dump from before the seal, with the key from after it
    old = place.run("drill", postgres_url, "--key", key)
    assert old.code == 1
    assert f"Wrong: {week} was sealed after this backup, and its batch is not in it. Give the exported" in old.out
    now = datetime.fromisoformat(after_everything()).replace(tzinfo=UTC) + timedelta(days=1)
    database = closing(PostgresStore(postgres_url, read_only=True))
    report = rehearse(database, Keyring.from_file(key), read_ledger(tmp_path / "kanab.ledger"), now)
    assert "The exported ledger continues it: 1 entry is put back (kanab restore)." in report.lines
    assert report.works, report.text


def test_an_address_with_a_password_is_refused(place: Place) -> None:
    done = place.run("drill", "postgresql://somebody:secret@localhost/scratch")
    assert done.code == 2
    assert "list of processes" in done.err
    assert "secret" not in done.err + done.out


def everything_in(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables of a store."""
    with psycopg.connect(url) as db:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        names = [name for (name,) in db.execute(query).fetchall()]
        return {name: sorted(db.execute(f"SELECT * FROM {name}").fetchall(), key=repr) for name in names}
