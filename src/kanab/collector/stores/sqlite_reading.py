"""A store's file opened to be read: nothing in its folder is written, made or brought up to date.

A store that a collector has open, or left when it was killed, has a log beside it (``-wal``): SQLite reads both, also
without the right to write, as long as ``-shm`` is there too. A store that was closed is the file alone. SQLite would
make a log to read that, and fail where it may not; so the file is opened as one that does not change (``immutable``),
and whether it changed is checked before and after every query.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

from kanab.errors import StoreError

_Signature = tuple[bool, int, int, int] | None


class FileToRead:
    """A connection to a file that is only read."""

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
