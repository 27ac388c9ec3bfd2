"""The data-protection sheet of a plan, from the sections of the officer's report; people fill in the rest."""

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from kanab.errors import listed
from kanab.inspection.officer.officer_page import FIELD, OFFICER_STYLE, places_table
from kanab.inspection.officer.statements import places
from kanab.inspection.officer.table_facts import limits_of, origin, purposes
from kanab.plan.model import SHEET_ENTRIES, Plan
from kanab.report.document import Section
from kanab.report.html_page import Page, header_html, page_sections
from kanab.tabular import Table

FORMAT = "kanab-sheet/1"

Plain = dict[str, Any]

_WAYS = {"collector": "With a collector (kanab serve)", "rows": "From rows in a warehouse (kanab release)"}
_BLANK = "………………………………"


def data_sheet(plan: Plan) -> Plain:
    """Return what a record of processing asks about a plan; see ``sheet_html`` for a page of it."""
    return {
        "format": FORMAT,
        "experiments": list(plan.experiment_names),
        "entries": {key: plan.sheet.get(key) for key in SHEET_ENTRIES},
        "fields": list(_fields(plan)),
        "places": {way: places([{"collector": way == "collector", "previous": None, "k": plan.k}]) for way in _WAYS},
        "safeguard": f"Every released class holds nobody or at least {plan.k} people."
        if plan.budget is None
        else f"Every released number has noise: all releases together keep to ε = {plan.budget.epsilon:g}.",
    }


def _fields(plan: Plan) -> Iterator[tuple[str, str, str, str]]:
    """Yield every field that may be stored: what is kept, how it is limited, why it is needed."""
    asked = {linkage.name: purposes(linkage.name, plan) for linkage in plan.linkages}
    for experiment in plan.experiments:
        effect = f"effect: how do the arms of {experiment.name} differ?"
        yield f"{experiment.name} (arms)", listed(experiment.arms or ("the arm",)), "drawn at random", effect
    for name in plan.covariates_in_use:
        covariate = plan.covariate(name)
        why = [asks for link in plan.linkages if link.covariate == name for asks in asked[link.name]]
        yield f"{name} (covariate)", listed(covariate.levels or ("one level",)), origin(covariate), "; ".join(why)
    for metric in plan.counted_metrics:
        limits = "; ".join(limits_of(metric.metric(), metric, metric.events(plan.k)))
        yield f"{metric.name} (metric)", "sums by class or arm", limits, f"the effect on {metric.name}"


def sheet_html(data: Mapping[str, Any]) -> str:
    """Return the sheet as one HTML file to print, sign and file."""
    names = listed(data["experiments"])
    entries = [(key.replace("_", " "), SHEET_ENTRIES[key], answer or _BLANK) for key, answer in data["entries"].items()]
    sections = (
        Section("Who, whose and why", (Table(("entry", "what it is", "answer"), tuple(entries)),), "who"),
        Section("Why each field", (Table(FIELD, tuple(data["fields"])),), "fields"),
        *(Section(heading, (places_table(data["places"][way]),), way) for way, heading in _WAYS.items()),
        Section("Reviewed", (f"By {_BLANK} on {_BLANK}",), "signed"),
    )
    lede = "A record of processing, filled in from the plan. Strike out the way of counting that you do not use."
    header = header_html("Data-protection sheet", names, lede, escape(data["safeguard"]))
    made = "from a plan: not legal advice"
    return Page(f"Data-protection sheet: {names}", header, page_sections(sections), made, OFFICER_STYLE).to_html()
