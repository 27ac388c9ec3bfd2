"""What each page shows, as sections, texts and pieces of HTML for its template; nothing here knows of requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup, escape

from kanab.analysis.readout_page import report_page
from kanab.dashboard.results import HistoryPoint
from kanab.dashboard.timeline import history_table, lines_of, timeline
from kanab.errors import listed
from kanab.inspection.officer.officer_page import privacy_page
from kanab.privacy.release import concerns
from kanab.report.html_page import PageSection, bullets, card_table, table_html
from kanab.report.words import account_sentence, ended, merged_by_covariate, merged_levels
from kanab.scan.report.scan_page import scan_sections
from kanab.scan.report.scan_pictures import MARKS as VERDICT_MARKS
from kanab.scan.report.scan_pictures import heat_map, map_key, marks_of
from kanab.scan.report.scan_words import name_sides, ranked_table
from kanab.scan.stats.scan_verdicts import ORDER
from kanab.tabular import Table

MOST_SEGMENTS = 100
"""So many tests of segments, and so many levels of them, are on a page; the plain data hold all."""

MOST_LINES = 12
"""So many metrics and arms are drawn over the seals; the table below holds all."""

MOST_PAIRS = 200
"""So many pairs are in the list at once; filters bring others."""

MOST_RECEIPTS = 12
"""So many releases have their receipts on the page; the officer's report in one file has all."""

Data = Mapping[str, Any]
Sections = list[PageSection]


def _without(sections: Iterable[PageSection], *names: str) -> Sections:
    return [section for section in sections if section.name not in names]


def _only(sections: Iterable[PageSection], *names: str) -> Sections:
    return [section for section in sections if section.name in names]


# ── an experiment ──────────────────────────────────────────────────────────────────────────────


def experiment_sections(data: Data, points: Sequence[HistoryPoint]) -> Sections:
    """Return the readout as the report has it, its history over the seals, and what was merged."""
    report = report_page(shortened(data)).sections
    last = ("privacy", "notes", "method")
    history = PageSection("history", "How it settled over the seals", _history(points) if len(points) > 1 else "")
    merged = PageSection("merged", "What was merged, what was left out", _merged(data))
    return [*_without(report, *last), *([history] if history.body else []), merged, *_only(report, *last)]


def shortened(data: Data) -> dict[str, Any]:
    """Return a readout with no more tests of segments than a page can hold, the clearest first, and a note."""

    def clearest(rows: Iterable[Data]) -> list[Data]:
        return sorted(rows, key=lambda row: 2.0 if row["p_adjusted"] is None else row["p_adjusted"])

    short = dict(data)
    tests = clearest(row for row in data["segments"] if row["decides"])
    levels, effects = clearest(data["follow_ups"]), clearest(data["segment_effects"])
    if len(tests) > MOST_SEGMENTS:
        places = {(row["metric"], row["covariate"]) for row in tests[:MOST_SEGMENTS]}
        short["segments"] = [row for row in data["segments"] if (row["metric"], row["covariate"]) in places]
    if len(levels) > MOST_SEGMENTS:
        short["follow_ups"] = levels[:MOST_SEGMENTS]
    if len(effects) > MOST_SEGMENTS:
        short["segment_effects"] = effects[:MOST_SEGMENTS]
    if max(len(tests), len(levels), len(effects)) > MOST_SEGMENTS:
        note = f"Only the {MOST_SEGMENTS} clearest of many segments are shown; the plain data (/v1) hold all."
        short["notes"] = [*data["notes"], note]
    return short


