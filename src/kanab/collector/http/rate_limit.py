"""The rate limit: buckets of tokens, found by a keyed hash of the address, which is not kept."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
import time
from array import array
from collections.abc import Callable, Iterable

from kanab.collector.protocol.limits import BURST_POSTS, POSTS_PER_SECOND
from kanab.errors import StoreError

BUCKETS = 65_536
"""Buckets in memory, for all addresses together: two that share one by chance wait for each other, which only shows
when one of them floods. So nobody can make the table grow, nor have it searched or forgotten."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
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
        buckets: int = BUCKETS,
        clock: Callable[[], float] = time.monotonic,
        trusted: Iterable[Network] = (),
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._key = secrets.token_bytes(16)
        self._tokens = array("d", [burst]) * buckets
        self._since = array("d", [0.0]) * buckets
        self._trusted = tuple(trusted)

    def take(self, address: str | None) -> bool:
        """Take a token of an address, and return whether there was one: whether it may post once more."""
        if address is None or is_loopback(address) or self._trusts(address):
            return True
        now = self._clock()
        digest = hashlib.blake2b(place_bytes(address), key=self._key, digest_size=8).digest()
        bucket = int.from_bytes(digest, "big") % len(self._tokens)
        tokens = min(self._burst, self._tokens[bucket] + (now - self._since[bucket]) * self._rate)
        self._tokens[bucket] = tokens - 1 if tokens >= 1 else tokens
        self._since[bucket] = now
        return tokens >= 1

    def _trusts(self, address: str) -> bool:
        parsed = read_address(address) if self._trusted else None
        return parsed is not None and any(parsed in network for network in self._trusted)


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


def read_address(text: str) -> Address | None:
    """Return an address, that of IPv4 where a socket for both kinds shows it as one of IPv6; None for any other text.

    >>> read_address("::ffff:192.0.2.7"), read_address("a pipe")
    (IPv4Address('192.0.2.7'), None)
    """
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed


def is_loopback(address: str | None) -> bool:
    """Return whether an address is this machine's own.

    >>> is_loopback("127.0.0.1"), is_loopback("::ffff:127.0.0.1"), is_loopback("192.0.2.7"), is_loopback(None)
    (True, True, False, False)
    """
    parsed = None if address is None else read_address(address)
    return address == "localhost" if parsed is None else parsed.is_loopback


def place_bytes(address: str) -> bytes:
    """Return an IPv4 address, or the /64 of an IPv6 one: whoever has one address of those has all."""
    parsed = read_address(address)
    if parsed is None:
        return address.encode("utf-8", "replace")
    return parsed.packed[:8] if parsed.version == 6 else parsed.packed
