"""Sessions of readers who gave the token: signed cookies, and where a login leads."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable

COOKIE = "kanab_session"
SESSION_SECONDS = 12 * 3600
"""Seconds that a login lasts."""


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
