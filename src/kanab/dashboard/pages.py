"""The pages: experiments, one experiment, interactions, privacy, the plan. All are drawn here, none by script."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from kanab.analysis.decision import ANSWERS
from kanab.analysis.sections import lead_html, report_page
from kanab.collector.http.access import Access, TokenCheck, too_many
from kanab.dashboard import plan_page
from kanab.dashboard.access_guard import (
    COOKIE,
    SESSION_SECONDS,
    Sessions,
    content_policy,
    problem,
    safe_path,
    session_cookie,
)
from kanab.dashboard.experiment_list import BEING_READ, HEALTHS, STATES, ListFilter, ListPage
from kanab.dashboard.next_seal import moment_text
from kanab.dashboard.releases import Contents
from kanab.dashboard.request_view import ExperimentView, RequestView
from kanab.dashboard.results import HistoryPoint
from kanab.dashboard.timeline import history_table, lines_of, sparkline, timeline
from kanab.inspection.officer.officer_page import OFFICER_STYLE, privacy_page
from kanab.report.document import Fold, Section
from kanab.report.html_page import Page, PageSection, page_sections, table_html
from kanab.report.style import STYLE
from kanab.report.words import MARKS
from kanab.scan.report.scan_page import SCAN_STYLE, map_section, scan_sections
from kanab.scan.report.scan_words import expectation, outcome, ranked_table, scope_line
from kanab.scan.scan_readout import PairReadout
from kanab.scan.stats.scan_verdicts import ORDER
from kanab.tabular import Table

MOST_SEGMENTS = 100
"""So many tests of segments, and so many levels of them, are on a page; the plain data hold all."""

MOST_LINES = 12
"""So many metrics and arms are drawn over the seals; the table below holds all."""

MOST_PAIRS = 200
"""So many pairs are in the list at once; filters bring others."""

MOST_RECEIPTS = 12
"""So many releases have their receipts on the page; the officer's report in one file has all."""

Data = Mapping[str, Any]
Sections = list[PageSection]


def _without(sections: Iterable[PageSection], *names: str) -> Sections:
    return [section for section in sections if section.name not in names]


def _only(sections: Iterable[PageSection], *names: str) -> Sections:
    return [section for section in sections if section.name in names]


# ── an experiment ──────────────────────────────────────────────────────────────────────────────


def experiment_sections(data: Data, points: Sequence[HistoryPoint]) -> Sections:
    """Return the readout as the report has it, and its history over the seals before what is said of privacy."""
    report = report_page(shortened(data)).sections
    last = ("privacy", "notes", "method")
    history = page_sections([_history(points)] if len(points) > 1 else [])
    return [*_without(report, *last), *history, *_only(report, *last)]


def shortened(data: Data) -> dict[str, Any]:
    """Return a readout with no more tests of segments than a page can hold, the clearest first, and a note."""

    def clearest(rows: Iterable[Data]) -> list[Data]:
        return sorted(rows, key=lambda row: 2.0 if row["p_adjusted"] is None else row["p_adjusted"])

    short = dict(data)
    tests = clearest(row for row in data["segments"] if row["decides"])
    levels, effects = clearest(data["follow_ups"]), clearest(data["segment_effects"])
    if len(tests) > MOST_SEGMENTS:
        places = {(row["metric"], row["covariate"]) for row in tests[:MOST_SEGMENTS]}
        short["segments"] = [row for row in data["segments"] if (row["metric"], row["covariate"]) in places]
    if len(levels) > MOST_SEGMENTS:
        short["follow_ups"] = levels[:MOST_SEGMENTS]
    if len(effects) > MOST_SEGMENTS:
        short["segment_effects"] = effects[:MOST_SEGMENTS]
    if max(len(tests), len(levels), len(effects)) > MOST_SEGMENTS:
        note = f"Only the {MOST_SEGMENTS} clearest of many segments are shown; the plain data (/v1) hold all."
        short["notes"] = [*data["notes"], note]
    return short


