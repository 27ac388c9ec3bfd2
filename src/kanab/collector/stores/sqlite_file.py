"""Whether a path still names the file that was opened: SQLite goes on writing into one that was deleted or moved.

A group of posts is acknowledged only if the store's file, its log and its index are where they were, and if nobody has
copied another file over them or cut them off. Usually that takes two questions to the system: has the
folder changed, has the file? Only then the names, and the pages that tell one store from another, are looked at.
"""

import os
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

from kanab.errors import MissingLogError, ReplacedError, StoreError

_SETTLED, _COARSE = 20_000_000, 3_000_000_000
"""Nanoseconds after which a change cannot hide behind an earlier one within one step of the file system's clock.

Steps are 10 ms at most, or, where times have no fractions of a second, two seconds.
"""

_LOOKS = 20
"""Looks, some milliseconds apart, before a file is called overwritten: another process may be writing."""

_UNTIL_THEN = "Until then nothing is taken, and clients send again"


class StoreFile:
    """The file of an open store, and what is known of it.

    Its handle is kept, and shared by all who have the same file open in this process: closing any handle of a file
    gives up the locks that SQLite has on it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._folder = os.fspath(path.parent)
        self._is_link = path.is_symlink()
        self._target = Path(os.path.realpath(path)) if self._is_link else path  # which has the log beside it
        self._holding, self._handle = _hold(path)
        self._names: dict[str, tuple[int, int]] = {}
        self._pages: tuple[int, int, int] | None = None  # the size of a page, and which ones hold the log and the store
        self._folder_mark: object = None
        self._file_mark: object = None
        self._number = 0
        self._fingerprint: bytes | None = None
        self._has_key = False
        self.overwritten = False

    def remember(self, db: sqlite3.Connection) -> None:
        """Learn the names and the pages of the store, on a connection that was just opened."""
        db.execute("SELECT number FROM log").fetchall()  # which opens the log and its index
        self._names = {end: _identity(os.stat(f"{self._target}{end}")) for end in ("-wal", "-shm")}
        self._folder_mark = self._file_mark = None
        query = "SELECT name, rootpage FROM main.sqlite_master WHERE name IN ('log', 'store')"
        roots = dict(db.execute(query).fetchall())
        self._pages = int(db.execute("PRAGMA page_size").fetchone()[0]), roots["log"], roots["store"]
        self.check()

    def claim(self, fingerprint: bytes) -> None:
        """Learn which key the store belongs to: from when on it is in the file itself, it must stay there."""
        self._fingerprint = fingerprint
        self._file_mark = None

    def check(self) -> None:
        """Raise `StoreError` unless what is committed is in the file that the path names."""
        if self._handle is None:
            return  # closed: SQLite says so
        try:
            folder = os.stat(self._folder)
        except OSError:
            raise _gone_error() from None
        if self._is_link or _mark(folder) != self._folder_mark:
            mark = _settled_mark(folder)
            self._check_names()
            self._folder_mark = mark
        file = os.fstat(self._handle)
        if _mark(file) != self._file_mark:
            mark = _settled_mark(file)
            self._check_content()
            self._file_mark = mark

    def check_no_other_log(self) -> None:
        """Raise `StoreError` if another process has begun another log, or if the file is gone, too."""
        if _identity_of(self._path) != self._holding:
            raise _gone_error()
        if _identity_of(f"{self._target}-wal") not in (None, self._names["-wal"]):
            raise _overwritten_error(self._path)

    def is_apart(self) -> bool:
        """Return whether the path names a file that has nothing in common with this one, its log included."""
        others = {end: _identity_of(f"{self._path}{end}") for end in ("", *self._names)}
        return others[""] is not None and not any(others[end] == self._names[end] for end in self._names)

    def close(self) -> None:
        """Give the handle back, after SQLite has closed the file."""
        if self._handle is not None:
            self._handle = None
            _release(self._holding)

    def _check_names(self) -> None:
        now = _identity_of(self._path)
        if now != self._holding:
            raise _gone_error() if now is None else replaced_error()
        for end, identity in self._names.items():
            if _identity_of(f"{self._target}{end}") != identity:
                raise MissingLogError(
                    f"the log of the store ({self._path.name}{end}) was deleted or replaced while it was in use",
                    f"It is written again, unless another process has begun a new one. {_UNTIL_THEN}.",
                )

    def _check_content(self) -> None:
        """Check that the file is this store's, and not older than when it was last looked at."""
        for look in range(1 if self.overwritten else _LOOKS):
            if look:
                time.sleep(0.01)
            if self._is_ours():
                self.overwritten = False
                return
        self.overwritten = True
        raise _overwritten_error(self._path)

    def _is_ours(self) -> bool:
        if self._pages is None or self._handle is None or not hasattr(os, "pread"):  # Windows lets nobody at open files
            return True
        size, log, store = self._pages
        head = os.pread(self._handle, 100, 0)
        if head[:16] != b"SQLite format 3\0":
            return False
        if os.fstat(self._handle).st_size < size * int.from_bytes(head[28:32], "big"):
            return False
        number = _log_number(os.pread(self._handle, size, (log - 1) * size))
        has_key = self._fingerprint is not None and self._fingerprint in os.pread(
            self._handle, size, (store - 1) * size
        )
        if number < self._number or (self._has_key and not has_key):
            return False
        self._number, self._has_key = number, has_key
        return True


