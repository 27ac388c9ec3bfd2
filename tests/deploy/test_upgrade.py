"""Drills of an operator: a new version on the store of an old one, and a machine that is lost and comes back."""

import shutil
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server
from tests.collector.many_visitors import PLAN_TEXT, Visitors, collected, this_week
from tests.collector.test_epochs import newcomers, visit
from tests.collector.test_sealing import PLAN, people, posts
from tests.collector.test_sealing import PLAN_TEXT as OLD_PLAN_TEXT

from kanab import count
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.sealing import missing_records, people_by_arm, stored_ledger
from kanab.collector.stores.sqlite import SCHEMA, SqliteStore

OLD = Path(__file__).parent / "store-format-2"
"""Written by the code of 2026-11-16: weeks 46, 47 and 48 of 2025 with 120 people each, the first one sealed by it."""


def format_of(store: Path) -> int:
    db = sqlite3.connect(f"file:{store}?immutable=1", uri=True)
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    db.close()
    return version


@pytest.mark.slow
def test_a_store_of_an_older_version_goes_on_and_its_open_cohorts_are_sealed_digit_for_digit(
    place: Place, closing: Keep
) -> None:
    place.data.mkdir()
    shutil.copy(OLD / "store.db", place.data / "store.db")
    shutil.copy(OLD / "store.key", place.key)
    place.key.chmod(0o600)
    assert format_of(place.data / "store.db") == 2 < SCHEMA
    plan = place.plan(OLD_PLAN_TEXT)
    ahead = place.run("analyze", place.data)
    assert ahead.code == 0, ahead  # reading changes nothing
    assert format_of(place.data / "store.db") == 2
    sealed = place.run("seal", "--plan", plan, "--data", place.data, "--accept-clock")
    assert sealed.code == 0, sealed
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    bodies = posts(people(20, 3), this_week())
    assert {server.post(f"kanab/1 {make_nonce(datetime.now(UTC))}\n{body}\n".encode()) for body in bodies} == {204}
    assert server.stop() == 0
    assert format_of(place.data / "store.db") == SCHEMA

    store = closing(SqliteStore(place.data / "store.db"))
    first, second = stored_ledger(store).releases
    assert first.tables == count(people(120, 0), plan=PLAN).tallies
    both = [count(people(120, week), plan=PLAN).tallies for week in (1, 2)]
    assert second.tables == {name: both[0][name] + both[1][name] for name in both[0]}
    everybody = np.concatenate([people(size, week)["checkout"] for week, size in enumerate((120, 120, 120, 20))])
    arms = {arm: int((everybody == arm).sum()) // 10 * 10 for arm in "AB"}
    cipher = RecordCipher(Keyring.from_file(place.key))
    assert people_by_arm(store, cipher, PLAN)["checkout"] == arms
    assert (second.receipt.deleted, missing_records(store, cipher)) == ((), 0)  # old records had no numbers
    assert place.run("audit", place.data).code == 0


@pytest.mark.slow
def test_after_a_lost_machine_the_backup_and_the_key_kept_apart_go_on(
    place: Place, tmp_path: Path, closing: Keep
) -> None:
    """What docs/how-to/deployment.md says: copy the store while it runs, the key apart; drill; put back; restore."""
    plan, visitors, backup, apart = place.plan(PLAN_TEXT), Visitors(41), tmp_path / "backup", tmp_path / "apart.key"
    server = closing(Server(place, "--plan", plan, "--data", place.data)).start()
    newcomers(visitors, 60, server)
    assert {*visit(visitors, server)} == {204}
    backup.mkdir()
    source, target = (sqlite3.connect(path) for path in (place.data / "store.db", backup / "store.db"))
    source.backup(target)
    source.close()
    target.close()
    shutil.copy(place.key, apart)
    at_backup = visitors.tallies()
    assert {*visit(visitors, server)} == {204}  # lost with the machine
    server.kill()
    shutil.rmtree(place.data)
    for name in (place.key, place.key.with_name(f"{place.key.name}.witness")):
        name.unlink(missing_ok=True)

    drill = place.run("drill", backup, "--key", apart)
    assert (drill.code, drill.out.splitlines()[-1]) == (0, "A restore would work."), drill
    shutil.copytree(backup, place.data)
    shutil.copy(apart, place.key)
    restored = place.run("restore", "--data", place.data, "--new-epoch", "--keep-open")
    assert (restored.code, "A new epoch" in restored.out) == (0, True), restored

    server.start()
    assert {*visit(visitors, server)} == {410}  # they were counted up to the backup, and send nothing more
    later = Visitors(42)
    newcomers(later, 40, server)
    assert {*visit(later, server)} == {204}
    assert server.stop() == 0
    store = closing(SqliteStore(place.data / "store.db"))
    truth = later.tallies()
    expected = {name: at_backup[name] + truth[name] for name in truth}
    assert collected(store, RecordCipher(Keyring.from_file(place.key))) == expected
