"""Who may read: whoever is at this machine, or whoever has the token, by a signed cookie or in a header."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Callable, Iterable

from kanab.collector.http.rate_limit import is_loopback

COOKIE = "kanab_session"
LIFE = 12 * 3600
"""Seconds that a login lasts."""

FIRST_DELAY, LONGEST_DELAY = 0.5, 16.0
"""Seconds that a place has to wait after its first wrong token, and at most."""

MOST_PLACES = 10_000


class Sessions:
    """Signed cookies: a random name and an end, which only whoever has the token can sign.

    >>> sessions = Sessions("a long random text", clock=lambda: 100.0)
    >>> cookie = sessions.begin()
    >>> sessions.holds(cookie), sessions.holds(cookie[:-1]), sessions.holds(None)
    (True, False, False)
    >>> sessions.end(cookie)
    >>> sessions.holds(cookie)
    False
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(token.encode(), b"kanab dashboard session", "sha256")
        self._clock = clock
        self._ended: dict[str, float] = {}

    def begin(self) -> str:
        """A cookie for somebody who gave the token."""
        body = f"{secrets.token_hex(16)}.{int(self._clock()) + LIFE}"
        return f"{body}.{self._signed(body)}"

    def holds(self, cookie: str | None) -> bool:
        """Was it signed here, is it still valid, and has nobody logged out of it?"""
        body, _, mark = (cookie or "").rpartition(".")
        if not body or not hmac.compare_digest(mark.encode(), self._signed(body).encode()):
            return False
        name, _, end = body.partition(".")
        return name not in self._ended and end.isdecimal() and self._clock() < int(end)

    def end(self, cookie: str | None) -> None:
        """Log out: the cookie is worth nothing from now on, wherever a copy of it is."""
        if cookie is not None and self.holds(cookie):
            now = self._clock()
            self._ended = {name: end for name, end in self._ended.items() if end > now}
            name, end, _ = cookie.split(".")
            self._ended[name] = float(end)

    def _signed(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()


class Doorman:
    """Compares tokens in constant time; after a wrong one its place waits, twice as long every time.

    >>> now = [0.0]
    >>> doorman = Doorman("right", clock=lambda: now[0])
    >>> doorman.admits("wrong", "192.0.2.7"), doorman.waits("192.0.2.7")
    (False, 0.5)
    >>> now[0] = 1.0
    >>> doorman.waits("192.0.2.7"), doorman.admits("right", "192.0.2.7")
    (0.0, True)
    """

    def __init__(self, token: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._token, self._clock = token.encode(), clock
        self._key = secrets.token_bytes(16)
        self._lock = threading.Lock()
        self._wrong: dict[bytes, tuple[int, float]] = {}

    def waits(self, address: str | None) -> float:
        """Seconds until this place may try again; nothing is compared before."""
        return max(0.0, self._wrong.get(self._place(address), (0, 0.0))[1] - self._clock())

    def admits(self, token: str, address: str | None) -> bool:
        """Is it the token? Ask only when the place need not wait."""
        right = hmac.compare_digest(token.encode("utf-8", "replace"), self._token)
        place = self._place(address)
        with self._lock:
            if right:
                self._wrong.pop(place, None)
            else:
                self._remember(place)
        return right

    def _remember(self, place: bytes) -> None:
        times = self._wrong.get(place, (0, 0.0))[0] + 1
        if place not in self._wrong and len(self._wrong) >= MOST_PLACES:
            now = self._clock()
            kept = {one: entry for one, entry in self._wrong.items() if entry[1] > now}
            self._wrong = kept if len(kept) < MOST_PLACES else {}
        delay = min(FIRST_DELAY * 2 ** min(times - 1, 10), LONGEST_DELAY)
        self._wrong[place] = times, self._clock() + delay

    def _place(self, address: str | None) -> bytes:
        return hashlib.blake2b((address or "").encode(), key=self._key, digest_size=8).digest()


def at_home(address: str | None, host: str) -> bool:
    """Is this a browser on this machine that meant this machine?

    A page from elsewhere can let its own name point here; its requests then carry that name.

    >>> at_home("127.0.0.1", "localhost:8000"), at_home("127.0.0.1", "evil.example:8000"), at_home("::1", "[::1]:8000")
    (True, False, True)
    """
    name = host.rpartition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    return is_loopback(address) and is_loopback(name.lower())


def cookie_of(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The session's cookie among a request's headers."""
    for name, value in headers:
        if name == b"cookie":
            for part in value.decode("latin-1").split(";"):
                key, _, found = part.strip().partition("=")
                if key == COOKIE:
                    return found
    return None


def safe_path(text: str) -> str:
    """Where to go after the login: a path of this site, or its first page.

    >>> [safe_path(one) for one in ("/plan", "//evil.example", "https://evil.example", "/a\\\\b", "")]
    ['/plan', '/', '/', '/', '/']
    """
    fine = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if fine else "/"
