"""HTTP to a collector: kept-alive connections, nothing in the headers that tells who asks."""

from __future__ import annotations

import http.client
import weakref
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol
from urllib.parse import urljoin, urlsplit

from kanab.client.delivery import PostAnswer, reset_in_children
from kanab.collector.protocol.encoding import encode
from kanab.errors import KanabError

PATIENCE = 10.0
"""Seconds; an answer that takes longer counts as none."""

_MOST = 2_000_000
_REDIRECTS = (301, 302, 303, 307, 308)
_TEXT = {"Content-Type": "text/plain"}


class Transport(Protocol):
    """What carries posts to a collector, and configs back."""

    def post(self, body: bytes) -> PostAnswer:
        """Send a post and return the answer; raise any exception if none came."""

    def config(self) -> bytes:
        """Fetch the collector's config; raise any exception if that fails."""

    def close(self) -> None:
        """Close connections; the transport may be used again."""


class Http:
    """The collector at an address; safe to use from several threads, each with a connection while it asks.

    ``experiments`` are those that its config is about, by default all.
    """

    def __init__(self, url: str, *, experiments: Collection[str] | None = None, patience: float = PATIENCE) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise KanabError("that is no address of a collector", "For example https://collect.example.com/.")
        self._base = parts.path.rstrip("/") + "/"
        self._scheme, self._host, self._port = parts.scheme, parts.hostname, parts.port
        self._only = "" if experiments is None else f"?experiments={','.join(map(encode, experiments))}"
        self._patience = patience
        self._named: tuple[str, bytes] | None = None
        self._idle: list[http.client.HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)
        reset_in_children(self.close)  # connections are the parent's

    def post(self, body: bytes) -> PostAnswer:
        """Send a post, as text."""
        status, headers, _ = self._ask("POST", f"{self._base}v1/t", body)
        wait = headers.get("Retry-After", "")
        seconds = float(wait) if wait.isdigit() and len(wait) < 6 else 0.0
        return PostAnswer(status, seconds, headers.get("kanab-answer", ""), headers.get("kanab-epoch"))

    def config(self) -> bytes:
        """Fetch the config, whose address holds its digest: one that is known is not fetched again."""
        path = f"{self._base}v1/config.json{self._only}"
        status, headers, body = self._ask("GET", path)
        if status in _REDIRECTS:
            place = urlsplit(urljoin(path, headers.get("Location", "")))._replace(scheme="", netloc="").geturl()
            if self._named is not None and self._named[0] == place:
                return self._named[1]
            status, _, body = self._ask("GET", place)
            if status == http.client.OK:
                self._named = place, body
        if status != http.client.OK:
            raise KanabError("the collector gave no config", "Check its address.")
        return body

    def close(self) -> None:
        """Close all connections."""
        _close(self._idle)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one request; once more on a new connection if the old one had been closed meanwhile."""
        with suppress(IndexError):
            idle = self._idle.pop()
            with suppress(ConnectionError, http.client.HTTPException):
                return self._ask_on(idle, method, path, body)
        kind = http.client.HTTPSConnection if self._scheme == "https" else http.client.HTTPConnection
        return self._ask_on(kind(self._host, self._port, timeout=self._patience), method, path, body)

    def _ask_on(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        keep = False
        try:
            connection.request(method, path, body, _TEXT if body is not None else {})
            answer = connection.getresponse()
            result = answer.status, answer.headers, answer.read(_MOST)
            keep = answer.isclosed() and not answer.will_close  # all of it was read, and the next may follow
        finally:
            if keep:
                self._idle.append(connection)
            else:
                connection.close()
        return result


def _close(idle: list[http.client.HTTPConnection]) -> None:
    while idle:
        idle.pop().close()
