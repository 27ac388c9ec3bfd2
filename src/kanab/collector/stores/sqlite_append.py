"""How a group of posts gets into SQLite: in one statement, and so in one commit.

Python's lock is let go once for it, and not between statements, where a busy event loop would have to be
waited for every time. The group is sorted out by what this process knows of the store; if somebody else has
changed that, the statement stores nothing, and the group is sorted out again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from kanab.collector.stores.seen_nonces import SIZE, Remembered, split
from kanab.collector.stores.store import Appended, Entry, Wrap, sort_out

APPENDING = (
    "CREATE TEMP VIEW appending AS SELECT 0 AS number, 0 AS hour, NULL AS nonces, 0 AS cohort, NULL AS box",
    """CREATE TEMP TRIGGER remember INSTEAD OF INSERT ON appending WHEN NEW.nonces IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'behind') FROM log WHERE number <> NEW.number - 1;
        SELECT RAISE(ABORT, 'behind') FROM store WHERE forgotten > NEW.hour;
        UPDATE log SET number = NEW.number;
        INSERT INTO nonces VALUES (NEW.number, NEW.hour, NEW.nonces);
    END""",
    """CREATE TEMP TRIGGER keep INSTEAD OF INSERT ON appending WHEN NEW.box IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'behind') FROM store WHERE sealed_through >= NEW.cohort;
        INSERT INTO records (cohort, box) VALUES (NEW.cohort, NEW.box);
    END""",
)
"""What a connection needs for it; ``behind`` is somebody else who appended, forgot or sealed in the meantime."""

MERGE_AT_ONCE = 4096
"""So many rows of nonces become one for each hour, when the store is tidied."""

LARGE_ROW = 65_536


@dataclass
class Known:
    """What this process knows of the store: up to which row of nonces, which ones, and what is over."""

    number: int
    sealed_through: int
    forgotten: int
    nonces: Remembered

    def forget(self, before: int) -> None:
        """Let go of the nonces of earlier hours, which are refused from now on."""
        self.forgotten = max(self.forgotten, before)
        self.nonces.forget(self.forgotten)


class BehindError(Exception):
    """Somebody else has changed the store."""


class Group:
    """Posts on their way into the store, sorted out by what is known of it."""

    def __init__(self, known: Known, entries: Sequence[Entry], wrap: Wrap) -> None:
        self._known = known
        fresh = known.nonces.fresh(entries)
        self._fates, sums = sort_out(entries, fresh, known.sealed_through, known.forgotten)
        self._records = [(cohort, wrap(cohort, counters)) for cohort, counters in sums.items()]
        hours: dict[int, list[bytes]] = {}
        for (nonce, hour, _), is_fresh in zip(entries, fresh, strict=True):
            if is_fresh and hour >= known.forgotten:
                hours.setdefault(hour, []).append(nonce)
        self._nonces = sorted(hours.items())

    def store(self, db: sqlite3.Connection) -> None:
        """One statement for all of it."""
        rows: list[Sequence[object]] = [
            (number, hour, b"".join(nonces), None, None)
            for number, (hour, nonces) in enumerate(self._nonces, self._known.number + 1)
        ]
        rows += [(None, None, None, cohort, box) for cohort, box in self._records]
        if not rows:
            return
        query = f"INSERT INTO appending VALUES {', '.join(['(?, ?, ?, ?, ?)'] * len(rows))}"
        try:
            db.execute(query, tuple(chain.from_iterable(rows)))
        except sqlite3.IntegrityError:
            raise BehindError from None

    def learn(self) -> Appended:
        """What became of the posts; to be called when they are on disk."""
        self._known.number += len(self._nonces)
        for hour, nonces in self._nonces:
            self._known.nonces.add(hour, nonces)
        return Appended(self._fates, [cohort for cohort, _ in self._records], self._known.sealed_through)


def caught_up(db: sqlite3.Connection, known: Known | None) -> Known:
    """What there is to know, with the nonces that others have appended."""
    sealed_through, forgotten = db.execute("SELECT sealed_through, forgotten FROM store").fetchone()
    since, nonces = (0, Remembered()) if known is None else (known.number, known.nonces)
    for hour, more in db.execute("SELECT hour, nonces FROM nonces WHERE number > ?", (since,)):
        nonces.add(hour, split(more))
    nonces.forget(forgotten)
    return Known(_number(db), sealed_through, forgotten, nonces)


def forget_rows(db: sqlite3.Connection, before: int, most: int) -> bool:
    """Delete rows of earlier hours until so many nonces are gone; are there more?

    Rows go in the order in which they came, so that a client's clock that is fast delays the next ones.
    """
    last = gone = 0
    for number, hour, size in db.execute("SELECT number, hour, length(nonces) FROM nonces ORDER BY number"):
        if hour >= before or gone >= most:
            break
        last, gone = number, gone + size // SIZE
    db.execute("DELETE FROM nonces WHERE number <= ?", (last,))
    return gone >= most


def merged_nonces(db: sqlite3.Connection) -> tuple[int, int]:
    """Many small rows become one for each hour, with new numbers; the last number before and after."""
    query = "SELECT number, hour, nonces FROM nonces WHERE length(nonces) < ? ORDER BY number LIMIT ?"
    rows = db.execute(query, (LARGE_ROW, MERGE_AT_ONCE)).fetchall()
    hours: dict[int, list[bytes]] = {}
    for _, hour, nonces in rows:
        hours.setdefault(hour, []).append(nonces)
    before = _number(db)
    if len(hours) < len(rows):
        merged = [(number, hour, b"".join(hours[hour])) for number, hour in enumerate(sorted(hours), before + 1)]
        db.executemany("DELETE FROM nonces WHERE number = ?", [row[:1] for row in rows])
        db.executemany("INSERT INTO nonces VALUES (?, ?, ?)", merged)
        db.execute("UPDATE log SET number = number + ?", (len(merged),))
    return before, _number(db)


def _number(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT number FROM log").fetchone()[0])
