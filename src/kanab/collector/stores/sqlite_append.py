"""How a group of posts is written to SQLite: in one statement, and so in one commit.

Python's lock is released once for it, and not between statements, where a busy event loop would have to be
waited for every time. The group is sorted by what this process knows of the store; if another process has
changed that, the statement stores nothing, and the group is sorted again.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from kanab.collector.stores.store import Appended, CountedPost, Encrypt, sort_posts

APPENDING = (
    """CREATE TEMP VIEW appending AS
        SELECT 0 AS number, 0 AS hour, NULL AS nonces, 0 AS cohort, NULL AS box, 0 AS generation""",
    """CREATE TEMP TRIGGER remember INSTEAD OF INSERT ON appending WHEN NEW.nonces IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'behind') FROM log WHERE number <> NEW.number - 1;
        SELECT RAISE(ABORT, 'behind') FROM store WHERE forgotten > NEW.hour OR generation <> NEW.generation;
        UPDATE log SET number = NEW.number;
        INSERT INTO nonces VALUES (NEW.number, NEW.hour, NEW.nonces);
    END""",
    """CREATE TEMP TRIGGER keep INSTEAD OF INSERT ON appending WHEN NEW.box IS NOT NULL BEGIN
        SELECT RAISE(ABORT, 'behind') FROM store WHERE sealed_through >= NEW.cohort OR generation <> NEW.generation;
        INSERT INTO records (cohort, box) VALUES (NEW.cohort, NEW.box);
    END""",
)
"""What a connection needs for it; ``behind`` means that another process appended, forgot, merged or sealed."""

MERGE_AT_ONCE = 4096
"""Rows of nonces that become one for each hour, when the store is tidied."""

LARGE_ROW = 65_536
"""Bytes of a row of nonces that is not merged any more."""

HASH_BYTES = 16
"""Bytes that a store keeps of a nonce."""

MOST_RECENT = 50_000
"""Nonces of an hour that wait in a set, which takes ten times the memory, before they are sorted in."""

LOAD_AT_ONCE = 16_000_000
"""Bytes of rows that are held at a start before half of them is let go."""


class SeenNonces:
    """The nonces of the hours that are not forgotten, in memory: eight bytes each, so that a lookup costs no statement.

    Of the 16 bytes that a store keeps of a nonce, half are enough to tell it from others: among a thousand million of
    them, one in 10¹⁰ posts would be taken for a repetition.
    """

    def __init__(self) -> None:
        self._hours: dict[int, _Hour] = {}

    def add(self, hour: int, nonces: Iterable[bytes]) -> None:
        """Remember nonces of an hour."""
        self._hours.setdefault(hour, _Hour()).add(nonces)

    def load(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Remember rows of nonces, each with its hour, that stand one after the other; they are sorted when needed."""
        hours: dict[int, list[bytes]] = {}
        waiting = 0
        for hour, nonces in rows:
            hours.setdefault(hour, []).append(nonces)
            waiting += len(nonces)
            if waiting > LOAD_AT_ONCE:
                self._load(hours)
                hours, waiting = {}, 0
        self._load(hours)

    def _load(self, hours: Mapping[int, Sequence[bytes]]) -> None:
        for hour, rows in hours.items():
            self._hours.setdefault(hour, _Hour()).load(rows)

    def fresh(self, posts: Sequence[CountedPost]) -> list[bool]:
        """Return which posts are new: neither remembered, nor earlier in the same group."""
        hours: dict[int, list[bytes]] = {}
        for nonce, hour, _, _ in posts:
            hours.setdefault(hour, []).append(nonce)
        seen: set[bytes] = set()
        for hour, nonces in hours.items():
            if hour in self._hours:
                seen |= self._hours[hour].seen(nonces)
        if not seen and len({post.nonce for post in posts}) == len(posts):
            return [True] * len(posts)
        fresh = []
        for post in posts:
            fresh.append(post.nonce not in seen)
            seen.add(post.nonce)
        return fresh

    def __len__(self) -> int:
        """Return the number of nonces that are remembered."""
        return sum(len(hour) for hour in list(self._hours.values()))

    def forget(self, before: int) -> None:
        """Forget the nonces of earlier hours."""
        self._hours = {hour: nonces for hour, nonces in self._hours.items() if hour >= before}


class _Hour:
    """A set of the latest nonces, and sorted runs of all others, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[NDArray[np.uint64]] = []
        self._loaded: list[NDArray[np.uint64]] = []  # not sorted yet: most hours are never asked for

    def load(self, rows: Sequence[bytes]) -> None:
        if sum(map(len, rows)) <= MOST_RECENT * HASH_BYTES:
            self.add(nonce for row in rows for nonce in split_nonces(row))
        else:
            self._loaded.append(_halves(rows).copy())  # without the other halves

    def add(self, nonces: Iterable[bytes]) -> None:
        self._recent.update(nonces)
        if len(self._recent) > MOST_RECENT:
            self._add_run(np.sort(_halves(self._recent)))
            self._recent = set()

    def _add_run(self, run: NDArray[np.uint64]) -> None:
        while self._runs and self._runs[-1].size < 2 * run.size:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")  # which merges what is sorted
        self._runs.append(run)

    def __len__(self) -> int:
        return len(self._recent) + sum(run.size for run in [*self._runs, *self._loaded])

    def seen(self, nonces: Sequence[bytes]) -> set[bytes]:
        while self._loaded:
            self._add_run(np.sort(self._loaded.pop()))
        seen = self._recent.intersection(nonces)
        if self._runs:
            halves = _halves(nonces)
            for run in self._runs:
                nearest = run[np.minimum(run.searchsorted(halves), run.size - 1)]
                seen.update(nonces[int(position)] for position in np.flatnonzero(nearest == halves))
        return seen


def split_nonces(row: bytes) -> Iterable[bytes]:
    """Split a row of nonces that stand one after the other."""
    return (row[at : at + HASH_BYTES] for at in range(0, len(row), HASH_BYTES))


def _halves(nonces: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return the second half of each nonce as a number."""
    return np.frombuffer(b"".join(nonces), np.uint64)[1::2]


