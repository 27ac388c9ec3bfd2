"""A store that is deleted, moved, replaced or restored under a running collector: nothing acknowledged is lost."""

import os
import shutil
import sqlite3
import time
from contextlib import closing as closed_after
from pathlib import Path
from typing import Any

import pytest
from tests.closing import Keep
from tests.collector.collector_process import Place, Server, until
from tests.collector.many_visitors import PLAN_TEXT, this_week

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import make_nonce
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import MemoryStore, SqliteStore
from kanab.errors import StoreError


def message() -> bytes:
    return f"kanab/1 {make_nonce()}\nbanner:on@{this_week()}\n".encode()


def people(place: Place, store: Any = None) -> int:
    """The people in the store that the path names."""
    opened = store or SqliteStore(place.data / "store.db")
    cipher = RecordCipher(Keyring.from_file(place.key))
    try:
        records = opened.records()
        return sum(cipher.decrypt(*record).get("banner|on|n", 0) for record in records)
    finally:
        opened.close()


@pytest.fixture
def server(place: Place, closing: Keep) -> Server:
    """A collector that has taken three posts."""
    server = closing(Server(place, "--plan", place.plan(PLAN_TEXT), "--data", place.data)).start()
    assert [server.post(message()) for _ in range(3)] == [204] * 3
    return server


def until_taken(server: Server, body: bytes) -> None:
    """Send again, as clients do, until the post is taken."""
    until(lambda: server.post(body) == 204)


def refuses(server: Server, sentence: str) -> bytes:
    """A post is refused, and the operator told why; the post."""
    body = message()
    assert [server.post(body), server.post(body)] == [503, 503]
    assert server.ask("GET", "/healthz")[0] == 503
    assert server.stderr.count(sentence) == 1  # and not once for every post
    return body


def test_a_deleted_store_takes_nothing_until_it_is_back(server: Server, place: Place) -> None:
    away = place.root / "away"
    place.data.rename(away)
    body = refuses(server, "the file of the store is gone")
    away.rename(place.data)
    until_taken(server, body)
    server.wait_ready()
    (place.data / "store.db").unlink()
    assert server.post(message()) == 503
    assert server.ask("GET", "/healthz")[0] == 503


def test_a_store_moved_to_another_disk_is_opened_there_if_nothing_is_missing(server: Server, place: Place) -> None:
    """A copy in its place; then an older copy."""
    older, copy = place.root / "older", place.root / "copy"
    shutil.copytree(place.data, older)
    until_taken(server, message())
    shutil.copytree(place.data, copy)
    place.data.rename(place.root / "before")
    copy.rename(place.data)
    body = message()
    until_taken(server, body)
    place.data.rename(place.root / "second")
    older.rename(place.data)
    refused = refuses(server, "replaced by one that lacks what was acknowledged")
    place.data.rename(place.root / "third")
    (place.root / "second").rename(place.data)
    until_taken(server, body)
    until_taken(server, refused)
    server.kill()
    assert people(place) == 6


def test_an_empty_file_in_place_of_the_store_is_left_alone(server: Server, place: Place) -> None:
    for path in list(place.data.iterdir()):
        path.unlink()
    (place.data / "store.db").touch()
    refuses(server, "replaced by one that lacks what was acknowledged")
    assert (place.data / "store.db").read_bytes() == b""


