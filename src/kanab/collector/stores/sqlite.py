"""A store in one SQLite file: write-ahead log, synced at every commit, deleted pages overwritten."""

from __future__ import annotations

import ctypes
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any

from kanab.collector.stores.sqlite_append import (
    APPENDING,
    BehindError,
    PostGroup,
    StoreState,
    forget_rows,
    last_number,
    merge_nonces,
    read_state,
)
from kanab.collector.stores.sqlite_file import FileToRead, StoreFile, replaced_error
from kanab.collector.stores.store import (
    FORGET_AT_ONCE,
    Appended,
    Carry,
    CountedPost,
    Encrypt,
    MakeBatch,
    MakeNote,
    Merge,
    Record,
    Store,
    StoredPlan,
    newer_schema_error,
    of_epoch,
    older_schema_error,
    plan_race_error,
    refuse_others,
    wrong_key_error,
)
from kanab.errors import MissingLogError, ReplacedError, StoreError

_MARK = 0x6B6E6162  # "knab", so that another program's database is not taken for a store

OPEN_TABLES = """
CREATE TABLE records (id INTEGER PRIMARY KEY, cohort INTEGER NOT NULL, box BLOB NOT NULL);
CREATE TABLE nonces (number INTEGER PRIMARY KEY, hour INTEGER NOT NULL, nonces BLOB NOT NULL);
CREATE TABLE log (number INTEGER NOT NULL);
INSERT INTO log VALUES (0);
"""
"""What the memory store keeps in memory instead: a row of nonces for every group, and how many there were."""

_MIGRATIONS = (
    # version 1
    """
CREATE TABLE records (id INTEGER PRIMARY KEY, cohort INTEGER NOT NULL, box BLOB NOT NULL);
CREATE INDEX records_by_cohort ON records (cohort);
CREATE TABLE nonces (hour INTEGER NOT NULL, nonce BLOB NOT NULL, PRIMARY KEY (hour, nonce)) WITHOUT ROWID;
CREATE TABLE store (one INTEGER PRIMARY KEY CHECK (one = 1), fingerprint BLOB,
                    sealed_through INTEGER NOT NULL, forgotten INTEGER NOT NULL);
INSERT INTO store VALUES (1, NULL, -1, 0);
CREATE TABLE sealed (number INTEGER PRIMARY KEY, through INTEGER NOT NULL UNIQUE, batch BLOB NOT NULL);
CREATE TABLE plans (number INTEGER PRIMARY KEY, since INTEGER NOT NULL, digest TEXT NOT NULL, document BLOB NOT NULL);
""",
    # version 2: nonces are appended as they come; a tree of them cost a page of the log for every post
    """
DROP INDEX records_by_cohort;
ALTER TABLE nonces RENAME TO single;
CREATE TABLE nonces (number INTEGER PRIMARY KEY, hour INTEGER NOT NULL, nonces BLOB NOT NULL);
INSERT INTO nonces SELECT row_number() OVER (ORDER BY hour), hour, nonce FROM single;
DROP TABLE single;
CREATE TABLE log (number INTEGER NOT NULL);
INSERT INTO log SELECT coalesce(max(number), 0) FROM nonces;
""",
    # version 3: the epoch, another one once something was lost; the generation, which grows as records merge
    """
ALTER TABLE store ADD COLUMN epoch TEXT NOT NULL DEFAULT '';
ALTER TABLE store ADD COLUMN generation INTEGER NOT NULL DEFAULT 0;
""",
    # version 4: a note may be about the same cohorts as a batch
    """
ALTER TABLE sealed RENAME TO batches;
CREATE TABLE sealed (number INTEGER PRIMARY KEY, through INTEGER NOT NULL, batch BLOB NOT NULL);
INSERT INTO sealed SELECT number, through, batch FROM batches;
DROP TABLE batches;
""",
    # version 5: open cohorts that a process keeps in memory only
    "CREATE TABLE lost (cohort INTEGER PRIMARY KEY)",
    # version 6: what people were told about
    "CREATE TABLE told (mark TEXT PRIMARY KEY) WITHOUT ROWID",
    # version 7: records have numbers; what an earlier kanab merges would lack them
    "",
)
SCHEMA = len(_MIGRATIONS)
_EPOCHS, _LOST, _TOLD = 3, 5, 6  # the versions that brought them

