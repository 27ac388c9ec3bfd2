"""POST /v1/t and what clients need beside it, as a plain ASGI application: no framework on the hot path.

Of a request nothing is read but its body, Content-Length and Content-Type and, for a moment, Origin, Sec-Fetch-Site,
Host, the token and the address it came from. Nothing is logged, and no response repeats what was sent.
"""

import asyncio
import secrets
import time
from array import array
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

from kanab.collector.http.access import Access, PostingPage
from kanab.collector.http.addresses import NOBODY, Proxies, place_hash
from kanab.collector.http.metrics import CONTENT_TYPE
from kanab.collector.http.service import Service
from kanab.collector.protocol.config import config_part
from kanab.collector.protocol.encoding import decode, encode
from kanab.collector.protocol.limits import (
    BURST_POSTS,
    MOST_CONNECTIONS,
    MOST_POST_BYTES,
    POSTS_PER_DAY,
    POSTS_PER_SECOND,
    RETRY_AFTER_SECONDS,
)
from kanab.collector.protocol.reasons import Reason, refused
from kanab.collector.readiness import posts_answer, ready_answer
from kanab.collector.stores.store import PostOutcome
from kanab.errors import MessageError, StoreError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_JSON = (b"content-type", b"application/json")
_METRICS = (b"content-type", CONTENT_TYPE.encode())
_SCRIPT = (b"content-type", b"text/javascript; charset=utf-8")
_SECURITY: Headers = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_FRESH = (b"cache-control", b"no-cache")
_PUBLIC = (b"access-control-allow-origin", b"*")
_FOR_AN_HOUR = (b"cache-control", b"public, max-age=3600")
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")
_DAY = 86_400
_CLOSE = (b"connection", b"close")
_BUSY = Reason.BUSY.status
_RETRY = (b"retry-after", b"%d" % RETRY_AFTER_SECONDS)
_READABLE = (b"access-control-expose-headers", b"kanab-answer, kanab-epoch")
_ANSWERS = {reason: (b"kanab-answer", reason.value.encode()) for reason in Reason}

FAST_POST = "kanab.fast_post"
"""Under this name the lifespan's state holds ``Collector.fast_post``, for ``http/connections``."""

PROXIES = "kanab.proxies"
"""And under this one whose word is taken for whom they speak."""

CONNECTIONS = "kanab.connections"
"""And under this one the `OpenConnections`."""


class Response(NamedTuple):
    """The response to a request."""

    status: int
    headers: Headers
    body: bytes = b""

    @property
    def closes(self) -> bool:
        """Whether it is the last one on its connection."""
        return _CLOSE in self.headers


_COUNTED = (b"kanab-answer", b"counted")
DONE = Response(204, [*_SECURITY, _COUNTED])
"""The response to nearly every post."""

Reply = Callable[[Response], None]
FastPost = Callable[[str | None, PostingPage, str | None, bytes, Reply], None]
"""Takes content type, page, address and body of a post, and the function that writes the response."""


BUCKETS = 65_536
"""Buckets in memory, for all addresses together: two that share one by chance wait for each other, which only shows
when one of them floods. So nobody can make the table grow, nor have it searched or forgotten."""