def _history(points: Sequence[HistoryPoint]) -> Section:
    lines = lines_of(points)
    drawn = [figure for metric, arm in lines[:MOST_LINES] if (figure := timeline(points, metric, arm))]
    more = f" The first {MOST_LINES} of {len(lines)} are drawn." if len(lines) > MOST_LINES else ""
    key = (
        "Each dot is the effect in everything that was sealed up to then, with its interval, in the colour of the "
        f"verdict at that seal, which counts only at looks that were planned. The level line is no difference.{more}"
    )
    table = Fold("The same as numbers", (history_table(points),))
    return Section("How it settled over the seals", (*drawn, table), "history", key=key)


# ── interactions ───────────────────────────────────────────────────────────────────────────────


def interaction_sections(data: Data) -> Sections:
    """Return the scan as its report has it, with a map of every metric however few pairs there are."""
    report = page_sections(scan_sections(data))
    maps = page_sections([map_section(data)])
    return [*_only(report, "attention"), *maps, *_without(report, "attention", "maps")]


def pair_list(data: Data, verdict: str, metric: str, experiment: str) -> tuple[Markup, int]:
    """Return the pairs that were asked for, most urgent first, as a table; and how many there are."""
    rows = [
        row
        for row in data["pairs"]
        if verdict in ("", row["verdict"]) and metric in ("", row["metric"]) and experiment in ("", row["a"], row["b"])
    ]
    rows.sort(key=lambda row: (ORDER.index(row["verdict"]), 2.0 if row["p_robust"] is None else row["p_robust"]))
    shown = rows[:MOST_PAIRS]
    if not shown:
        return Markup("<p>No pair matches.</p>"), 0
    return _table(ranked_table(data, shown), "Every pair"), len(rows)


# ── privacy ────────────────────────────────────────────────────────────────────────────────────


def privacy_sections(account: Data) -> tuple[Sections, int]:
    """Return the officer's account as its report has it: flow, receipts, questions, attacks, risks, ledger.

    Of many releases only the newest have their receipts here; the number says how many have not.
    """
    sections = privacy_page(account).sections
    older = [section.name for section in sections if section.name.startswith("file-")][:-MOST_RECEIPTS]
    return _without(sections, *older), len(older)


# ── out of templates ────────────────────────────────────────────────────────────────────────────

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


# ── pages ────────────────────────────────────────────────────────────────────────────────────────


def requested_experiment(view: RequestView, request: Request) -> ExperimentView:
    """Return the experiment that the address names, and which of its readouts (``?of=``)."""
    return view.experiment(request.path_params["name"], request.query_params.get("of", ""))


