"""The rate limit: buckets of tokens, found by a keyed hash of the address, which is not kept."""

from __future__ import annotations

import secrets
import time
from array import array
from collections.abc import Callable

from kanab.collector.http.addresses import NOBODY, Proxies, is_loopback, place_hash
from kanab.collector.protocol.limits import BURST_POSTS, POSTS_PER_SECOND

BUCKETS = 65_536
"""Buckets in memory, for all addresses together: two that share one by chance wait for each other, which only shows
when one of them floods. So nobody can make the table grow, nor have it searched or forgotten."""


class Buckets:
    """Lets so many posts per second through from each address; this machine and trusted networks are not limited.

    >>> clock = iter([0.0, 0.0, 0.0, 1.0])
    >>> buckets = Buckets(rate=1, burst=2, clock=lambda: next(clock))
    >>> [buckets.take("192.0.2.7") for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(
        self,
        rate: float = POSTS_PER_SECOND,
        burst: float = BURST_POSTS,
        buckets: int = BUCKETS,
        clock: Callable[[], float] = time.monotonic,
        proxies: Proxies = NOBODY,
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._key = secrets.token_bytes(16)
        self._tokens = array("d", [burst]) * buckets
        self._since = array("d", [0.0]) * buckets
        self._proxies = proxies

    def take(self, address: str | None) -> bool:
        """Take a token of an address, and return whether there was one: whether it may post once more."""
        if address is None or is_loopback(address) or self._proxies.trust(address):
            return True
        now = self._clock()
        bucket = int.from_bytes(place_hash(address, self._key), "big") % len(self._tokens)
        tokens = min(self._burst, self._tokens[bucket] + (now - self._since[bucket]) * self._rate)
        self._tokens[bucket] = tokens - 1 if tokens >= 1 else tokens
        self._since[bucket] = now
        return tokens >= 1
