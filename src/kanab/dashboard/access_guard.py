"""Around every page: who may read it, and headers that let a browser do nothing but show it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from kanab.atomicfile import write_whole
from kanab.collector.http.access import Access, Refusal
from kanab.errors import SourceError

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def content_policy(style: str = "'self'") -> str:
    """Return what a browser may load for a page; ``style`` is where its style sheets may come from."""
    return (
        f"default-src 'none'; style-src {style}; script-src 'self'; img-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    )


_HEADERS = {
    b"content-security-policy": content_policy().encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def problem(status: int, says: str, remedy: str) -> dict[str, Any]:
    """Return an error in the one shape that it has in plain data."""
    return {"error": {"status": status, "says": says, "remedy": remedy}}


class AccessGuard:
    """Lets readers through to the pages: those of this machine, or, where a token is set, those who have it."""

    def __init__(self, app: App, access: Access, sessions: Sessions | None) -> None:
        self._app, self._access, self._sessions = app, access, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def safe(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message.get("headers", ())}
                more = [(name, value) for name, value in _HEADERS.items() if name not in present]
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        path = scope["path"].removeprefix(scope.get("root_path", ""))
        public = self._sessions is not None and (
            path == "/login" or path.startswith("/static/") or self._sessions.valid(session_cookie(scope["headers"]))
        )
        refused = self._access.misdirected(scope) if public else self._access.refused(scope)
        if refused is None:
            await self._app(scope, receive, safe)
        else:
            await _refused(scope, path, refused)(scope, receive, safe)


def refused_response(refusal: Refusal) -> JSONResponse:
    """Return what is wrong as plain data."""
    headers = {name.decode(): value.decode() for name, value in refusal.headers}
    return JSONResponse(problem(refusal.status, refusal.says, refusal.remedy), refusal.status, headers)


def _refused(scope: Scope, path: str, refusal: Refusal) -> Response:
    """Return what is wrong as plain data or in a line, or the way to the login page."""
    response = refused_response(refusal)
    if path.startswith("/v1/"):
        return response
    if refusal.status == 401:
        return RedirectResponse(f"{scope.get('root_path', '')}/login?next={quote(path, safe='')}", 303)
    headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
    return PlainTextResponse(f"{refusal.says}. {refusal.remedy}\n", refusal.status, headers)


COOKIE = "kanab_session"
SESSION_SECONDS = 12 * 3600
"""Seconds that a login lasts."""


class Sessions:
    """Signed cookies: a random name and an end, which only a server with the token can sign.

    ``logouts`` is the file that remembers who logged out, for all servers with the token that know it; without one a
    server takes the cookies that it signed itself, so that a restart ends all sessions.
    """

    def __init__(self, token: str, logouts: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        own = secrets.token_bytes(16) if logouts is None else b""
        self._key = hmac.digest(token.encode(), b"kanab dashboard session" + own, "sha256")
        self._clock = clock
        self._logouts = logouts
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
        return end.isdecimal() and self._clock() < int(end) and name not in self._read_ended()

    def end(self, cookie: str | None) -> None:
        """Log out: from now on the cookie is not valid, wherever a copy of it is."""
        if cookie is not None and self.valid(cookie):
            now = self._clock()
            self._ended = {name: end for name, end in self._ended.items() if end > now}
            name, end, _ = cookie.split(".")
            self._ended[name] = float(end)
            if self._logouts is not None:
                with suppress(SourceError):  # a folder that cannot be written to stops seals, which is told
                    write_whole(self._logouts, "".join(f"{name} {end:.0f}\n" for name, end in self._ended.items()))

    def _read_ended(self) -> dict[str, float]:
        """Return who logged out, here or at another server with the same file."""
        if self._logouts is not None:
            with suppress(OSError, ValueError):
                lines = [line.split() for line in self._logouts.read_text(encoding="ascii").splitlines()]
                self._ended |= {name: float(end) for name, end in lines}
        return self._ended

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
    """Return where to go after the login: a path of this site, or its first page."""
    fine = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if fine else "/"
