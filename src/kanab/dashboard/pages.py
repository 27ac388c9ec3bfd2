"""The pages: experiments, one experiment, interactions, privacy, the plan. All are drawn here, none by script."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from kanab.dashboard import page_sections, plan_page
from kanab.dashboard.experiment_list import ListFilter, ListPage
from kanab.dashboard.guard import content_policy
from kanab.dashboard.rendering import RETRY_SECONDS, Renderer
from kanab.dashboard.request_view import ExperimentView, RequestView
from kanab.inspection.officer.page import privacy_page
from kanab.report.html import lead_html, report_page
from kanab.report.page import Page, table_html
from kanab.scan.readout import PairReadout
from kanab.scan.stats.verdicts import ORDER
from kanab.tabular import Table


def requested_experiment(view: RequestView, request: Request) -> ExperimentView:
    """Return the experiment that the address names, and which of its readouts (``?of=``).

    Raises `UnknownExperimentError` where it was neither planned nor released.
    """
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
        """Return one experiment: what it says, how it settled, what was merged; or what it waits for."""
        experiment = requested_experiment(view, request)
        sections: page_sections.Sections = []
        lead: list[Markup] = []
        if experiment.shown is not None and experiment.shown.readout is not None:
            data = experiment.data
            sections = page_sections.experiment_sections(data, view.history(experiment))
            lead = [Markup(sentence) for sentence in lead_html(data)]
        return self._page(request, "experiment.html", view, experiment=experiment, sections=sections, lead=lead)

    def report(self, request: Request, view: RequestView) -> Response:
        """Return the readout as the report in one file."""
        experiment = requested_experiment(view, request)
        if experiment.shown is None or experiment.shown.readout is None:
            raise HTTPException(404)
        data = experiment.data
        return _report_response(report_page(data))

    def interactions(self, request: Request, view: RequestView) -> Response:
        """Return every pair: a map, a list of verdicts, and what flagged ones look like."""
        readout = view.interactions
        query = request.query_params
        if readout is None:
            return self._page(request, "interactions.html", view, data=None)
        data, sections = view.cached("interactions page", lambda: _drawn(readout))
        verdict, metric, name = (query.get(key, "")[:200] for key in ("verdict", "metric", "experiment"))
        table, matching = page_sections.pair_list(data, verdict, metric, name)
        return self._page(
            request, "interactions.html", view, data=data, sections=sections,
            lead=page_sections.interaction_lead(data), table=table, matching=matching, most=page_sections.MOST_PAIRS,
            verdict=verdict, metric=metric, experiment=name,
            verdicts=[verdict for verdict in ORDER if verdict in data["verdicts"]],
        )  # fmt: skip

    def privacy(self, request: Request, view: RequestView) -> Response:
        """Return what left, by which rules; whether the ledger is intact; what an attacker could learn."""
        if not view.checked:
            return self._renderer.wait(request, view.contents)
        name, account = view.account(request.query_params.get("ledger", ""))
        sections: page_sections.Sections = []
        older = 0
        if account is not None:
            sections, older = view.cached(("privacy page", name), lambda: page_sections.privacy_sections(account))
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
            picture=Markup(asked.picture), epsilon=request.query_params.get("epsilon", "")[:40],
            per_day=request.query_params.get("per_day", "")[:20], days=request.query_params.get("days", "")[:20],
        )  # fmt: skip

    def plan_file(self, _: Request, view: RequestView) -> Response:
        """Return the plan as a file that a collector reads."""
        plan = view.plan
        if plan is None:
            raise HTTPException(404)
        headers = {"content-disposition": 'attachment; filename="kanab.toml"'}
        return PlainTextResponse(plan_page.plan_toml(plan), headers=headers)


def _drawn(readout: PairReadout) -> tuple[dict[str, Any], page_sections.Sections]:
    data = readout.to_dict()
    return data, page_sections.interaction_sections(data)


def _table(table: Table, name: str) -> Markup:
    return Markup(table_html(table, name, kind="cards wide"))


def _report_response(page: Page) -> Response:
    """Return a report in one file; its own style sheet is inside it, so the policy names that one by its hash."""
    return HTMLResponse(page.to_html(), headers={"content-security-policy": content_policy(page.style_source)})
