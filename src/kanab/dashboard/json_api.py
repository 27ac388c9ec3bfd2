"""The same as plain data: every page has an address under /v1, for programs."""

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kanab.dashboard import plan_page
from kanab.dashboard.experiment_list import ListFilter
from kanab.dashboard.pages import requested_experiment
from kanab.dashboard.request_view import ExperimentView, RequestView
from kanab.dashboard.timeline import lines_of, steps_of
from kanab.plan.file import plan_digest, plan_to_dict


def experiments(request: Request, view: RequestView) -> Response:
    """Return the list, with the same filters and order as the page."""
    selected = ListFilter.read(request.query_params).select(view.whole_list)
    return _json(view, experiments=[line.to_dict() for line in selected])


def experiment(request: Request, view: RequestView) -> Response:
    """Return one experiment: its line of the list, its readout, its history over the seals."""
    experiment = requested_experiment(view, request)
    readout = None if experiment.shown is None else experiment.shown.readout
    return _json(
        view,
        experiment=experiment.summary.to_dict(),
        open_cohort=None if experiment.open is None else experiment.open.to_dict(),
        readings=[readout.bundle.title for readout in experiment.readouts],
        chosen=experiment.chosen if experiment.readouts else None,
        readout=None if readout is None else readout.to_dict() | {"decision": experiment.summary.decision},
        history=[] if readout is None else _history(view, experiment),
    )


def interactions(_: Request, view: RequestView) -> Response:
    """Return the scan of every pair; null where no table of two experiments was released."""
    readout = view.interactions
    return _json(view, interactions=None if readout is None else readout.to_dict())


def privacy(_: Request, view: RequestView) -> Response:
    """Return the officer's account of every ledger."""
    return _json(
        view,
        accounts=[{"ledger": name or None, "account": account} for name, account in view.accounts.items()],
        skipped=[{"name": item.name, "says": item.says} for item in view.contents.skipped],
    )


def plan(request: Request, view: RequestView) -> Response:
    """Return the plan, what each table is for, and the forecast at the traffic that was asked for."""
    if view.plan is None:
        return _json(view, plan=None)
    asked = plan_page.forecast_of(view.plan, request.query_params, view.baseline)
    account = {} if view.person_account is None else {"account": asdict(view.person_account)}
    next_seal = None if view.collection is None else view.collection.next_seal
    return _json(
        view,
        plan=plan_to_dict(view.plan),
        digest=plan_digest(view.plan),
        next_seal=None if next_seal is None else next_seal.isoformat(),
        linkages=plan_page.linkage_rows(view.plan),
        forecast=asked.forecast.to_dict() | account,
    )


def _json(view: RequestView, **shown: Any) -> JSONResponse:
    return JSONResponse({"alarms": list(view.contents.alarms), **shown})


def _history(view: RequestView, experiment: ExperimentView) -> list[dict[str, Any]]:
    points = view.history(experiment)
    steps = {line: dict(steps_of(points, *line)) for line in lines_of(points)}
    return [
        {
            "through": point.through or None,
            "people": point.people,
            "effects": [
                {key: row[key] for key in ("metric", "arm", "method", "estimate", "interval", "p")}
                for line in steps
                if (row := steps[line].get(point.through)) is not None
            ],
        }
        for point in points
    ]
