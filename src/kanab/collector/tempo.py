"""What a running collector measures of itself: how long posts and commits take, and what posts were answered.

All of these count messages, so all are published in steps of k, and nothing changes in between.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from typing import NamedTuple

from kanab.counted import floor_to_k

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges of the histograms' buckets, in seconds."""


class FlooredHistogram(NamedTuple):
    """A histogram as it may be seen: numbers up to each edge and in all, floored to k; and the sum of so many."""

    up_to: tuple[int, ...] = (0,) * len(EDGES)
    total: int = 0
    seconds: float = 0.0


class Histogram:
    """Durations, counted in buckets. One thread adds, any may read.

    >>> commits = Histogram()
    >>> for seconds in [0.002] * 7 + [0.2] * 6:
    ...     commits.add(seconds)
    >>> floored = commits.floored(5)
    >>> floored.up_to[:3], floored.up_to[-1], floored.total, round(floored.seconds, 3)
    ((0, 5, 5), 10, 10, 0.934)
    >>> commits.add(0.2)                               # the fourteenth changes nothing that is seen
    >>> commits.floored(5) == floored
    True
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(EDGES) + 1)
        self._seconds = 0.0
        self._shown = FlooredHistogram()

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a duration, of so many at once."""
        self._counts[bisect_left(EDGES, seconds)] += times
        self._seconds += seconds * times

    def floored(self, k: int) -> FlooredHistogram:
        """Return the numbers in steps of k: they change once k more were added, all together."""
        counts, seconds = [*self._counts], self._seconds
        added, total = sum(counts), floor_to_k(sum(counts), k)
        if total != self._shown.total:
            up_to = tuple(floor_to_k(sum(counts[: place + 1]), k) for place in range(len(EDGES)))
            self._shown = FlooredHistogram(up_to, total, seconds * total / added)
        return self._shown


class Tempo:
    """How long posts wait until they are on disk, and commits take, and how many were counted; by the writer's thread.

    Posts of a group are counted with the time of the first that waited: none took longer.
    """

    def __init__(self) -> None:
        self.posts, self.commits = Histogram(), Histogram()
        self.counted = 0

    def add(self, waiting_since: float, began: float, posts: int, counted: int) -> None:
        """Note a group that was just committed, or that the store refused."""
        now = time.perf_counter()
        self.commits.add(now - began)
        self.posts.add(now - waiting_since, posts)
        self.counted += counted
