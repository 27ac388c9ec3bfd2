"""The forecast of a plan as one page: tables of classes and of effects, and how effects shrink with the days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kanab.planning.epsilon import PersonAccount
from kanab.planning.report.power_html import PLAN_STYLE
from kanab.report.digits import bind_numbers
from kanab.report.figure import Figure
from kanab.report.html_page import Page, PageSection, card_table, filled, header_html
from kanab.tabular import Table

Data = Mapping[str, Any]

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
    spent = "" if account is None else f"<p>{escape(bind_numbers(account.sentence))}</p>{_table(account.table)}"
    notes = "".join(f"<li>{escape(bind_numbers(note))}</li>" for note in data["notes"])
    header = header_html("Forecast of a plan", name, escape(bind_numbers(summary)))
    sections = filled(
        PageSection("tables", "When is every table whole?", whole),
        PageSection("effects", "Which effects can be seen?", "".join(effects) + pictures),
        PageSection("account", "What does one person spend?", spent),
        PageSection("epsilon", "What does ε cost?", noise),
        PageSection("basis", "What this rests on", f'<ul class="said">{notes}</ul>'),
    )
    return Page(f"Forecast: {name}", header, sections, "before anybody was counted", PLAN_STYLE).to_html()


def _table(table: Table) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return card_table(table.header[0], table.header, rows, "cards wide")
