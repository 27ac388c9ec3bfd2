"""What a collector does between commits: move the key after a seal, merge records, forget old nonces."""

from __future__ import annotations

import time
from collections.abc import Callable

from kanab.collector.keys.encryption import Boxes
from kanab.collector.protocol.nonces import oldest_hour
from kanab.collector.stores.store import NOTHING_SEALED, Appended, Store
from kanab.errors import StoreError

COMPACT_AFTER = 256
"""A cohort with more records than this gets one instead: merging them takes a few milliseconds."""

TIDY_EVERY = 60.0
RETRY_AFTER = 5.0


class Housekeeping:
    """Knows what is due, and does a little of it at a time. Its failures wait; they never cost a post."""

    def __init__(self, store: Store, boxes: Boxes, life: int, clock: Callable[[], float]) -> None:
        self._store = store
        self._boxes = boxes
        self._life = life
        self._clock = clock
        self._sizes = store.sizes()
        self._sealed_through = NOTHING_SEALED
        self._asked = self._tidied = self._retry = time.monotonic()
        self._forgotten = -1
        self._untidy = False
        self.trouble: StoreError | None = None

    def note(self, done: Appended) -> None:
        """Remember what a commit added, and what it says is sealed."""
        for cohort in done.cohorts:
            self._sizes[cohort] = self._sizes.get(cohort, 0) + 1
        self._sealed_through = max(self._sealed_through, done.sealed_through)

    def look_after(self) -> None:
        """Do what is due; try again in a while if the store cannot."""
        now = time.monotonic()
        if self.trouble is not None and now < self._retry:
            return
        try:
            self._move_key(now)
            self._merge()
            self._forget()
            self._tidy(now)
            self.trouble = None
        except Exception as problem:  # the thread must go on: posts wait for it
            unknown = StoreError(f"housekeeping failed ({type(problem).__name__})", "It is tried again.")
            self.trouble = problem if isinstance(problem, StoreError) else unknown
            self._retry = now + RETRY_AFTER

    def _move_key(self, now: float) -> None:
        """Another collector may have sealed: then this one's copy of the key moves too."""
        if now - self._asked > RETRY_AFTER:
            self._asked = now
            self._sealed_through = max(self._sealed_through, self._store.sealed_through())
        if self._sealed_through >= self._boxes.keyring.period:
            self._boxes.keyring.forget(self._sealed_through)
            self._sizes = {cohort: size for cohort, size in self._sizes.items() if cohort > self._sealed_through}

    def _merge(self) -> None:
        for cohort, size in self._sizes.items():
            if size > COMPACT_AFTER:
                self._store.compact(cohort, self._boxes.merge)
                self._sizes[cohort] = 1
                self._untidy = True

    def _forget(self) -> None:
        """One portion of the nonces that are over, with an hour to spare for clocks that differ."""
        before = oldest_hour(int(self._clock()), self._life) - 1
        if before > self._forgotten:
            self._untidy = True
            if not self._store.forget_nonces(before):
                self._forgotten = before

    def _tidy(self, now: float) -> None:
        if self._untidy and now - self._tidied > TIDY_EVERY:
            self._tidied = now
            self._untidy = False
            self._store.tidy()
