"""The writer: everything that waits becomes one commit, and then the whole group is answered.

Posts come from event loops or threads into a bounded queue. One thread takes all that wait, appends
them to the store in one transaction, and tells their senders what became of them. While it commits,
the next group gathers: the busier the collector, the larger its groups. Between groups the thread
keeps house: it moves the key after a seal, merges records, and forgets old nonces.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kanab.collector.counting.counters import Counters
from kanab.collector.housekeeping import Housekeeping
from kanab.collector.keys.encryption import Boxes
from kanab.collector.keys.keyring import Keyring
from kanab.collector.protocol.nonces import hour_of
from kanab.collector.stores.store import Entry, Fate, Store
from kanab.errors import KanabError, StoreError

LIMIT = 20_000
"""How many posts may wait; more are refused, and sent again later."""

LARGEST = 5_000
"""How many posts one commit may hold, so that nobody waits for a very long one."""

PAUSE = 5.0
"""Seconds after which housekeeping is looked at although nothing came."""


Told = Callable[[Fate | StoreError], None]
"""Hears what became of a post."""


class _Waiting(NamedTuple):
    nonce: bytes
    deltas: Mapping[int, Counters]
    loop: asyncio.AbstractEventLoop | None
    told: Told


_Answer = tuple[_Waiting, Fate | StoreError]


class Writer:
    """Puts posts into a store, many at once, from any number of event loops and threads.

    ``life`` is how long nonces are remembered, in seconds. The keys of what the store has sealed
    are forgotten at the start, in case a crash came in between.
    """

    def __init__(
        self,
        store: Store,
        keyring: Keyring,
        *,
        life: int,
        limit: int = LIMIT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        store.claim(keyring.fingerprint)
        keyring.forget(store.sealed_through())
        self._store = store
        self._keyring = keyring
        self._boxes = Boxes(keyring)
        self._housekeeping = Housekeeping(store, self._boxes, life, clock)
        self._limit = limit
        self._queue: list[_Waiting] = []
        self._idle = False
        self._closed = False
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._work, name="kanab-writer", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many posts wait for the next commit."""
        return len(self._queue)

    @property
    def trouble(self) -> StoreError | None:
        """What keeps the house from being kept, if anything does: a key that cannot be erased, a full disk."""
        return self._housekeeping.trouble

    def submit(self, nonce: bytes, deltas: Mapping[int, Counters]) -> Future[Fate]:
        """Queue a post from any thread; the future has its fate once that is on disk."""
        future: Future[Fate] = Future()
        self._put(_Waiting(nonce, deltas, None, partial(_settle, future)))
        return future

    def post(self, nonce: bytes, deltas: Mapping[int, Counters], told: Told) -> None:
        """Queue a post from a running event loop, on which ``told`` hears its fate once that is on disk."""
        self._put(_Waiting(nonce, deltas, asyncio.get_running_loop(), told))

    def close(self) -> None:
        """Take nothing more, commit what waits, and end; the store stays open."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        self._thread.join()

    def _put(self, waiting: _Waiting) -> None:
        with self._lock:  # the condition's own, which takes longer to enter
            if self._closed:
                raise StoreError("the collector is stopping", "Send the message again later.")
            if len(self._queue) >= self._limit:
                raise StoreError("too many messages are waiting", "Send the message again later.")
            self._queue.append(waiting)
            if self._idle:
                self._idle = False
                self._wake.notify()

    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            if group:
                self._answer(self._committed(group))
            self._housekeeping.look_after()

    def _next_group(self) -> list[_Waiting] | None:
        """All that wait; nothing after a while without posts; None when the writer is closed and all is done."""
        with self._wake:
            if not self._queue and not self._closed:
                self._idle = True
                self._wake.wait(PAUSE)
                self._idle = False
            if not self._queue and self._closed:
                return None
            group, self._queue = self._queue[:LARGEST], self._queue[LARGEST:]
            return group

    def _committed(self, group: list[_Waiting]) -> list[_Answer]:
        """The fate of every post; a store that fails fails this group only, and nothing of it is stored."""
        digest = self._keyring.nonce_hash
        try:
            entries = [Entry(digest(one.nonce), hour_of(one.nonce), one.deltas) for one in group]
            done = self._store.append(entries, self._boxes.wrap)
        except KanabError as problem:
            return [(one, StoreError(problem.fact, problem.remedy)) for one in group]
        except Exception:  # a mistake of this program: it must cost one post, not all that came with it
            if len(group) > 1:
                return [answer for one in group for answer in self._committed([one])]
            return [(group[0], StoreError("a message could not be stored", "Send it again later."))]
        self._housekeeping.note(done)
        return list(zip(group, done.fates, strict=True))

    def _answer(self, answers: list[_Answer]) -> None:
        """Tell every sender: event loops once for the whole group, so that they are woken once."""
        loops = {waiting.loop for waiting, _ in answers}
        for loop in loops:
            own = answers if len(loops) == 1 else [one for one in answers if one[0].loop is loop]
            if loop is None:
                _tell(own)
            else:
                with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                    loop.call_soon_threadsafe(_tell, own)


def _tell(answers: list[_Answer]) -> None:
    for waiting, fate in answers:
        try:
            waiting.told(fate)
        except Exception:  # whoever cannot hear it must not keep it from the others
            continue


def _settle(future: Future[Fate], fate: Fate | StoreError) -> None:
    with suppress(InvalidStateError):  # its sender went away
        if isinstance(fate, StoreError):
            future.set_exception(fate)
        else:
            future.set_result(fate)
