"""A store whose open cohorts and nonces are in this process's memory; sealed batches are in a file.

For ``durability = "memory"``: nothing of an open cohort is ever on a disk, and what is open is lost
when the process ends. One collector at a time, which also does the sealing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from kanab.collector.stores.sqlite import OPEN_TABLES, SqliteStore
from kanab.collector.stores.store import Appended, Carry, CountedPost, Encrypt, Record
from kanab.errors import StoreError


class MemoryStore(SqliteStore):
    """A SQLite store whose tables of open cohorts are temporary ones, which SQLite keeps in memory.

    Temporary tables come before others of the same name, so that every statement is the same.
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
