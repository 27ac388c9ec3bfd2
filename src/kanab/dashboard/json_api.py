"""The same as plain data: one twin per page under /v1, for programs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kanab.dashboard import plan_page
from kanab.dashboard.experiment_list import Wish, entries
from kanab.dashboard.request_view import Desk, Question
from kanab.dashboard.timeline import lines_of, steps_of
from kanab.plan.file import plan_digest, plan_to_dict


class Twins:
    """One method per page."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def experiments(self, request: Request) -> Response:
        """The list, with the same filters and order as the page."""
        asked = self._desk.ask()
        chosen = Wish.read(request.query_params).grant(entries(asked.readings, asked.standing))
        return JSONResponse(_alarmed(asked) | {"experiments": [one.to_dict() for one in chosen]})

    def experiment(self, request: Request) -> Response:
        """One experiment: its line of the list, its readout, its history over the seals."""
        asked = self._desk.ask()
        found = asked.experiment(request.path_params["name"], request.query_params.get("of", ""))
        reading = found.reading
        read = reading is not None and reading.readout is not None
        shown: dict[str, Any] = {
            "experiment": found.entry.to_dict(),
            "readings": [one.bundle.title for one in found.readings],
            "chosen": found.chosen if found.readings else None,
            "readout": reading.readout.to_dict() if reading is not None and reading.readout is not None else None,
            "history": _history(asked, found) if read else [],
        }
        return JSONResponse(_alarmed(asked) | shown)

    def interactions(self, _: Request) -> Response:
        """The scan of every pair; null where no table of two experiments was released."""
        asked = self._desk.ask()
        found = asked.interactions
        return JSONResponse(_alarmed(asked) | {"interactions": None if found is None else found.to_dict()})

    def privacy(self, _: Request) -> Response:
        """The officer's account of every ledger."""
        asked = self._desk.ask()
        skipped = [{"name": one.name, "says": one.says} for one in asked.contents.skipped]
        accounts = [{"ledger": name or None, "account": account} for name, account in asked.accounts.items()]
        return JSONResponse(_alarmed(asked) | {"accounts": accounts, "skipped": skipped})

    def plan(self, request: Request) -> Response:
        """The plan, what each table is for, and the forecast at the traffic that was asked for."""
        asked = self._desk.ask()
        if asked.plan is None:
            return JSONResponse(_alarmed(asked) | {"plan": None})
        forecast, _ = plan_page.forecast_of(asked.plan, request.query_params, asked.known)
        next_seal = None if asked.standing is None else asked.standing.next_seal
        return JSONResponse(
            _alarmed(asked)
            | {
                "plan": plan_to_dict(asked.plan),
                "digest": plan_digest(asked.plan),
                "next_seal": None if next_seal is None else next_seal.isoformat(),
                "linkages": plan_page.linkage_rows(asked.plan),
                "forecast": forecast.to_dict(),
            }
        )


def _alarmed(asked: Question) -> dict[str, Any]:
    return {"alarms": list(asked.contents.alarms)}


def _history(asked: Question, found: Any) -> list[dict[str, Any]]:
    points = asked.history(found)
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
