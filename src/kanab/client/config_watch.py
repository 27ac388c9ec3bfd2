"""A config that is fetched in the background, and again every few minutes: plans grow while people are counted."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from kanab.client.config import Config, read_config
from kanab.client.fork_safety import reset_in_children

EVERY = 300.0
"""Seconds between two requests for the config."""

SOON = 2.0
"""Seconds until the next try while there is none."""

_log = logging.getLogger("kanab.client")


class ConfigWatch:
    """The newest config that could be fetched; None before the first."""

    def __init__(self, fetch: Callable[[], bytes], *, every: float = EVERY, soon: float = SOON) -> None:
        self._fetch, self._every, self._soon = fetch, every, soon
        self._config: Config | None = None
        self.reset()
        reset_in_children(self)

    def reset(self) -> None:
        """Make locks and forget the thread: one starts when somebody asks for the config."""
        self._lock = threading.Lock()
        self._there = threading.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._config is not None:
            self._there.set()

    @property
    def current(self) -> Config | None:
        """The config, without waiting."""
        if self._thread is None:
            self.start()
        return self._config

    def start(self) -> None:
        """Begin to fetch the config in the background."""
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(
                    target=_keep_fetching, args=(weakref.ref(self), self._stop), name="kanab-config", daemon=True
                )
                self._thread.start()

    def wait(self, timeout: float | None) -> bool:
        """Wait for the first config; False if the time was too short."""
        self.start()
        return self._there.wait(timeout)

    def fetch(self) -> float:
        """Fetch the config now; return the seconds until the next time."""
        try:
            self._config = read_config(self._fetch())
        except Exception as problem:  # a transport's own, or a page that is no config
            if not self._there.is_set():
                _log.warning("the config cannot be read (%s): everybody sees the control", type(problem).__name__)
        else:
            self._there.set()
        return self._every if self._there.is_set() else self._soon

    def close(self) -> None:
        """Stop fetching."""
        self._stop.set()


def _keep_fetching(reference: weakref.ref[ConfigWatch], stop: threading.Event) -> None:
    """Fetch again and again, in a thread that does not keep its watch alive."""
    while True:
        watch = reference()
        if watch is None or stop.is_set():
            return
        wait = watch.fetch()
        del watch
        stop.wait(wait)
