"""The newest states of this process, for a few minutes: a request that comes with an old state goes on from it.

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
class _History:
    """A person's newest state, whichever of the earlier ones somebody asks with; and when it was used."""

    newest: State
    at: float


class RecentStates:
    """Newest states by the versions of earlier ones. Whoever uses it holds a lock.

    >>> recent = RecentStates()
    >>> recent.follow("v1", State("v2"))
    >>> recent.follow("v2", State("v3"))
    >>> recent.newest(State("v1")).version, recent.newest(State("v9")).version
    ('v3', 'v9')
    """

    def __init__(self, most: int = MOST, minutes: float = MINUTES, clock: Callable[[], float] = time.monotonic) -> None:
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
