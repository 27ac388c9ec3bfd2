"""Pages out of templates, plain data, and the one shape of every failure."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from kanab.analysis.decision import ANSWERS
from kanab.dashboard.access_guard import problem
from kanab.dashboard.experiment_list import BEING_READ, HEALTHS, STATES
from kanab.dashboard.next_seal import moment_text
from kanab.dashboard.releases import Contents
from kanab.dashboard.timeline import sparkline
from kanab.inspection.officer.officer_page import OFFICER_STYLE
from kanab.report.style import STYLE
from kanab.report.words import MARKS
from kanab.scan.report.scan_page import SCAN_STYLE

RETRY_SECONDS = 2
"""Seconds after which a page that waits for a computation refreshes."""

FOR_EVER = "public, max-age=31536000, immutable"
_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OWN = ("dashboard.css", "dashboard.js", "dashboard.svg")
_SHEETS = {"report.css": STYLE, "scan.css": SCAN_STYLE, "officer.css": OFFICER_STYLE}
"""The reports' own style sheets: each page takes the one that its sections were written for."""

NAV = (("/", "Experiments"), ("/interactions", "Interactions"), ("/privacy", "Privacy"), ("/plan", "Plan"))


class Renderer:
    """Templates with everything escaped, and the few files that pages load from here."""

    def __init__(self, *, with_login: bool) -> None:
        folder = files("kanab.dashboard") / "static"
        self._assets = {name: (folder / name).read_bytes() for name in _OWN}
        self._assets |= {name: sheet.encode() for name, sheet in _SHEETS.items()}
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("kanab.dashboard", "templates"), autoescape=True,
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        )  # fmt: skip
        versions = {name: hashlib.sha256(body).hexdigest()[:12] for name, body in self._assets.items()}
        self._templates.globals |= {
            "versions": versions, "moment": moment_text, "marks": MARKS, "healths": HEALTHS, "states": STATES,
            "answers": ANSWERS, "being_read": BEING_READ, "sparkline": sparkline,
            "nav": NAV, "with_login": with_login, "segment": lambda text: quote(text, safe=""), "query": urlencode,
        }  # fmt: skip

    def page(self, request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
        """Return a page; every template knows its path, and the alarms."""
        root = request.scope.get("root_path", "")
        known = {"alarms": (), "root": root, "path": _path(request)}
        return HTMLResponse(self._templates.get_template(template).render(known | shown), status)

    def static(self, request: Request) -> Response:
        """Return a style sheet, the little script, or the icon; its address changes with its bytes."""
        name = request.path_params["name"]
        if name not in self._assets:
            raise HTTPException(404)
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(self._assets[name], media_type=kind, headers={"cache-control": FOR_EVER})

    def failure(self, request: Request, status: int, says: str, remedy: str) -> Response:
        """Return what is wrong, as a page or in the one shape of plain data; nothing of the request is repeated."""
        if _path(request).startswith("/v1/"):
            return JSONResponse(problem(status, says, remedy), status)
        return self.page(request, "problem.html", status=status, says=says, remedy=remedy)

    def wait(self, request: Request, contents: Contents | None = None) -> Response:
        """Return that it is being computed, and from which releases; the page refreshes by itself."""
        seconds, contents = RETRY_SECONDS, contents or Contents()
        if _path(request).startswith("/v1/"):
            response: Response = JSONResponse(problem(503, "this is being computed", "Ask again in a moment."), 503)
        else:
            response = self.page(
                request, "pending.html", status=202, seconds=seconds, alarms=contents.alarms,
                chains=[chain for chain in contents.chains if chain.releases],
            )  # fmt: skip
            response.headers["refresh"] = str(seconds)
        response.headers["retry-after"] = str(seconds)
        return response


def _path(request: Request) -> str:
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))
