"""What each page shows, as texts and pieces of HTML for its template; nothing here knows of requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from kanab.dashboard.report_sections import Sections, sections_of, shortened
from kanab.dashboard.results import Point
from kanab.dashboard.timeline import history_table, lines_of, timeline
from kanab.errors import MissingExtraError, listed
from kanab.inspection.officer.page import privacy_html
from kanab.report.charts import report_charts
from kanab.report.html import bullets, report_html, table_html
from kanab.report.page import card_table
from kanab.report.words import merged_levels, summary, title
from kanab.scan.report.charts import MARKS as VERDICT_MARKS
from kanab.scan.report.charts import heat_map, legend, marks_of
from kanab.scan.report.html import scan_report
from kanab.scan.report.tables import ranked_table
from kanab.scan.report.words import expectation, named, scanned
from kanab.scan.stats.verdicts import ORDER
from kanab.tabular import Table

MOST_LINES = 12
"""So many metrics and arms are drawn over the seals; the table below holds all."""

MOST_PAIRS = 200
"""So many pairs are in the list at once; filters bring others."""

MOST_RECEIPTS = 12
"""So many releases have their receipts on the page; the officer's report in one file has all."""

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """A section of a page: its anchor, heading and body."""

    name: str
    heading: Markup
    body: Markup


def as_html(text: str) -> Markup:
    """A piece that is HTML already: everything in it that comes from a plan or from data was escaped."""
    return Markup(text)


def _parts(found: Sections, *names: str) -> list[Part]:
    return [Part(name, Markup(found[name][0]), Markup(found[name][1])) for name in names if name in found]


def _part(name: str, heading: str, body: str) -> Part:
    return Part(name, escape(heading), Markup(body))


# ── an experiment ──────────────────────────────────────────────────────────────────────────────


def charts_of(data: Data) -> dict[str, str]:
    """The pictures of a readout; none where the extra is not installed."""
    try:
        return report_charts(shortened(data))
    except MissingExtraError:
        return {}


def experiment_parts(data: Data, charts: Mapping[str, str], points: Sequence[Point]) -> list[Part]:
    """The readout as the report has it, its history over the seals, and what was merged."""
    report = sections_of(report_html(shortened(data), charts=charts))
    history = [_part("history", "How it settled over the seals", _history(points))] if len(points) > 1 else []
    further = [name for name in report if name in ("together", "contrasts", "claims", "beliefs")]
    return [
        *_parts(report, "cautions", "arrival", "effects", *further, "segments"),
        *history,
        _part("merged", "What was merged, what was left out", _merged(data)),
        *_parts(report, "privacy", "notes", "method"),
    ]


def _history(points: Sequence[Point]) -> str:
    lines = lines_of(points)
    drawn = [svg for metric, arm in lines[:MOST_LINES] if (svg := timeline(points, metric, arm))]
    pictures = "".join(f"<figure>{svg}</figure>" for svg in drawn)
    more = f" The first {MOST_LINES} of {len(lines)} are drawn." if len(lines) > MOST_LINES else ""
    key = (
        "Each dot is the effect in everything that was sealed up to then, with its interval; blue where 0 is outside, "
        f"which counts only at looks that were planned. The level line is no difference.{more}"
    )
    table = table_html(history_table(points), "Effects after each seal", kind="cards wide")
    return (
        f'<p class="key">{escape(key)}</p><div class="lines-grid">{pictures}</div>'
        f"<details><summary>The same as numbers</summary>{table}</details>"
    )


def _merged(data: Data) -> str:
    rows = tuple(
        (name.removeprefix(f"{data['experiment']}/"), new, listed(olds))
        for name, levels in data["privacy"]["merged"].items()
        for new, olds in levels.items()
    )
    said = [] if merged_levels(data) else ["No level was merged: every class had enough people."]
    own = data["experiment"]
    gone = [text for name, text in data["privacy"]["left_out"].items() if name.split("/")[0].split(":")[0] == own]
    said += [f"{text}." if not text.endswith(".") else text for text in gone]
    said += [] if gone else ["Nothing of this experiment was left out."]
    table = Table(("covariate", "level", "stands for"), rows)
    return (table_html(table, "Merged levels", kind="cards wide") if rows else "") + bullets(said)


def experiment_lead(data: Data) -> list[str]:
    """Who was in it, and how many of the comparisons are clear."""
    people = title(data).removeprefix(f"{data['experiment']}: ")
    return [f"{people}.", summary(data)]


# ── interactions ───────────────────────────────────────────────────────────────────────────────


def interaction_parts(data: Data) -> list[Part]:
    """The scan as its report has it, with a map of every metric however few pairs there are."""
    report = sections_of(scan_report(pairs=data))
    maps = _parts(report, "maps") or [_part("maps", "Every pair at a glance", _maps(data))]
    return [
        *_parts(report, "attention"),
        *maps,
        *_parts(report, "flagged", "rest", "assignment", "untestable", "privacy", "notes", "method"),
    ]


def _maps(data: Data) -> str:
    flagged = list(enumerate(data["effects"]))
    links = {
        metric: {(one["a"], one["b"]): f"flag-{at}" for at, one in flagged if one["metric"] == metric}
        for metric in data["metrics"]
    }
    drawn = "".join(
        f"<article><h3>{escape(metric)}</h3>"
        f'<figure class="maps">{heat_map(data, metric, links[metric])}</figure></article>'
        for metric in data["metrics"]
    )
    return f"<figure>{legend(marks_of(data))}</figure>{drawn}"


def interaction_lead(data: Data) -> list[str]:
    """What was scanned, and what chance alone would show."""
    return [text for text in (f"{scanned(data)}.", expectation(data)) if text]


def pair_list(data: Data, verdict: str, metric: str, experiment: str) -> tuple[Markup, int]:
    """The pairs that were asked for, most urgent first, as a table; and how many there are."""
    rows = [
        row
        for row in data["pairs"]
        if verdict in ("", row["verdict"]) and metric in ("", row["metric"]) and experiment in ("", row["a"], row["b"])
    ]
    rows.sort(key=lambda row: (ORDER.index(row["verdict"]), 2.0 if row["p_robust"] is None else row["p_robust"]))
    shown = rows[:MOST_PAIRS]
    if not shown:
        return Markup("<p>No pair is like that.</p>"), 0
    plain = ranked_table(data, shown)
    body = []
    for row, cells in zip(shown, plain.rows, strict=True):
        mark = VERDICT_MARKS.get(row["verdict"], "○")
        said = f'<span class="{escape(row["verdict"].split()[0])}"><span class="mark" aria-hidden="true">{mark}</span>'
        body.append((str(escape(named(data, row))), *map(escape, cells[2:-1]), f"{said}{escape(cells[-1])}</span>"))
    return Markup(card_table("Every pair", ("pair", *plain.header[2:]), body, "cards wide")), len(rows)


# ── privacy ────────────────────────────────────────────────────────────────────────────────────


def privacy_parts(account: Data) -> tuple[list[Part], int]:
    """The officer's account as its report has it: flow, receipts, questions, attacks, risks, ledger.

    Of many releases the newest have their receipts here; also how many have not.
    """
    found = sections_of(privacy_html(account))
    older = [name for name in found if name.startswith("file-")][:-MOST_RECEIPTS]
    return _parts(found, *(name for name in found if name not in older)), len(older)
