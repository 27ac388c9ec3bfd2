"""A store from a backup that is older than the last seal gets its batches back, and goes on."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.collector.test_sealing import MONDAY, PLAN, VERSIONS, cohort, people, posts, send

from kanab.cli.main import cli
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import KeyChain, Keyring
from kanab.collector.sealing import put_back, seal_cohorts, stored_ledger
from kanab.collector.stores.sqlite import SqliteStore
from kanab.errors import LedgerError, StoreError
from kanab.privacy.ledger import Ledger, ledger_text
from kanab.privacy.ledger_note import LedgerNote


def begun(path: Path) -> SqliteStore:
    path.parent.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(path)
    Versions().record(store, PLAN, 0)
    return store


@pytest.fixture
def cipher() -> RecordCipher:
    return RecordCipher(Keyring(KeyChain.new()))


@pytest.fixture
def restored(tmp_path: Path, cipher: RecordCipher) -> tuple[Path, Ledger]:
    """A data directory as it was before two seals, and the ledger that was exported after them."""
    store = begun(tmp_path / "data" / "store.db")
    for week in range(3):
        now = MONDAY + timedelta(weeks=week)
        send(store, cipher, posts(people(400, week), f"2026-W{46 + week}"), now)
        if week == 1:
            store.tidy()
            shutil.copy(tmp_path / "data" / "store.db", tmp_path / "backup.db")
        assert seal_cohorts(store, cipher, VERSIONS, cohort(now)).release is not None
    ledger = stored_ledger(store)
    store.close()
    shutil.rmtree(tmp_path / "data")
    (tmp_path / "data").mkdir()
    shutil.copy(tmp_path / "backup.db", tmp_path / "data" / "store.db")
    return tmp_path / "data", ledger


def test_without_its_batches_nothing_can_be_sealed_and_with_them_it_goes_on(
    restored: tuple[Path, Ledger], cipher: RecordCipher
) -> None:
    data, ledger = restored
    store = SqliteStore(data / "store.db")
    later = MONDAY + timedelta(weeks=3)
    with pytest.raises(StoreError, match="the key of a cohort has been erased"):
        seal_cohorts(store, cipher, VERSIONS, cohort(later))
    assert len(stored_ledger(store).releases) == 1
    store.close()

    (data.parent / "kanab.ledger").write_text(ledger_text(ledger))
    command = ["restore", str(data.parent / "kanab.ledger"), "--data", str(data)]
    assert CliRunner().invoke(cli, command).output == "2 sealed batches put back.\n"
    again = CliRunner().invoke(cli, command)
    assert again.output == "The store has every batch of the ledger: nothing was put back.\n"

    store = SqliteStore(data / "store.db")
    assert store.records() == []
    assert stored_ledger(store).hashes == ledger.hashes
    send(store, cipher, posts(people(400, 9), "2026-W49"), later)
    sealed = seal_cohorts(store, cipher, VERSIONS, cohort(later)).release
    assert sealed is not None
    assert sealed.previous == ledger.head
    store.close()


def test_the_ledger_of_another_store_is_refused_and_nothing_changes(
    restored: tuple[Path, Ledger], tmp_path: Path, cipher: RecordCipher
) -> None:
    data, ledger = restored
    other = begun(tmp_path / "other" / "store.db")
    send(other, cipher, posts(people(400, 7), "2026-W49"), MONDAY + timedelta(weeks=3))
    assert seal_cohorts(other, cipher, VERSIONS, cohort(MONDAY + timedelta(weeks=3))).release is not None
    with pytest.raises(LedgerError, match="the ledger is not this store's"):
        put_back(other, ledger)
    store = SqliteStore(data / "store.db")
    with pytest.raises(LedgerError, match="the ledger is not this store's"):
        put_back(store, stored_ledger(other))
    assert len(store.sealed()) == 1
    other.close()
    store.close()


def test_a_store_without_a_plan_takes_nothing(tmp_path: Path, restored: tuple[Path, Ledger]) -> None:
    store = SqliteStore(tmp_path / "empty.db")
    with pytest.raises(LedgerError, match="the ledger is not this store's"):
        put_back(store, restored[1])
    store.close()


def test_notes_of_refused_releases_after_the_batches_do_not_matter_and_between_them_they_do(
    restored: tuple[Path, Ledger],
) -> None:
    data, ledger = restored
    store = SqliteStore(data / "store.db")
    note = LedgerNote("refused", "other choices", previous=ledger.head)
    between = Ledger((*ledger.entries[:2], note, ledger.entries[2]), (*ledger.hashes[:2], "x", ledger.hashes[2]))
    with pytest.raises(LedgerError, match="is not this store's"):
        put_back(store, between)
    assert put_back(store, Ledger((*ledger.entries, note), (*ledger.hashes, "x"))) == 2
    store.close()
