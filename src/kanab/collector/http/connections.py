"""The fast path: uvicorn's connections with a shortcut for plain posts, and limits on time and size.

Servers wait for ever for the rest of a request; here it has ten seconds. Plain posts are recognised by their bytes and
go to the collector without parser and ASGI in between (``http/app.FAST_POST``). This subclasses a private part of
uvicorn, so ``missing_parts`` checks it first; ``http/server.py`` runs uvicorn's own protocol where something is
missing.
"""

import asyncio
import inspect
import re
from http import HTTPStatus
from operator import attrgetter
from typing import Any, NamedTuple

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kanab.collector.http.access import PostingPage
from kanab.collector.http.addresses import Proxies
from kanab.collector.http.app import CONNECTIONS, DONE, FAST_POST, PROXIES, FastPost, OpenConnections, Response
from kanab.collector.protocol.limits import (
    LAST_SECONDS,
    MOST_HEAD_BYTES,
    MOST_POST_BYTES,
    MOST_REQUEST_BYTES,
    REQUEST_SECONDS,
)

FIRST_LINE = b"POST /v1/t HTTP/1.1\r\n"

_HEAD = re.compile(rb"POST /v1/t HTTP/1\.1(?:\r\n[-!#$%&'*+.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*)+\r\n\r\n")
_MEANINGFUL = re.compile(
    rb"\r\n((?i:content-length|content-type|origin|sec-fetch-site|host|connection|expect|upgrade|transfer-encoding))"
    rb":[ \t]*([^\r]*)"
)
_DIGITS = len(str(MOST_POST_BYTES))


class PlainHead(NamedTuple):
    """The content type and the page in a head, and where the body begins and ends."""

    kind: str | None
    page: PostingPage
    start: int
    end: int


def plain_head(data: bytes) -> PlainHead | None:
    r"""Return the head of a plain post at the beginning of the data; None if it is not whole, or unusual in any way.

    Only what is beyond doubt is recognised: HTTP/1.1 to the one address, every line of the head well formed, a single
    Content-Length, nothing that changes how the body or the connection is meant. Everything else is left to a real HTTP
    parser, so this one can only be too strict.
    """
    match = _HEAD.match(data)
    if match is None or (start := match.end()) > MOST_HEAD_BYTES:
        return None
    headers: dict[bytes, bytes] = {}
    for written, value in _MEANINGFUL.findall(data, 0, start):
        name = written.lower()
        if name in headers:
            return None
        headers[name] = value
    length = headers.pop(b"content-length", b"")
    kind = headers.pop(b"content-type", None)
    page = PostingPage(headers.pop(b"origin", None), headers.pop(b"sec-fetch-site", None), headers.pop(b"host", None))
    if headers and (headers.pop(b"connection", b"keep-alive").lower() != b"keep-alive" or headers):
        return None
    if not length.isdigit() or len(length) > _DIGITS or (size := int(length)) > MOST_POST_BYTES:
        return None
    return PlainHead(None if kind is None else kind.decode("latin-1"), page, start, start + size)


class HeadTooLargeError(Exception):
    """More bytes before the body than any browser sends."""


class FastCycle:
    """A plain post between request and response: as much of uvicorn's own cycle as its protocol uses."""

    __slots__ = ("disconnected", "keep_alive", "response_complete")

    message_event = asyncio.Event()  # which uvicorn sets when a request has ended; here nothing waits for it

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
    "app_state", "client", "cycle", "flow.write_paused", "headers", "loop", "pipeline", "root_path",
    "server_state.total_requests", "timeout_keep_alive", "transport",
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
        connection.cycle = cycle = FastCycle()
        cycle.response_complete = False
        connection.shutdown()
        connection.connection_lost(None)
        if cycle.keep_alive or not cycle.disconnected:
            names.append("cycle")
    except Exception as problem:  # whatever it is: uvicorn's own protocol serves without any of this
        names.append(f"working connection ({type(problem).__name__})")
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


def render(response: Response, *, closes: bool) -> bytes:
    r"""Return a response as bytes of HTTP/1.1."""
    lines = [_STATUS_LINES[response.status]]
    for name, value in response.headers:
        lines += (name, b": ", value, b"\r\n")
    if closes and not response.closes:
        lines.append(b"connection: close\r\n")
    return b"".join([*lines, b"\r\n", response.body])