def _history(points: Sequence[HistoryPoint]) -> str:
    lines = lines_of(points)
    drawn = [figure for metric, arm in lines[:MOST_LINES] if (figure := timeline(points, metric, arm))]
    pictures = "".join(f"<figure>{figure.to_html()}</figure>" for figure in drawn)
    more = f" The first {MOST_LINES} of {len(lines)} are drawn." if len(lines) > MOST_LINES else ""
    key = (
        "Each dot is the effect in everything that was sealed up to then, with its interval, in the colour of the "
        f"verdict at that seal, which counts only at looks that were planned. The level line is no difference.{more}"
    )
    table = table_html(history_table(points), "Effects after each seal", kind="cards wide")
    return (
        f'<p class="key">{escape(key)}</p><div class="lines-grid">{pictures}</div>'
        f"<details><summary>The same as numbers</summary>{table}</details>"
    )


def _merged(data: Data) -> str:
    rows = tuple(
        (name, new, listed(olds)) for name, levels in merged_by_covariate(data).items() for new, olds in levels.items()
    )
    sentences = [] if merged_levels(data) else ["No level was merged: every class had enough people."]
    left_out = [reason for name, reason in data["privacy"]["left_out"].items() if concerns(name, data["experiment"])]
    sentences += [ended(reason) for reason in left_out] or ["Nothing of this experiment was left out."]
    sentences += [account] if (account := account_sentence(data["privacy"])) else []
    table = Table(("covariate", "level", "stands for"), rows)
    return (table_html(table, "Merged levels", kind="cards wide") if rows else "") + bullets(sentences)


# ── interactions ───────────────────────────────────────────────────────────────────────────────


def interaction_sections(data: Data) -> Sections:
    """Return the scan as its report has it, with a map of every metric however few pairs there are."""
    report = scan_sections(data)
    maps = _only(report, "maps") or [PageSection("maps", "Every pair at a glance", _maps(data))]
    return [*_only(report, "attention"), *maps, *_without(report, "attention", "maps")]


def _maps(data: Data) -> str:
    flagged = list(enumerate(data["effects"]))
    links = {
        metric: {(pair["a"], pair["b"]): f"flag-{at}" for at, pair in flagged if pair["metric"] == metric}
        for metric in data["metrics"]
    }
    drawn = "".join(
        f"<article><h3>{escape(metric)}</h3>"
        f'<figure class="maps">{heat_map(data, metric, links[metric]).to_html()}</figure></article>'
        for metric in data["metrics"]
    )
    return f"<figure>{map_key(marks_of(data)).to_html()}</figure>{drawn}"


def pair_list(data: Data, verdict: str, metric: str, experiment: str) -> tuple[Markup, int]:
    """Return the pairs that were asked for, most urgent first, as a table; and how many there are."""
    rows = [
        row
        for row in data["pairs"]
        if verdict in ("", row["verdict"]) and metric in ("", row["metric"]) and experiment in ("", row["a"], row["b"])
    ]
    rows.sort(key=lambda row: (ORDER.index(row["verdict"]), 2.0 if row["p_robust"] is None else row["p_robust"]))
    shown = rows[:MOST_PAIRS]
    if not shown:
        return Markup("<p>No pair matches.</p>"), 0
    plain = ranked_table(data, shown)
    body = []
    for row, cells in zip(shown, plain.rows, strict=True):
        mark = VERDICT_MARKS.get(row["verdict"], "○")
        start = f'<span class="{escape(row["verdict"].split()[0])}"><span class="mark" aria-hidden="true">{mark}</span>'
        body.append(
            (str(escape(name_sides(data, row))), *map(escape, cells[2:-1]), f"{start}{escape(cells[-1])}</span>")
        )
    return Markup(card_table("Every pair", ("pair", *plain.header[2:]), body, "cards wide")), len(rows)


# ── privacy ────────────────────────────────────────────────────────────────────────────────────


def privacy_sections(account: Data) -> tuple[Sections, int]:
    """Return the officer's account as its report has it: flow, receipts, questions, attacks, risks, ledger.

    Of many releases only the newest have their receipts here; the number says how many have not.
    """
    sections = privacy_page(account).sections
    older = [section.name for section in sections if section.name.startswith("file-")][:-MOST_RECEIPTS]
    return _without(sections, *older), len(older)
