"""HTTP connections that end when a request takes too long to arrive, or its head is too large.

Servers wait for ever for the rest of a request, and a thousand clients that send a byte a minute
would take all their connections. Here a whole request has ten seconds.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PATIENCE = 10.0
"""Seconds for a whole request to arrive."""

MOST_HEAD = 16_384
"""Bytes of address and headers."""

MOST_REQUEST = 262_144
"""Bytes of a whole request on the wire: a body in chunks of one byte takes six times its length."""


class HeadTooLargeError(Exception):
    """More bytes before the body than any browser sends."""


class PatientProtocol(HttpToolsProtocol):
    """As uvicorn's own, with an end to waiting."""

    patience = PATIENCE

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: asyncio.TimerHandle | None = None
        self._head = 0
        self._begun = self._ended = self._size = 0
        self._in_head = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone is there: a request must follow."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came. The parser keeps pieces of a header until it is whole, so they are counted here."""
        before = self._begun
        super().data_received(data)
        if self._ended == before or self._begun != before:
            return  # the request that was under way is whole, or there was none
        self._size += len(data)
        if self._size > (MOST_HEAD if self._in_head else MOST_REQUEST):
            self._give_up()

    def on_message_begin(self) -> None:
        """A request begins, perhaps not the first of the connection."""
        self._begun += 1
        self._head = self._size = 0
        self._in_head = True
        self._wait()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """A piece of the address."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What follows is the body."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._ended = self._begun
        self._stop_waiting()
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > MOST_HEAD:
            raise HeadTooLargeError  # the parser answers 400

    def _wait(self) -> None:
        self._stop_waiting()
        self._waiting = self.loop.call_later(self.patience, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
