"""Who reads a store changes nothing in it, and needs no right to; stores of earlier formats go on, exactly."""

import gzip
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from tests.closing import Keep
from tests.collector.collector_process import Done, ForkServer, Place, every_file
from tests.collector.stores_of_before.make import LATER, numbered
from tests.collector.test_sealing import MONDAY, PLAN, VERSIONS, cohort, people, posts, send
from tests.collector.test_stores import cipher, entry

from kanab import count
from kanab.collector.counting.plan_versions import Versions
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.sealing import seal_cohorts, seal_due, stored_ledger
from kanab.collector.stores import postgres as pgstore
from kanab.collector.stores import sqlite as sqlitestore
from kanab.collector.stores.postgres import PostgresStore
from kanab.collector.stores.sqlite import SqliteStore
from kanab.collector.stores.store import Store
from kanab.errors import StoreError

NOBODY = 65_534
READERS = ("audit", "analyze", "export")


@pytest.fixture(scope="module")
def sealed_place(fork_server: ForkServer) -> Iterator[Place]:
    """A folder that everybody may enter and read, with a store that has a sealed batch."""
    root = Path(tempfile.mkdtemp(prefix="kanab-read-only-"))
    place = Place(root / "place", fork_server)
    store = begun(SqliteStore(place.data / "store.db"))
    store.close()
    for folder in (root, place.root, place.data, place.root / "cwd"):
        folder.chmod(0o755)
    (place.data / "store.db").chmod(0o644)
    yield place
    shutil.rmtree(root)


def begun(store: Store) -> Store:
    Versions().record(store, VERSIONS.newest, VERSIONS.entries[0].since)
    send(store, cipher(), posts(people(400, 1), "2026-W46"), MONDAY)
    assert seal_cohorts(store, cipher(), VERSIONS, cohort(MONDAY)).release is not None
    return store


def read_by(place: Place, command: str, uid: int | None = NOBODY) -> Done:
    words = {
        "audit": ("audit", place.data),
        "analyze": ("analyze", place.data),
        "export": ("export", "--data", place.data, "-o", place.root / "cwd" / "kanab.ledger"),
    }[command]
    for end in ("out", "err"):
        (place.root / f"{command}.{end}").unlink(missing_ok=True)
    code = place.end(place.begin(*words, name=command, uid=uid))
    return Done(code, *((place.root / f"{command}.{end}").read_text() for end in ("out", "err")))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("command", ["audit", "analyze"])
def test_who_may_not_write_reads_a_closed_store(sealed_place: Place, command: str) -> None:
    before = every_file(sealed_place.data)
    done = read_by(sealed_place, command)
    assert (done.code, done.err) == (0, "")
    assert every_file(sealed_place.data) == before  # no log was made, either


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can become somebody else")
def test_who_may_not_write_reads_what_a_killed_collector_left_and_what_a_running_one_has(sealed_place: Place) -> None:
    with_log = Place(sealed_place.root.parent / "with_log", sealed_place.fork_server)
    for folder in (with_log.root, with_log.root / "cwd"):
        folder.chmod(0o755)
    shutil.copytree(sealed_place.data, with_log.data)
    writer = SqliteStore(with_log.data / "store.db")  # holds its log open
    writer.append([entry(1, cohort=2_965)], cipher().encrypt)
    assert read_by(with_log, "audit").code == 0
    killed = {path: data for path, data in every_file(with_log.data).items() if path.suffix != ".db-shm"}
    writer.close()
    for path, data in killed.items():
        path.write_bytes(data)
    done = read_by(with_log, "audit")
    assert done.code == 1
    assert "store.db-wal cannot be read without store.db-shm. Copy the whole folder" in done.out
    assert {path: path.read_bytes() for path in killed} == killed


@pytest.mark.parametrize("command", READERS)
def test_reading_commands_leave_every_byte_as_it_was(sealed_place: Place, command: str) -> None:
    before = every_file(sealed_place.data)
    assert read_by(sealed_place, command, None).code == 0
    assert every_file(sealed_place.data) == before


