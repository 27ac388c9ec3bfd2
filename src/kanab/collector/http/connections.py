"""The fast path: uvicorn's connections with a shortcut for plain posts, and limits on time and size.

Servers wait for ever for the rest of a request, and a thousand clients that send a byte a minute
would take all their connections. Here a whole request has ten seconds.

Plain posts of messages are recognised by their bytes and go to the collector without parser and ASGI in between,
if the application offers that (see ``kanab.collector.http.app.DIRECT``); every other request goes through uvicorn.

All of this subclasses a private part of uvicorn, so ``missing_parts`` checks it first; ``http/server.py`` runs
uvicorn's own protocol where something is missing.
"""

from __future__ import annotations

import asyncio
import inspect
from http import HTTPStatus
from operator import attrgetter
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kanab.collector.http.app import DIRECT, DONE, Answer, Direct
from kanab.collector.http.fast_post import FIRST_LINE, MOST_HEAD, PlainHead, plain_head

PATIENCE = 10.0
"""Seconds for a whole request to arrive."""

MOST_REQUEST = 262_144
"""Bytes of a whole request on the wire: a body in chunks of one byte takes six times its length."""


class HeadTooLargeError(Exception):
    """More bytes before the body than any browser sends."""


class _Nobody:
    """Whom uvicorn wakes when a request has ended: here nobody sleeps."""

    def set(self) -> None:
        """Wake them."""


class DirectCycle:
    """A plain post between request and answer, as much of uvicorn's own cycle as its protocol asks for."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    message_event = _Nobody()

    def __init__(self) -> None:
        self.disconnected = False
        self.keep_alive = True
        self.response_complete = True


_METHODS = {
    "connection_made": 1, "connection_lost": 1, "data_received": 1, "on_message_begin": 0, "on_url": 1, "on_header": 2,
    "on_headers_complete": 0, "on_message_complete": 0, "on_response_complete": 0, "_unset_keepalive_if_required": 0,
    "shutdown": 0,
}  # fmt: skip
"""The methods of uvicorn's protocol that the fast path overrides or calls, with the number of their arguments."""

_ATTRIBUTES = (
    "app_state", "client", "cycle", "flow.write_paused", "loop", "pipeline", "root_path", "server_state.total_requests",
    "timeout_keep_alive", "transport",
)  # fmt: skip
"""The attributes of a connection that the fast path reads or sets."""


class _SilentTransport(asyncio.Transport):
    """A connection to nobody."""

    def close(self) -> None:
        """Do nothing."""


async def _no_application(_scope: Any, _receive: Any, _send: Any) -> None: ...


def missing_parts(protocol: type[Any] = HttpToolsProtocol) -> list[str]:
    """Return the names of what the fast path uses of uvicorn's protocol and this version of uvicorn lacks."""
    names = [name for name, count in _METHODS.items() if not _takes(getattr(protocol, name, None), count)]
    try:
        config = uvicorn.Config(_no_application, http=protocol, ws="none", lifespan="off", log_config=None)
        state = uvicorn.Server(config).server_state
        connection = protocol(config=config, server_state=state, app_state={}, _loop=object())
        connection.connection_made(_SilentTransport())
        names += [name for name in _ATTRIBUTES if not _has(connection, name)]
        connection.cycle = cycle = DirectCycle()
        cycle.response_complete = False
        connection.shutdown()
        connection.connection_lost(None)
        if cycle.keep_alive or not cycle.disconnected:
            names.append("cycle")
    except Exception as problem:  # whatever it is: uvicorn's own protocol serves without any of this
        names.append(type(problem).__name__)
    return names


def _takes(method: Any, count: int) -> bool:
    """Return whether a method can be called with ``count`` positional arguments after self."""
    try:
        inspect.signature(method).bind(*[None] * (count + 1))
    except (TypeError, ValueError):
        return False
    return True


def _has(connection: Any, path: str) -> bool:
    try:
        attrgetter(path)(connection)
    except AttributeError:
        return False
    return True


_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def rendered(answer: Answer, *, closes: bool) -> bytes:
    r"""Return an answer as bytes of HTTP/1.1.

    >>> rendered(Answer(204, [(b"vary", b"origin")]), closes=False)
    b'HTTP/1.1 204 No Content\r\nvary: origin\r\n\r\n'
    """
    lines = [_STATUS_LINES[answer.status]]
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
        self._post = DirectCycle()
        self._arriving: tuple[PlainHead, bytes] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Someone is there: a request must follow."""
        super().connection_made(transport)
        self._wait(self.patience)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._until = 0.0
        self._arriving = None
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes came: a plain post, the rest of one, or something for the parser."""
        if self._arriving is not None:
            head, before = self._arriving
            self._arrived(head, before + data)
        elif data.startswith(FIRST_LINE) and self._is_free() and (found := plain_head(data)) is not None:
            self._unset_keepalive_if_required()
            self._arrived(found, data)
        else:
            self._parse(data)

    # ── plain posts ────────────────────────────────────────────────────────────────────────────

    def _is_free(self) -> bool:
        """May a post be answered at once?"""
        return self._direct is not None and not self.flow.write_paused and self._is_idle()

    def _is_idle(self) -> bool:
        """Is no request under way on this connection?"""
        return self._begun == self._ended and (self.cycle is None or self.cycle.response_complete)

    def _arrived(self, head: PlainHead, data: bytes) -> None:
        if len(data) < head.end:
            if self._arriving is None:
                self._wait(self.patience)
            self._arriving = head, data
            return
        self._arriving = None
        if len(data) > head.end or self._direct is None:
            self._parse(data)  # something follows without waiting for the answer
        else:
            self._until = 0.0
            self._post.response_complete = False
            self.cycle = self._post  # type: ignore[assignment]
            address = self.client[0] if self.client else None
            self._direct(head.kind, head.origin, address, data[head.start :], self._reply)

    def _reply(self, answer: Answer) -> None:
        """Write the answer, and let the next request come."""
        post = self._post
        post.response_complete = True
        if post.disconnected or self.transport.is_closing():
            return
        closes = not post.keep_alive or answer.closes
        self.transport.write(_DONE if answer is DONE and not closes else rendered(answer, closes=closes))
        if closes:
            self.transport.close()
        elif self.pipeline:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._wait(self.timeout_keep_alive)

    # ── everything else ────────────────────────────────────────────────────────────────────────

    def _parse(self, data: bytes) -> None:
        """For the parser. It keeps pieces of a header until it is whole, so they are counted here."""
        before = self._begun
        super().data_received(data)
        if self._ended == before or self._begun != before:  # the request under way is whole, or there was none
            if not self._until and self._is_idle():
                self._wait(self.patience)  # empty lines begin no request, and must not keep a connection
            return
        self._size += len(data)
        if self._size > (MOST_HEAD if self._in_head else MOST_REQUEST):
            self._give_up()

    def on_message_begin(self) -> None:
        """A request begins, perhaps not the first of the connection."""
        self._begun += 1
        self._head = self._size = 0
        self._in_head = True
        self._wait(self.patience)
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
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._ended = self._begun
        self._until = 0.0
        super().on_message_complete()

    # ── the end of waiting ─────────────────────────────────────────────────────────────────────

    def _wait(self, seconds: float) -> None:
        """Begin to wait. One timer serves many requests: it looks again where it came too early."""
        self._until = self.loop.time() + seconds
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.patience, self._look)

    def _look(self) -> None:
        """Has a request taken too long, or the next one?"""
        self._waiting = None
        if not self._until:
            return
        left = self._until - self.loop.time()
        if left > 0:
            self._waiting = self.loop.call_later(min(left, self.patience), self._look)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
