"""The writer: all posts that wait are written by one commit, and then the whole group is answered.

While it commits, the next group gathers: the busier the collector, the larger its groups. Between groups its thread
does the housekeeping: it moves the key after a seal, merges records, and forgets old nonces.
"""

import asyncio
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from kanab.collector.counting.counters import Counters
from kanab.collector.keys.encryption import RecordCipher
from kanab.collector.keys.keyring import Keyring
from kanab.collector.keys.store_witness import Seen
from kanab.collector.protocol.limits import GRACE_HOURS, MOST_WAITING_POSTS
from kanab.collector.protocol.nonces import hour_of, oldest_hour
from kanab.collector.store_ledger import closed_through
from kanab.collector.stores.store import NEW, NOTHING_SEALED, Appended, CountedPost, PostOutcome, Store
from kanab.counted import floor_to_k
from kanab.errors import KanabError, LedgerError, StoreError

MOST_IN_COMMIT = 5_000
"""Posts in one commit, so that no sender waits for a very long one."""

NEARLY_FULL = 0.8
"""The share of the posts that may wait beyond which the queue is called nearly full."""

HOUSEKEEPING_SECONDS = 5.0
"""Seconds after which housekeeping is done although no post came."""

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
            fact, remedy = f"housekeeping failed ({type(problem).__name__})", "It is tried again."
            if isinstance(problem, KanabError):
                fact, remedy = problem.fact, problem.remedy
            self.trouble = StoreError(fact, remedy)
            self._retry = now + RETRY_AFTER

    def _move_key(self, now: float) -> None:
        """Move this collector's copy of the key forward if another collector has sealed."""
        if now - self._checked > RETRY_AFTER:
            self._checked = now
            self._sealed_through = max(self._sealed_through, self._store.sealed_through())
        if self._sealed_through >= self._cipher.keyring.period:
            self._sealed_through = closed_through(self._store)
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


OnOutcome = Callable[[PostOutcome | StoreError], None]
"""Is called with the outcome of a post."""


class _WaitingPost(NamedTuple):
    nonce: bytes
    deltas: Mapping[int, Counters]
    loop: asyncio.AbstractEventLoop
    on_outcome: OnOutcome
    epoch: str


_Result = tuple[_WaitingPost, PostOutcome | StoreError]


