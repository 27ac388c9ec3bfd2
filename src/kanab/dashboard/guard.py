"""Around every page: who may read it, and headers that let a browser do nothing but show it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

from kanab.dashboard.login import Sessions, TokenCheck, is_local, session_cookie

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
LOCAL_ONLY = ("this can only be read on the same machine", "Set KANAB_TOKEN, and log in; or open it at 127.0.0.1.")
NEEDS_TOKEN = ("reading this needs the token", "Send it as Authorization: Bearer …, or log in at /login.")
TOO_MANY = ("too many wrong tokens from this address", "Wait, and try again.")


def problem(status: int, says: str, remedy: str) -> dict[str, Any]:
    """Return an error in the one shape that it has in plain data."""
    return {"error": {"status": status, "says": says, "remedy": remedy}}


class AccessGuard:
    """Lets readers through to the pages: those of this machine, or, where a token is set, those who have it."""

    def __init__(self, app: App, token: str | None = None) -> None:
        self._app = app
        self.sessions = None if token is None else Sessions(token)
        self.tokens = None if token is None else TokenCheck(token)

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
        refused = self._refused(scope, path)
        if refused is None:
            await self._app(scope, receive, safe)
        else:
            await _refuse(scope, path, refused, safe)

    def _refused(self, scope: Scope, path: str) -> tuple[int, tuple[str, str]] | None:
        headers = dict(scope["headers"])
        address = scope["client"][0] if scope.get("client") else None
        if self.sessions is None or self.tokens is None:
            host = headers.get(b"host", b"").decode("latin-1")
            return None if is_local(address, host) else (403, LOCAL_ONLY)
        if path == "/login" or path.startswith("/static/") or self.sessions.valid(session_cookie(scope["headers"])):
            return None
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return 401, NEEDS_TOKEN
        if self.tokens.delay(address):
            return 429, TOO_MANY
        return None if self.tokens.accepts(token, address) else (401, NEEDS_TOKEN)


async def _refuse(scope: Scope, path: str, refused: tuple[int, tuple[str, str]], send: Send) -> None:
    """Send the login page instead of a page; say what is wrong in plain data."""
    status, (says, remedy) = refused
    root = scope.get("root_path", "")
    headers = [(b"content-type", b"application/json")]
    body = json.dumps(problem(status, says, remedy)).encode()
    if status == 401 and not path.startswith("/v1/"):
        place = f"{root}/login?next={quote(path, safe='')}"
        status, body, headers = 303, b"", [(b"location", place.encode("latin-1", "replace"))]
    elif status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    elif not path.startswith("/v1/"):
        body, headers = f"{says}. {remedy}\n".encode(), [(b"content-type", b"text/plain; charset=utf-8")]
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
