"""The shop's page in front of the collector and its dashboard: three small files, served as written."""

from __future__ import annotations

from importlib import resources
from typing import Any

from kanab.collector.http.app import Receive, Scope, Send

_KINDS = {"shop.html": b"text/html; charset=utf-8", "shop.js": b"text/javascript", "shop.css": b"text/css"}
_POLICY = b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'"


class Shop:
    """Answers /shop and its two files; passes every other request on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        folder = resources.files("kanab.demo")
        self._files = {f"/{name}": (folder.joinpath(name).read_bytes(), kind) for name, kind in _KINDS.items()}
        self._files["/shop"] = self._files["/shop.html"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        file = self._files.get(scope["path"]) if scope["type"] == "http" else None
        if file is None:
            await self._inner(scope, receive, send)
            return
        body, kind = file
        headers = [
            (b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-cache"),
            (b"content-security-policy", _POLICY), (b"referrer-policy", b"no-referrer"),
            (b"x-content-type-options", b"nosniff"),
        ]  # fmt: skip
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
