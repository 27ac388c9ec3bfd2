"""Pages about plans: a planned experiment with its curves, and the forecast of a plan with its tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.choices import INTERNAL
from kanab.planning.epsilon import PersonAccount
from kanab.planning.planning_pictures import power_figures
from kanab.planning.power_words import answer, basis_sentences, chance, change, curve_table, how_tested, otherwise
from kanab.report.digits import percent
from kanab.report.document import Part, Section
from kanab.report.figure import Figure
from kanab.report.html_page import Page, header_html, marked, page_sections
from kanab.report.words import is_internal
from kanab.tabular import Table

Data = Mapping[str, Any]
_SIDE_BY_SIDE = """
@media print,(min-width:58rem){figure:has(+figure),figure+figure{display:inline-block;vertical-align:top;
width:calc(50% - 1.25rem)}figure+figure{margin:0 0 0 2.5rem}}
"""
"""What pages about plans add to the style sheet of all reports: two pictures stand side by side where there is room."""

_QUESTIONS = {"people": "How many people?", "effect": "How small an effect?", "power": "How sure?"}


def power_report(data: Data, points: Sequence[Data]) -> str:
    """Return the page in one file without script or outside request; ``points`` are those of both curves."""
    question = _QUESTIONS[data["solved"]]
    said = " ".join([*otherwise(data), how_tested(data)])
    header = header_html("Plan of an experiment", question, marked(answer(data)), marked(said))
    key = (
        f"What is found with power {chance(points[0]['at_power'])}, and how likely a change of {change(data)} is to be "
        "found. The axis of people is logarithmic: equal steps multiply their number."
    )
    whole = sum(data["arms"].values())
    arms = [
        (f"{arm}, the control" if arm == data["control"] else arm, f"{n:,}", percent(n / whole, 1))
        for arm, n in data["arms"].items()
    ]
    sections = page_sections([
        Section("With fewer or more people", (*power_figures(data, points), curve_table(data)), "curve", key=key),
        Section("People per arm", (Table(("arm", "people", "share"), tuple(arms)),), "arms"),
        Section("What this rests on", tuple(basis_sentences(data)), "basis"),
    ])  # fmt: skip
    internal = INTERNAL if is_internal(data) else ""
    made = "from counts and sums" if internal else "from numbers alone"
    return Page(f"{question} {answer(data)}", header, sections, made, _SIDE_BY_SIDE, internal).to_html()


# ── the forecast of a plan ─────────────────────────────────────────────────────────────────────

_KEY = (
    "In the pictures: the smallest change that is found with the planned power, by the days that people are let in. "
    "Grey, plain; blue, after the adjustment that helps most. The dots are the plan as it is."
)


_EPSILON_KEY = (
    "In the picture: how much wider intervals are than without noise, by ε. A smaller ε is a stronger promise to "
    "everybody, and more noise."
)


def plan_report(
    data: Data,
    name: str,
    summary: str,
    tables: Sequence[Table],
    *,
    figures: Sequence[Figure] = (),
    epsilon: Figure | None = None,
    account: PersonAccount | None = None,
) -> str:
    """Return the page in one file without script or outside request; ``tables`` are those of the forecast."""
    whole, *effects = tables
    noise: list[Part] = [effects.pop()] if data.get("epsilons") else []
    noise = [_EPSILON_KEY, epsilon, *noise] if epsilon else noise
    spent: list[Part] = [] if account is None else [account.sentence, account.table]
    sections = [
        Section("When is every table whole?", (whole,), "tables"),
        Section("Which effects can be seen?", (*figures, *effects), "effects", key=_KEY if figures else ""),
        Section("What does one person spend?", tuple(spent), "account"),
        Section("What does ε cost?", tuple(noise), "epsilon"),
        Section("What this rests on", tuple(data["notes"]), "basis"),
    ]
    header = header_html("Forecast of a plan", name, marked(summary))
    filled = page_sections(section for section in sections if section.parts)
    return Page(f"Forecast: {name}", header, filled, "before anybody was counted", _SIDE_BY_SIDE).to_html()
