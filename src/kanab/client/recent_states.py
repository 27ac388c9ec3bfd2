"""What became of states in this process, for a few minutes: a request that comes with an old one gets the newest.

Two parallel requests of one person come with the same state. The second goes on from where the first
has left it, so that the amounts of both count. Nothing of this is written anywhere.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from kanab.client.state import State

MINUTES = 10
MOST = 20_000


@dataclass(eq=False)
class _Line:
    """A person's newest state, whichever of the earlier ones somebody asks with; and when it was used."""

    newest: State
    at: float


class Memory:
    """Newest states by the versions of earlier ones. Whoever uses it holds a lock.

    >>> memory = Memory()
    >>> memory.follow("v1", State("v2"))
    >>> memory.follow("v2", State("v3"))
    >>> memory.newest(State("v1")).version, memory.newest(State("v9")).version
    ('v3', 'v9')
    """

    def __init__(self, most: int = MOST, minutes: float = MINUTES, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._seconds, self._clock = most, minutes * 60, clock
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def newest(self, state: State) -> State:
        """What this state has become."""
        line = self._lines.get(state.version)
        return state if line is None else line.newest

    def follow(self, version: str, state: State) -> None:
        """A state follows one of an earlier version."""
        now = self._clock()
        line = self._lines.get(version)
        if line is None:
            line = _Line(state, now)
        line.newest, line.at = state, now
        for one in (version, state.version):
            if one:
                self._lines[one] = line
                self._lines.move_to_end(one)
        self._forget(now)

    def _forget(self, now: float) -> None:
        while self._lines:
            oldest = next(iter(self._lines))
            if len(self._lines) <= self._most and now - self._lines[oldest].at <= self._seconds:
                return
            del self._lines[oldest]
