"""States that processes share for a while: parallel requests of one person go on from each other in any of them.

A state that has changed is added under the version of the one before, and only the first addition holds. Whoever
comes second finds it, goes on from there, and tries again. Keys are hashes of versions, values are encrypted with keys
made of versions: without the cookie that holds a version, what is stored says nothing about anybody.
"""

from __future__ import annotations

import hmac
import logging
import os
import random
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from kanab.client.state import State, pack_state, read_state
from kanab.collector.keys.keyring import cipher_of
from kanab.errors import KanabError

SHARED_SECONDS = 7200
"""So long a change is kept: longer than the hour in which two processes give one nonce to one transition."""

MOST_LINKS = 1000
RECENT_MINUTES = 10
MOST_RECENT = 20_000
_NONCE = 12
_cipher = partial(cipher_of, label=b"shared state", what="states that processes share", extra="client")
_log = logging.getLogger("kanab.client")


@dataclass(eq=False)
class _History:
    """A person's newest state, whichever of the earlier ones somebody asks with; and when it was used."""

    newest: State
    at: float


class RecentStates:
    """Newest states of this process by the versions of earlier ones, for a few minutes. Whoever uses it holds a lock.

    Two parallel requests of one person come with the same state. The second goes on from where the first has left it,
    so that the amounts of both count. Nothing of this is written anywhere.
    """

    def __init__(
        self, most: int = MOST_RECENT, minutes: float = RECENT_MINUTES, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seconds, self._clock = most, minutes * 60, clock
        self._histories: OrderedDict[str, _History] = OrderedDict()

    def newest(self, state: State) -> State:
        """Return what a state has become in this process."""
        history = self._histories.get(state.version)
        return state if history is None else history.newest

    def follow(self, version: str, state: State) -> None:
        """Note that a state follows one of an earlier version."""
        now = self._clock()
        history = self._histories.get(version)
        if history is None:
            history = _History(state, now)
        history.newest, history.at = state, now
        for known in filter(None, (version, state.version)):
            self._histories[known] = history
            self._histories.move_to_end(known)
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._histories:
            oldest = next(iter(self._histories))
            if len(self._histories) <= self._most and now - self._histories[oldest].at <= self._seconds:
                return
            del self._histories[oldest]


class SharedStates(Protocol):
    """Where processes tell each other what a state has become; a cache of Django's is one."""

    def get(self, key: str) -> bytes | None:
        """Return the value under a key; None if there is none."""

    def add(self, key: str, value: bytes, timeout: int) -> bool:
        """Keep a value for so many seconds, unless there is one under this key; return whether it was kept."""


class SqliteStates:
    """Shared states in a file, for the processes of one machine."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(self._open()) as db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(
                    "CREATE TABLE IF NOT EXISTS states (key TEXT PRIMARY KEY, value BLOB, until REAL) WITHOUT ROWID"
                )
        except (OSError, sqlite3.Error):
            raise KanabError("the file of shared states cannot be opened", "Check its folder and its rights.") from None

    def get(self, key: str) -> bytes | None:
        """Return the value under a key, while it is kept."""
        with closing(self._open()) as db:
            row = db.execute("SELECT value FROM states WHERE key = ? AND until > ?", (key, time.time())).fetchone()
        return None if row is None else bytes(row[0])

    def add(self, key: str, value: bytes, timeout: int) -> bool:
        """Keep a value unless there is one; now and then what is over is deleted."""
        now = time.time()
        with closing(self._open()) as db:
            if random.random() < 0.01:
                db.execute("DELETE FROM states WHERE until <= ?", (now,))
            added = db.execute(
                "INSERT INTO states VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value,"
                " until = excluded.until WHERE until <= ?",
                (key, value, now + timeout, now),
            )
            return added.rowcount == 1

    def _open(self) -> sqlite3.Connection:
        """Open the file for one question: connections do not outlive forks, nor threads."""
        db = sqlite3.connect(self._path, timeout=5.0, isolation_level=None)
        db.execute("PRAGMA synchronous = OFF")  # what a crash of the machine loses here was for minutes anyway
        return db


class StateChain:
    """The way from a state to the newest one that it has become in any process."""

    def __init__(self, states: SharedStates) -> None:
        self._states = states
        _cipher(b"")
        self._failing = False

    def newest(self, state: State) -> State | None:
        """Return what a state has become anywhere; None if that cannot be asked for at the moment."""
        for _ in range(MOST_LINKS):
            if not state.version:
                break  # opted out
            try:
                sealed = self._states.get(_key(state.version))
                following = None
                if sealed is not None:
                    nonce, text = bytes(sealed[:_NONCE]), bytes(sealed[_NONCE:])
                    following = read_state(_cipher(state.version.encode()).decrypt(nonce, text, None))
            except Exception as problem:  # a cache's own
                self._fail(problem)
                return None
            if following is None:
                break
            state = following
        self._failing = False
        return state

    def follow(self, before: State, after: State) -> bool | None:
        """Note what a state has become, and return whether it was the first to say so; None if that cannot be told."""
        try:
            nonce = os.urandom(_NONCE)
            sealed = nonce + _cipher(before.version.encode()).encrypt(nonce, pack_state(after), None)
            return bool(self._states.add(_key(before.version), sealed, SHARED_SECONDS))
        except Exception as problem:
            self._fail(problem)
            return None

    def _fail(self, problem: Exception) -> None:
        if not self._failing:
            _log.warning(
                "shared states cannot be used (%s): totals of parallel requests may be lost", type(problem).__name__
            )
        self._failing = True


def _key(version: str) -> str:
    return f"kanab-{hmac.digest(version.encode(), b'kanab/1 shared key', 'sha256').hex()[:32]}"
