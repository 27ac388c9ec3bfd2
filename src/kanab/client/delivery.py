"""Delivery in the background: the same bytes and nonce until a final answer; nobody waits for it.

    2xx                  counted (or seen before)
    400, 403, 410, 413   not counted, and never will be
    anything else        again, later and later; all posts wait while the collector does not answer

A post that is older than its nonce lives is given up. When the process ends, what waits is sent first.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kanab.client.posts import nonce_of
from kanab.collector.protocol.nonces import oldest_hour
from kanab.collector.protocol.reasons import Reason

MOST_WAITING = 10_000
"""Posts in memory; more are left to the states that made them, which send them when they are seen again."""

MOST_OUTCOMES = 100_000
"""Posts of which is remembered whether they were counted."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
CLOSE_TIMEOUT = 5.0
"""Seconds that a process that ends waits for its last posts."""

_FINAL = (400, 403, 410, 413)
_GONE = 410
_log = logging.getLogger("kanab.client")


class PostAnswer(NamedTuple):
    """A collector's answer: its status (0: none came) and how long to wait before the next try, in seconds.

    ``answer`` is its header kanab-answer, empty if it had none; None if this transport does not tell. ``epoch`` is
    its header kanab-epoch, which comes with the answer "epoch".
    """

    status: int
    wait: float = 0.0
    answer: str | None = None
    epoch: str | None = None

    @property
    def final(self) -> bool:
        """Whether it will be the same next time."""
        return 200 <= self.status < 300 or self.status in _FINAL

    @property
    def expired(self) -> bool:
        """Whether the nonce was too old."""
        return self.status == _GONE and self.answer in (None, "", Reason.EXPIRED)


@dataclass(eq=False)
class _PostUnderWay:
    """A post under way. One made by another process may have been counted already."""

    post: str
    fresh: bool
    then: list[_PostUnderWay]
    tried: bool = False


