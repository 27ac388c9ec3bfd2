"""What a store keeps of a collector, whichever engine it is: ciphertext, nonce hashes, sealed batches.

One protocol, three engines: a SQLite file (``sqlitestore``), this process's memory with a file for
sealed batches only (``memorystore``), PostgreSQL (``pgstore``). A store sees boxes, never counters:
what wraps and merges them is handed to it, and so is what makes a sealed batch out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from kanab.collector.counting.counters import Counters, add_counters
from kanab.errors import StoreError

NOTHING_SEALED = -1
"""What ``sealed_through`` is before the first seal."""

Wrap = Callable[[int, Counters], bytes]
Merge = Callable[[int, list[bytes]], bytes]


class Fate(StrEnum):
    """What became of a post."""

    NEW = "new"
    DUPLICATE = "duplicate"  # its nonce was seen before: nothing is added
    LATE = "late"  # one of its cohorts is sealed: that part is dropped
    EXPIRED = "expired"  # its nonce is older than what is remembered: nobody can tell, nothing is added


class Entry(NamedTuple):
    """One post: the hash (16 bytes) and hour of its nonce, and what it adds to each cohort."""

    nonce: bytes
    hour: int
    deltas: Mapping[int, Counters]


class Record(NamedTuple):
    """One box of a cohort."""

    cohort: int
    box: bytes


class StoredPlan(NamedTuple):
    """A version of the plan: the period in which it was accepted, its digest, and its document."""

    since: int
    digest: str
    document: bytes


Make = Callable[[list[Record], list[bytes]], bytes]
"""Makes the sealed batch out of the records of its cohorts and of the batches before it."""


class Appended(NamedTuple):
    """What became of every post of a group, the cohorts that got a record, and what is sealed by now."""

    fates: list[Fate]
    cohorts: list[int]
    sealed_through: int


class Store(Protocol):
    """Everything that a collector asks of an engine. Each call is one transaction, durable when it returns.

    Several threads and several processes may use one store. What cannot be done is a ``StoreError``,
    and then nothing of that call has happened, or (a lost connection) all of it: posts are safe to
    append again, because their nonces decide.
    """

    def claim(self, fingerprint: bytes) -> None:
        """Bind the store to a chain of keys, or refuse another one."""

    def append(self, entries: Sequence[Entry], wrap: Wrap) -> Appended:
        """Remember the nonces, add up what is new by cohort, and keep one box per cohort."""

    def sizes(self) -> dict[int, int]:
        """How many records each open cohort has."""

    def records(self, through: int | None = None) -> list[Record]:
        """The boxes of open cohorts, perhaps only of those through a period."""

    def compact(self, cohort: int, merge: Merge) -> None:
        """Replace all boxes of a cohort by one."""

    def forget_nonces(self, before: int, most: int = 20_000) -> bool:
        """Delete nonces of earlier hours, so many at once; are there more? They are refused from now on."""

    def tidy(self) -> None:
        """Give room back to the disk."""

    def seal(self, through: int, make: Make) -> bool:
        """Replace the records through a period by a sealed batch; False if somebody did before.

        If ``make`` raises, nothing changes.
        """

    def sealed(self) -> list[bytes]:
        """The sealed batches in their order. No key is needed."""

    def sealed_through(self) -> int:
        """The last period that is sealed, or ``NOTHING_SEALED``."""

    def versions(self) -> list[StoredPlan]:
        """The plans in the order in which they were accepted."""

    def add_version(self, number: int, version: StoredPlan) -> None:
        """Record a plan as the version of this number (0, 1, …), unless another collector was quicker."""

    def close(self) -> None:
        """Let go of the engine; what is stored stays."""


def sort_out(
    entries: Sequence[Entry], fresh: Sequence[bool], sealed_through: int, forgotten: int
) -> tuple[list[Fate], dict[int, Counters]]:
    """What becomes of each post of a group, and what all that is new adds to each cohort.

    >>> first = Entry(b"a", 9, {4: {"banner|on|n": 1}, 3: {"banner|on|n": 1}})
    >>> sort_out([first, Entry(b"b", 1, {4: {"banner|on|n": 1}})], [True, True], sealed_through=3, forgotten=2)
    ([<Fate.LATE: 'late'>, <Fate.EXPIRED: 'expired'>], {4: {'banner|on|n': 1}})
    """
    fates: list[Fate] = []
    sums: dict[int, Counters] = {}
    for entry, is_fresh in zip(entries, fresh, strict=True):
        fate = Fate.EXPIRED if entry.hour < forgotten else Fate.NEW if is_fresh else Fate.DUPLICATE
        if fate is Fate.NEW:
            for cohort, counters in entry.deltas.items():
                if cohort <= sealed_through:
                    fate = Fate.LATE
                else:
                    add_counters(sums.setdefault(cohort, {}), counters)
        fates.append(fate)
    return fates, sums


def newer_schema() -> StoreError:
    """The error for tables that a later program wrote."""
    return StoreError("the store was written by a newer kanab", "Update this one, or give another store.")


def other_key() -> StoreError:
    """The error for a key that belongs to another store."""
    return StoreError(
        "this is not the key of this store", "Give the key that the store was begun with (--key, KANAB_KEY)."
    )


def quicker_plan() -> StoreError:
    """The error for two collectors that change the plan at once."""
    return StoreError("another collector changed the plan at the same moment", "Start again.")
