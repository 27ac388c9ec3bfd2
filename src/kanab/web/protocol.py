"""HTTP connections that end when a request takes too long to arrive, or its head is too large.

Servers wait for ever for the rest of a request, and a thousand clients that send a byte a minute
would take all their connections. Here a whole request has ten seconds.

Plain posts of messages go from the parser to the collector without ASGI in between, if the application
offers that (see ``kanab.web.collector.DIRECT``); whatever is unusual about a request takes the usual way.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from kanab.web.collector import DIRECT, DONE, Answer, Direct, short_enough

PATIENCE = 10.0
"""Seconds for a whole request to arrive."""

MOST_HEAD = 16_384
"""Bytes of address and headers."""

MOST_REQUEST = 262_144
"""Bytes of a whole request on the wire: a body in chunks of one byte takes six times its length."""


class HeadTooLargeError(Exception):
    """More bytes before the body than any browser sends."""


POST_TO = b"/v1/t"
_FRAMING = (b"content-length", b"transfer-encoding")


class _Nobody:
    """Whom uvicorn wakes when a request has ended: here nobody sleeps."""

    def set(self) -> None:
        """Wake them."""


class DirectCycle:
    """One post between request and answer, as much of uvicorn's own cycle as its protocol asks for."""

    __slots__ = ("body", "disconnected", "keep_alive", "response_complete")

    message_event = _Nobody()

    def __init__(self) -> None:
        self.body = b""
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = False


def rendered(answer: Answer, *, closes: bool) -> bytes:
    r"""An answer as it is written.

    >>> rendered(Answer(204, [(b"vary", b"origin")]), closes=False)
    b'HTTP/1.1 204 No Content\r\nvary: origin\r\n\r\n'
    """
    lines = [STATUS_LINE[answer.status]]
    for name, value in answer.headers:
        lines += (name, b": ", value, b"\r\n")
    if closes and not answer.closes:
        lines.append(b"connection: close\r\n")
    return b"".join([*lines, b"\r\n", answer.body])


_DONE = rendered(DONE, closes=False)


class PatientProtocol(HttpToolsProtocol):
    """As uvicorn's own, with an end to waiting."""

    patience = PATIENCE

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._waiting: asyncio.TimerHandle | None = None
        self._head = 0
        self._begun = self._ended = self._size = 0
        self._in_head = False
        self._until = 0.0
        self._direct: Direct | None = None if self.root_path else self.app_state.get(DIRECT)
        self._under_way: DirectCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone is there: a request must follow."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._until = 0.0
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
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
        self._head += len(url)
        if self._head > MOST_HEAD:
            raise HeadTooLargeError  # the parser answers 400
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._head += len(name) + len(value)
        if self._head > MOST_HEAD:
            raise HeadTooLargeError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """What follows is the body."""
        self._in_head = False
        if self.url == POST_TO and self._direct is not None and self._is_plain():
            self._under_way = self.cycle = DirectCycle()  # type: ignore[assignment]
        else:
            self._under_way = None
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self._under_way is not None:
            self._under_way.body += body  # not longer than was declared
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._ended = self._begun
        self._until = 0.0
        cycle = self._under_way
        if cycle is None or self._direct is None:
            super().on_message_complete()
            return
        self._under_way = None
        address = self.client[0] if self.client else None
        self._direct(self.headers, address, cycle.body, partial(self._reply, cycle))

    def _is_plain(self) -> bool:
        """Is it a post as browsers send them: of a declared length, on a connection where nothing else is under way?"""
        parser = self.parser
        if parser.get_method() != b"POST" or parser.get_http_version() != "1.1" or parser.should_upgrade():
            return False
        if not parser.should_keep_alive() or self.expect_100_continue or self.flow.write_paused:
            return False
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        lengths = [value for name, value in self.headers if name in _FRAMING]
        return len(lengths) == 1 and short_enough(lengths[0])

    def _reply(self, cycle: DirectCycle, answer: Answer) -> None:
        """Write the answer, and let the next request come."""
        cycle.response_complete = True
        if cycle.disconnected or self.transport.is_closing():
            return
        closes = not cycle.keep_alive or answer.closes
        self.transport.write(_DONE if answer is DONE and not closes else rendered(answer, closes=closes))
        if closes:
            self.transport.close()
        self.on_response_complete()

    def _wait(self) -> None:
        """Begin to wait. One timer serves many requests: it looks again where it came too early."""
        self._until = self.loop.time() + self.patience
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.patience, self._look)

    def _look(self) -> None:
        """Has a request taken too long?"""
        self._waiting = None
        if not self._until:
            return
        left = self._until - self.loop.time()
        if left > 0:
            self._waiting = self.loop.call_later(left, self._look)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