class Delivery:
    """Sends posts from threads of its own, those of one chain in order."""

    def __init__(
        self,
        send: Callable[[bytes], PostAnswer],
        life: Callable[[], int],
        *,
        threads: int = 2,
        most: int = MOST_WAITING,
        clock: Callable[[], float] = time.time,
        pause: float = FIRST_PAUSE,
    ) -> None:
        self._send, self._life, self._clock = send, life, clock
        self._threads, self._most, self._pause = threads, most, pause
        self._outcomes: OrderedDict[str, bool] = OrderedDict()
        self.reset()
        atexit.register(_close, weakref.ref(self))
        reset_in_children(self.reset)

    def reset(self) -> None:
        """Begin with nothing under way; threads start with the first post. The parent of a fork sends what was."""
        self._changed = threading.Condition()
        self._under_way: dict[str, _PostUnderWay] = {}
        self._ready: deque[_PostUnderWay] = deque()
        self._running: list[threading.Thread] = []
        self._resume = 0.0
        self._failures = 0
        self._raced = False
        self._closed = False

    # ── what callers ask ───────────────────────────────────────────────────────────────────────

    def submit(self, posts: Sequence[str], *, fresh: bool = True) -> None:
        """Take posts that follow one another; those that are known already are not taken twice."""
        with self._changed:
            before: _PostUnderWay | None = None
            lost = False
            for post in posts:
                nonce = nonce_of(post)
                if lost or nonce in self._outcomes:
                    lost = not self._note(nonce, counted=not lost)
                    continue
                item = self._under_way.get(nonce)
                if item is None:
                    if self._closed or len(self._under_way) >= self._most:
                        break
                    item = self._under_way[nonce] = _PostUnderWay(post, fresh, [])
                    (self._ready if before is None else before.then).append(item)
                    self._start()
                    self._changed.notify_all()
                before = item

    def counted(self, nonce: str) -> bool | None:
        """Return whether the post with this nonce was counted; None while that is not known here."""
        with self._changed:
            return self._outcomes.get(nonce)

    def withdraw(self, posts: Iterable[str]) -> None:
        """Stop sending these posts: somebody opted out."""
        with self._changed:
            for post in posts:
                self._settle(nonce_of(post), counted=False)
            self._changed.notify_all()

    @property
    def busy(self) -> bool:
        """Whether anything is under way."""
        return bool(self._under_way)

    def flush(self, timeout: float | None = None, posts: Sequence[str] | None = None) -> bool:
        """Wait until these posts, or all, have their final answers; return False if the time was too short."""
        nonces = None if posts is None else [nonce_of(post) for post in posts]

        def done() -> bool:
            return not self._under_way if nonces is None else self._under_way.keys().isdisjoint(nonces)

        with self._changed:
            return self._changed.wait_for(done, timeout)

    def close(self, timeout: float = CLOSE_TIMEOUT) -> None:
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
            thread = threading.Thread(target=_work, args=(weakref.ref(self),), name="kanab-delivery", daemon=True)
            self._running.append(thread)
            thread.start()

    def work(self, patience: float) -> bool:
        """Send one post, or wait for one; return False when there is nothing more to do."""
        with self._changed:
            wait = patience if not self._ready else self._resume - time.monotonic()
            if wait > 0 and not self._closed:
                self._changed.wait(min(wait, patience))
                return True
            if self._closed:
                return False
            item = self._ready.popleft()
        answer = PostAnswer(_GONE)
        hour = int(nonce_of(item.post)[:8], 16)
        if hour >= oldest_hour(int(self._clock()), self._life()):
            try:
                answer = self._send(item.post.encode())
            except Exception:  # whatever a transport raises: no answer came
                answer = PostAnswer(0)
        with self._changed:
            self._take_answer(item, answer)
            self._changed.notify_all()
        return True

    def _take_answer(self, item: _PostUnderWay, answer: PostAnswer) -> None:
        nonce = nonce_of(item.post)
        if nonce not in self._under_way:
            return  # withdrawn meanwhile
        if answer.final:
            if self._failures:
                _log.warning("the collector answers again; what waited is being sent")
            self._failures, self._resume = 0, 0.0
            # what another process made and is now too old was sent by that process
            lost = answer.status in _FINAL and (item.fresh or not answer.expired)
            if item.fresh and not item.tried and answer.answer == Reason.DUPLICATE:
                self._warn_of_a_race()
            self._settle(nonce, counted=not lost)
            return
        item.tried = True
        self._ready.append(item)  # behind the others: it may be the only one that is not taken
        if self._resume <= time.monotonic():
            if not self._failures:
                _log.warning("the collector does not take posts at the moment; they are kept and sent again")
            pause = min(self._pause * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1.5)
            self._failures = min(self._failures + 1, 20)
            self._resume = time.monotonic() + max(pause, min(answer.wait, LONGEST_PAUSE))

    def _warn_of_a_race(self) -> None:
        """Say, once, that another process had sent a post of the same person at the same moment."""
        if not self._raced:
            _log.warning(
                "two processes went on from one state: where both raised a total at the same moment, only one amount "
                "was counted. Give the client shared states (shared=), or send each visitor to one process"
            )
        self._raced = True

    def _note(self, nonce: str, *, counted: bool) -> bool:
        """Remember whether a post was counted, if that is not known yet; return what is known."""
        known = self._outcomes.setdefault(nonce, counted)
        if len(self._outcomes) > MOST_OUTCOMES:
            self._outcomes.popitem(last=False)
        return known

    def _settle(self, nonce: str, *, counted: bool) -> None:
        """Note whether a post was counted; posts that follow one that was not are not counted, either."""
        item = self._under_way.pop(nonce, None)
        if item is None:
            return
        self._note(nonce, counted=counted)
        if counted:
            self._ready.extend(item.then)
            return
        if item in self._ready:
            self._ready.remove(item)
        for after in item.then:
            self._settle(nonce_of(after.post), counted=False)


def _work(reference: weakref.ref[Delivery]) -> None:
    """Send posts, in a thread that keeps its delivery alive only while something is under way."""
    delivery = reference()
    while delivery is not None and delivery.work(1.0):
        if not delivery.busy:
            delivery = None
            delivery = reference()


def _close(reference: weakref.ref[Delivery]) -> None:
    delivery = reference()
    if delivery is not None:
        delivery.close()


def reset_in_children(reset: Callable[[], None]) -> None:
    """Call an object's method in every forked process: locks and threads of the parent are of no use there."""
    reference = weakref.WeakMethod(reset)

    def reset_if_there() -> None:
        if (method := reference()) is not None:
            method()

    if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
        os.register_at_fork(after_in_child=reset_if_there)