class Buckets:
    """Lets so many posts a second through from each address, found by a keyed hash; trusted networks have no limit."""

    def __init__(
        self,
        rate: float = POSTS_PER_SECOND,
        burst: float = BURST_POSTS,
        clock: Callable[[], float] = time.monotonic,
        proxies: Proxies = NOBODY,
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._key = secrets.token_bytes(16)
        self._tokens = array("d", [burst]) * BUCKETS
        self._since = array("d", [0.0]) * BUCKETS
        self._proxies = proxies

    def take(self, address: str | None) -> bool:
        """Take a token of an address, and return whether there was one: whether it may post once more."""
        if self._proxies.may_flood(address):
            return True
        now = self._clock()
        bucket = int.from_bytes(place_hash(address, self._key), "big") % BUCKETS
        tokens = min(self._burst, self._tokens[bucket] + (now - self._since[bucket]) * self._rate)
        self._tokens[bucket] = tokens - 1 if tokens >= 1 else tokens
        self._since[bucket] = now
        return tokens >= 1


class OpenConnections:
    """Counts what each place has open, by a keyed hash of it: connections, and through a proxy posts on the way."""

    def __init__(self, most: int = MOST_CONNECTIONS, proxies: Proxies = NOBODY) -> None:
        self._most, self._proxies = most, proxies
        self._key = secrets.token_bytes(16)
        self._open: dict[bytes, int] = {}

    def begin(self, address: str | None) -> bool:
        """Count a connection, and return whether there may be one more."""
        if self._proxies.may_flood(address):
            return True
        place = place_hash(address, self._key)
        count = self._open.get(place, 0)
        if count < self._most:
            self._open[place] = count + 1
        return count < self._most

    def end(self, address: str | None) -> None:
        """Forget a connection that was counted."""
        if self._proxies.may_flood(address):
            return
        place = place_hash(address, self._key)
        self._open[place] -= 1
        if not self._open[place]:
            del self._open[place]


class Collector:
    """The application: mount it in another one, or serve it alone.

    Where another application owns the lifespan, call ``service.start()`` and ``service.stop()`` there.
    """

    def __init__(
        self,
        service: Service,
        *,
        access: Access | None = None,
        buckets: Buckets | None = None,
        daily: Buckets | None = None,
    ) -> None:
        self.service = service
        self._access = access or Access()
        proxies = self._access.proxies
        self._buckets = buckets or Buckets(proxies=proxies)
        self._daily = daily or Buckets(POSTS_PER_DAY / _DAY, POSTS_PER_DAY, proxies=proxies)
        self._script = (files("kanab") / "static" / "kanab.js").read_bytes()
        self._gathered: list[tuple[str | None, PostingPage, str | None, bytes, Reply]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if path == "/v1/t":
                await self._post(scope, receive, send)
            else:
                await self._get(path, scope, send)
        elif scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    # ── messages ───────────────────────────────────────────────────────────────────────────────

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        kind = headers.get(b"content-type")
        allowed = self._cors(PostingPage(*map(headers.get, (b"origin", b"sec-fetch-site", b"host"))))
        if scope["method"] == "OPTIONS" and allowed:
            more = [(b"access-control-allow-methods", b"POST"), (b"access-control-allow-headers", b"content-type")]
            await _answer(send, 204, b"", [*allowed, *more, (b"access-control-max-age", b"86400")])
            return
        if scope["method"] != "POST":
            await _answer(send, 405, b"use POST\n", [_TEXT, _ANSWERS[Reason.FORMAT], (b"allow", b"POST")])
            return
        try:
            self._admit(allowed, self._access.visitor(scope))
            body = await _body(receive, headers.get(b"content-length"))
            dropped = await self.service.take(body, None if kind is None else kind.decode("latin-1"))
        except _DisconnectedError:
            return
        except Exception as problem:
            response = self._refused(problem, allowed)
        else:
            response = _done(allowed, dropped)
        await _send(send, response)

    def fast_post(self, kind: str | None, page: PostingPage, address: str | None, body: bytes, reply: Reply) -> None:
        """Take a whole POST without ASGI, which would cost as much as all the rest; ``reply`` must not raise."""
        self._gathered.append((kind, page, address, body, reply))
        if len(self._gathered) == 1:
            asyncio.get_running_loop().call_soon(self._begin_all)

    def _begin_all(self) -> None:
        """Begin every post that this turn of the loop brought.

        Were each begun as it came, the writer would wake for the first one, take Python's lock between two reads, and
        commit a handful; a commit costs as much as dozens of posts.
        """
        gathered, self._gathered = self._gathered, []
        now = self.service.now()
        for kind, page, address, body, reply in gathered:
            allowed = self._cors(page)
            try:
                self._admit(allowed, address)
                dropped = self.service.begin(body, kind, now, partial(self._ended, allowed, reply))
            except Exception as problem:
                reply(self._refused(problem, allowed))
            else:
                if dropped is not None:
                    reply(_done(allowed, dropped))

    def _ended(self, allowed: Headers | None, reply: Reply, outcome: PostOutcome | StoreError) -> None:
        try:
            dropped = self.service.end(outcome)
        except Exception as problem:
            reply(self._refused(problem, allowed))
        else:
            reply(_done(allowed, dropped))

    def _admit(self, allowed: Headers | None, address: str | None) -> None:
        """Check that posts from this page and this address are allowed; raises `MessageError` if not."""
        if allowed is None:
            raise refused(Reason.ORIGIN, "posts from this page are not taken")
        if not (self._buckets.take(address) and self._daily.take(address)):
            raise refused(Reason.RATE, "too many posts from one place")

    def _refused(self, problem: Exception, allowed: Headers | None) -> Response:
        """Return the response instead of a 204. Only our own words about messages are passed on."""
        if isinstance(problem, MessageError):
            self.service.refuse(problem.reason)
            headers = [_TEXT, _ANSWERS[Reason(problem.reason)], *(allowed or ())]
            if problem.status == _BUSY:
                headers.append(_RETRY)
            if problem.reason == Reason.EPOCH:
                headers.append((b"kanab-epoch", self.service.epoch.encode()))
            return _response(problem.status, f"{problem}\n".encode(), headers)
        # the store, or a mistake of this program, whose words might repeat what was sent
        self.service.refuse(Reason.BUSY)
        more = [_TEXT, _ANSWERS[Reason.BUSY], _RETRY, *(allowed or ())]
        return _response(_BUSY, b"the collector cannot write at the moment\n", more)

    def _cors(self, page: PostingPage) -> Headers | None:
        """Return the headers that let a page read the response; None for a page that may not post."""
        origins = self.service.origins
        if page.origin in origins:
            return [(b"access-control-allow-origin", page.origin), _READABLE, (b"vary", b"origin")]
        unnamed = bool(origins) and page.origin is not None
        return None if unnamed or page.is_foreign else []

    # ── what may be read ───────────────────────────────────────────────────────────────────────

    def _config(self, path: str, scope: Scope) -> Response:
        """Return the config, or its part about some experiments; under the name of its digest it is kept for ever."""
        service, names = self.service, _experiments(scope)
        if path == "/v1/config.json":
            known = service.plan.experiment_names
            only = "" if names is None else f"?experiments={','.join(encode(name) for name in known if name in names)}"
            place = f"{scope.get('root_path', '')}/v1/config/{service.digest}.json{only}".encode()
            return _response(307, b"", [(b"location", place), _FRESH, _PUBLIC])
        if path.removeprefix("/v1/config/").removesuffix(".json") != service.digest:
            return _response(404, b"there is no such config\n", [_TEXT, _FRESH, _PUBLIC])
        return _response(
            200, service.config if names is None else config_part(service.config, names), [_JSON, _FOR_EVER, _PUBLIC]
        )

    async def _get(self, path: str, scope: Scope, send: Send) -> None:
        """Serve script, config and health to everybody; numbers, however coarse, to this machine or with the token."""
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, b"use GET\n", [_TEXT, (b"allow", b"GET, HEAD")])
            return
        service = self.service
        if path == "/v1/config.json" or path.startswith("/v1/config/"):
            await _send(send, self._config(path, scope))
        elif path == "/kanab.js":
            await _answer(send, 200, self._script, [_SCRIPT, _FOR_AN_HOUR, _PUBLIC])
        elif path == "/livez":
            await _answer(send, 200, b"ok\n", [_TEXT, _FRESH])
        elif path in ("/readyz", "/healthz", "/readyz/posts"):
            answer = posts_answer if path == "/readyz/posts" else ready_answer
            status, lines = answer(service.readiness)
            await _answer(send, status, lines.encode(), [_TEXT, _FRESH])
        elif path == "/metrics":
            refusal = self._access.refused(scope)
            if refusal is None:
                await _answer(send, 200, service.metrics().encode(), [_METRICS, _FRESH])
            else:
                sentence = f"{refusal.says}. {refusal.remedy}\n".encode()
                await _answer(send, refusal.status, sentence, [_TEXT, _FRESH, *refusal.headers])
        else:
            await _answer(send, 404, b"there is nothing here\n", [_TEXT])

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.service.start()
                connections, proxies = OpenConnections(proxies=self._access.proxies), self._access.proxies
                scope.get("state", {}).update({FAST_POST: self.fast_post, PROXIES: proxies, CONNECTIONS: connections})
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


class _DisconnectedError(Exception):
    """The sender disconnected before the body was whole."""


def _experiments(scope: Scope) -> set[str] | None:
    """Return the experiments that a query names (`experiments=checkout,logo`); None: it does not, all are meant."""
    for part in scope["query_string"].decode("ascii", "replace").split("&"):
        name, _, value = part.partition("=")
        if name == "experiments":
            return {*map(decode, value.split(","))}
    return None


def _too_long() -> MessageError:
    return refused(Reason.SIZE, f"a post has at most {MOST_POST_BYTES:,} bytes")


async def _body(receive: Receive, length: bytes | None) -> bytes:
    """Read the whole body; raises `MessageError` if it is too long."""
    if length is not None and not (length.isdigit() and len(length) <= 9 and int(length) <= MOST_POST_BYTES):
        raise _too_long()
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _DisconnectedError
        body += message.get("body", b"")
        if len(body) > MOST_POST_BYTES:
            raise _too_long()
    if message["type"] == "http.disconnect":
        raise _DisconnectedError
    return body


def _done(allowed: Headers | None, dropped: Reason | None) -> Response:
    """Return the response to a post that is counted, or dropped for a reason."""
    if dropped is None and not allowed:
        return DONE
    return Response(204, [*_SECURITY, _COUNTED if dropped is None else _ANSWERS[dropped], *(allowed or ())])


def _response(status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Response:
    more = [*_SECURITY, *headers]
    if status != 204:
        more.append((b"content-length", str(len(body)).encode()))
    if status in (413, 429):
        more.append(_CLOSE)
    return Response(status, more, body)


async def _answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    await _send(send, _response(status, body, headers))


async def _send(send: Send, response: Response) -> None:
    """Send new messages and a new list every time: whoever passes them on may change them."""
    await send({"type": "http.response.start", "status": response.status, "headers": [*response.headers]})
    await send({"type": "http.response.body", "body": response.body})