class Writer:
    """Writes posts into a store, many at once, from any number of event loops.

    ``life`` is how long nonces are remembered, in seconds, by ``clock``; while that is None, none is forgotten.
    The keys of what the store has sealed are forgotten at the start, in case a crash came in between. ``epoch`` is
    the store's at the last commit, and ``number`` that of a commit that is durable.
    """

    def __init__(
        self, store: Store, keyring: Keyring, *, life: int, clock: Callable[[], float | None] = time.time
    ) -> None:
        store.claim(keyring.fingerprint)
        with suppress(LedgerError):  # the clock reports it
            keyring.forget(closed_through(store))
        self.epoch = store.epoch()
        self.number = 0
        self._store = store
        self._keyring = keyring
        self._cipher = RecordCipher(keyring)
        self._housekeeping = Housekeeping(store, self._cipher, life, clock)
        self.limit = MOST_WAITING_POSTS
        self.posts, self.commits = Histogram(), Histogram()  # posts of a group with the time of the first that waited
        self.counted = 0
        self._queue: list[_WaitingPost] = []
        self._waiting_since = self._group_since = 0.0
        self._idle = False
        self._closed = False
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._work, name="kanab-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of posts that wait for the next commit."""
        return len(self._queue)

    @property
    def seen(self) -> Seen:
        """How far the store has come by what was committed here."""
        return Seen(self.epoch, self.number).join(self._cipher.seen)

    @property
    def nearly_full(self) -> bool:
        """Whether nearly as many posts wait as may."""
        return len(self._queue) > NEARLY_FULL * self.limit

    @property
    def trouble(self) -> StoreError | None:
        """The problem of the last housekeeping, if there was one: a key that cannot be erased, a full disk."""
        return self._housekeeping.trouble

    def post(self, nonce: bytes, deltas: Mapping[int, Counters], on_outcome: OnOutcome, epoch: str = "") -> None:
        """Queue a post from a running event loop, on which ``on_outcome`` is called once it is on disk."""
        waiting = _WaitingPost(nonce, deltas, asyncio.get_running_loop(), on_outcome, epoch)
        with self._lock:  # the condition's own, which takes longer to enter
            if self._closed:
                raise StoreError("the collector is stopping", "Send the message again later.")
            if len(self._queue) >= self.limit:
                raise StoreError("too many messages are waiting", "Send the message again later.")
            if not self._queue:
                self._waiting_since = time.perf_counter()
            self._queue.append(waiting)
            if self._idle:
                self._idle = False
                self._wake.notify()

    def close(self) -> None:
        """Take no more posts, commit those that wait, and end; the store stays open."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            if group:
                since, began = self._group_since, time.perf_counter()
                results = self._commit(group)
                now = time.perf_counter()
                self.commits.add(now - began)
                self.posts.add(now - since, len(group))
                self.counted += [outcome for _, outcome in results].count(NEW)
                self._report(results)
            self._housekeeping.run()

    def _next_group(self) -> list[_WaitingPost] | None:
        """Wait for posts and return all that wait: none after a while without any, None when the writer is closed."""
        with self._wake:
            if not self._queue and not self._closed:
                self._idle = True
                self._wake.wait(HOUSEKEEPING_SECONDS)
                self._idle = False
            if not self._queue and self._closed:
                return None
            group, self._queue = self._queue[:MOST_IN_COMMIT], self._queue[MOST_IN_COMMIT:]
            self._group_since = self._waiting_since
            return group

    def _commit(self, group: list[_WaitingPost]) -> list[_Result]:
        """Commit a group; a store that fails fails this group only, and nothing of it is stored."""
        digest = self._keyring.nonce_hash
        try:
            posts = [CountedPost(digest(post.nonce), hour_of(post.nonce), post.deltas, post.epoch) for post in group]
            appended = self._store.append(posts, self._cipher.encrypt)
        except KanabError as problem:
            self._cipher.settle(())
            return [(post, StoreError(problem.fact, problem.remedy)) for post in group]
        except Exception:  # a mistake of this program: it must cost one post, not all that came with it
            self._cipher.settle(())
            if len(group) > 1:
                return [result for post in group for result in self._commit([post])]
            return [(group[0], StoreError("a message could not be stored", "Send it again later."))]
        self._cipher.settle(appended.cohorts)
        self.epoch, self.number = appended.epoch, max(self.number, appended.number)
        self._housekeeping.note(appended)
        return list(zip(group, appended.outcomes, strict=True))

    def _report(self, results: list[_Result]) -> None:
        """Report the outcomes to every sender: event loops are woken once for the whole group."""
        loops = {post.loop for post, _ in results}
        for loop in loops:
            of_loop = results if len(loops) == 1 else [result for result in results if result[0].loop is loop]
            with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                loop.call_soon_threadsafe(_call_back, of_loop)


def _call_back(results: list[_Result]) -> None:
    for post, outcome in results:
        try:
            post.on_outcome(outcome)
        except Exception:  # a sender that fails must not keep the outcome from the others
            continue


# ── how long it takes: published in steps of k, and nothing changes in between ──────────────────

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the histograms' buckets, in seconds."""


class FlooredHistogram(NamedTuple):
    """A histogram as it may be seen: numbers up to each edge and in all, floored to k; and the sum of so many."""

    up_to: tuple[int, ...] = (0,) * len(EDGES)
    total: int = 0
    seconds: float = 0.0


class Histogram:
    """Durations, counted in buckets. One thread adds, any may read.

    >>> commits = Histogram()
    >>> for seconds in [0.002] * 7 + [0.2] * 6:
    ...     commits.add(seconds)
    >>> floored = commits.floored(5)
    >>> floored.up_to[:3], floored.up_to[-1], floored.total, round(floored.seconds, 3)
    ((0, 5, 5), 10, 10, 0.934)
    >>> commits.add(0.2)                               # the fourteenth changes nothing that is seen
    >>> commits.floored(5) == floored
    True
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(EDGES) + 1)
        self._seconds = 0.0
        self._shown = FlooredHistogram()

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration, of so many at once."""
        self._counts[bisect_left(EDGES, seconds)] += times
        self._seconds += seconds * times

    def floored(self, k: int) -> FlooredHistogram:
        """Return the numbers in steps of k: they change once k more were added, all together."""
        counts, seconds = [*self._counts], self._seconds
        added, total = sum(counts), floor_to_k(sum(counts), k)
        if total != self._shown.total:
            up_to = tuple(floor_to_k(sum(counts[: place + 1]), k) for place in range(len(EDGES)))
            self._shown = FlooredHistogram(up_to, total, seconds * total / added)
        return self._shown