def replaced_error() -> ReplacedError:
    """Return the error for a path that names another file than the one that is open."""
    return ReplacedError(
        "the file of the store was replaced by one that lacks what was acknowledged",
        "Put the right one back; or stop the collector, delete what lies beside it (-wal, -shm), and restore a backup. "
        f"{_UNTIL_THEN}.",
    )


def _gone_error() -> ReplacedError:
    return ReplacedError(
        "the file of the store is gone: somebody has deleted or moved it",
        f"Put it back; or stop the collector, and restore a backup. {_UNTIL_THEN}.",
    )


def _overwritten_error(path: Path) -> StoreError:
    return StoreError(
        "the file of the store was overwritten or cut off while it was in use",
        f"Stop the collector, delete {path.name}-wal and {path.name}-shm, restore a backup, and start again. "
        f"{_UNTIL_THEN}.",
    )


def _identity(state: os.stat_result) -> tuple[int, int]:
    return state.st_dev, state.st_ino


def _identity_of(path: str | Path) -> tuple[int, int] | None:
    """Return which file a path names; None if there is none, or nobody may tell."""
    try:
        return _identity(os.stat(path))
    except OSError:
        return None


def _mark(state: os.stat_result) -> tuple[int, ...]:
    """Return what changes when a file or folder does."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def _settled_mark(state: os.stat_result) -> tuple[int, ...] | None:
    """Return what changes when a file or folder does; None while a further change might not show."""
    changed = max(state.st_mtime_ns, state.st_ctime_ns)
    if time.time_ns() - changed < (_SETTLED if changed % 1_000_000_000 else _COARSE):
        return None
    return _mark(state)


def _log_number(page: bytes) -> int:
    """Return the only number in the only row of a table, by SQLite's file format; 0 where it is not there yet."""
    if page[:1] != b"\x0d" or page[3:5] != b"\0\1":
        return 0
    cell = page[int.from_bytes(page[8:10], "big") :]  # its length, the row's id, the header's length, the column's type
    size = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}.get(cell[3], 0)
    return int.from_bytes(cell[4 : 4 + size], "big") if size else int(cell[3] == 9)


_held: dict[tuple[int, int], list[int]] = {}
_users: dict[tuple[int, int], int] = {}
_lock = threading.Lock()


def _hold(path: Path) -> tuple[tuple[int, int], int | None]:
    """Open a file, or take the handle that this process has of it; which one, and the handle."""
    with _lock:
        holding = _identity_of(path)
        if holding is None or holding not in _held:
            handle = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
            holding = _identity(os.fstat(handle))
            _held.setdefault(holding, []).append(handle)
        _users[holding] = _users.get(holding, 0) + 1
        return holding, _held[holding][0]


def _release(holding: tuple[int, int]) -> None:
    with _lock:
        _users[holding] -= 1
        if not _users[holding]:
            del _users[holding]
            for handle in _held.pop(holding):
                os.close(handle)


_Signature = tuple[bool, int, int, int] | None


class FileToRead:
    """A connection to a file that is only read: nothing in its folder is written, made or brought up to date.

    With a log beside it SQLite reads both, if ``-shm`` is there too. A store that was closed is the file alone, for
    which SQLite would make a log: it is opened as ``immutable``, and whether it changed is checked around every query.
    """

    def __init__(self, path: Path, wait: float) -> None:
        self._path, self._wait = path, wait
        self._seen = self._signature()
        self.db = self._open()

    def refresh(self) -> bool:
        """Open the file again if it was closed when it was opened and has changed since; return whether it was."""
        if not self._changed():
            return False
        self.db.close()
        self._seen = self._signature()
        self.db = self._open()
        return True

    def check(self) -> None:
        """Raise `StoreError` if a collector began to write into the file while it was taken for one that is closed."""
        if self._changed():
            raise StoreError("a collector opened the store while it was read", "Try again.")

    def _open(self) -> sqlite3.Connection:
        has_log = self._seen is not None and self._seen[0]
        address = f"{self._path.absolute().as_uri()}?mode=ro{'' if has_log else '&immutable=1'}"
        db = sqlite3.connect(address, uri=True, timeout=self._wait, isolation_level=None, check_same_thread=False)
        try:
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            db.close()
            if has_log and not self._beside("-shm").exists():
                raise StoreError(
                    f"{self._path.name}-wal cannot be read without {self._path.name}-shm",
                    "Copy the whole folder, or read it where you may write.",
                ) from None
            raise
        except BaseException:
            db.close()
            raise
        return db

    def _changed(self) -> bool:
        return self._seen is not None and not self._seen[0] and self._signature() != self._seen

    def _signature(self) -> _Signature:
        """Return whether there is a log, and what changes when the file does; None if it is not there."""
        with suppress(OSError):
            stat = self._path.stat()
            return self._beside("-wal").exists(), stat.st_ino, stat.st_size, stat.st_mtime_ns
        return None

    def _beside(self, end: str) -> Path:
        return self._path.with_name(self._path.name + end)
