"""What a store keeps of a collector, whichever engine it is: ciphertext, nonce hashes, sealed batches.

One class, two dialects of SQL: a SQLite file (``stores/sqlite``, whose ``MemoryStore`` keeps open cohorts in this
process's memory) and PostgreSQL (``stores/postgres``). A store sees ciphertext, never counters: the functions that
encrypt and merge are handed to it, and so is the one that makes a sealed batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from kanab.collector.counting.counters import Counters, add_counters
from kanab.errors import StoreError

FORGET_AT_ONCE = 20_000
"""Nonces that are deleted in one transaction, so that no post waits long for it."""

NOTHING_SEALED = -1
"""What ``sealed_through`` is before the first seal."""

EVERY_COHORT = 2**62
"""Through this one all cohorts are meant."""

_MARKED = "SELECT mark FROM told"
_T = TypeVar("_T")

Encrypt = Callable[[int, Counters, str, int], bytes]
"""Encrypts counters of a cohort, with the epoch and the generation of the store."""

Merge = Callable[[int, list[bytes], str, int], tuple[bytes, list[int]]]
"""Merges ciphertexts of a cohort in a new generation; with the places of those that are in the merged one."""


class PostOutcome(StrEnum):
    """What became of a post."""

    NEW = "new"
    DUPLICATE = "duplicate"  # its nonce was seen before: nothing is added
    LATE = "late"  # one of its cohorts is sealed: that part is dropped
    EXPIRED = "expired"  # its nonce is older than what is remembered: nobody can tell, nothing is added
    EPOCH = "epoch"  # it was made for another epoch of the store: nothing is added or remembered


NEW = PostOutcome.NEW
"""What nearly every post is: looking it up in the class takes as long as reading a clock."""


class CountedPost(NamedTuple):
    """One post: the hash (16 bytes) and hour of its nonce, what it adds to each cohort, and for which epoch."""

    nonce: bytes
    hour: int
    deltas: Mapping[int, Counters]
    epoch: str = ""


class Record(NamedTuple):
    """Encrypted counters of a cohort."""

    cohort: int
    ciphertext: bytes


class StoredPlan(NamedTuple):
    """A version of the plan: the period in which it was accepted, its digest, and its document."""

    since: int
    digest: str
    document: bytes


MakeBatch = Callable[[list[Record], list[bytes]], bytes]
"""Makes the sealed batch from the records of its cohorts and the entries of the ledger before it."""

Carry = Callable[[str, int], Record | None]
"""Makes the record of what goes on to a later cohort, with the epoch and the generation of the store; None if nothing.

