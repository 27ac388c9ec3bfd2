"""Proposed shares in words, a table, a picture and a page, from the plain data."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from kanab.errors import listed
from kanab.report.axes import svg
from kanab.report.figures import figures_of, percent
from kanab.report.html import bullets, marked
from kanab.report.page import Page, PageSection, header_html, table_html
from kanab.report.palette import INK, MUTED, QUIET, TRACK, UP, WIDTH
from kanab.report.sections import Section
from kanab.report.text import mapped, printable, sections_text
from kanab.tabular import Table

Data = Mapping[str, Any]

_KEY = "Grey, the share until now; blue, the share that is proposed for the next period."


def shares_text(data: Data) -> str:
    """Return proposed shares for a terminal."""
    clean = mapped(data, printable)
    section = Section("Which shares next?", (*shares_sentences(clean), shares_table(clean)), "shares")
    return sections_text([shares_title(clean)], [section], None)


def shares_title(data: Data) -> str:
    """Return what the proposal rests on."""
    batches = "1 batch" if data["batches"] == 1 else f"{data['batches']} batches"
    return f"{data['experiment']}: shares for the next period, from {batches}, by {data['metric']}."


def shares_sentences(data: Data) -> list[str]:
    """Say what to write into the plan, and how effects may be read."""
    shares = ", ".join(f"{arm['arm']} = {round(100 * arm['next_share'])}" for arm in data["arms"])
    adjusted = f" They are adjusted for {listed(data['covariates'])}." if data["covariates"] else ""
    return [
        f"In the plan, from the next period on: arms = {{ {shares} }}.",
        f"Each share is the chance that the arm is the best ({data['better']} is better); every arm keeps at least "
        f"{percent(data['least_share'])}.",
        "Effects are read batch by batch and then combined, because shares follow results: means over all people "
        f"would be biased.{adjusted} Planned looks and ordinary p-values do not hold any more.",
    ]


def shares_table(data: Data) -> Table:
    """Return every arm with its effect, its chance and its shares."""
    figures = figures_of([arm for arm in data["arms"] if arm["interval"]], share=data["binary"])
    rows = [
        (
            arm["arm"], f"{arm['people']:,}", figures.bare(arm["estimate"], signed=True),
            figures.between(arm["interval"]), percent(round(arm["best"], 3), 1), percent(round(arm["share"], 3), 1),
            percent(arm["next_share"], 1),
        )
        for arm in data["arms"]
    ]  # fmt: skip
    unit = ", points" if data["binary"] else ""
    return Table(("arm", "people", f"effect{unit}", "interval", "best", "now", "next"), tuple(rows))


def shares_picture(data: Data) -> str:
    """Draw each arm's share until now and next, as two bars."""
    parts, described = [], []
    for place, arm in enumerate(data["arms"]):
        y = place * 46
        value = f"{percent(round(arm['share'], 3), 1)} → {percent(arm['next_share'], 1)}"
        parts += [
            f'<text x="0" y="{y + 13}" font-size="14" fill="{INK}">{escape(arm["arm"])}</text>',
            f'<text x="{WIDTH}" y="{y + 13}" text-anchor="end" font-size="14" fill="{INK}">{escape(value)}</text>',
            f'<rect y="{y + 19}" width="{WIDTH}" height="22" rx="4" fill="{TRACK}"/>',
            f'<rect y="{y + 21}" width="{WIDTH * arm["share"]:.1f}" height="8" rx="2" fill="{QUIET}"/>',
            f'<rect y="{y + 31}" width="{WIDTH * arm["next_share"]:.1f}" height="8" rx="2" fill="{UP}"/>',
        ]
        described.append(f"{arm['arm']} {value}")
    high = 46 * len(data["arms"])
    parts.append(f'<text x="0" y="{high + 16}" font-size="14" fill="{MUTED}">share of people, from 0 to 100 %</text>')
    return svg(high + 24, f"Shares of {data['experiment']}", f"{'; '.join(described)}.", parts)


def shares_report(data: Data) -> str:
    """Return the proposal as one HTML file, without script or outside request."""
    clean = mapped(data, printable)
    heading = f"Next shares of {clean['experiment']}"
    drawn = f'<p class="key">{escape(_KEY)}</p><figure>{shares_picture(clean)}</figure>'
    table = table_html(shares_table(clean), "Shares", kind="cards wide")
    body = bullets(shares_sentences(clean)) + drawn + table
    header = header_html("Reweighing", heading, marked(shares_title(clean)))
    section = PageSection("shares", "Which shares next?", body)
    return Page(heading, header, (section,), "from counts and sums", "\n.said+.key{margin-top:1rem}\n").to_html()
