"""Pages about plans: a planned experiment with its curves, and the forecast of a plan with its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kanab.choices import INTERNAL
from kanab.planning.epsilon import PersonAccount
from kanab.planning.power_words import (
    answer,
    basis_sentences,
    chance,
    change,
    curve_table,
    how_tested,
    otherwise,
)
from kanab.report.digits import bind_numbers, percent
from kanab.report.figure import Figure
from kanab.report.html_page import Page, PageSection, card_table, filled, header_html
from kanab.report.words import is_internal
from kanab.tabular import Table

Data = Mapping[str, Any]

PLAN_STYLE = """
.pair>figure+figure{margin-top:0}
"""
"""What pages about plans add to the style sheet of all reports."""

_QUESTIONS = {"people": "How many people?", "effect": "How small an effect?", "power": "How sure?"}


def power_report(data: Data, *, figures: Sequence[Figure]) -> str:
    """Return the page in one file without script or outside request; ``figures`` are those of ``power_figures``."""
    question = _QUESTIONS[data["solved"]]
    said = " ".join([*otherwise(data), how_tested(data)])
    header = header_html("Plan of an experiment", question, _escaped(answer(data)), _escaped(said))
    sections = filled(
        PageSection("curve", "With fewer or more people", _curves(data, figures)),
        PageSection("arms", "People per arm", _arms(data)),
        PageSection("basis", "What this rests on", _listed(basis_sentences(data))),
    )
    internal = INTERNAL if is_internal(data) else ""
    made = "from counts and sums" if internal else "from numbers alone"
    return Page(f"{question} {answer(data)}", header, sections, made, PLAN_STYLE, internal=internal).to_html()


def _curves(data: Data, figures: Sequence[Figure]) -> str:
    """Return both pictures side by side, then a few of their points as a table."""
    level = chance(data["curve"][0]["at_power"])
    key = (
        f"What is found with power {level}, and how likely a change of {change(data)} is to be found. "
        "The axis of people is logarithmic: equal steps multiply their number."
    )
    drawn = "".join(f"<figure>{figure.to_html()}</figure>" for figure in figures)
    drawn = f'<div class="pair">{drawn}</div>' if len(figures) > 1 else drawn
    table = curve_table(data)
    rows = [[f"{row[0]} people", *(escape(cell.replace("> ", "≥ ")) for cell in row[1:])] for row in table.rows]
    numbers = card_table("The curves in numbers", ("", *table.header[1:]), rows, "cards wide")
    return f'<p class="key">{_escaped(key)}</p>{drawn}{numbers}'


def _arms(data: Data) -> str:
    if not data["arms"]:
        return ""
    whole = sum(data["arms"].values())
    rows = [
        [escape(f"{arm}, the control" if arm == data["control"] else arm), f"{n:,}", percent(n / whole, 1)]
        for arm, n in data["arms"].items()
    ]
    return card_table("People per arm", ("arm", "people", "share"), rows, "cards few")


def _listed(sentences: list[str]) -> str:
    return f'<ul class="said">{"".join(f"<li>{_escaped(sentence)}</li>" for sentence in sentences)}</ul>'


def _escaped(sentence: str) -> str:
    return escape(bind_numbers(sentence))


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
    """Return the page in one file without script or outside request; ``tables`` are those of the forecast.

    ``epsilon`` is the picture of what noise costs, where the forecast has a table of it: the last one. ``account`` is
    what one person spends.
    """
    drawn = "".join(f"<figure>{figure.to_html()}</figure>" for figure in figures)
    pictures = f'<p class="key">{escape(_KEY)}</p><div class="pair">{drawn}</div>' if drawn else ""
    whole, *effects = (_table(table) for table in tables)
    noise = effects.pop() if data.get("epsilons") else ""
    if epsilon:
        noise += f'<p class="key">{escape(_EPSILON_KEY)}</p><figure>{epsilon.to_html()}</figure>'
    spent = "" if account is None else f"<p>{_escaped(account.sentence)}</p>{_table(account.table)}"
    header = header_html("Forecast of a plan", name, _escaped(summary))
    sections = filled(
        PageSection("tables", "When is every table whole?", whole),
        PageSection("effects", "Which effects can be seen?", "".join(effects) + pictures),
        PageSection("account", "What does one person spend?", spent),
        PageSection("epsilon", "What does ε cost?", noise),
        PageSection("basis", "What this rests on", _listed(data["notes"])),
    )
    return Page(f"Forecast: {name}", header, sections, "before anybody was counted", PLAN_STYLE).to_html()


def _table(table: Table) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return card_table(table.header[0], table.header, rows, "cards wide")
