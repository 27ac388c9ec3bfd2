"""Housekeeping between commits: move the key after a seal, merge records, forget old nonces."""

from __future__ import annotations

import time
from collections.abc import Callable

from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.protocol.limits import GRACE_HOURS
from kanab.collector.protocol.nonces import oldest_hour
from kanab.collector.stores.store import NOTHING_SEALED, Appended, Store
from kanab.errors import StoreError

COMPACT_AFTER = 256
"""A cohort with more records than this gets one instead: merging them takes a few milliseconds."""

TIDY_EVERY = 60.0
"""Seconds between two times at which space is given back to the disk."""

LOOK_EVERY = 1.0
"""Seconds between two looks at the clock: nonces are forgotten by the hour."""

RETRY_AFTER = 5.0
"""Seconds until the next try after a failure, and between two looks for seals of other collectors."""


class Housekeeping:
    """Does what is due, a little at a time; what fails is tried again, and never costs a post."""

    def __init__(self, store: Store, cipher: RecordCipher, life: int, clock: Callable[[], float | None]) -> None:
        self._store = store
        self._cipher = cipher
        self._life = life
        self._clock = clock
        self._sizes = store.sizes()
        self._sealed_through = NOTHING_SEALED
        self._checked = self._tidied = self._retry = self._next_look = time.monotonic()
        self._forgotten = -1
        self._untidy = False
        self.trouble: StoreError | None = None

    def note(self, appended: Appended) -> None:
        """Record what a commit added, and what is sealed by now."""
        for cohort in appended.cohorts:
            self._sizes[cohort] = self._sizes.get(cohort, 0) + 1
        self._sealed_through = max(self._sealed_through, appended.sealed_through)

    def run(self) -> None:
        """Do what is due; try again in a while if the store cannot."""
        now = time.monotonic()
        if self.trouble is not None and now < self._retry:
            return
        try:
            self._move_key(now)
            self._merge()
            self._forget(now)
            self._tidy(now)
            self.trouble = None
        except Exception as problem:  # the thread must go on: posts wait for it
            unknown = StoreError(f"housekeeping failed ({type(problem).__name__})", "It is tried again.")
            self.trouble = problem if isinstance(problem, StoreError) else unknown
            self._retry = now + RETRY_AFTER

    def _move_key(self, now: float) -> None:
        """Move this collector's copy of the key forward if another collector has sealed."""
        if now - self._checked > RETRY_AFTER:
            self._checked = now
            self._sealed_through = max(self._sealed_through, self._store.sealed_through())
        if self._sealed_through >= self._cipher.keyring.period:
            self._cipher.keyring.forget(self._sealed_through)
            self._sizes = {cohort: size for cohort, size in self._sizes.items() if cohort > self._sealed_through}

    def _merge(self) -> None:
        for cohort, size in self._sizes.items():
            if size > COMPACT_AFTER:
                self._store.compact(cohort, self._cipher.merge)
                self._sizes[cohort] = 1
                self._untidy = True

    def _forget(self, now: float) -> None:
        """Forget a portion of the expired nonces, with an hour to spare for clocks that differ."""
        if now < self._next_look:
            return
        seconds = self._clock()
        before = -1 if seconds is None else oldest_hour(int(seconds), self._life) - GRACE_HOURS
        if before > self._forgotten:
            self._untidy = True
            if self._store.forget_nonces(before):
                return  # there are more of them: the next portion comes after the next commit
            self._forgotten = before
        self._next_look = now + LOOK_EVERY

    def _tidy(self, now: float) -> None:
        if self._untidy and now - self._tidied > TIDY_EVERY:
            self._tidied = now
            self._untidy = False
            self._store.tidy()
