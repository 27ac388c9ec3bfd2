"""Which nonces a store has seen, in memory: eight bytes each, so that asking costs no statement.

Of the 16 bytes that a store keeps of a nonce, half are enough to tell it from others: among a thousand
million of them, one in 10¹⁰ posts would be taken for a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.collector.stores.store import Entry

SIZE = 16
"""Bytes that a store keeps of a nonce."""

MOST_RECENT = 50_000
"""So many nonces of an hour wait in a set, which takes ten times the room, before they are sorted in."""


class Remembered:
    """The nonces of the hours that are not forgotten.

    >>> seen = Remembered()
    >>> seen.add(9, [b"0123456789abcdef"])
    >>> seen.fresh([Entry(b"0123456789abcdef", 9, {}), Entry(b"fedcba9876543210", 9, {})])
    [False, True]
    """

    def __init__(self) -> None:
        self._hours: dict[int, _Hour] = {}

    def add(self, hour: int, nonces: Iterable[bytes]) -> None:
        """Remember nonces of an hour; whatever is remembered already stays so."""
        self._hours.setdefault(hour, _Hour()).add(nonces)

    def fresh(self, entries: Sequence[Entry]) -> list[bool]:
        """Which posts are new: neither remembered, nor earlier in the same group."""
        hours: dict[int, list[bytes]] = {}
        for nonce, hour, _ in entries:
            hours.setdefault(hour, []).append(nonce)
        known: set[bytes] = set()
        for hour, nonces in hours.items():
            if hour in self._hours:
                known |= self._hours[hour].known(nonces)
        found = []
        for nonce, _, _ in entries:
            found.append(nonce not in known)
            known.add(nonce)
        return found

    def forget(self, before: int) -> None:
        """Let go of earlier hours."""
        self._hours = {hour: own for hour, own in self._hours.items() if hour >= before}


class _Hour:
    """A set of the last ones, and sorted runs of all others, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, nonces: Iterable[bytes]) -> None:
        self._recent.update(nonces)
        if len(self._recent) > MOST_RECENT:
            run = np.sort(_halves(self._recent))
            self._recent = set()
            while self._runs and self._runs[-1].size < 2 * run.size:
                run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")  # which merges what is sorted
            self._runs.append(run)

    def known(self, nonces: Sequence[bytes]) -> set[bytes]:
        found = self._recent.intersection(nonces)
        if self._runs:
            asked = _halves(nonces)
            for run in self._runs:
                nearest = run[np.minimum(run.searchsorted(asked), run.size - 1)]
                found.update(nonces[int(position)] for position in np.flatnonzero(nearest == asked))
        return found


def split(row: bytes) -> Iterable[bytes]:
    """The nonces that stand one after the other."""
    return (row[at : at + SIZE] for at in range(0, len(row), SIZE))


def _halves(nonces: Iterable[bytes]) -> NDArray[np.uint64]:
    """The second half of each nonce as a number."""
    return np.frombuffer(b"".join(nonces), np.uint64)[1::2]