class Pages:
    """One method per page."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def _page(self, request: Request, template: str, view: RequestView, **shown: Any) -> HTMLResponse:
        return self._renderer.page(request, template, alarms=view.contents.alarms, collection=view.collection, **shown)

    def experiments(self, request: Request, view: RequestView) -> Response:
        """Return the list: filtered, sorted, a page of it."""
        filters = ListFilter.read(request.query_params)
        page = ListPage(view.lines, filters, request.query_params.get("page", ""))
        response = self._page(
            request, "experiments.html", view, filters=filters, listing=page, drawn=view.drawn, seconds=RETRY_SECONDS
        )
        if page.unread or not view.drawn:
            response.headers["refresh"] = str(RETRY_SECONDS)
        return response

    def experiment(self, request: Request, view: RequestView) -> Response:
        """Return one experiment: what it says and how it settled, or what it waits for."""
        experiment = requested_experiment(view, request)
        sections: Sections = []
        lead: list[Markup] = []
        if experiment.shown is not None and experiment.shown.readout is not None:
            data = experiment.data
            sections = experiment_sections(data, view.history(experiment))
            lead = [Markup(sentence) for sentence in lead_html(data)]
        return self._page(request, "experiment.html", view, experiment=experiment, sections=sections, lead=lead)

    def report(self, request: Request, view: RequestView) -> Response:
        """Return the readout as the report in one file."""
        experiment = requested_experiment(view, request)
        if experiment.shown is None or experiment.shown.readout is None:
            raise HTTPException(404)
        return _report_response(report_page(experiment.data))

    def interactions(self, request: Request, view: RequestView) -> Response:
        """Return every pair: a map, a list of verdicts, and what flagged ones look like."""
        readout = view.interactions
        query = request.query_params
        if readout is None:
            return self._page(request, "interactions.html", view, data=None)
        data, sections = view.snapshot.cached("interactions page", lambda: _drawn(readout))
        verdict, metric, name = (query.get(key, "")[:200] for key in ("verdict", "metric", "experiment"))
        table, matching = pair_list(data, verdict, metric, name)
        return self._page(
            request, "interactions.html", view, data=data, sections=sections,
            lead=[text for text in (f"{scope_line(data)}.", expectation(data), outcome(data)) if text],
            table=table, matching=matching, most=MOST_PAIRS,
            verdict=verdict, metric=metric, experiment=name,
            verdicts=[verdict for verdict in ORDER if verdict in data["verdicts"]],
        )  # fmt: skip

    def privacy(self, request: Request, view: RequestView) -> Response:
        """Return what left, by which rules; whether the ledger is intact; what an attacker could learn."""
        if not view.checked:
            return self._renderer.wait(request, view.contents)
        name, account = view.account(request.query_params.get("ledger", ""))
        sections: Sections = []
        older = 0
        if account is not None:
            sections, older = view.snapshot.cached(("privacy page", name), lambda: privacy_sections(account))
        return self._page(
            request, "privacy.html", view, chains=view.contents.chains, name=name, account=account,
            sections=sections, older=older, skipped=view.contents.skipped,
        )  # fmt: skip

    def officer(self, request: Request, view: RequestView) -> Response:
        """Return the officer's report in one file."""
        _, account = view.account(request.query_params.get("ledger", ""))
        if account is None:
            raise HTTPException(404)
        return _report_response(privacy_page(account))

    def plan(self, request: Request, view: RequestView) -> Response:
        """Return what is collected and why, and when every table will be whole."""
        plan = view.plan
        if plan is None:
            return self._page(request, "plan.html", view, plan=None)
        asked = plan_page.forecast_of(plan, request.query_params, view.baseline)
        account = view.person_account
        tables = {
            "experiments": plan_page.experiment_table(plan), "linkages": plan_page.linkage_table(plan),
            "metrics": plan_page.metric_table(plan), "covariates": plan_page.covariate_table(plan),
        }  # fmt: skip
        return self._page(
            request, "plan.html", view, plan=plan, problem=asked.problem, rule=plan_page.rule_sentence(plan),
            cohorts=plan_page.cohort_sentence(plan),
            spent="" if account is None else account.sentence,
            parts="" if account is None else _table(account.table, "parts"),
            tables={name: _table(table, name) for name, table in tables.items()},
            forecast=[_table(table, table.header[0]) for table in asked.forecast.tables()], notes=asked.forecast.notes,
            picture=asked.picture, epsilon=request.query_params.get("epsilon", "")[:40],
            per_day=request.query_params.get("per_day", "")[:20], days=request.query_params.get("days", "")[:20],
        )  # fmt: skip

    def plan_file(self, _: Request, view: RequestView) -> Response:
        """Return the plan as a file that a collector reads."""
        plan = view.plan
        if plan is None:
            raise HTTPException(404)
        headers = {"content-disposition": 'attachment; filename="kanab.toml"'}
        return PlainTextResponse(plan_page.plan_toml(plan), headers=headers)


def _drawn(readout: PairReadout) -> tuple[dict[str, Any], Sections]:
    data = readout.to_dict()
    return data, interaction_sections(data)


def _table(table: Table, name: str) -> Markup:
    return Markup(table_html(table, name, kind="cards wide"))


def _report_response(page: Page) -> Response:
    """Return a report in one file; its own style sheet is inside it, so the policy names that one by its hash."""
    return HTMLResponse(page.to_html(), headers={"content-security-policy": content_policy(page.style_source)})


# ── logging in and out ───────────────────────────────────────────────────────────────────────────


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
