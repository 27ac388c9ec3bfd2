"""Delivery in the background: the same bytes and nonce until a final answer; nobody waits for it.

    2xx                  counted (or seen before)
    400, 403, 410, 413   not counted, and never will be
    anything else        again, later and later; all posts wait while the collector does not answer

A post that is older than its nonce lives is given up. When the process ends, what waits is sent first.
"""

from __future__ import annotations

import atexit
import logging
import random
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kanab.client.fork_safety import begin_again_in_children
from kanab.client.posts import nonce_of
from kanab.collector.protocol.nonces import oldest_hour

MOST_WAITING = 10_000
"""Posts in memory; more are left to the states that made them, which send them when they are seen again."""

MOST_FATES = 100_000
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
LAST_WORDS = 5.0
"""Seconds that a process that ends waits for its last posts."""

_FINAL = (400, 403, 410, 413)
_GONE = 410
_log = logging.getLogger("kanab.client")


class Answer(NamedTuple):
    """A collector's answer: its status (0: none came) and how long to wait before the next try, in seconds."""

    status: int
    wait: float = 0.0


@dataclass(eq=False)
class _Parcel:
    """A post under way. One made by another process may have been counted already."""

    post: str
    fresh: bool
    then: list[_Parcel]


class Courier:
    """Sends posts from threads of its own, those of one chain in order.

    >>> from kanab.collector.protocol.nonces import make_nonce
    >>> sent = []
    >>> courier = Courier(lambda body: Answer(len(sent.append(body) or "") or 204), lambda: 86_400)
    >>> post = f"kanab/1 {make_nonce()}\\ncheckout:B\\n"
    >>> courier.submit([post])
    >>> courier.flush(5), sent == [post.encode()], courier.counted(nonce_of(post))
    (True, True, True)
    >>> courier.close()
    """

    def __init__(
        self,
        send: Callable[[bytes], Answer],
        life: Callable[[], int],
        *,
        threads: int = 2,
        most: int = MOST_WAITING,
        clock: Callable[[], float] = time.time,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self._send, self._life, self._clock = send, life, clock
        self._threads, self._most, self._pause = threads, most, pause
        self._fates: OrderedDict[str, bool] = OrderedDict()
        self.begin()
        atexit.register(_close, weakref.ref(self))
        begin_again_in_children(self)

    def begin(self) -> None:
        """Nothing is under way; threads start with the first post. In a child, the parent sends what was."""
        self._changed = threading.Condition()
        self._under_way: dict[str, _Parcel] = {}
        self._ready: deque[_Parcel] = deque()
        self._running: list[threading.Thread] = []
        self._resume = 0.0
        self._failures = 0
        self._closed = False

    # ── what callers ask ───────────────────────────────────────────────────────────────────────

    def submit(self, posts: Sequence[str], *, fresh: bool = True) -> None:
        """Take posts that follow one another; those that are known already are not taken twice."""
        with self._changed:
            before: _Parcel | None = None
            lost = False
            for post in posts:
                nonce = nonce_of(post)
                if lost or nonce in self._fates:
                    lost = not self._note(nonce, counted=not lost)
                    continue
                parcel = self._under_way.get(nonce)
                if parcel is None:
                    if self._closed or len(self._under_way) >= self._most:
                        break
                    parcel = self._under_way[nonce] = _Parcel(post, fresh, [])
                    (self._ready if before is None else before.then).append(parcel)
                    self._start()
                    self._changed.notify_all()
                before = parcel

    def counted(self, nonce: str) -> bool | None:
        """Was the post with this nonce counted? None while nobody here knows."""
        with self._changed:
            return self._fates.get(nonce)

    def withdraw(self, posts: Iterable[str]) -> None:
        """Do not send these any more: somebody opted out."""
        with self._changed:
            for post in posts:
                self._settle(nonce_of(post), counted=False)
            self._changed.notify_all()

    @property
    def busy(self) -> bool:
        """Is anything under way?"""
        return bool(self._under_way)

    def flush(self, timeout: float | None = None, posts: Sequence[str] | None = None) -> bool:
        """Wait until these posts, or all, have their final answers; False if the time was too short."""
        nonces = None if posts is None else [nonce_of(post) for post in posts]

        def done() -> bool:
            return not self._under_way if nonces is None else self._under_way.keys().isdisjoint(nonces)

        with self._changed:
            return self._changed.wait_for(done, timeout)

    def close(self, timeout: float = LAST_WORDS) -> None:
        """Send what waits, as long as there is time, and stop."""
        with self._changed:
            self._resume = 0.0
            self._changed.notify_all()
        self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._running:
            thread.join(min(timeout, 1.0))  # one that still waits for an answer ends with the process

    # ── in the background ──────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        while len(self._running) < self._threads:
            thread = threading.Thread(target=_work, args=(weakref.ref(self),), name="kanab-courier", daemon=True)
            self._running.append(thread)
            thread.start()

    def work(self, patience: float) -> bool:
        """Send one post, or wait for one; False when there is nothing more to do."""
        with self._changed:
            wait = patience if not self._ready else self._resume - time.monotonic()
            if wait > 0 and not self._closed:
                self._changed.wait(min(wait, patience))
                return True
            if self._closed:
                return False
            parcel = self._ready.popleft()
        answer = Answer(_GONE) if self._too_old(parcel) else self._tried(parcel)
        with self._changed:
            self._answered(parcel, answer)
            self._changed.notify_all()
        return True

    def _tried(self, parcel: _Parcel) -> Answer:
        try:
            return self._send(parcel.post.encode())
        except Exception:  # whatever a transport raises: no answer came
            return Answer(0)

    def _too_old(self, parcel: _Parcel) -> bool:
        return int(nonce_of(parcel.post)[:8], 16) < oldest_hour(int(self._clock()), self._life())

    def _answered(self, parcel: _Parcel, answer: Answer) -> None:
        nonce = nonce_of(parcel.post)
        if nonce not in self._under_way:
            return  # withdrawn meanwhile
        if 200 <= answer.status < 300 or answer.status in _FINAL:
            if self._failures:
                _log.warning("the collector answers again; what waited is being sent")
            self._failures, self._resume = 0, 0.0
            # what another process made and is now too old was sent by that process
            lost = answer.status in _FINAL and (parcel.fresh or answer.status != _GONE)
            self._settle(nonce, counted=not lost)
            return
        self._ready.appendleft(parcel)
        if self._resume <= time.monotonic():
            if not self._failures:
                _log.warning("the collector does not take posts at the moment; they are kept and sent again")
            pause = min(self._pause * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)
            self._failures = min(self._failures + 1, 20)
            self._resume = time.monotonic() + max(pause, min(answer.wait, LONGEST_PAUSE))

    def _note(self, nonce: str, *, counted: bool) -> bool:
        """Remember what became of a post, if that is not known yet; what became of it."""
        found = self._fates.setdefault(nonce, counted)
        if len(self._fates) > MOST_FATES:
            self._fates.popitem(last=False)
        return found

    def _settle(self, nonce: str, *, counted: bool) -> None:
        """Note what became of a post; what follows one that was not counted cannot be, either."""
        parcel = self._under_way.pop(nonce, None)
        if parcel is None:
            return
        self._note(nonce, counted=counted)
        if counted:
            self._ready.extend(parcel.then)
            return
        if parcel in self._ready:
            self._ready.remove(parcel)
        for after in parcel.then:
            self._settle(nonce_of(after.post), counted=False)


def _work(courier: weakref.ref[Courier]) -> None:
    """A thread that keeps its courier alive only while something is under way."""
    found = courier()
    while found is not None and found.work(1.0):
        if not found.busy:
            found = None
            found = courier()


def _close(courier: weakref.ref[Courier]) -> None:
    found = courier()
    if found is not None:
        found.close()