@dataclass
class StoreState:
    """What this process knows of the store: the last row of nonces, the nonces, what is sealed, what forgotten."""

    number: int
    sealed_through: int
    forgotten: int
    epoch: str
    generation: int
    nonces: SeenNonces

    def forget(self, before: int) -> None:
        """Forget the nonces of earlier hours, which are refused from now on."""
        self.forgotten = max(self.forgotten, before)
        self.nonces.forget(self.forgotten)


class BehindError(Exception):
    """Another process has changed the store."""


class PostGroup:
    """Posts on their way into the store, sorted by what is known of it."""

    def __init__(self, state: StoreState, posts: Sequence[CountedPost], encrypt: Encrypt) -> None:
        self._state = state
        fresh = state.nonces.fresh(posts)
        self._outcomes, sums = sort_posts(posts, fresh, state.sealed_through, state.forgotten)
        self._records = [
            (cohort, encrypt(cohort, counters, state.epoch, state.generation)) for cohort, counters in sums.items()
        ]
        hours: dict[int, list[bytes]] = {}
        for (nonce, hour, _, _), is_fresh in zip(posts, fresh, strict=True):
            if is_fresh and hour >= state.forgotten:
                hours.setdefault(hour, []).append(nonce)
        self._nonces = sorted(hours.items())

    @property
    def rows(self) -> int:
        """How many rows of nonces the group has."""
        return len(self._nonces)

    def store(self, db: sqlite3.Connection) -> None:
        """Write the group by one statement; raises ``BehindError`` if the store has changed, and nothing is written."""
        generation = self._state.generation
        rows: list[Sequence[object]] = [
            (number, hour, b"".join(nonces), None, None, generation)
            for number, (hour, nonces) in enumerate(self._nonces, self._state.number + 1)
        ]
        rows += [(None, None, None, cohort, ciphertext, generation) for cohort, ciphertext in self._records]
        if not rows:
            return
        query = f"INSERT INTO appending VALUES {', '.join(['(?, ?, ?, ?, ?, ?)'] * len(rows))}"
        try:
            db.execute(query, tuple(chain.from_iterable(rows)))
        except sqlite3.IntegrityError:
            raise BehindError from None

    def learn(self) -> Appended:
        """Record that the group is on disk, and return what became of its posts."""
        self._state.number += len(self._nonces)
        for hour, nonces in self._nonces:
            self._state.nonces.add(hour, nonces)
        cohorts = [cohort for cohort, _ in self._records]
        return Appended(self._outcomes, cohorts, self._state.sealed_through, self._state.epoch, self._state.number)


def read_state(db: sqlite3.Connection, known: StoreState | None) -> StoreState:
    """Read the state of the store, with the nonces that other processes have appended since."""
    query = "SELECT sealed_through, forgotten, epoch, generation FROM store"
    sealed_through, forgotten, epoch, generation = db.execute(query).fetchone()
    since, nonces = (0, SeenNonces()) if known is None else (known.number, known.nonces)
    nonces.load(db.execute("SELECT hour, nonces FROM nonces WHERE number > ?", (since,)))
    nonces.forget(forgotten)
    return StoreState(last_number(db), sealed_through, forgotten, epoch, generation, nonces)


def forget_rows(db: sqlite3.Connection, before: int, most: int) -> bool:
    """Delete rows of earlier hours, the oldest rows first, until so many nonces are gone; return if there are more."""
    last = gone = 0
    for number, hour, size in db.execute("SELECT number, hour, length(nonces) FROM nonces ORDER BY number"):
        if hour >= before or gone >= most:
            break
        last, gone = number, gone + size // HASH_BYTES
    db.execute("DELETE FROM nonces WHERE number <= ?", (last,))
    return gone >= most


def merge_nonces(db: sqlite3.Connection) -> tuple[int, int]:
    """Make one row for each hour out of many small ones, with new numbers; return the last number before and after."""
    query = "SELECT number, hour, nonces FROM nonces WHERE length(nonces) < ? ORDER BY number LIMIT ?"
    rows = db.execute(query, (LARGE_ROW, MERGE_AT_ONCE)).fetchall()
    hours: dict[int, list[bytes]] = {}
    for _, hour, nonces in rows:
        hours.setdefault(hour, []).append(nonces)
    before = last_number(db)
    if len(hours) < len(rows):
        merged = [(number, hour, b"".join(hours[hour])) for number, hour in enumerate(sorted(hours), before + 1)]
        db.executemany("DELETE FROM nonces WHERE number = ?", [row[:1] for row in rows])
        db.executemany("INSERT INTO nonces VALUES (?, ?, ?)", merged)
        db.execute("UPDATE log SET number = number + ?", (len(merged),))
    return before, last_number(db)


def last_number(db: sqlite3.Connection) -> int:
    """Return the number of the last row of nonces there ever was."""
    return int(db.execute("SELECT number FROM log").fetchone()[0])
