"""The rate limit: a bucket of tokens per address, of which only a keyed hash is in memory."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Iterable

from kanab.collector.protocol.limits import BURST_POSTS, POSTS_PER_SECOND
from kanab.errors import StoreError

MOST_ADDRESSES = 50_000
"""Buckets in memory; when there are more, those that are full again are forgotten, and then all."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
        most: int = MOST_ADDRESSES,
        clock: Callable[[], float] = time.monotonic,
        trusted: Iterable[Network] = (),
    ) -> None:
        self._rate, self._burst, self._most, self._clock = rate, burst, most, clock
        self._key = secrets.token_bytes(16)
        self._buckets: dict[bytes, tuple[float, float]] = {}
        self._trusted = tuple(trusted)

    def take(self, address: str | None) -> bool:
        """Take a token of an address, and return whether there was one: whether it may post once more."""
        if address is None or is_loopback(address) or (self._trusted and _is_in(self._trusted, address)):
            return True
        now = self._clock()
        bucket = hashlib.blake2b(_network_bytes(address), key=self._key, digest_size=8).digest()
        tokens, since = self._buckets.get(bucket, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate)
        if bucket not in self._buckets and len(self._buckets) >= self._most:
            self._forget(now)
        self._buckets[bucket] = (max(tokens - 1, 0.0) if tokens >= 1 else tokens, now)
        return tokens >= 1

    def _forget(self, now: float) -> None:
        filling = {
            bucket: (tokens, since)
            for bucket, (tokens, since) in self._buckets.items()
            if tokens + (now - since) * self._rate < self._burst
        }
        self._buckets = filling if len(filling) < self._most else {}


def network(text: str) -> Network:
    """Read an address, or a network of addresses; raises `StoreError` for any other text.

    >>> network("10.0.0.0/8"), network("192.0.2.7")
    (IPv4Network('10.0.0.0/8'), IPv4Network('192.0.2.7/32'))
    """
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise StoreError(
            f"{text!r} is no address and no network", "Write one such as 192.0.2.7 or 10.0.0.0/8, all other bits 0."
        ) from None


def _is_in(networks: Iterable[Network], address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None  # where both kinds are heard
    return any((mapped or parsed) in network for network in networks)


def is_loopback(address: str | None) -> bool:
    """Return whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("192.0.2.7"), is_loopback(None)
    (True, True, False, False)
    """
    if address is None:
        return False
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def _network_bytes(address: str) -> bytes:
    """Return an IPv4 address, or the /64 of an IPv6 one: whoever has one address of those has all."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address.encode("utf-8", "replace")
    return parsed.packed[:8] if parsed.version == 6 else parsed.packed