It is called after the batch or the note was made, in the same transaction."""

MakeNote = Callable[[list[bytes]], bytes]
"""Makes an entry that holds no batch from the entries before it."""


class Appended(NamedTuple):
    """What became of every post of a group, the cohorts that got a record, what is sealed by now, and the epoch.

    ``number`` is that of a commit which is durable now, not above ``Store.number()``.
    """

    outcomes: list[PostOutcome]
    cohorts: list[int]
    sealed_through: int
    epoch: str = ""
    number: int = 0


class Store(ABC):
    """A store of whichever engine; each call is one transaction, durable when it returns, from any thread or process.

    What cannot be done is a ``StoreError``, and then nothing of that call has happened, or (a lost connection) all of
    it: posts are safe to append again, because their nonces decide. How one connects, locks, appends fast and tells its
    errors is in the engine's own module.
    """

    SCHEMA: int
    """The version of the tables that this program writes."""
    _EPOCHS: int
    _MARKS: int
    """The versions that brought the epoch, and the marks of what people were told about."""

    _early_tries = 0
    """How often a seal passes the gate before it locks the store, so that nobody has to wait for that."""

    # ── what an engine does in its own way ─────────────────────────────────────────────────────

    @abstractmethod
    def append(self, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Remember the nonces, add up what is new by cohort, and write one record per cohort."""

    @abstractmethod
    def forget_nonces(self, before: int, most: int = FORGET_AT_ONCE) -> bool:
        """Delete about ``most`` nonces of earlier hours, refused from now on; return whether there are more."""

    @abstractmethod
    def remembered(self) -> int:
        """Return about how many nonces are remembered, without counting them one by one."""

    @abstractmethod
    def tidy(self) -> None:
        """Give free space back to the disk."""

    @abstractmethod
    def number(self) -> int:
        """Return a number that grows with every commit and never falls, unless an older store is put back."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection to the engine."""

    @abstractmethod
    def _read(self, work: Callable[[Any], _T]) -> _T:
        """Do some work that only reads, on the connection."""

    @abstractmethod
    def _change(self, work: Callable[[Any], _T], *, alone: bool = True) -> _T:
        """Do some work, all or nothing of it; while nobody appends, if it is done ``alone``."""

    @abstractmethod
    def _rows(self, db: Any, statement: str, **values: object) -> list[Any]:
        """Execute a statement, whose values have names (``:cohort``), and return its rows."""

    @abstractmethod
    def _version(self, db: Any) -> int:
        """Return the version of the tables."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait until what was read is durable."""

    def time(self) -> float | None:
        """Return the time on the engine's own clock, in seconds since 1970; None where that is this machine's."""
        return None

    def lost(self) -> list[int]:
        """Return the open cohorts that an earlier process kept in its memory only."""
        return []

    # ── keys and plans ─────────────────────────────────────────────────────────────────────────

    def claim(self, fingerprint: bytes) -> None:
        """Bind the store to a key chain; raises `StoreError` if it is bound to another one."""

        def work(db: Any) -> None:
            update = "UPDATE store SET fingerprint = coalesce(fingerprint, :fingerprint)"
            self._rows(db, update, fingerprint=fingerprint)
            if self._value(db, "SELECT fingerprint FROM store") != fingerprint:
                raise StoreError(
                    "this is not the key of this store",
                    "Give the key that the store was begun with (--key, KANAB_KEY).",
                )

        self._change(work, alone=False)

    def fingerprint(self) -> bytes | None:
        """Return which key chain the store is bound to; None before the first one."""
        fingerprint: bytes | None = self._read(lambda db: self._value(db, "SELECT fingerprint FROM store"))
        return fingerprint

    def versions(self) -> list[StoredPlan]:
        """Return the plans in the order in which they were accepted."""
        query = "SELECT since, digest, document FROM plans ORDER BY number"
        return [StoredPlan(*row) for row in self._read(lambda db: self._rows(db, query))]

    def add_version(self, number: int, version: StoredPlan) -> None:
        """Record a plan as version ``number`` (0, 1, …); raises `StoreError` if another collector was quicker."""

        def work(db: Any) -> list[Any]:
            insert = "INSERT INTO plans VALUES (:number, :since, :digest, :document) ON CONFLICT DO NOTHING"
            self._rows(db, insert, number=number, **version._asdict())
            return self._rows(db, "SELECT since, digest, document FROM plans WHERE number = :number", number=number)

        if self._change(work, alone=False) != [version]:  # the same one may be our own, whose answer was lost
            raise StoreError("another collector changed the plan at the same moment", "Start again.")

    def outdated(self) -> bool:
        """Return whether the tables are of an earlier version, which only a collector that starts changes."""
        return self._read(self._version) < self.SCHEMA

    # ── records ────────────────────────────────────────────────────────────────────────────────

    def sizes(self) -> dict[int, int]:
        """Return how many records each open cohort has."""
        return dict(self._read(lambda db: self._rows(db, "SELECT cohort, count(*) FROM records GROUP BY cohort")))

    def records(self, through: int | None = None) -> list[Record]:
        """Return the records of open cohorts, or only of those through a period."""
        return self._read(lambda db: self._records(db, EVERY_COHORT if through is None else through))

    def compact(self, cohort: int, merge: Merge) -> None:
        """Replace all records of a cohort by one, in the next generation; leave those that do not count to the seal."""

        def work(db: Any) -> None:
            rows = self._rows(db, "SELECT id, box FROM records WHERE cohort = :cohort ORDER BY id", cohort=cohort)
            if len(rows) < 2:
                return
            epoch, generation = self._moment(db)
            merged, places = merge(cohort, [ciphertext for _, ciphertext in rows], epoch, generation + 1)
            if len(places) > 1:
                numbers = ", ".join(str(int(rows[place][0])) for place in places)
                self._rows(db, f"DELETE FROM records WHERE id IN ({numbers})")
                self._add_record(db, Record(cohort, merged))
                self._rows(db, "UPDATE store SET generation = generation + 1")

        self._change(work)

    # ── the ledger ─────────────────────────────────────────────────────────────────────────────

    def seal(self, through: int, make: MakeBatch, carry: Carry | None = None) -> bool:
        """Replace the records through a period by a sealed batch, or nothing; return False if it was done before."""
        return self._replace_records(through, make, None, carry, self._early_tries)

    def void(self, through: int, make: MakeBatch, epoch: str | None = None, carry: Carry | None = None) -> bool:
        """Destroy the records through a period and append the note of it to the ledger, in one transaction.

        The cohorts are closed as by a seal, and what ``carry`` returns is added. With the name of a new ``epoch`` they
        stay open instead, for people who enroll in it. Return False if they were closed, or the epoch begun, before. If
        ``make`` raises, nothing changes.
        """
        return self._replace_records(through, make, epoch, carry, early=0)

    def _replace_records(
        self, through: int, make: MakeBatch, epoch: str | None, carry: Carry | None, early: int
    ) -> bool:
        """Replace records by an entry of the ledger; their cohorts are closed, or stay open in another epoch."""

        def read(db: Any) -> tuple[list[Record], list[bytes]] | None:
            sealed_through, last_epoch = self._rows(db, "SELECT sealed_through, epoch FROM store")[0]
            if through <= sealed_through if epoch is None else epoch == last_epoch:
                return None  # it was done before
            return self._records(db, through), self._entries(db)

        def replace(db: Any) -> bool | None:
            now = read(db)
            if now is None:
                return False
            if now != made_of and early:
                return None  # others have changed the store meanwhile
            self._add_entry(db, through, entry if now == made_of else make(*now))
            self._rows(db, "DELETE FROM records WHERE cohort <= :through", through=through)
            if epoch is None:
                self._rows(db, "UPDATE store SET sealed_through = :through", through=through)
            else:
                self._change_epoch(db, epoch)
            self._carry(db, carry)
            return True

        is_new = None
        while is_new is None:
            made_of, entry = None, b""
            if early and (made_of := self._read(read)) is not None:
                entry = make(*made_of)
            is_new = self._change(replace)
            early -= 1
        if not is_new:
            self._settle()
            return False
        with suppress(StoreError):  # the entry is in the ledger; space can be given back later
            self.tidy()
        return True

    def _carry(self, db: Any, carry: Carry | None) -> Record | None:
        """Add what goes on to a later cohort."""
        carried = None if carry is None else carry(*self._moment(db))
        if carried is not None:
            self._add_record(db, carried)
        return carried

    def sealed(self) -> list[bytes]:
        """Return the entries of the ledger in their order: sealed batches, and notes. No key is needed."""
        return self._read(self._entries)

    def sealed_through(self) -> int:
        """Return the last sealed period, or ``NOTHING_SEALED``."""
        return int(self._read(lambda db: self._value(db, "SELECT sealed_through FROM store")))

    def reopen(self, closed: Callable[[list[bytes]], int]) -> bool:
        """Set the last sealed period back to what the entries of the ledger say, if it is beyond; return whether."""

        def work(db: Any) -> bool:
            through = closed(self._entries(db))
            if self._value(db, "SELECT sealed_through FROM store") <= through:
                return False
            self._rows(db, "UPDATE store SET sealed_through = :t, generation = generation + 1", t=through)
            return True

        return self._change(work)

    # ── epochs ─────────────────────────────────────────────────────────────────────────────────

    def epoch(self) -> str:
        """Return the epoch of the store: empty in the first one, another one since it lost something."""

        def work(db: Any) -> str:
            return "" if self._version(db) < self._EPOCHS else str(self._value(db, "SELECT epoch FROM store"))

        return self._read(work)

    def begin_epoch(self, through: int, make: MakeNote, epoch: str) -> bool:
        """Change the epoch and append the note of it; open cohorts are kept. Return False if it was done before."""

        def work(db: Any) -> bool:
            if self._value(db, "SELECT epoch FROM store") == epoch:
                return False
            self._add_entry(db, through, make(self._entries(db)))
            self._change_epoch(db, epoch)
            return True

        return self._change(work)

    def _change_epoch(self, db: Any, epoch: str) -> None:
        """Begin another epoch in a later generation, by which who appends notices it."""
        self._rows(db, "UPDATE store SET epoch = :epoch, generation = generation + 1", epoch=epoch)

    # ── hours of nonces, and marks ─────────────────────────────────────────────────────────────

    def last_hour(self) -> int:
        """Return the last hour that a nonce in the store was made in, or that was forgotten; 0 in a new store."""
        query = "SELECT forgotten, (SELECT max(hour) FROM nonces) FROM store"
        [(forgotten, last)] = self._read(lambda db: self._rows(db, query))
        return int(max(forgotten, last or 0))

    def first_hour(self) -> int:
        """Return the first hour that a nonce in the store was made in; 0 where there is none."""
        return int(self._read(lambda db: self._value(db, "SELECT min(hour) FROM nonces")) or 0)

    def forgotten(self) -> int:
        """Return the hour before which nonces are forgotten; 0 in a new store."""
        return int(self._read(lambda db: self._value(db, "SELECT forgotten FROM store")))

    def sent_marks(self) -> set[str]:
        """Return the marks of what people were told about, as ``mark_sent`` wrote them."""

        def work(db: Any) -> set[str]:
            return set() if self._version(db) < self._MARKS else {mark for (mark,) in self._rows(db, _MARKED)}

        return self._read(work)

    def mark_sent(self, marks: Iterable[str]) -> None:
        """Remember marks of what people were told about; those that are there stay."""
        new = list(marks)

        def work(db: Any) -> None:
            for mark in new:
                self._rows(db, "INSERT INTO told VALUES (:mark) ON CONFLICT DO NOTHING", mark=mark)

        self._change(work, alone=False)

    # ── statements ─────────────────────────────────────────────────────────────────────────────

    def _value(self, db: Any, statement: str) -> Any:
        return self._rows(db, statement)[0][0]

    def _records(self, db: Any, through: int) -> list[Record]:
        query = "SELECT cohort, box FROM records WHERE cohort <= :through ORDER BY cohort, id"
        return [Record(*row) for row in self._rows(db, query, through=through)]

    def _entries(self, db: Any) -> list[bytes]:
        return [entry for (entry,) in self._rows(db, "SELECT batch FROM sealed ORDER BY number")]

    def _add_record(self, db: Any, record: Record) -> None:
        self._rows(db, "INSERT INTO records (cohort, box) VALUES (:cohort, :ciphertext)", **record._asdict())

    def _add_entry(self, db: Any, through: int, entry: bytes) -> None:
        insert = "INSERT INTO sealed (through, batch) VALUES (:through, :entry)"
        self._rows(db, insert, through=through, entry=entry)

    def _moment(self, db: Any) -> tuple[str, int]:
        """Return the epoch and the generation of the store."""
        epoch, generation = self._rows(db, "SELECT epoch, generation FROM store")[0]
        return epoch, generation