def test_a_reader_sees_what_a_collector_wrote_meanwhile(tmp_path: Path, closing: Keep) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    reader = closing(SqliteStore(path, read_only=True))
    assert reader.sealed() == []
    writer = SqliteStore(path)
    writer.seal(3, lambda _records, _before: b"a batch")
    assert (reader.sealed(), reader.sealed_through()) == ([b"a batch"], 3)
    writer.seal(4, lambda _records, _before: b"another")
    writer.close()
    assert reader.sealed() == [b"a batch", b"another"]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_store_that_is_read_only_takes_nothing(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, closing: Keep
) -> None:
    opened = _opener(engine, tmp_path, request)
    with pytest.raises(StoreError, match=r"cannot be opened|there is no store in this database"):
        opened(read_only=True)
    writer = closing(opened())
    writer.claim(b"0123456789abcdef")
    reader = closing(opened(read_only=True))
    assert (reader.fingerprint(), reader.epoch(), reader.sizes()) == (b"0123456789abcdef", "", {})
    with pytest.raises(StoreError, match=r"opened to be read|read-only"):
        reader.append([entry(1)], cipher().encrypt)


def _opener(engine: str, folder: Path, request: pytest.FixtureRequest) -> Callable[..., Any]:
    if engine == "sqlite":
        return lambda **named: SqliteStore(folder / "store.db", **named)
    url = request.getfixturevalue("postgres_url")
    return lambda **named: PostgresStore(url, **named)


# ── tables of other versions ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def old_place(sealed_place: Place, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The same batch in the tables of the first version."""
    place = Place(tmp_path_factory.mktemp("old") / "place", sealed_place.fork_server)
    place.data.mkdir()
    with sqlite3.connect(place.data / "store.db") as db:
        db.executescript(sqlitestore._MIGRATIONS[0])
        db.execute(f"PRAGMA application_id = {sqlitestore._MARK}")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO sealed (through, batch) VALUES (?, ?)", _sealed_batch(sealed_place))
    db.close()
    return place


def _sealed_batch(place: Place) -> tuple[int, bytes]:
    store = SqliteStore(place.data / "store.db", read_only=True)
    [batch], through = store.sealed(), store.sealed_through()
    store.close()
    return through, batch


@pytest.mark.parametrize("command", READERS)
def test_reading_commands_read_an_earlier_version_and_do_not_bring_it_up_to_date(
    old_place: Place, command: str
) -> None:
    before = every_file(old_place.data)
    done = read_by(old_place, command, None)
    assert (done.code, done.err) == (0, "")
    assert every_file(old_place.data) == before


def test_what_an_earlier_version_lacks_is_said_with_the_way(old_place: Place) -> None:
    store = SqliteStore(old_place.data / "store.db", read_only=True)
    assert store.epoch() == ""
    with (
        pytest.raises(StoreError, match=r"last used by an older kanab. Start the collector once"),
        store._reading() as db,
    ):
        db.execute("SELECT generation FROM store")
    store.close()


