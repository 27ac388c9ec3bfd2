"""Who may read numbers (this machine, or who has the token; wrong ones slow their place down), and whose pages post.

Collector and dashboard share one `Access`, so that guesses anywhere count together.
"""

import hmac
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from kanab.collector.http.addresses import NOBODY, Proxies, came_through_proxy, is_loopback, place_hash

FIRST_DELAY, LONGEST_DELAY = 0.5, 16.0
"""Seconds that an address has to wait after its first wrong token, and at most."""

MOST_PLACES = 10_000
"""Places with a wrong token that are remembered; then the one that was longest without a try is forgotten."""

Scope = MutableMapping[str, Any]


class Refusal(NamedTuple):
    """Why numbers may not be read: the status, what is wrong, what to do, and seconds to wait."""

    status: int
    says: str
    remedy: str
    wait: int | None = None

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that go with the status."""
        if self.wait is not None:
            return [(b"retry-after", b"%d" % self.wait)]
        return [(b"www-authenticate", b"Bearer")] if self.status == 401 else []


LOCAL_ONLY = Refusal(
    403, "this can only be read on the same machine", "Set KANAB_TOKEN, and log in; or open it at 127.0.0.1."
)
UNKNOWN_HOST = Refusal(403, "this server has another name", "Give this one by --allow-host, too.")
NEEDS_TOKEN = Refusal(401, "reading this needs the token", "Send it as Authorization: Bearer …, or log in at /login.")


def too_many(delay: float) -> Refusal:
    """Return the refusal for somebody who has to wait."""
    return Refusal(429, "too many wrong tokens from this address", "Wait, and try again.", math.ceil(delay))


class TokenCheck:
    """Compares tokens in constant time; after a wrong one its place waits, twice as long every time."""

    def __init__(self, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token.encode(), clock
        self._key = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def delay(self, address: str | None) -> float:
        """Return the seconds until this address may try again; nothing is compared before."""
        return max(0.0, self._wrong.get(place_hash(address, self._key), (0, 0.0))[1] - self._clock())

    def accepts(self, token: str, address: str | None) -> bool:
        """Return whether it is the token. Ask only when the address need not wait."""
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        place = place_hash(address, self._key)
        with self._lock:
            times, _ = self._wrong.pop(place, (0, 0.0))
            if not right:
                if len(self._wrong) >= MOST_PLACES:
                    del self._wrong[next(iter(self._wrong))]
                delay = min(FIRST_DELAY * 2 ** min(times, 10), LONGEST_DELAY)
                self._wrong[place] = times + 1, self._clock() + delay
        return right


class Access:
    """Lets readers through: with a token those who have it, without one those of this machine.

    ``hosts`` are its names: without a token, a page from elsewhere could let its own name point here, and read.
    """

    def __init__(self, token: str | None = None, *, hosts: Iterable[str] = (), proxies: Proxies = NOBODY) -> None:
        self.token = token
        self.tokens = None if token is None else TokenCheck(token)
        self.proxies = proxies
        self._hosts = frozenset(host.lower() for host in hosts)

    def visitor(self, scope: Scope) -> str | None:
        """Return the address that a request came from, behind your proxies."""
        client = scope.get("client")
        return self.proxies.visitor_of(client[0] if client else None, scope["headers"])

    def misdirected(self, scope: Scope) -> Refusal | None:
        """Return the refusal of a request under a name, or from a place, that nothing may be read by."""
        headers = scope["headers"]
        name = host_name(next((value for key, value in headers if key == b"host"), b"").decode("latin-1"))
        known = is_loopback(name) or name in self._hosts
        if self.token is None:
            client = scope.get("client")
            local = is_loopback(client[0] if client else None) and not came_through_proxy(headers)
            return None if known and local else LOCAL_ONLY
        return None if known or not self._hosts else UNKNOWN_HOST

    def refused(self, scope: Scope) -> Refusal | None:
        """Return why a request may not read numbers; None if it may."""
        if (refusal := self.misdirected(scope)) is not None or self.tokens is None:
            return refusal
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, token = header.decode("utf-8", "replace").partition(" ")
        if kind.lower() != "bearer":
            return NEEDS_TOKEN
        address = self.visitor(scope)
        if delay := self.tokens.delay(address):
            return too_many(delay)
        return None if self.tokens.accepts(token, address) else NEEDS_TOKEN


def host_name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return name.lower()


class PostingPage(NamedTuple):
    """What a browser says of the page: the headers Origin and Sec-Fetch-Site, beside the Host that it asked for."""

    origin: bytes | None = None
    site: bytes | None = None
    host: bytes | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether a browser says that the page is another site's. Apps and servers send no such headers."""
        if self.origin is None:
            return self.site == b"cross-site"
        if self.site in (b"same-origin", b"same-site"):
            return False
        page = host_name(self.origin.partition(b"://")[2].decode("latin-1"))
        own = host_name((self.host or b"").decode("latin-1"))
        both_here = is_loopback(page) and is_loopback(own)
        return not page or not (page == own or both_here)
