"""What a store keeps of a collector, whichever engine it is: ciphertext, nonce hashes, sealed batches.

One protocol, three engines: a SQLite file (``stores/sqlite``), this process's memory with a file for
sealed batches only (``stores/memory``), PostgreSQL (``stores/postgres``). A store sees ciphertext, never counters:
the functions that encrypt and merge are handed to it, and so is the one that makes a sealed batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from kanab.collector.counting.counters import Counters, add_counters
from kanab.errors import StoreError

FORGET_AT_ONCE = 20_000
"""Nonces that are deleted in one transaction, so that no post waits long for it."""

NOTHING_SEALED = -1
"""What ``sealed_through`` is before the first seal."""

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


class Store(Protocol):
    """The interface of every engine. Each call is one transaction, durable when it returns.

    Several threads and several processes may use one store. What cannot be done is a ``StoreError``,
    and then nothing of that call has happened, or (a lost connection) all of it: posts are safe to
    append again, because their nonces decide.
    """

    def claim(self, fingerprint: bytes) -> None:
        """Bind the store to a key chain; raises `StoreError` if it is bound to another one."""

    def append(self, posts: Sequence[CountedPost], encrypt: Encrypt) -> Appended:
        """Remember the nonces, add up what is new by cohort, and write one record per cohort.

        Posts of another epoch than the store's are refused, by what the store holds in the same transaction.
        """

    def sizes(self) -> dict[int, int]:
        """Return how many records each open cohort has."""

    def records(self, through: int | None = None) -> list[Record]:
        """Return the records of open cohorts, or only of those through a period."""

    def compact(self, cohort: int, merge: Merge) -> None:
        """Replace all records of a cohort by one, in the next generation; leave those that do not count to the seal."""

    def forget_nonces(self, before: int, most: int = FORGET_AT_ONCE) -> bool:
        """Delete ``most`` nonces of earlier hours, which are refused from now on; return whether there are more."""

    def remembered(self) -> int:
        """Return about how many nonces are remembered, without counting them one by one."""

    def tidy(self) -> None:
        """Give free space back to the disk."""

    def seal(self, through: int, make: MakeBatch, carry: Carry | None = None) -> bool:
        """Replace the records through a period by a sealed batch; return False if they were sealed before.

        What ``carry`` returns is added. If one of them raises, nothing changes.
        """

    def void(self, through: int, make: MakeBatch, epoch: str | None = None, carry: Carry | None = None) -> bool:
        """Destroy the records through a period and append the note of it to the ledger, in one transaction.

        The cohorts are closed as by a seal, and what ``carry`` returns is added. With the name of a new ``epoch`` they
        stay open instead, for people who enroll in it. Return False if they were closed, or the epoch begun, before. If
        ``make`` raises, nothing changes.
        """

    def reopen(self, closed: Callable[[list[bytes]], int]) -> bool:
        """Set the last sealed period back to what the entries of the ledger say, if it is beyond; return whether."""

    def sealed(self) -> list[bytes]:
        """Return the entries of the ledger in their order: sealed batches, and notes. No key is needed."""

    def sealed_through(self) -> int:
        """Return the last sealed period, or ``NOTHING_SEALED``."""

    def last_hour(self) -> int:
        """Return the last hour that a nonce in the store was made in, or that was forgotten; 0 in a new store."""

    def first_hour(self) -> int:
        """Return the first hour that a nonce in the store was made in; 0 where there is none."""

    def forgotten(self) -> int:
        """Return the hour before which nonces are forgotten; 0 in a new store."""

    def time(self) -> float | None:
        """Return the time on the engine's own clock, in seconds since 1970; None where that is this machine's."""

    def epoch(self) -> str:
        """Return the epoch of the store: empty in the first one, another one since it lost something."""

    def number(self) -> int:
        """Return a number that grows with every commit and never falls, unless an older store is put back."""

    def begin_epoch(self, through: int, make: MakeNote, epoch: str) -> bool:
        """Change the epoch and append the note of it; open cohorts are kept. Return False if it was done before.

        Posts that were made for another epoch are refused from now on.
        """

    def lost(self) -> list[int]:
        """Return the open cohorts that an earlier process kept in its memory only."""

    def outdated(self) -> bool:
        """Return whether the tables are of an earlier version, which only a collector that starts changes."""

    def fingerprint(self) -> bytes | None:
        """Return which key chain the store is bound to; None before the first one."""

    def versions(self) -> list[StoredPlan]:
        """Return the plans in the order in which they were accepted."""

    def add_version(self, number: int, version: StoredPlan) -> None:
        """Record a plan as version ``number`` (0, 1, …); raises `StoreError` if another collector was quicker."""

    def sent_marks(self) -> set[str]:
        """Return the marks of what people were told about, as ``mark_sent`` wrote them."""

    def mark_sent(self, marks: Iterable[str]) -> None:
        """Remember marks of what people were told about; those that are there stay."""

    def close(self) -> None:
        """Close the connection to the engine."""


def sort_posts(
    posts: Sequence[CountedPost], fresh: Sequence[bool], sealed_through: int, forgotten: int
) -> tuple[list[PostOutcome], dict[int, Counters]]:
    """Return what becomes of each post of a group, and what the new ones together add to each cohort.

    >>> first = CountedPost(b"a", 9, {4: {"banner|on|n": 1}, 3: {"banner|on|n": 1}})
    >>> sort_posts([first, CountedPost(b"b", 1, {4: {"banner|on|n": 1}})], [True, True], sealed_through=3, forgotten=2)
    ([<PostOutcome.LATE: 'late'>, <PostOutcome.EXPIRED: 'expired'>], {4: {'banner|on|n': 1}})
    """
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
    """Return what became of all posts of a group, of which those of the store's epoch were appended.

    >>> done = Appended([PostOutcome.NEW], [4], -1, epoch="5f3a9c01")
    >>> refuse_others([CountedPost(b"a", 9, {}), CountedPost(b"b", 9, {}, epoch="5f3a9c01")], done).outcomes
    [<PostOutcome.EPOCH: 'epoch'>, <PostOutcome.NEW: 'new'>]
    """
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


def wrong_key_error() -> StoreError:
    """Return the error for a key that belongs to another store."""
    return StoreError(
        "this is not the key of this store", "Give the key that the store was begun with (--key, KANAB_KEY)."
    )


def plan_race_error() -> StoreError:
    """Return the error for two collectors that change the plan at once."""
    return StoreError("another collector changed the plan at the same moment", "Start again.")