@pytest.mark.parametrize("harm", ["a backup", "another store", "cut off", "emptied"])
def test_a_store_that_is_overwritten_in_place_takes_nothing_and_is_not_written_to(
    server: Server, place: Place, harm: str
) -> None:
    path, other = place.data / "store.db", place.root / "other.db"
    with closed_after(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        with closed_after(sqlite3.connect(other)) as copy:
            db.backup(copy)
    until_taken(server, message())
    with closed_after(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    until_taken(server, message())
    if harm == "another store":
        with closed_after(sqlite3.connect(other)) as db, db:
            db.execute("UPDATE store SET fingerprint = randomblob(16)")
            db.execute("UPDATE log SET number = 1000")
    content = {"cut off": path.read_bytes()[:8192], "emptied": b""}.get(harm, other.read_bytes())
    with path.open("r+b") as file:  # as cp does
        file.truncate(0)
        file.write(content)
    refuses(server, "the file of the store was overwritten or cut off")
    assert server.stop() == 0
    assert path.read_bytes() == content


def test_a_deleted_log_is_written_again_and_nothing_acknowledged_is_lost(server: Server, place: Place) -> None:
    for name in ("store.db-wal", "store.db-shm"):
        (place.data / name).unlink()
    for _ in range(3):
        until_taken(server, message())
    server.wait_ready()
    assert "the log of the store (store.db-wal) was deleted" in server.stderr
    server.kill()
    assert people(place) == 6


def test_a_seal_into_a_deleted_file_is_not_reported_as_done(tmp_path: Path, closing: Keep) -> None:
    store = closing(SqliteStore(tmp_path / "data" / "store.db"))
    (tmp_path / "data").rename(tmp_path / "away")
    with pytest.raises(StoreError, match="the file of the store is gone"):
        store.seal(4, lambda _records, _before: b"a batch")
    (tmp_path / "away").rename(tmp_path / "data")
    assert store.sealed() == []


def test_a_memory_store_is_not_opened_again(tmp_path: Path, closing: Keep) -> None:
    """What is open is nowhere else."""
    store = closing(MemoryStore(tmp_path / "data" / "store.db"))
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    (tmp_path / "data").rename(tmp_path / "away")
    (tmp_path / "copy").rename(tmp_path / "data")
    for _ in range(2):
        with pytest.raises(StoreError, match="the file of the store was replaced"):
            store.sealed()


def test_two_stores_in_one_process_share_a_handle_and_close_in_any_order(tmp_path: Path) -> None:
    handles = Path("/proc/self/fd")
    before = len(list(handles.iterdir())) if handles.exists() else 0
    first, second = (SqliteStore(tmp_path / "store.db") for _ in range(2))
    first.close()
    second.claim(b"a key")
    second.close()
    assert not handles.exists() or len(list(handles.iterdir())) == before


def test_a_store_behind_a_link_is_watched_too(tmp_path: Path, closing: Keep) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store.db").symlink_to(tmp_path / "disk" / "store.db")
    store = closing(SqliteStore(tmp_path / "store.db"))
    store.claim(b"a key")
    time.sleep(1.1)
    store.sealed()
    os.unlink(tmp_path / "disk" / "store.db")
    with pytest.raises(StoreError, match="the file of the store is gone"):
        store.sealed()


# ── PostgreSQL ─────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def shared_server(place: Place, postgres_url: str, closing: Keep) -> Server:
    """A collector on PostgreSQL that has taken three posts."""
    Keyring.create(place.key)
    options = ("--plan", place.plan(PLAN_TEXT), "--store", postgres_url, "--key", place.key)
    server = closing(Server(place, *options)).start()
    assert [server.post(message()) for _ in range(3)] == [204] * 3
    return server


def copied_tables(url: str, *, back: bool) -> None:
    """Copy the tables into another schema as a backup does, or put such a backup in their place."""
    import psycopg  # noqa: PLC0415 - slow to import

    with psycopg.connect(url, autocommit=True) as db:
        tables = ("store", "records", "nonces", "sealed", "plans")
        if not back:
            db.execute("DROP SCHEMA IF EXISTS backup CASCADE")
            db.execute("CREATE SCHEMA backup")
        with db.transaction():
            for table in tables:
                if back:
                    db.execute(f"TRUNCATE kanab_{table}")
                    db.execute(f"INSERT INTO kanab_{table} SELECT * FROM backup.{table}")
                else:
                    db.execute(f"CREATE TABLE backup.{table} AS SELECT * FROM kanab_{table}")


def test_a_database_that_was_restored_under_a_collector_takes_nothing(
    shared_server: Server, place: Place, postgres_url: str
) -> None:
    """An older one lacks what was acknowledged; a backup that has it is as good as what was there."""
    copied_tables(postgres_url, back=False)
    copied_tables(postgres_url, back=True)
    body = message()
    assert [shared_server.post(body), shared_server.post(body)] == [204] * 2
    copied_tables(postgres_url, back=True)
    refuses(shared_server, "the database lacks what was acknowledged")
    shared_server.kill()
    assert people(place, PostgresStore(postgres_url)) == 3


def test_a_database_that_was_dropped_or_begun_anew_takes_nothing(
    shared_server: Server, place: Place, postgres_url: str
) -> None:
    import psycopg  # noqa: PLC0415 - slow to import

    copied_tables(postgres_url, back=False)
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("DROP SCHEMA public CASCADE")
        db.execute("CREATE SCHEMA public")
        refuses(shared_server, "the tables of the store are gone")
        db.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kanab'")
        body = message()
        assert [shared_server.post(body), shared_server.post(body)] == [503] * 2  # a new connection makes no tables
        assert db.execute("SELECT to_regclass('kanab_store')").fetchone() == (None,)
    PostgresStore(postgres_url).close()  # as another collector begins a new store
    refused = message()
    assert shared_server.post(refused) == 503
    assert "the database lacks what was acknowledged" in shared_server.stderr
    copied_tables(postgres_url, back=True)
    until_taken(shared_server, refused)
    shared_server.kill()
    assert people(place, PostgresStore(postgres_url)) == 4
