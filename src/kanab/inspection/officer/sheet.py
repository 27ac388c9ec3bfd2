"""The data-protection sheet of a plan: purposes, categories, retention and recipients, as data and as a page to print.

What a plan decides is filled in. What only people can decide (who is responsible, on which legal basis, who else reads
the results) stands in the plan's table ``[sheet]``, or is left open, to be filled in by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from kanab.errors import listed
from kanab.inspection.officer.fields import limits_of, origin, purposes
from kanab.inspection.officer.page import OFFICER_STYLE
from kanab.inspection.officer.statements import places
from kanab.plan.model import SHEET_ENTRIES, Cohorts, Plan
from kanab.plan.notify import NotifyPlan, host_of
from kanab.report.page import Page, PageSection, card_table, header_html

FORMAT = "kanab-sheet/1"

Plain = dict[str, Any]

_STYLE = (
    OFFICER_STYLE
    + """
.blank{display:block;min-width:14rem;min-height:2.4rem;border-bottom:1px solid}
.todo{font-weight:400;max-width:24rem}
"""
)

_WAYS = (("collector", "With a collector (kanab serve)"), ("rows", "From rows in a warehouse (kanab release)"))


def data_sheet(plan: Plan) -> Plain:
    """Return what a record of processing asks about a plan; see ``sheet_html`` for a page of it.

    >>> from kanab.plan.file import parse_plan
    >>> sheet = data_sheet(parse_plan('''
    ... [metrics]
    ... bought = { kind = "binary" }
    ... [experiments.checkout]
    ... arms = { A = 1, B = 1 }
    ... [sheet]
    ... controller = "Shop Ltd"
    ... '''))
    >>> sheet["entries"]["controller"], sheet["entries"]["legal_basis"]
    ('Shop Ltd', None)
    >>> sheet["purposes"]
    [{'table': 'checkout', 'asks': ['effect: how do the arms A, B differ in bought?']}]
    """
    return {
        "format": FORMAT,
        "experiments": list(plan.experiment_names),
        "entries": {key: plan.sheet.get(key) for key in SHEET_ENTRIES},
        "purposes": list(_purposes(plan)),
        "fields": list(_fields(plan)),
        "places": {way: places([{"collector": way == "collector", "previous": None, "k": plan.k}]) for way, _ in _WAYS},
        "retention": list(_retention(plan)),
        "safeguards": list(_safeguards(plan)),
    }


def _purposes(plan: Plan) -> Iterator[Plain]:
    """Yield what every experiment is for, and then what each further table of it answers."""
    for experiment in plan.experiments:
        arms = f" {listed(experiment.arms)}" if experiment.arms else ""
        effect = f"effect: how do the arms{arms} differ in {listed(plan.outcomes)}?"
        yield {"table": experiment.name, "asks": [effect]}
        own = [
            link for link in plan.linkages if link.experiments[0] == experiment.name and link.name != experiment.name
        ]
        yield from ({"table": link.name, "asks": purposes(link.name, plan)} for link in own)


def _fields(plan: Plan) -> Iterator[Plain]:
    for experiment in plan.experiments:
        says = f"the arm that was drawn: {listed(experiment.arms)}" if experiment.arms else "the arm that was drawn"
        yield {"field": experiment.name, "category": "assignment", "says": says}
    for name in plan.covariates_in_use:
        covariate = plan.covariate(name)
        levels = f"one of: {listed(covariate.levels)}" if covariate.levels else origin(covariate)
        yield {"field": name, "category": "known beforehand", "says": levels}
    for metric in plan.counted_metrics:
        says = "; ".join(limits_of(metric.metric(), metric, metric.events(plan.k)))
        sensitive = "behaviour, marked sensitive" if metric.sensitive != "no" else "behaviour"
        yield {"field": metric.name, "category": sensitive, "says": says}


def _retention(plan: Plan) -> Iterator[Plain]:
    cohorts, life = plan.cohorts, plan.nonce_life
    yield {
        "where": "on the device",
        "how_long": "Arm, levels and running totals until the person's window is over"
        + ("" if cohorts is None else f" ({cohorts.window} after the period of enrollment)")
        + "; after that the arm, and that somebody took part, until a visit after the experiment has left the plan, "
        "or until storage is cleared or the person opts out. "
        'With storage: "session" until the tab is closed.',
    }
    yield {"where": "random numbers of messages", "how_long": f"As keyed hashes for {life}."}
    yield {"where": "open counters, encrypted", "how_long": _until_seal(cohorts, life)}
    yield {"where": "addresses", "how_long": "As keyed hashes in memory for seconds, for the rate limit; no log."}
    keep = plan.sheet.get("keep")
    yield {
        "where": "sealed batches and releases",
        "how_long": keep or "As long as you keep them; say it in [sheet] keep.",
    }
    if plan.export is not None:
        yield {"where": "exported copies", "how_long": "A copy of every sealed batch goes where [export] says."}
    if plan.notify is not None:
        yield {
            "where": f"messages about results: {listed(_told(plan.notify))}",
            "how_long": "What was sealed, in sentences; as long as who gets them keeps them.",
        }


def _told(notify: NotifyPlan) -> Iterator[str]:
    """Yield who gets messages about what was sealed."""
    if notify.slack:
        yield "Slack or another chat"
    if notify.json:
        yield "a webhook" if notify.json_to is None else f"the webhook at {host_of(notify.json_to)}"
    if notify.mail is not None:
        yield f"{listed(notify.mail.to)} by mail"


def _until_seal(cohorts: Cohorts | None, life: str) -> str:
    """Return how long counters of an open cohort stay."""
    if cohorts is None or cohorts.seal == "end":
        return "Until kanab seal is run; then they are deleted and their key is erased."
    return (
        f"Until the first seal (every {cohorts.seal}) after the period ({cohorts.every}), the window "
        f"({cohorts.window}) and the life of messages ({life}) are over; then they are deleted and their key is erased."
    )


def _safeguards(plan: Plan) -> Iterator[str]:
    if plan.budget is not None:
        yield (
            f"Every released number has noise: all releases together, over all experiments, tell about one person at "
            f"most ε = {plan.budget.epsilon:g} (δ = {plan.budget.delta:g})."
        )
    else:
        yield f"Every released class holds nobody or at least {plan.k} people; levels with fewer are merged."
        yield "No combination of released sums, over all tables of a ledger, rests on fewer than that many people."
    yield "What the plan does not name cannot be stored: no identifier, no time, no address of a page, no free text."
    yield "Values are cut to their declared bounds before they leave the device, and again where they are counted."
    yield "Global Privacy Control is honoured; opting out deletes what the device remembers and sends nothing more."
    yield (
        "Counters that are not sealed yet are encrypted; the seal erases their key."
        if plan.durability == "disk"
        else "Counters that are not sealed yet are in memory only."
    )
    if plan.origins:
        yield f"Messages are taken from these pages only: {listed(plan.origins)}."


# ── the page ───────────────────────────────────────────────────────────────────────────────────


def sheet_html(data: Mapping[str, Any]) -> str:
    """Return the sheet as one HTML file to print, sign and file."""
    names = listed(data["experiments"])
    sections = (
        PageSection("who", "Who, whose and why", _entries(data["entries"])),
        PageSection("purposes", "Purposes", _table("Purposes", ("table", "asks"), data["purposes"])),
        PageSection("fields", "Categories of data", _table("Fields", ("field", "category", "says"), data["fields"])),
        *(
            PageSection(way, heading, _table(heading, ("place", "what", "who", "how_long"), data["places"][way]))
            for way, heading in _WAYS
        ),
        PageSection("retention", "Retention", _table("Retention", ("where", "how_long"), data["retention"])),
        PageSection("safeguards", "Safeguards", f"<ul>{''.join(map(_item, data['safeguards']))}</ul>"),
        PageSection("signed", "Reviewed", _table("Reviewed", ("by", "on"), [{"by": None, "on": None}])),
    )
    lede = "A record of processing, filled in from the plan. Strike out the way of counting that you do not use."
    header = header_html("Data-protection sheet", names, lede)
    return Page(f"Data-protection sheet: {names}", header, sections, "from a plan: not legal advice", _STYLE).to_html()


def _item(text: str) -> str:
    return f"<li>{escape(text)}</li>"


def _cell(value: Any) -> str:
    """Return a text, texts or, for nothing, a line to write on."""
    if value is None:
        return '<span class="blank"></span>'
    return escape(value if isinstance(value, str) else "; ".join(value))


def _entries(entries: Mapping[str, str | None]) -> str:
    rows = [
        (f'{escape(key.replace("_", " "))}<span class="todo">{escape(SHEET_ENTRIES[key])}</span>', _cell(value))
        for key, value in entries.items()
    ]
    return card_table("Who, whose and why", ("entry", "answer"), rows, "cards wide prose")


def _table(name: str, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    header = [key.replace("_", " ") for key in keys]
    return card_table(name, header, [[_cell(row[key]) for key in keys] for row in rows], "cards wide prose")