_DONE = render(DONE, closes=False)


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's own protocol, with the fast path and with limits on time and size."""

    request_timeout = REQUEST_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timer: asyncio.TimerHandle | None = None
        self._deadline = 0.0
        self._begun = self._ended = 0  # requests
        self._size = self._head_size = 0  # bytes of the request under way
        self._in_head = False
        self._fast_post: FastPost | None = None if self.root_path else self.app_state.get(FAST_POST)
        self._proxies: Proxies | None = self.app_state.get(PROXIES) or None  # most have none, and are not asked
        self._connections: OpenConnections | None = self.app_state.get(CONNECTIONS)
        self._counted = False
        self._visitor: str | None = None  # whom a proxy speaks for, while the body of a request is still to come
        self._post = FastCycle()
        self._stopping = False
        self._arriving: tuple[PlainHead, bytes] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, unless its sender has too many connections."""
        super().connection_made(transport)
        self._wait(self.request_timeout)
        if self._connections is not None:
            self._counted = self._connections.begin(self._address)
            if not self._counted:
                self._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._deadline = 0.0
        self._arriving = None
        if self._visitor is not None:
            self._end_body()
        if self._connections is not None and self._counted:
            self._connections.end(self._address)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a plain post, the rest of one, or give the bytes to the parser."""
        if self._arriving is not None:
            head, before = self._arriving
            self._take_post(head, before + data)
        elif self._may_be_plain(data) and (plain := plain_head(data)) is not None:
            self._unset_keepalive_if_required()
            self._take_post(plain, data)
        else:
            self._parse(data)

    @property
    def _address(self) -> str | None:
        return self.client[0] if self.client else None

    def _begin_body(self, visitor: str | None) -> None:
        """Begin to wait for a body that a proxy passes on, unless its visitor has too many of them under way."""
        if self._connections is None or visitor == self._address:  # whose connections are counted
            return
        if self._connections.begin(visitor):
            self._visitor = visitor
        else:
            self._give_up()

    def _end_body(self) -> None:
        if self._connections is not None and self._visitor is not None:
            self._connections.end(self._visitor)
            self._visitor = None

    # ── plain posts ────────────────────────────────────────────────────────────────────────────

    def _may_be_plain(self, data: bytes) -> bool:
        free = self._fast_post is not None and not self.flow.write_paused
        return free and data.startswith(FIRST_LINE) and self._is_idle()

    def _is_idle(self) -> bool:
        """Return whether no request is under way on this connection."""
        return self._begun == self._ended and (self.cycle is None or self.cycle.response_complete)

    def _take_post(self, head: PlainHead, data: bytes) -> None:
        if len(data) < head.end:
            if self._arriving is None:
                self._wait(self.request_timeout)
                if self._proxies is not None:
                    self._begin_body(self._proxies.visitor_in_head(self._address, data[: head.start]))
            self._arriving = head, data
            return
        self._arriving = None
        if self._visitor is not None:
            self._end_body()
        if len(data) > head.end or self._fast_post is None:
            self._parse(data)  # another request follows without waiting for the response
        else:
            self._deadline = 0.0
            self._post.response_complete = False
            self.cycle = self._post  # type: ignore[assignment]
            address = self._address
            if self._proxies is not None:
                address = self._proxies.visitor_in_head(address, data[: head.start])
            self._fast_post(head.kind, head.page, address, data[head.start :], self._reply)

    def _reply(self, response: Response) -> None:
        """Write the response, and let the next request come."""
        post = self._post
        post.response_complete = True
        if post.disconnected or self.transport.is_closing():
            return
        closes = not post.keep_alive or response.closes
        self.transport.write(_DONE if response is DONE and not closes else render(response, closes=closes))
        if closes:
            self.transport.close()
        elif self.pipeline:
            self.on_response_complete()
        else:
            self.server_state.total_requests += 1
            self._wait(self.timeout_keep_alive)

    # ── everything else ────────────────────────────────────────────────────────────────────────

    def _parse(self, data: bytes) -> None:
        """Give bytes to the parser, and count them: it keeps pieces of a header until that is whole."""
        before = self._begun
        super().data_received(data)
        if self._ended == before or self._begun != before:  # the request under way is whole, or there was none
            if not self._deadline and self._is_idle():
                self._wait(self.request_timeout)  # empty lines begin no request, and must not keep a connection
            return
        self._size += len(data)
        if self._size > (MOST_HEAD_BYTES if self._in_head else MOST_REQUEST_BYTES):
            self._give_up()

    def on_message_begin(self) -> None:
        """Begin a request, perhaps not the first of the connection."""
        self._begun += 1
        self._size = self._head_size = 0
        self._in_head = True
        self._wait(self.request_timeout)
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a piece of the address."""
        self._head_size += len(url)
        if self._head_size > MOST_HEAD_BYTES:
            raise HeadTooLargeError  # the parser answers 400
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._head_size += len(name) + len(value)
        if self._head_size > MOST_HEAD_BYTES:
            raise HeadTooLargeError
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin the body."""
        self._in_head = False
        if self._proxies is not None:
            self._begin_body(self._proxies.visitor_of(self._address, self.headers))
        super().on_headers_complete()
        if self._stopping and self.cycle is not None:
            self.cycle.keep_alive = False

    def on_message_complete(self) -> None:
        """End the request."""
        self._ended = self._begun
        self._end_body()
        self._deadline = 0.0
        super().on_message_complete()

    # ── the end ─────────────────────────────────────────────────────────────────────────

    def shutdown(self) -> None:
        """Answer what is under way, or on its way, as the last request: a client may send while we hang up."""
        self._stopping = True
        self._post.keep_alive = False
        if not self._is_idle() and self.cycle is not None:
            self.cycle.keep_alive = False
        self.loop.call_later(LAST_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Close the connection unless an answer is still to come, which closes it."""
        if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
            self.transport.close()

    # ── time limits ─────────────────────────────────────────────────────────────────────

    def _wait(self, seconds: float) -> None:
        """Begin to wait. One timer serves many requests: it is set again where it came too early."""
        self._deadline = self.loop.time() + seconds
        if self._timer is None:
            self._timer = self.loop.call_later(self.request_timeout, self._check_deadline)

    def _check_deadline(self) -> None:
        """Give the connection up if a request, or the next one, has taken too long."""
        self._timer = None
        if not self._deadline:
            return
        left = self._deadline - self.loop.time()
        if left > 0:
            self._timer = self.loop.call_later(min(left, self.request_timeout), self._check_deadline)
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.abort()
