"""The nonces that a store has seen, in memory: eight bytes each, so that a lookup costs no statement.

Of the 16 bytes that a store keeps of a nonce, half are enough to tell it from others: among a thousand
million of them, one in 10¹⁰ posts would be taken for a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.collector.stores.store import CountedPost

HASH_BYTES = 16
"""Bytes that a store keeps of a nonce."""

MOST_RECENT = 50_000
"""Nonces of an hour that wait in a set, which takes ten times the memory, before they are sorted in."""


LOAD_AT_ONCE = 16_000_000
"""Bytes of rows that are held at a start before half of them is let go."""


class SeenNonces:
    """The nonces of the hours that are not forgotten.

    >>> seen = SeenNonces()
    >>> seen.add(9, [b"0123456789abcdef"])
    >>> seen.fresh([CountedPost(b"0123456789abcdef", 9, {}), CountedPost(b"fedcba9876543210", 9, {})])
    [False, True]
    """

    def __init__(self) -> None:
        self._hours: dict[int, _Hour] = {}

    def add(self, hour: int, nonces: Iterable[bytes]) -> None:
        """Remember nonces of an hour."""
        self._hours.setdefault(hour, _Hour()).add(nonces)

    def load(self, rows: Iterable[tuple[int, bytes]]) -> None:
        """Remember rows of nonces, each with its hour, that stand one after the other; they are sorted when needed."""
        hours: dict[int, list[bytes]] = {}
        waiting = 0
        for hour, nonces in rows:
            hours.setdefault(hour, []).append(nonces)
            waiting += len(nonces)
            if waiting > LOAD_AT_ONCE:
                self._load(hours)
                hours, waiting = {}, 0
        self._load(hours)

    def _load(self, hours: Mapping[int, Sequence[bytes]]) -> None:
        for hour, rows in hours.items():
            self._hours.setdefault(hour, _Hour()).load(rows)

    def fresh(self, posts: Sequence[CountedPost]) -> list[bool]:
        """Return which posts are new: neither remembered, nor earlier in the same group."""
        hours: dict[int, list[bytes]] = {}
        for nonce, hour, _, _ in posts:
            hours.setdefault(hour, []).append(nonce)
        seen: set[bytes] = set()
        for hour, nonces in hours.items():
            if hour in self._hours:
                seen |= self._hours[hour].seen(nonces)
        if not seen and len({post.nonce for post in posts}) == len(posts):
            return [True] * len(posts)
        fresh = []
        for post in posts:
            fresh.append(post.nonce not in seen)
            seen.add(post.nonce)
        return fresh

    def __len__(self) -> int:
        """Return the number of nonces that are remembered."""
        return sum(len(hour) for hour in list(self._hours.values()))

    def forget(self, before: int) -> None:
        """Forget the nonces of earlier hours."""
        self._hours = {hour: nonces for hour, nonces in self._hours.items() if hour >= before}


class _Hour:
    """A set of the latest nonces, and sorted runs of all others, each at least twice as long as the next."""

    def __init__(self) -> None:
        self._recent: set[bytes] = set()
        self._runs: list[NDArray[np.uint64]] = []
        self._loaded: list[NDArray[np.uint64]] = []  # not sorted yet: most hours are never asked for

    def load(self, rows: Sequence[bytes]) -> None:
        if sum(map(len, rows)) <= MOST_RECENT * HASH_BYTES:
            self.add(nonce for row in rows for nonce in split_nonces(row))
        else:
            self._loaded.append(_halves(rows).copy())  # without the other halves

    def add(self, nonces: Iterable[bytes]) -> None:
        self._recent.update(nonces)
        if len(self._recent) > MOST_RECENT:
            self._add_run(np.sort(_halves(self._recent)))
            self._recent = set()

    def _add_run(self, run: NDArray[np.uint64]) -> None:
        while self._runs and self._runs[-1].size < 2 * run.size:
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")  # which merges what is sorted
        self._runs.append(run)

    def __len__(self) -> int:
        return len(self._recent) + sum(run.size for run in [*self._runs, *self._loaded])

    def seen(self, nonces: Sequence[bytes]) -> set[bytes]:
        while self._loaded:
            self._add_run(np.sort(self._loaded.pop()))
        seen = self._recent.intersection(nonces)
        if self._runs:
            halves = _halves(nonces)
            for run in self._runs:
                nearest = run[np.minimum(run.searchsorted(halves), run.size - 1)]
                seen.update(nonces[int(position)] for position in np.flatnonzero(nearest == halves))
        return seen


def split_nonces(row: bytes) -> Iterable[bytes]:
    """Split a row of nonces that stand one after the other."""
    return (row[at : at + HASH_BYTES] for at in range(0, len(row), HASH_BYTES))


def _halves(nonces: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return the second half of each nonce as a number."""
    return np.frombuffer(b"".join(nonces), np.uint64)[1::2]
