"""Who may read: readers on this machine, or those who have the token, by a signed cookie or in a header."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable

from kanab.collector.http.rate_limit import is_loopback

COOKIE = "kanab_session"
SESSION_SECONDS = 12 * 3600
"""Seconds that a login lasts."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 16.0
"""Seconds that an address has to wait after its first wrong token, and at most."""

MOST_ADDRESSES = 10_000
"""So many addresses with a wrong token are remembered."""


class Sessions:
    """Signed cookies: a random name and an end, which only a server with the token can sign.

    >>> sessions = Sessions("a long random text", clock=lambda: 100.0)
    >>> cookie = sessions.begin()
    >>> sessions.valid(cookie), sessions.valid(cookie[:-1]), sessions.valid(None)
    (True, False, False)
    >>> sessions.end(cookie)
    >>> sessions.valid(cookie)
    False
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(token.encode(), b"kanab dashboard session", "sha256")
        self._clock = clock
        self._ended: dict[str, float] = {}

    def begin(self) -> str:
        """Return a cookie for somebody who gave the token."""
        body = f"{secrets.token_hex(16)}.{int(self._clock()) + SESSION_SECONDS}"
        return f"{body}.{self._signature(body)}"

    def valid(self, cookie: str | None) -> bool:
        """Return whether it was signed here, has not expired, and nobody logged out of it."""
        body, _, signature = (cookie or "").rpartition(".")
        if not body or not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            return False
        name, _, end = body.partition(".")
        return name not in self._ended and end.isdecimal() and self._clock() < int(end)

    def end(self, cookie: str | None) -> None:
        """Log out: from now on the cookie is not valid, wherever a copy of it is."""
        if cookie is not None and self.valid(cookie):
            now = self._clock()
            self._ended = {name: end for name, end in self._ended.items() if end > now}
            name, end, _ = cookie.split(".")
            self._ended[name] = float(end)

    def _signature(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


class TokenCheck:
    """Compares tokens in constant time; after a wrong one its address waits, twice as long every time.

    >>> now = [0.0]
    >>> tokens = TokenCheck("right", clock=lambda: now[0])
    >>> tokens.accepts("wrong", "192.0.2.7"), tokens.delay("192.0.2.7")
    (False, 0.5)
    >>> now[0] = 1.0
    >>> tokens.delay("192.0.2.7"), tokens.accepts("right", "192.0.2.7")
    (0.0, True)
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token.encode(), clock
        self._key = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def delay(self, address: str | None) -> float:
        """Return the seconds until this address may try again; nothing is compared before."""
        return max(0.0, self._wrong.get(self._hashed(address), (0, 0.0))[1] - self._clock())

    def accepts(self, token: str, address: str | None) -> bool:
        """Return whether it is the token. Ask only when the address need not wait."""
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        hashed = self._hashed(address)
        with self._lock:
            if right:
                self._wrong.pop(hashed, None)
            else:
                self._remember(hashed)
        return right

    def _remember(self, hashed: bytes) -> None:
        times = self._wrong.get(hashed, (0, 0.0))[0] + 1
        if hashed not in self._wrong and len(self._wrong) >= MOST_ADDRESSES:
            now = self._clock()
            waiting = {address: (count, end) for address, (count, end) in self._wrong.items() if end > now}
            self._wrong = waiting if len(waiting) < MOST_ADDRESSES else {}
        delay = min(FIRST_DELAY * 2 ** min(times - 1, 10), LONGEST_DELAY)
        self._wrong[hashed] = times, self._clock() + delay

    def _hashed(self, address: str | None) -> bytes:
        return hashlib.blake2b((address or "").encode(), key=self._key, digest_size=8).digest()


def is_local(address: str | None, host: str) -> bool:
    """Return whether this is a browser on this machine that meant this machine.

    A page from elsewhere can let its own name point here; its requests then carry that name.

    >>> [is_local("127.0.0.1", host) for host in ("localhost:8000", "evil.example:8000")], is_local("::1", "[::1]:8000")
    ([True, False], True)
    """
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(address) and is_loopback(name.lower())


def session_cookie(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the session's cookie among a request's headers."""
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, cookie = part.strip().partition("=")
                if key == COOKIE:
                    return cookie
    return None


def safe_path(text: str) -> str:
    """Return where to go after the login: a path of this site, or its first page.

    >>> [safe_path(path) for path in ("/plan", "//evil.example", "https://evil.example", "/a\\\\b", "")]
    ['/plan', '/', '/', '/', '/']
    """
    fine = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if fine else "/"
