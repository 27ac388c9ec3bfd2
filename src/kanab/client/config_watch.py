"""A config that is fetched in the background, and again every few minutes: plans grow while people are counted."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from kanab.client.config import Config, read_config
from kanab.client.fork_safety import begin_again_in_children

EVERY = 300.0
"""Seconds between two looks."""

SOON = 2.0
"""Seconds until the next try while there is none."""

_log = logging.getLogger("kanab.client")


class Watch:
    """The newest config that could be had; none before the first."""

    def __init__(self, fetch: Callable[[], bytes], *, every: float = EVERY, soon: float = SOON) -> None:
        self._fetch, self._every, self._soon = fetch, every, soon
        self._found: Config | None = None
        self.begin()
        begin_again_in_children(self)

    def begin(self) -> None:
        """No thread yet: it starts when somebody asks."""
        self._lock = threading.Lock()
        self._there = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._found is not None:
            self._there.set()

    @property
    def current(self) -> Config | None:
        """The config, without waiting."""
        if self._thread is None:
            self.start()
        return self._found

    def start(self) -> None:
        """Begin to look."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=_look_on, args=(weakref.ref(self), self._stop), name="kanab-config", daemon=True
                )
                self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the first config; False if the time was too short."""
        self.start()
        return self._there.wait(timeout)

    def look(self) -> float:
        """Fetch it now; how many seconds until the next look."""
        try:
            self._found = read_config(self._fetch())
        except Exception as problem:  # a transport's own, or a page that is no config
            if not self._there.is_set():
                _log.warning("the config cannot be read (%s): everybody sees the control", type(problem).__name__)
        else:
            self._there.set()
        return self._every if self._there.is_set() else self._soon

    def close(self) -> None:
        """Stop looking."""
        self._stop.set()


def _look_on(watch: weakref.ref[Watch], stop: threading.Event) -> None:
    """A thread that does not keep its watch alive."""
    while True:
        found = watch()
        if found is None or stop.is_set():
            return
        wait = found.look()
        del found
        stop.wait(wait)