def test_a_database_user_who_may_only_read_exports_and_migrates_nothing(sealed_place: Place, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute(pgstore._MIGRATIONS[0])
        db.execute("UPDATE kanab_store SET version = 1")
        db.execute("INSERT INTO kanab_sealed (through, batch) VALUES (%s, %s)", _sealed_batch(sealed_place))
        db.execute("DROP ROLE IF EXISTS kanab_reader")
        db.execute("CREATE ROLE kanab_reader LOGIN")
    reader = _as_user(postgres_url, "kanab_reader")
    export = ("export", "--store", reader, "-o", sealed_place.root / "cwd" / "kanab.ledger")
    assert "there is no store in this database for this user" in sealed_place.run(*export).err
    with psycopg.connect(postgres_url, autocommit=True) as db:
        db.execute("GRANT USAGE ON SCHEMA public TO kanab_reader")
        refused = sealed_place.run(*export)
        assert refused.code == 2
        assert "the database refuses this user. Grant it the right to read the tables kanab_…" in refused.err
        db.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO kanab_reader")
        db.execute("ALTER ROLE kanab_reader SET default_transaction_read_only = on")  # as on a standby
    assert sealed_place.run(*export).code == 0
    store = PostgresStore(reader, read_only=True)
    assert store.epoch() == ""
    with pytest.raises(StoreError, match="last used by an older kanab"):
        store._run(lambda db: db.execute("SELECT generation FROM kanab_store"))
    store.close()
    with psycopg.connect(postgres_url, autocommit=True) as db:
        assert db.execute("SELECT version FROM kanab_store").fetchone() == (1,)
        db.execute("UPDATE kanab_store SET version = 99")
        assert "written by a newer kanab" in sealed_place.run(*export).err
        db.execute("DROP OWNED BY kanab_reader")
        db.execute("DROP ROLE kanab_reader")


def _as_user(url: str, user: str) -> str:
    words = psycopg.conninfo.conninfo_to_dict(url) | {"user": user}
    words.pop("password", None)
    host, name = words.pop("host", ""), words.pop("dbname", "")
    more = "&".join(f"{key}={value}" for key, value in words.items() if key != "user")
    return f"postgresql://{user}@/{name}?host={host}{'&' + more if more else ''}"


# ── stores of earlier formats go on with this one, exactly; test_stores.py has the later ones ──


BEFORE = Path(__file__).with_name("stores_of_before")


@pytest.fixture
def unpacked(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    """The key, and the file or the address of the database."""
    name = request.param
    (key := tmp_path / "data.key").write_bytes((BEFORE / f"{name}.key").read_bytes())
    key.chmod(0o600)
    if name.startswith("sqlite"):
        (path := tmp_path / "store.db").write_bytes(gzip.decompress((BEFORE / f"{name}.db.gz").read_bytes()))
        return key, path
    url = request.getfixturevalue("postgres_url")
    dump = gzip.decompress((BEFORE / f"{name}.sql.gz").read_bytes()).decode()
    with psycopg.connect(url, autocommit=True) as db:  # without the orders to psql
        db.execute("\n".join(line for line in dump.splitlines() if not line.startswith("\\")))  # type: ignore[call-overload]
    return key, url


def opened(place: Any) -> Any:
    return closing(SqliteStore(place) if isinstance(place, Path) else PostgresStore(place))


@pytest.mark.parametrize("unpacked", sorted(each.stem for each in BEFORE.glob("*.key")), indirect=True)
def test_a_store_of_an_earlier_format_goes_on_and_is_sealed_exactly(unpacked: tuple[Path, Any]) -> None:
    key, place = unpacked
    cipher = RecordCipher(Keyring.from_file(key))
    with opened(place) as store:
        store.claim(cipher.keyring.fingerprint)
        again = store.append(numbered(cipher), cipher.encrypt).outcomes
        assert again == ["duplicate"] * 100  # clients that heard nothing send again after the update
        send(store, cipher, posts(people(80, 3), "2026-W47"), LATER)
    with opened(place) as store:
        for week in store.sizes():
            store.compact(week, cipher.merge)
        (sealed,) = seal_due(store, cipher, Versions.read(store), cohort(LATER))
        first, second = stored_ledger(store).releases
        assert store.records() == []
    assert sealed.release is not None
    assert sealed.release.receipt.deleted == ()  # records of before were not numbered
    assert dict(first.tables) == count(people(120, 1), plan=PLAN).tallies
    open_, new = people(100, 2), people(80, 3)
    rows = {name: np.concatenate([open_[name], new[name]]) for name in new}
    assert dict(second.tables) == dict(sealed.release.tables) == count(rows, plan=PLAN).tallies
