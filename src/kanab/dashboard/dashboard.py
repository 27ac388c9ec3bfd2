"""The dashboard as an application, alone or in front of a collector."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kanab.collector.http.access import Access
from kanab.collector.http.app import Collector
from kanab.dashboard import json_api
from kanab.dashboard.access_guard import AccessGuard, Message, Receive, Scope, Send, Sessions
from kanab.dashboard.background import NotYetError
from kanab.dashboard.pages import LoginPages, Pages, Renderer
from kanab.dashboard.release_sources import ReleaseSource
from kanab.dashboard.request_view import RequestView, UnknownExperimentError
from kanab.dashboard.results import PATIENCE, Results
from kanab.errors import KanabError

COLLECTOR_PATHS = ("/v1/t", "/v1/config", "/healthz", "/livez", "/readyz", "/metrics", "/kanab")
"""How paths begin that belong to the collector; all others are the dashboard's."""

_FAILURES = {
    404: ("this page does not exist", "Start at the first page: /."),
    405: ("this address is read-only", "Use GET."),
}


class Dashboard:
    """The pages about one source of releases, and the same as plain data, for those whom ``access`` lets read.

    ``results.start()`` begins to compute what the first reader will ask for; served alone, its own lifespan
    does that. ``logouts`` is the file that remembers who logged out.
    """

    def __init__(
        self,
        source: ReleaseSource,
        *,
        access: Access | None = None,
        logouts: Path | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.results = Results(source, patience=patience)
        self._access = access or Access()
        self._renderer = Renderer(with_login=self._access.token is not None)
        problems = (HTTPException, NotYetError, UnknownExperimentError, KanabError, Exception)
        handlers: dict[Any, Callable[..., Any]] = dict.fromkeys(problems, self._failed)
        self._sessions = None if self._access.token is None else Sessions(self._access.token, logouts)
        pages = Starlette(routes=self._routes(), exception_handlers=handlers, lifespan=self._lifespan)
        self._guard = AccessGuard(pages, self._access, self._sessions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._guard(scope, receive, send)

    def _routes(self) -> list[Route]:
        pages = Pages(self._renderer)
        viewed: dict[str, Callable[[Request, RequestView], Response]] = {
            "/": pages.experiments,
            "/reports/{name:path}": pages.report,
            "/experiments/{name:path}": pages.experiment,
            "/interactions": pages.interactions,
            "/privacy": pages.privacy,
            "/privacy/report": pages.officer,
            "/plan": pages.plan,
            "/plan/kanab.toml": pages.plan_file,
            "/v1/experiments": json_api.experiments,
            "/v1/experiments/{name:path}": json_api.experiment,
            "/v1/interactions": json_api.interactions,
            "/v1/privacy": json_api.privacy,
            "/v1/plan": json_api.plan,
        }
        routes = [Route(path, self._with_view(page), methods=["GET"]) for path, page in viewed.items()]
        routes.append(Route("/static/{name}", self._renderer.static, methods=["GET"]))
        if self._sessions is not None and self._access.tokens is not None:
            login = LoginPages(self._renderer, self._sessions, self._access, self._access.tokens)
            routes += [
                Route("/login", login.form, methods=["GET"]), Route("/login", login.log_in, methods=["POST"]),
                Route("/logout", login.log_out, methods=["POST"]),
            ]  # fmt: skip
        return routes

    def _with_view(self, page: Callable[[Request, RequestView], Response]) -> Callable[[Request], Response]:
        def drawn(request: Request) -> Response:
            with self.results.drawing():
                return page(request, RequestView(self.results))

        return drawn

    @asynccontextmanager
    async def _lifespan(self, _: Any) -> AsyncIterator[None]:
        self.results.start()
        yield
        self.results.stop()

    def _failed(self, request: Request, problem: Exception) -> Response:
        """Return what went wrong, or that the answer is being computed."""
        if isinstance(problem, NotYetError):
            return self._renderer.wait(request)
        status, says = 500, "this page could not be built"
        remedy = "Tell the operator of this server, with the address of the page."
        if isinstance(problem, HTTPException):
            status, (says, remedy) = problem.status_code, _FAILURES.get(problem.status_code, _FAILURES[404])
        elif isinstance(problem, UnknownExperimentError):
            status, says = 404, "there is no such experiment"
            remedy = "The list of experiments is at /, as plain data at /v1/experiments."
        elif isinstance(problem, KanabError):
            status, says, remedy = 503, problem.fact, problem.remedy
        response = self._renderer.failure(request, status, says, remedy)
        if isinstance(problem, HTTPException):
            response.headers.update(problem.headers or {})
        return response


class Site:
    """A collector and its dashboard under one address: the collector's routes first, everything else is pages."""

    def __init__(self, collector: Collector, dashboard: Dashboard) -> None:
        self._collector, self._dashboard = collector, dashboard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass the lifespan on to the collector."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            await (self._collector if path.startswith(COLLECTOR_PATHS) else self._dashboard)(scope, receive, send)
            return

        async def notice(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._dashboard.results.start()
            elif message["type"] == "lifespan.shutdown.complete":
                self._dashboard.results.stop()
            await send(message)

        await self._collector(scope, receive, notice)