def sort_posts(
    posts: Sequence[CountedPost], fresh: Sequence[bool], sealed_through: int, forgotten: int
) -> tuple[list[PostOutcome], dict[int, Counters]]:
    """Return what becomes of each post of a group, and what the new ones together add to each cohort."""
    outcomes: list[PostOutcome] = []
    sums: dict[int, Counters] = {}
    for (_, hour, deltas, _), is_fresh in zip(posts, fresh, strict=True):
        if hour < forgotten:
            outcomes.append(PostOutcome.EXPIRED)
            continue
        if not is_fresh:
            outcomes.append(PostOutcome.DUPLICATE)
            continue
        outcome = NEW
        for cohort, counters in deltas.items():
            if cohort <= sealed_through:
                outcome = PostOutcome.LATE
            elif cohort in sums:
                add_counters(sums[cohort], counters)
            else:
                sums[cohort] = {**counters}
        outcomes.append(outcome)
    return outcomes, sums


def of_epoch(posts: Sequence[CountedPost], epoch: str) -> list[CountedPost]:
    """Return the posts that were made for an epoch."""
    return [post for post in posts if post.epoch == epoch]


def refuse_others(posts: Sequence[CountedPost], appended: Appended) -> Appended:
    """Return what became of all posts of a group, of which those of the store's epoch were appended."""
    outcomes = iter(appended.outcomes)
    every = [next(outcomes) if post.epoch == appended.epoch else PostOutcome.EPOCH for post in posts]
    return appended._replace(outcomes=every)


def newer_schema_error() -> StoreError:
    """Return the error for tables that a later version of this program wrote."""
    return StoreError("the store was written by a newer kanab", "Update this one, or give another store.")


def older_schema_error() -> StoreError:
    """Return the error for tables of an earlier version, which who reads them does not bring up to date."""
    return StoreError(
        "the store was last used by an older kanab", "Start the collector once (kanab serve): it brings it up to date."
    )