_CAUSES = {
    sqlite3.SQLITE_FULL: ("the disk of the store is full", "Free some room; clients send their messages again."),
    sqlite3.SQLITE_BUSY: ("another process holds the store", "Try again when it has finished."),
    sqlite3.SQLITE_NOTADB: ("this file is not a store", "Give the data directory of a collector, or a new one."),
    sqlite3.SQLITE_CORRUPT: ("the file of the store is damaged", "Check the disk, and restore a backup."),
    sqlite3.SQLITE_CANTOPEN: ("the store cannot be opened", "Check the path and its permissions."),
    sqlite3.SQLITE_READONLY: ("the store cannot be written", "Check the permissions of the file and its folder."),
}


class SqliteStore:
    """A store in a file, for one machine; several processes may share it.

    ``read_only`` writes nothing, into the file or beside it, and needs no right to: the tables of an earlier
    version stay as they are.
    """

    _keeps_all = True
    """Whether everything is in the file, so that it may be opened again."""

    def __init__(self, path: str | PathLike[str], *, wait: float = 10.0, read_only: bool = False) -> None:
        self._lock = threading.RLock()
        self._state: StoreState | None = None  # read at the first append: who only seals needs no nonces
        self._path = Path(path)
        self._wait = wait
        self._to_read: FileToRead | None = None
        self._watched: StoreFile | None = None
        self._lost = False  # whether the file was not where it should be,
        self._unsure = 0  # and how many rows of nonces were written since, and not acknowledged
        if read_only:
            with _explained():
                self._to_read = FileToRead(self._path, wait)
                self._take_file(self._to_read)
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as problem:
            raise StoreError(f"the store cannot be opened: {problem.strerror}", "Check the path.") from None
        self._watched, self._db = _opened(self._path, wait)
        self._schema = SCHEMA

    def claim(self, fingerprint: bytes) -> None:
        """Bind the store to a key chain; raises `StoreError` if it is bound to another one."""
        with self._transaction() as db:
            db.execute("UPDATE store SET fingerprint = coalesce(fingerprint, ?)", (fingerprint,))
            if db.execute("SELECT fingerprint FROM store").fetchone()[0] != fingerprint:
                raise wrong_key_error()
        if self._watched is not None:
            self._watched.claim(fingerprint)

    def append(self, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Remember the nonces, add up what is new by cohort, and write one record per cohort."""
        with self._lock:
            self._find_again()
            if self._state is not None and len(of_epoch(posts, self._state.epoch)) == len(posts):
                with suppress(BehindError), _explained():
                    group = PostGroup(self._state, posts, encrypt)
                    group.store(self._db)
                    return self._acknowledged(group)
            with self._transaction() as db:
                self._state = read_state(db, self._state)
                group = PostGroup(self._state, of_epoch(posts, self._state.epoch), encrypt)
                group.store(db)
            return refuse_others(posts, group.learn())

    def _acknowledged(self, group: PostGroup) -> Appended:
        """Return what became of a group that was committed, if that is in the file which the path names."""
        appended = group.learn()
        try:
            self._check_file()
        except StoreError:
            self._unsure += group.rows
            raise
        return appended

    def sizes(self) -> dict[int, int]:
        """Return how many records each open cohort has."""
        with self._reading() as db:
            return dict(db.execute("SELECT cohort, count(*) FROM records GROUP BY cohort").fetchall())

    def records(self, through: int | None = None) -> list[Record]:
        """Return the records of open cohorts, or only of those through a period."""
        with self._reading() as db:
            return _records(db, through)

    def compact(self, cohort: int, merge: Merge) -> None:
        """Replace all records of a cohort by one, in the next generation; leave those that do not count to the seal."""
        with self._transaction() as db:
            rows = db.execute("SELECT id, box FROM records WHERE cohort = ? ORDER BY id", (cohort,)).fetchall()
            if len(rows) < 2:
                return
            epoch, generation = db.execute("SELECT epoch, generation + 1 FROM store").fetchone()
            merged, places = merge(cohort, [ciphertext for _, ciphertext in rows], epoch, generation)
            if len(places) > 1:
                db.executemany("DELETE FROM records WHERE id = ?", [rows[place][:1] for place in places])
                db.execute("INSERT INTO records (cohort, box) VALUES (?, ?)", (cohort, merged))
                db.execute("UPDATE store SET generation = ?", (generation,))

    def forget_nonces(self, before: int, most: int = FORGET_AT_ONCE) -> bool:
        """Delete about ``most`` nonces of earlier hours, refused from now on; return whether there are more."""
        with self._lock:
            with self._transaction() as db:
                db.execute("UPDATE store SET forgotten = max(forgotten, ?)", (before,))
                more = forget_rows(db, before, most)
            if self._state is not None:
                self._state.forget(before)
            return more

    def remembered(self) -> int:
        """Return how many nonces are in memory: all, after the first post."""
        state = self._state
        return 0 if state is None else len(state.nonces)

    def tidy(self) -> None:
        """Merge rows of nonces, and give space back to the disk: free pages, and the log."""
        with self._lock:
            with self._transaction() as db:
                before, after = merge_nonces(db)
            if self._state is not None and self._state.number == before:
                self._state.number = after
        with self._reading() as db:
            db.executescript("PRAGMA incremental_vacuum")  # execute() would free a single page
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def seal(self, through: int, make: MakeBatch, carry: Carry | None = None) -> bool:
        """Replace the records through a period by a sealed batch; return False if they were sealed before."""
        return self._replace_records(through, make, None, carry)

    def _carry(self, db: sqlite3.Connection, carry: Carry | None) -> Record | None:
        """Add what goes on to a later cohort."""
        carried = None if carry is None else carry(*db.execute("SELECT epoch, generation FROM store").fetchone())
        if carried is not None:
            db.execute("INSERT INTO records (cohort, box) VALUES (?, ?)", carried)
        return carried

    def void(self, through: int, make: MakeBatch, epoch: str | None = None, carry: Carry | None = None) -> bool:
        """Destroy the records through a period and append the note of it; return False if it was done before."""
        return self._replace_records(through, make, epoch, carry)

    def _replace_records(self, through: int, make: MakeBatch, epoch: str | None, carry: Carry | None) -> bool:
        """Replace records by an entry of the ledger; their cohorts are closed, or stay open in another epoch."""
        with self._transaction() as db:
            sealed_through, last_epoch = db.execute("SELECT sealed_through, epoch FROM store").fetchone()
            if through <= sealed_through if epoch is None else epoch == last_epoch:
                return False
            entry = make(_records(db, through), _sealed(db))
            db.execute("INSERT INTO sealed (through, batch) VALUES (?, ?)", (through, entry))
            db.execute("DELETE FROM records WHERE cohort <= ?", (through,))
            if epoch is None:
                db.execute("UPDATE store SET sealed_through = ?", (through,))
            else:
                self._change_epoch(db, epoch)
            self._carry(db, carry)
        with suppress(StoreError):  # the entry is in the store; space can be given back later
            self.tidy()
        return True

    def reopen(self, closed: Callable[[list[bytes]], int]) -> bool:
        """Set the last sealed period back to what the entries of the ledger say, if it is beyond; return whether."""
        query = "UPDATE store SET sealed_through = ?1, generation = generation + 1 WHERE sealed_through > ?1"
        with self._transaction() as db:
            return db.execute(query, (closed(_sealed(db)),)).rowcount > 0

    def sealed(self) -> list[bytes]:
        """Return the entries of the ledger in their order. No key is needed."""
        with self._reading() as db:
            return _sealed(db)

    def sealed_through(self) -> int:
        """Return the last sealed period, or ``NOTHING_SEALED``."""
        with self._reading() as db:
            return int(db.execute("SELECT sealed_through FROM store").fetchone()[0])

    def last_hour(self) -> int:
        """Return the last hour that a nonce in the store was made in, or that was forgotten; 0 in a new store."""
        with self._reading() as db:
            query = "SELECT max(forgotten, coalesce((SELECT max(hour) FROM nonces), 0)) FROM store"
            return int(db.execute(query).fetchone()[0])

    def first_hour(self) -> int:
        """Return the first hour that a nonce in the store was made in; 0 where there is none."""
        with self._reading() as db:
            return int(db.execute("SELECT coalesce(min(hour), 0) FROM nonces").fetchone()[0])

    def forgotten(self) -> int:
        """Return the hour before which nonces are forgotten; 0 in a new store."""
        with self._reading() as db:
            return int(db.execute("SELECT forgotten FROM store").fetchone()[0])

    def time(self) -> float | None:
        """Return None: the file is on this machine."""

    def epoch(self) -> str:
        """Return the epoch of the store: empty in the first one."""
        with self._reading() as db:
            if self._schema < _EPOCHS:
                return ""
            return str(db.execute("SELECT epoch FROM store").fetchone()[0])

    def number(self) -> int:
        """Return a number that grows with every commit and never falls, unless an older store is put back."""
        with self._reading() as db:
            return last_number(db)

    def begin_epoch(self, through: int, make: MakeNote, epoch: str) -> bool:
        """Change the epoch and append the note of it; open cohorts are kept. Return False if it was done before."""
        with self._transaction() as db:
            if db.execute("SELECT epoch FROM store").fetchone()[0] == epoch:
                return False
            db.execute("INSERT INTO sealed (through, batch) VALUES (?, ?)", (through, make(_sealed(db))))
            self._change_epoch(db, epoch)
        return True

    def _change_epoch(self, db: sqlite3.Connection, epoch: str) -> None:
        query = "UPDATE store SET epoch = ?, generation = generation + 1"  # by which who appends notices it
        db.execute(query, (epoch,))
        db.execute("DELETE FROM lost")

    def lost(self) -> list[int]:
        """Return the open cohorts that an earlier process kept in its memory only."""
        with self._reading() as db:
            query = "SELECT cohort FROM lost, store WHERE cohort > sealed_through"
            return [] if self._schema < _LOST else [cohort for (cohort,) in db.execute(query)]

    def outdated(self) -> bool:
        """Return whether the tables are of an earlier version, which only a collector that starts changes."""
        return self._schema < SCHEMA

    def fingerprint(self) -> bytes | None:
        """Return which key chain the store is bound to; None before the first one."""
        with self._reading() as db:
            fingerprint: bytes | None = db.execute("SELECT fingerprint FROM store").fetchone()[0]
            return fingerprint

    def versions(self) -> list[StoredPlan]:
        """Return the plans in the order in which they were accepted."""
        with self._reading() as db:
            rows = db.execute("SELECT since, digest, document FROM plans ORDER BY number").fetchall()
            return [StoredPlan(*row) for row in rows]

    def add_version(self, number: int, version: StoredPlan) -> None:
        """Record a plan as version ``number`` (0, 1, …); raises `StoreError` if another collector was quicker."""
        with self._transaction() as db:
            try:
                db.execute("INSERT INTO plans VALUES (?, ?, ?, ?)", (number, *version))
            except sqlite3.IntegrityError:
                raise plan_race_error() from None

    def sent_marks(self) -> set[str]:
        """Return the marks of what people were told about."""
        with self._reading() as db:
            return set() if self._schema < _TOLD else {mark for (mark,) in db.execute("SELECT mark FROM told")}

    def mark_sent(self, marks: Iterable[str]) -> None:
        """Remember marks of what people were told about."""
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO told VALUES (?)", [(mark,) for mark in marks])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._watched is not None and self._watched.overwritten:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))  # closing writes the log into a foreign file
                return
            self._db.close()
            if self._watched is not None:
                self._watched.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Do everything or nothing, synced to disk before it ends; no other process writes meanwhile."""
        if self._to_read is not None:
            raise StoreError("the store was opened to be read", "Open it without read_only to write.")
        with self._lock, _explained():
            self._find_again()
            self._check_file()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            finally:
                if self._db.in_transaction:  # something was raised, perhaps by the commit itself
                    with suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
            self._check_file()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _explained():
            if self._to_read is None:
                self._find_again()
                self._check_file()
                yield self._db
                return
            if self._to_read.refresh():
                self._take_file(self._to_read)
            try:
                yield self._db
            except sqlite3.OperationalError as problem:
                if self._schema < SCHEMA and _code(problem) == sqlite3.SQLITE_ERROR:  # a table or column of later
                    raise older_schema_error() from None
                raise
            finally:
                self._to_read.check()

    def _take_file(self, file: FileToRead) -> None:
        self._db = file.db
        try:
            self._schema = _version(file.db)
            if not self._schema:
                raise StoreError(*_CAUSES[sqlite3.SQLITE_NOTADB])
        except BaseException:
            file.db.close()
            raise

    def _check_file(self) -> None:
        """Raise `StoreError` unless what was committed is in the file that the path names."""
        if self._watched is not None:
            try:
                self._watched.check()
            except StoreError:
                self._lost = True
                raise

    def _find_again(self) -> None:
        """Go on after the file was lost, if it is back, or if what is there now has everything; else raise."""
        if not self._lost or self._watched is None:
            return
        with _explained():
            try:
                self._watched.check()
            except (MissingLogError, ReplacedError) as problem:
                if not self._keeps_all:
                    raise
                if isinstance(problem, MissingLogError):
                    self._write_log_again(self._watched)
                else:
                    self._check_replacement(self._watched, problem)
                self._open_again(self._watched)
        self._lost, self._unsure = False, 0

    def _write_log_again(self, watched: StoreFile) -> None:
        """Bring what only the deleted log holds into the file."""
        watched.check_no_other_log()
        busy, *_ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        watched.check_no_other_log()
        if busy:
            raise StoreError(*_CAUSES[sqlite3.SQLITE_BUSY])

    def _check_replacement(self, watched: StoreFile, problem: StoreError) -> None:
        """Raise unless the file that is there now has everything that the one before it has."""
        if not watched.is_apart():
            raise problem
        try:
            with closing(sqlite3.connect(self._path, timeout=self._wait)) as db:
                now, before = _progress(db), _progress(self._db, self._unsure)
        except sqlite3.Error:
            raise replaced_error() from None
        if now[:2] != before[:2] or any(later < earlier for later, earlier in zip(now[2:], before[2:], strict=True)):
            raise replaced_error()

    def _open_again(self, watched: StoreFile) -> None:
        self._db.close()
        watched.close()
        self._state = None
        self._watched, self._db = _opened(self._path, self._wait)
        (fingerprint,) = self._db.execute("SELECT fingerprint FROM store").fetchone()
        if fingerprint is not None:
            self._watched.claim(fingerprint)


def copied_store(source: Store, path: Path) -> SqliteStore:
    """Return a new store with a copy of what another one of any kind holds, but for its single nonces."""
    store = SqliteStore(path)
    try:
        for number, version in enumerate(source.versions()):
            store.add_version(number, version)
        fingerprint = source.fingerprint()
        if fingerprint is not None:
            store.claim(fingerprint)
        through = source.sealed_through()
        with store._transaction() as db:
            db.executemany("INSERT INTO sealed (through, batch) VALUES (?, ?)", [(through, e) for e in source.sealed()])
            db.executemany("INSERT INTO records (cohort, box) VALUES (?, ?)", source.records())
            numbers = through, source.last_hour(), source.epoch()
            db.execute("UPDATE store SET sealed_through = ?, forgotten = ?, epoch = ?", numbers)
    except BaseException:
        store.close()
        raise
    return store


def _records(db: sqlite3.Connection, through: int | None) -> list[Record]:
    query = "SELECT cohort, box FROM records WHERE ?1 IS NULL OR cohort <= ?1 ORDER BY cohort, id"
    return [Record(*row) for row in db.execute(query, (through,))]


def _sealed(db: sqlite3.Connection) -> list[bytes]:
    return [batch for (batch,) in db.execute("SELECT batch FROM sealed ORDER BY number")]


def _progress(db: sqlite3.Connection, unsure: int = 0) -> tuple[Any, ...]:
    """Return the key and the epoch of a store, and numbers that only grow; without the last rows of nonces."""
    store = db.execute("SELECT fingerprint, epoch, generation, sealed_through, forgotten FROM store").fetchone()
    return (*store, db.execute("SELECT number FROM log").fetchone()[0] - unsure)


def _opened(path: Path, wait: float) -> tuple[StoreFile, sqlite3.Connection]:
    """Open the file of a store, and watch it from now on."""
    try:
        file = StoreFile(path)
    except OSError:
        raise StoreError(*_CAUSES[sqlite3.SQLITE_CANTOPEN]) from None
    try:
        with _explained():
            db = _connected(path, wait)
            try:
                file.remember(db)
            except BaseException:
                db.close()
                raise
    except BaseException:
        file.close()
        raise
    return file, db


def _connected(path: Path, wait: float) -> sqlite3.Connection:
    """Open a database, and bring its tables up to date."""
    db = sqlite3.connect(path, timeout=wait, isolation_level=None, check_same_thread=False)
    try:
        _version(db)  # before anything is written into another program's file
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a new file only
        _log_ahead(db, wait)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA secure_delete = ON")
        db.execute("PRAGMA temp_store = MEMORY")
        _migrate(db)
        for statement in APPENDING:
            db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db


def _log_ahead(db: sqlite3.Connection, wait: float) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait for another process that does so at once."""
    until = time.monotonic() + wait
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL").fetchall()
            return
        except sqlite3.OperationalError as problem:
            if _code(problem) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)


_LOOK = """SELECT application_id, user_version, EXISTS (SELECT 1 FROM sqlite_master)
    FROM pragma_application_id, pragma_user_version"""
"""One statement: another process that makes the tables in between would look like another program's file."""


def _version(db: sqlite3.Connection) -> int:
    """Return the version of the tables, 0 in an empty file; raises `StoreError` for another program's file."""
    mark, version, holds_tables = map(int, db.execute(_LOOK).fetchone())
    if mark != _MARK and (mark or holds_tables):
        raise StoreError(*_CAUSES[sqlite3.SQLITE_NOTADB])
    if version > SCHEMA:
        raise newer_schema_error()
    return version


def _migrate(db: sqlite3.Connection) -> None:
    """Bring the tables to this program's version, all steps or none."""
    db.execute("BEGIN IMMEDIATE")
    try:
        version = _version(db)
        for migration in _MIGRATIONS[version:]:
            for statement in migration.split(";"):
                db.execute(statement)
        if version < SCHEMA:
            db.execute(f"PRAGMA application_id = {_MARK}")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
        db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
    if 0 < version < SCHEMA:  # the file itself is watched, and where its tables stand in it
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _code(problem: sqlite3.Error) -> int:
    """Return SQLite's error code, without its details; 0 where Python's wrapper refused first."""
    return int(getattr(problem, "sqlite_errorcode", 0)) & 0xFF


@contextmanager
def _explained() -> Iterator[None]:
    """Turn SQLite's errors into facts and remedies, without what the statement held."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise StoreError("the store is closed", "Open it again.") from None
    except sqlite3.Error as problem:
        name = getattr(problem, "sqlite_errorname", type(problem).__name__)
        fact, remedy = _CAUSES.get(_code(problem), (f"the store failed ({name})", "Check the disk."))
        raise StoreError(fact, remedy) from None
