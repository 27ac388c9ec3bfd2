"""Addresses that requests come from: whose they are, and who is behind a proxy. None is kept or logged."""

import hashlib
import ipaddress
import re
from collections.abc import Iterable

from kanab.errors import StoreError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Headers = Iterable[tuple[bytes, bytes]]

_FORWARDED = b"x-forwarded-for"
_OF_PROXIES = {_FORWARDED, b"forwarded", b"x-real-ip", b"via"}
_IN_HEAD = re.compile(rb"\r\n(?i:x-forwarded-for):([^\r]*)")
_WITH_PORT = re.compile(r"\[([^\]]*)\](?::\d+)?|([\d.]+):\d+")


def read_address(text: str) -> Address | None:
    """Return an address, that of IPv4 where a socket for both kinds shows it as one of IPv6; None for other text."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return None
    return parsed.ipv4_mapped or parsed if isinstance(parsed, ipaddress.IPv6Address) else parsed


def network(text: str) -> Network:
    """Read an address, or a network of addresses; raises `StoreError` for any other text."""
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        raise StoreError(
            f"{text!r} is no address and no network", "Write one such as 192.0.2.7 or 10.0.0.0/8, all other bits 0."
        ) from None


def is_loopback(address: str | None) -> bool:
    """Return whether an address is this machine's own."""
    parsed = None if address is None else read_address(address)
    return address == "localhost" if parsed is None else parsed.is_loopback


_HERE = {"127.0.0.1", "::1", "::ffff:127.0.0.1", "localhost"}


def place_hash(address: str | None, key: bytes) -> bytes:
    """Return a keyed hash of an IPv4 address, or of the /64 of an IPv6 one: whoever has one of those has all."""
    parsed = None if address is None else read_address(address)
    if parsed is None:
        place = (address or "").encode("utf-8", "replace")
    else:
        place = parsed.packed[:8] if parsed.version == 6 else parsed.packed
    return hashlib.blake2b(place, key=key, digest_size=8).digest()


def came_through_proxy(headers: Headers) -> bool:
    """Return whether a proxy says that it passed a request on."""
    return any(name in _OF_PROXIES for name, _ in headers)


class Proxies:
    """Your proxies and servers, by their networks: whose word is taken for whom they speak."""

    def __init__(self, networks: Iterable[Network] = ()) -> None:
        self._networks = tuple(networks)

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._networks)

    def trust(self, address: str) -> bool:
        """Return whether an address is one of them."""
        parsed = read_address(address) if self._networks else None
        return parsed is not None and any(parsed in network for network in self._networks)

    def may_flood(self, address: str | None) -> bool:
        """Return whether no limit is set to an address: it is one of them, or what this machine calls itself."""
        return address is None or address in _HERE or self.trust(address)

    def visitor(self, address: str | None, forwarded: Iterable[str]) -> str | None:
        """Return who is behind an address: the last in X-Forwarded-For that is no proxy of yours."""
        if address is None or not self.trust(address):
            return address
        hops = [hop.strip() for line in forwarded for hop in line.split(",") if hop.strip()]
        for hop in reversed(hops):
            match = _WITH_PORT.fullmatch(hop)
            place = (match[1] or match[2]) if match else hop
            if not self.trust(place):
                return place
        return address

    def visitor_of(self, address: str | None, headers: Headers) -> str | None:
        """Return who is behind the address of a request with these headers."""
        if not self._networks:
            return address
        return self.visitor(address, (value.decode("latin-1") for name, value in headers if name == _FORWARDED))

    def visitor_in_head(self, address: str | None, head: bytes) -> str | None:
        """Return who is behind the address of a request with this head, as it came."""
        return self.visitor(address, (value.decode("latin-1") for value in _IN_HEAD.findall(head)))


NOBODY = Proxies()
"""No proxy is trusted."""
