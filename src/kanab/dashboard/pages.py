"""The pages: experiments, one experiment, interactions, privacy, the plan. All are drawn here, none by script."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from kanab.dashboard import page_sections, plan_page
from kanab.dashboard.experiment_list import Listing, Wish, entries
from kanab.dashboard.guard import content_policy
from kanab.dashboard.rendering import Renderer
from kanab.dashboard.request_view import Desk, Question
from kanab.inspection.officer.page import privacy_page
from kanab.report.charts import charts_if_installed
from kanab.report.html import report_page
from kanab.report.page import Page, table_html
from kanab.scan.readout import PairReadout
from kanab.scan.stats.verdicts import ORDER


class Pages:
    """One method per page."""

    def __init__(self, desk: Desk, renderer: Renderer) -> None:
        self._desk, self._renderer = desk, renderer

    def _page(self, request: Request, template: str, asked: Question, **shown: Any) -> HTMLResponse:
        return self._renderer.page(request, template, alarms=asked.contents.alarms, standing=asked.standing, **shown)

    def experiments(self, request: Request) -> Response:
        """The list: filtered, sorted, a page of it."""
        asked = self._desk.ask()
        wish = Wish.read(request.query_params)
        listing = Listing(entries(asked.readings, asked.standing), wish, request.query_params.get("page", ""))
        return self._page(request, "experiments.html", asked, wish=wish, listing=listing)

    def experiment(self, request: Request) -> Response:
        """One experiment: what it says, how it settled, who was merged; or what is being waited for."""
        asked = self._desk.ask()
        found = asked.experiment(request.path_params["name"], request.query_params.get("of", ""))
        sections: page_sections.Sections = []
        lead: list[str] = []
        if found.reading is not None and found.reading.readout is not None:
            data = found.reading.data
            charts = asked.charts(found)
            sections = page_sections.experiment_sections(data, charts, asked.history(found))
            lead = page_sections.experiment_lead(data)
        return self._page(request, "experiment.html", asked, one=found, sections=sections, lead=lead)

    def report(self, request: Request) -> Response:
        """The readout as the report in one file."""
        asked = self._desk.ask()
        found = asked.experiment(request.path_params["name"], request.query_params.get("of", ""))
        if found.reading is None or found.reading.readout is None:
            raise HTTPException(404)
        data = found.reading.data
        return _whole(report_page(data, charts=charts_if_installed(data)))

    def interactions(self, request: Request) -> Response:
        """Every pair: a map, a list of verdicts, and what flagged ones look like."""
        asked = self._desk.ask()
        found = asked.interactions
        query = request.query_params
        if found is None:
            return self._page(request, "interactions.html", asked, data=None)
        data, sections = asked.kept("interactions page", lambda: _drawn(found))
        verdict, metric, name = (query.get(key, "")[:200] for key in ("verdict", "metric", "experiment"))
        table, matching = page_sections.pair_list(data, verdict, metric, name)
        return self._page(
            request, "interactions.html", asked, data=data, sections=sections,
            lead=page_sections.interaction_lead(data), table=table, matching=matching, most=page_sections.MOST_PAIRS,
            verdict=verdict, metric=metric, experiment=name, verdicts=[one for one in ORDER if one in data["verdicts"]],
        )  # fmt: skip

    def privacy(self, request: Request) -> Response:
        """What left, by which rules; whether the ledger still holds; what an attacker could learn."""
        asked = self._desk.ask()
        accounts = asked.accounts
        chosen = request.query_params.get("ledger", "")
        name = chosen if chosen in accounts else next(iter(accounts), "")
        account = accounts.get(name)
        sections: page_sections.Sections = []
        older = 0
        if account is not None:
            sections, older = asked.kept(("privacy page", name), lambda: page_sections.privacy_sections(account))
        return self._page(
            request, "privacy.html", asked, chains=asked.contents.chains, name=name, account=account,
            sections=sections, older=older, skipped=asked.contents.skipped,
        )  # fmt: skip

    def officer(self, request: Request) -> Response:
        """The officer's report in one file."""
        accounts = self._desk.ask().accounts
        chosen = request.query_params.get("ledger", "")
        account = accounts.get(chosen if chosen in accounts else next(iter(accounts), ""))
        if account is None:
            raise HTTPException(404)
        return _whole(privacy_page(account))

    def plan(self, request: Request) -> Response:
        """What is collected and why, and when it will be whole."""
        asked = self._desk.ask()
        plan = asked.plan
        if plan is None:
            return self._page(request, "plan.html", asked, plan=None)
        forecast, said = plan_page.forecast_of(plan, request.query_params, asked.known)
        tables = {
            "experiments": plan_page.experiment_table(plan), "linkages": plan_page.linkage_table(plan),
            "metrics": plan_page.metric_table(plan), "covariates": plan_page.covariate_table(plan),
        }  # fmt: skip
        return self._page(
            request, "plan.html", asked, plan=plan, said=said, cohorts=plan_page.cohort_sentence(plan),
            tables={
                name: Markup(table_html(table, name, kind="cards wide"))
                for name, table in tables.items()
            },
            forecast=[
                Markup(table_html(table, table.header[0], kind="cards wide"))
                for table in forecast.tables()
            ],
            notes=forecast.notes, per_day=request.query_params.get("per_day", "")[:20],
            days=request.query_params.get("days", "")[:20],
        )  # fmt: skip

    def plan_file(self, _: Request) -> Response:
        """The plan as a file that a collector reads."""
        plan = self._desk.ask().plan
        if plan is None:
            raise HTTPException(404)
        headers = {"content-disposition": 'attachment; filename="kanab.toml"'}
        return PlainTextResponse(plan_page.plan_toml(plan), headers=headers)

    def static(self, request: Request) -> Response:
        """A style sheet, the little script, the picture of the tab."""
        found = self._renderer.asset(request.path_params["name"])
        if found is None:
            raise HTTPException(404)
        return found


def _drawn(found: PairReadout) -> tuple[dict[str, Any], page_sections.Sections]:
    data = found.to_dict()
    return data, page_sections.interaction_sections(data)


def _whole(page: Page) -> Response:
    """Return a report in one file; its own style sheet is inside it, so the policy names that one by its hash."""
    return HTMLResponse(page.to_html(), headers={"content-security-policy": content_policy(page.style_source)})
