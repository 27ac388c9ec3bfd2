"""Values that take a while: computed once, beside the requests, and kept as long as they are about the same bytes."""

import threading
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")

AT_ONCE = 2
"""So many computations at a time: a long one does not hold up a short one, and a collector is left room."""


class NotYetError(Exception):
    """The value is being computed."""


class BackgroundCache:
    """Computes each value once, in a thread of its own, and keeps it until the bytes that it is about change."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._slots = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self._served = threading.Condition(self._lock)
        self._digest = ""
        self._jobs: dict[Hashable, Future[Any]] = {}
        self._awaited: list[Hashable] = []
        self._drawing = 0

    def get(self, digest: str, key: Hashable, make: Callable[[], _T], *, wait: float) -> _T:
        """Return the value; ``digest`` names the bytes that it is about."""
        with self._lock:
            if digest != self._digest:
                self._digest, self._jobs = digest, {}
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = Future()
                threading.Thread(target=self._run, args=(job, make), daemon=True).start()
            self._awaited.append(key)
            self._served.notify_all()
        try:
            wait_for([job], wait)
            if not job.done():
                raise NotYetError
        finally:
            with self._lock:
                self._awaited.remove(key)
                self._served.notify_all()
        value: _T = job.result()
        return value

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Let what is computed ahead give way to a page that is being drawn, but for the time that the page waits."""
        with self._lock:
            self._drawing += 1
        try:
            yield
        finally:
            with self._lock:
                self._drawing -= 1
                self._served.notify_all()

    def give_way(self, key: Hashable) -> None:
        """Wait while a page is being drawn, or somebody waits for another value than the one computed ahead."""
        with self._lock:
            self._served.wait_for(lambda: self._drawing <= len(self._awaited) and all(a == key for a in self._awaited))

    def _run(self, job: Future[Any], make: Callable[[], Any]) -> None:
        with self._slots:
            try:
                job.set_result(make())
            except BaseException as problem:  # handed to whoever asks
                job.set_exception(problem)


class LockedCache:
    """Values of one snapshot, each made by the first thread that needs it while others wait."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.RLock] = {}
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return the value under a key, made if it is not there yet."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.RLock())
        with lock:
            if key not in self._values:
                self._values[key] = make()
            value: _T = self._values[key]
            return value

    def peek(self, key: Hashable) -> Any:
        """Return the value under a key; None where it is not there yet."""
        return self._values.get(key)
