"""The dashboard as an application, alone or in front of a collector."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kanab.collector.http.app import Collector
from kanab.dashboard.background import NotYetError
from kanab.dashboard.guard import App, Guard, Message, Receive, Scope, Send
from kanab.dashboard.json_api import Twins
from kanab.dashboard.login_pages import Entrance
from kanab.dashboard.pages import Pages
from kanab.dashboard.release_sources import Shelf
from kanab.dashboard.rendering import Renderer
from kanab.dashboard.request_view import Desk, UnknownExperimentError
from kanab.dashboard.results import PATIENCE, Library
from kanab.errors import KanabError

AGAIN = 2
"""Seconds after which a page that waits for a computation comes again."""

COLLECTED = ("/v1/t", "/v1/config", "/healthz", "/metrics", "/kanab")
"""What belongs to the collector: its routes are reached before anything of the dashboard is."""

_FAILURES = {
    404: ("there is nothing here", "Begin at the first page: /."),
    405: ("this can only be read", "Use GET."),
}


class Dashboard:
    """The pages of one shelf and their twins. Where a token is given, only whoever has it may read.

    ``desk.open()`` begins to compute what the first reader will ask for; served alone, its own lifespan
    does that.
    """

    def __init__(self, shelf: Shelf, *, token: str | None = None, patience: float = PATIENCE) -> None:
        self.desk = Desk(Library(shelf, patience=patience))
        self._renderer = Renderer(with_login=token is not None)
        handlers: dict[Any, Callable[..., Any]] = {
            HTTPException: self._failed, NotYetError: self._not_yet, UnknownExperimentError: self._unknown,
            KanabError: self._refused, Exception: self._broken,
        }  # fmt: skip
        self._guard = Guard(self._starlette, token)
        self._app: App = Starlette(routes=self._routes(), exception_handlers=handlers, lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._guard(scope, receive, send)

    async def _starlette(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _routes(self) -> list[Route]:
        pages, twins = Pages(self.desk, self._renderer), Twins(self.desk)
        shown: dict[str, Callable[[Request], Response]] = {
            "/": pages.experiments,
            "/reports/{name:path}": pages.report,
            "/experiments/{name:path}": pages.experiment,
            "/interactions": pages.interactions,
            "/privacy": pages.privacy,
            "/privacy/report": pages.officer,
            "/plan": pages.plan,
            "/plan/kanab.toml": pages.plan_file,
            "/static/{name}": pages.static,
            "/v1/experiments": twins.experiments,
            "/v1/experiments/{name:path}": twins.experiment,
            "/v1/interactions": twins.interactions,
            "/v1/privacy": twins.privacy,
            "/v1/plan": twins.plan,
        }
        routes = [Route(path, page, methods=["GET"]) for path, page in shown.items()]
        if self._guard.sessions is not None and self._guard.doorman is not None:
            entrance = Entrance(self._renderer, self._guard.sessions, self._guard.doorman)
            routes += [
                Route("/login", entrance.form, methods=["GET"]), Route("/login", entrance.log_in, methods=["POST"]),
                Route("/logout", entrance.log_out, methods=["POST"]),
            ]  # fmt: skip
        return routes

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        self.desk.open()
        yield
        self.desk.close()

    # ── what goes wrong ────────────────────────────────────────────────────────────────────────

    def _failed(self, request: Request, problem: HTTPException) -> Response:
        says, remedy = _FAILURES.get(problem.status_code, _FAILURES[404])
        found = self._renderer.failure(request, problem.status_code, says, remedy)
        found.headers.update(problem.headers or {})
        return found

    def _not_yet(self, request: Request, _: Exception) -> Response:
        return self._renderer.wait(request, AGAIN)

    def _unknown(self, request: Request, _: Exception) -> Response:
        remedy = "The list of experiments is at /, as plain data at /v1/experiments."
        return self._renderer.failure(request, 404, "there is no such experiment", remedy)

    def _refused(self, request: Request, problem: KanabError) -> Response:
        return self._renderer.failure(request, 503, problem.fact, problem.remedy)

    def _broken(self, request: Request, _: Exception) -> Response:
        remedy = "Tell whoever runs this, with the address of the page."
        return self._renderer.failure(request, 500, "this page could not be made", remedy)


class Site:
    """A collector and its dashboard under one address: the collector's routes first, everything else is pages."""

    def __init__(self, collector: Collector, dashboard: Dashboard) -> None:
        self._collector, self._dashboard = collector, dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass the lifespan on to the collector."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            await (self._collector if path.startswith(COLLECTED) else self._dashboard)(scope, receive, send)
            return

        async def noticed(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._dashboard.desk.open()
            elif message["type"] == "lifespan.shutdown.complete":
                self._dashboard.desk.close()
            await send(message)

        await self._collector(scope, receive, noticed)
