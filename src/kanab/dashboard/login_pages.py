"""Log in with the token, log out: the only two things that are posted to the pages."""

from __future__ import annotations

from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from kanab.collector.http.access import Access, TokenCheck, too_many
from kanab.dashboard.login import COOKIE, SESSION_SECONDS, Sessions, safe_path, session_cookie
from kanab.dashboard.rendering import Renderer

MOST_BYTES = 4096
"""The longest form: a token and a path."""


class LoginPages:
    """The form, its answer, and the way out."""

    def __init__(self, renderer: Renderer, sessions: Sessions, access: Access, tokens: TokenCheck) -> None:
        self._renderer, self._sessions, self._access, self._tokens = renderer, sessions, access, tokens

    async def form(self, request: Request) -> Response:
        """Ask for the token."""
        return self._form(request, safe_path(request.query_params.get("next", "")))

    async def log_in(self, request: Request) -> Response:
        """Compare the token; nothing is compared while an address has to wait for its last wrong one."""
        if _from_elsewhere(request):
            return self._renderer.failure(request, 403, "this form was sent by another page", "Log in here: /login.")
        body = await _body(request)
        if body is None:
            return self._renderer.failure(request, 413, "that is longer than a token", "Log in again: /login.")
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True)
        place = safe_path(fields.get("next", ["/"])[0])
        address = self._access.visitor(request.scope)
        if delay := self._tokens.delay(address):
            refusal = too_many(delay)
            response = self._form(request, place, refusal.status, f"{refusal.says.capitalize()}. {refusal.remedy}")
            response.headers["retry-after"] = str(refusal.wait)
            return response
        if not self._tokens.accepts(fields.get("token", [""])[0].strip(), address):
            return self._form(request, place, 401, "That is not the token.")
        answer = RedirectResponse(request.scope.get("root_path", "") + place, 303)
        answer.set_cookie(
            COOKIE, self._sessions.begin(), max_age=SESSION_SECONDS, path=request.scope.get("root_path", "") or "/",
            secure=_secure(request), httponly=True, samesite="strict",
        )  # fmt: skip
        return answer

    async def log_out(self, request: Request) -> Response:
        """End the session here, and forget it in the browser."""
        if _from_elsewhere(request):
            return self._renderer.failure(request, 403, "this was sent by another page", "Log out here.")
        self._sessions.end(session_cookie(request.scope["headers"]))
        root = request.scope.get("root_path", "")
        answer = RedirectResponse(f"{root}/login", 303)
        answer.delete_cookie(COOKIE, path=root or "/", secure=_secure(request), httponly=True, samesite="strict")
        return answer

    def _form(self, request: Request, place: str, status: int = 200, wrong: str = "") -> Response:
        hours = SESSION_SECONDS // 3600
        return self._renderer.page(request, "login.html", status=status, place=place, wrong=wrong, hours=hours)


def _from_elsewhere(request: Request) -> bool:
    """Return whether another page sent the form; what does not say which is no browser."""
    return request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")


def _secure(request: Request) -> bool:
    """Return whether the browser's side is encrypted; believing a proxy makes the cookie stricter, never laxer."""
    return request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"


async def _body(request: Request) -> bytes | None:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            return None
    return body
