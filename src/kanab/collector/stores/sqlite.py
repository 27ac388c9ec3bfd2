"""A store in one SQLite file: write-ahead log, synced at every commit, deleted pages overwritten."""

import ctypes
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

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
    Record,
    Store,
    newer_schema_error,
    of_epoch,
    older_schema_error,
    refuse_others,
)
from kanab.errors import MissingLogError, ReplacedError, StoreError

_T = TypeVar("_T")
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
_LOST = 5  # the version that brought them

_CAUSES = {
    sqlite3.SQLITE_FULL: ("the disk of the store is full", "Free some room; clients send their messages again."),
    sqlite3.SQLITE_BUSY: ("another process holds the store", "Try again when it has finished."),
    sqlite3.SQLITE_NOTADB: ("this file is not a store", "Give the data directory of a collector, or a new one."),
    sqlite3.SQLITE_CORRUPT: ("the file of the store is damaged", "Check the disk, and restore a backup."),
    sqlite3.SQLITE_CANTOPEN: ("the store cannot be opened", "Check the path and its permissions."),
    sqlite3.SQLITE_READONLY: ("the store cannot be written", "Check the permissions of the file and its folder."),
}


class SqliteStore(Store):
    """A store in a file, for processes of one machine; ``read_only`` writes nothing into it or beside it."""

    SCHEMA, _EPOCHS, _MARKS = SCHEMA, 3, 6

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
        super().claim(fingerprint)
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

    def number(self) -> int:
        """Return a number that grows with every commit and never falls, unless an older store is put back."""
        return self._read(last_number)

    def _change_epoch(self, db: sqlite3.Connection, epoch: str) -> None:
        super()._change_epoch(db, epoch)
        db.execute("DELETE FROM lost")

    def lost(self) -> list[int]:
        """Return the open cohorts that an earlier process kept in its memory only."""
        with self._reading() as db:
            query = "SELECT cohort FROM lost, store WHERE cohort > sealed_through"
            return [] if self._schema < _LOST else [cohort for (cohort,) in db.execute(query)]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._watched is not None and self._watched.overwritten:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))  # closing writes the log into a foreign file
                return
            self._db.close()
            if self._watched is not None:
                self._watched.close()

    def _read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        with self._reading() as db:
            return work(db)

    def _change(self, work: Callable[[sqlite3.Connection], _T], *, alone: bool = True) -> _T:  # noqa: ARG002 - always
        with self._transaction() as db:
            return work(db)

    def _rows(self, db: sqlite3.Connection, statement: str, **values: object) -> list[Any]:
        return db.execute(statement, values).fetchall()

    def _version(self, db: sqlite3.Connection) -> int:  # noqa: ARG002 - it is known since the file was opened
        return self._schema

    def _settle(self) -> None:
        """Do nothing: a commit that is seen is on the disk."""

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
            for entry in source.sealed():
                store._add_entry(db, through, entry)
            for record in source.records():
                store._add_record(db, record)
            numbers = through, source.last_hour(), source.epoch()
            db.execute("UPDATE store SET sealed_through = ?, forgotten = ?, epoch = ?", numbers)
    except BaseException:
        store.close()
        raise
    return store


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
    with ExitStack() as opened, _explained():
        opened.callback(file.close)
        db = opened.enter_context(closing(_connected(path, wait)))
        file.remember(db)
        opened.pop_all()
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


# ── durability = "memory" ──────────────────────────────────────────────────────────────────────


class MemoryStore(SqliteStore):
    """A store whose tables of open cohorts are temporary, which SQLite keeps in memory; sealed batches are in the file.

    Nothing of an open cohort is ever on a disk, and what is open is lost when the process ends. One collector at a
    time, which also does the sealing. Temporary tables come before others of the same name: statements are the same.
    """

    _keeps_all = False

    def __init__(self, path: str | PathLike[str]) -> None:
        super().__init__(path)
        self._named: set[int] = set()
        try:
            self._lock_file = _locked(Path(path))
            with self._transaction() as db:
                for statement in OPEN_TABLES.replace("CREATE TABLE", "CREATE TEMP TABLE").split(";"):
                    db.execute(statement)
        except BaseException:
            super().close()
            raise

    def append(self, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Append posts, and name new cohorts in the file: the next process has to know that they were lost."""
        appended = super().append(posts, encrypt)
        if not self._named.issuperset(appended.cohorts):
            with self._transaction() as db:
                db.executemany("INSERT OR IGNORE INTO lost VALUES (?)", [(cohort,) for cohort in appended.cohorts])
            self._named.update(appended.cohorts)
        return appended

    def _carry(self, db: sqlite3.Connection, carry: Carry | None) -> Record | None:
        """Add what goes on to a later cohort, and name that in the file."""
        carried = super()._carry(db, carry)
        if carried is not None:
            db.execute("INSERT OR IGNORE INTO lost VALUES (?)", (carried.cohort,))
            self._named.add(carried.cohort)
        return carried

    def _change_epoch(self, db: sqlite3.Connection, epoch: str) -> None:
        """Change the epoch; cohorts that are kept, or filled again, are named again."""
        self._named.clear()
        super()._change_epoch(db, epoch)

    def lost(self) -> list[int]:
        """Return the open cohorts that an earlier process kept in its memory only."""
        return [cohort for cohort in super().lost() if cohort not in self._named]

    def claim(self, fingerprint: bytes) -> None:
        """Accept any key: nothing is there that an earlier start could have written."""

    def close(self) -> None:
        """Close the file, and lose everything that is not sealed."""
        super().close()
        with suppress(OSError):
            os.close(self._lock_file)


def _locked(path: Path) -> int:
    """Take a lock for as long as the process lives: two memories could not be sealed as one."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl  # noqa: PLC0415 - not on Windows

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        return handle
    except OSError:
        os.close(handle)
        raise StoreError(
            "another collector keeps its open cohorts for this store in memory",
            "With durability = 'memory' only one may run.",
        ) from None
    return handle
