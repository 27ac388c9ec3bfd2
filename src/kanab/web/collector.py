"""POST /v1/t and what clients need beside it, as a plain ASGI application: no framework on the hot path.

Of a request nothing is read but its body, Content-Length and Content-Type and, for a moment, Origin, the
token and the address it came from. Nothing is logged, and no answer repeats what was sent.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from importlib.resources import files
from typing import Any

from kanab.collect.reasons import Reason
from kanab.collect.wire import MOST_BYTES
from kanab.errors import MessageError
from kanab.web.limits import Buckets, is_loopback
from kanab.web.service import Service

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
_JSON = (b"content-type", b"application/json")
_SCRIPT = (b"content-type", b"text/javascript; charset=utf-8")
_SAFE: Headers = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_FRESH = (b"cache-control", b"no-cache")
_FOR_AN_HOUR = (b"cache-control", b"public, max-age=3600")
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")
_EMPTY: Message = {"type": "http.response.body", "body": b""}


class Collector:
    """The application: mount it in another one, or serve it alone.

    Its lifespan starts and stops the service; where another application owns the lifespan, call
    ``service.start()`` and ``service.stop()`` there.
    """

    def __init__(self, service: Service, *, token: str | None = None, buckets: Buckets | None = None) -> None:
        self.service = service
        self._token = None if token is None else token.encode()
        self._buckets = buckets or Buckets()
        self._script = (files("kanab") / "static" / "kanab.js").read_bytes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            if path == "/v1/t":
                await self._post(scope, receive, send)
            else:
                await self._get(path, scope, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    # ── messages ───────────────────────────────────────────────────────────────────────────────

    async def _post(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = kind = origin = None
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = value
            elif name == b"content-type":
                kind = value
            elif name == b"origin":
                origin = value
        allowed = self._cors(origin)
        if scope["method"] != "POST":
            await self._not_post(scope["method"], allowed, send)
            return
        try:
            if allowed is None:
                raise _refusal(Reason.ORIGIN, "posts from this page are not taken")
            if not self._buckets.take(_address(scope)):
                raise _refusal(Reason.RATE, "too many posts from one place")
            body = await _body(receive, length)
            await self.service.take(body, None if kind is None else kind.decode("latin-1"))
        except MessageError as problem:
            self.service.drops.add(problem.reason)
            await _answer(send, problem.status, f"{problem}\n".encode(), [_TEXT, *(allowed or ())])
        except _GoneError:
            return
        except Exception:  # the store, or a mistake of this program, whose words might repeat what was sent
            self.service.drops.add(Reason.BUSY)
            more = [_TEXT, (b"retry-after", b"2"), *(allowed or ())]
            await _answer(send, 503, b"the collector cannot write at the moment\n", more)
        else:
            await send({"type": "http.response.start", "status": 204, "headers": [*_SAFE, *(allowed or ())]})
            await send(_EMPTY)

    async def _not_post(self, method: str, allowed: Headers | None, send: Send) -> None:
        if method == "OPTIONS" and allowed:
            more = [(b"access-control-allow-methods", b"POST"), (b"access-control-allow-headers", b"content-type")]
            await _answer(send, 204, b"", [*allowed, *more, (b"access-control-max-age", b"86400")])
        else:
            await _answer(send, 405, b"use POST\n", [_TEXT, (b"allow", b"POST")])

    def _cors(self, origin: bytes | None) -> Headers | None:
        """The headers that let a page read the answer; None for a page that the plan does not name."""
        origins = self.service.origins
        if origin is None or not origins:
            return []
        if origin not in origins:
            return None
        return [(b"access-control-allow-origin", origin), (b"vary", b"origin")]

    # ── what may be read ───────────────────────────────────────────────────────────────────────

    async def _get(self, path: str, scope: Scope, send: Send) -> None:
        """The client, config and health for everybody; numbers, however coarse, for this machine or with the token."""
        if scope["method"] not in ("GET", "HEAD"):
            await _answer(send, 405, b"use GET\n", [_TEXT, (b"allow", b"GET, HEAD")])
            return
        service = self.service
        public: Headers = [(b"access-control-allow-origin", b"*")]
        if path == "/v1/config.json":
            place = f"{scope.get('root_path', '')}/v1/config/{service.digest}.json".encode()
            await _answer(send, 307, b"", [(b"location", place), _FRESH, *public])
        elif path.startswith("/v1/config/"):
            config = service.config_named(path.removeprefix("/v1/config/").removesuffix(".json"))
            if config is None:
                await _answer(send, 404, b"there is no such config\n", [_TEXT, _FRESH, *public])
            else:
                await _answer(send, 200, config, [_JSON, _FOR_EVER, *public])
        elif path == "/kanab.js":
            await _answer(send, 200, self._script, [_SCRIPT, _FOR_AN_HOUR, *public])
        elif path == "/healthz":
            fine = service.healthy
            await _answer(send, 200 if fine else 503, b"ok\n" if fine else b"the store cannot be written\n", [_TEXT])
        elif path == "/metrics":
            if self._may_read(scope):
                await _answer(send, 200, service.metrics().encode(), [_TEXT, _FRESH])
            else:
                await _answer(send, 403, b"reading this needs the token\n", [_TEXT, _FRESH])
        else:
            await _answer(send, 404, b"there is nothing here\n", [_TEXT])

    def _may_read(self, scope: Scope) -> bool:
        """From this machine while no token is set; else only with the token."""
        if self._token is None:
            return is_loopback(_address(scope))
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, b"Bearer " + self._token)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.service.start()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.service.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


class _GoneError(Exception):
    """Whoever posted has gone before the body was whole."""


def _refusal(reason: Reason, fact: str) -> MessageError:
    return MessageError(fact, reason=reason, status=reason.status)


def _address(scope: Scope) -> str | None:
    client = scope.get("client")
    return client[0] if client else None


async def _body(receive: Receive, length: bytes | None) -> bytes:
    """The whole body, as long as it is short enough."""
    too_long = _refusal(Reason.SIZE, f"a post has at most {MOST_BYTES:,} bytes")
    if length is not None and (not length.isdigit() or len(length) > 9 or int(length) > MOST_BYTES):
        raise too_long
    message = await receive()
    body: bytes = message.get("body", b"")
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        body += message.get("body", b"")
        if len(body) > MOST_BYTES:
            raise too_long
    if message["type"] == "http.disconnect":
        raise _GoneError
    return body


async def _answer(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
    more = [*_SAFE, *headers]
    if status != 204:
        more.append((b"content-length", str(len(body)).encode()))
    if status in (413, 429):
        more.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": more})
    await send({"type": "http.response.body", "body": body})
