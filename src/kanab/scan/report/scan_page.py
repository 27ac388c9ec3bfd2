"""Scans as a report in one file: maps of all pairs, the alarms, and what they look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from html import escape
from typing import Any

from kanab.errors import AnalysisError
from kanab.report.digits import Row, error_figures, spoken_p
from kanab.report.drawing import WIDTH
from kanab.report.html_page import (
    Page,
    PageSection,
    bullets,
    card_table,
    filled,
    header_html,
    marked,
    page_sections,
    table_html,
)
from kanab.report.words import is_internal
from kanab.scan.report.scan_pictures import (
    MARKS,
    effects_figure,
    expected_figure,
    heat_map,
    map_key,
    marks_of,
)
from kanab.scan.report.scan_words import (
    FEW_ROWS,
    INTERNAL_SCAN,
    PAIRS,
    alarm_count,
    alarms,
    effect_sentences,
    expectation,
    follow_up_sentences,
    kind_of_scan,
    means_table,
    name_sides,
    outcome,
    plain_sections,
    ranked_table,
    rows_repeat,
    scope_line,
    strongest,
)
from kanab.tabular import Table, p_value

Data = Mapping[str, Any]

OPENED = 3
"""So many flagged tests are unfolded at once; the others wait for a click."""

SCAN_STYLE = """
a{color:var(--up)}
h3{margin:1.75rem 0 .6rem}
h2+h3,article:first-of-type h3{margin-top:0}
.v{white-space:nowrap}
.mark{display:inline-block;width:1.2em}
.interference,.differs{font-weight:600;color:var(--alarm)}
.watch{font-weight:600;color:var(--down)}
tbody th{overflow-wrap:anywhere}
svg a:focus-visible{outline:2px solid var(--ink)}
.maps{overflow-x:auto}
.maps svg.large{max-width:none}
.key+figure{margin-bottom:1rem}
.key+figure+.key{margin-top:0}
section>figure+article{margin-top:1.25rem}
details{border-top:1px solid var(--line);padding:.7rem 0}
details:last-of-type{padding-bottom:0}
.pair>figure+figure{margin-top:0}
summary{cursor:pointer;overflow-wrap:anywhere}
summary strong{margin-right:.6rem}
summary span{color:var(--muted);font-size:.9rem}
@media screen and (max-width:40rem){.cards td:last-child{grid-column:1/-1}}
@media (min-width:48rem){.maps svg.large{max-width:100%}}
@media print{.maps{overflow:visible}.maps svg.large{max-width:14cm}
details{break-inside:avoid}
details::details-content{content-visibility:visible;display:block}}
"""
"""What the page of a scan adds to the style sheet of all reports."""

_MAP_KEY = (
    "Every square is a pair of experiments, named at the side and numbered along the top; each pair appears on both "
    "sides of the diagonal. Empty: not testable. Marks show the verdict after correction, shades the raw p."
)
_EXPECTED_KEY = (
    "The chart beside or below the map compares p-values with chance. On the line: as many small ones as chance makes. "
    "Points above the line at the right are more than chance; a triangle is beyond the edge."
)
_LISTED_KEY = "Drawn are the {listed:,} most urgent of {tests:,} tests; squares of the others are left plain."
_EFFECTS_KEY = "Dot, the effect; line, its 95 % interval; upright mark, no effect. Blue where the interval excludes 0."


def scan_report(*, pairs: Data | None = None, segments: Data | None = None) -> str:
    """Return the report of one or both scans as one HTML file, without script or outside request.

    Raises `AnalysisError` where neither is given.
    """
    scans = [data for data in (pairs, segments) if data is not None]
    if not scans:
        raise AnalysisError("there is no scan to report", "Give pairs, segments or both.")
    first, *second = scans
    sections = (*scan_sections(first), *(section for data in second for section in scan_sections(data, "by-segment-")))
    internal = INTERNAL_SCAN if any(map(is_internal, scans)) else ""
    head, made = f"Scan: {scope_line(first)}", "from counts and sums"
    return Page(head, _header(first), sections, made, SCAN_STYLE, internal=internal).to_html()


def _header(data: Data) -> str:
    scope, _, people = scope_line(data).partition("; ")
    experiments, _, rest = scope.partition(", ")
    lede = f"{rest}; {people}" if people else rest
    return header_html("Scan", experiments, *(marked(text) for text in (f"{lede}.", expectation(data)) if text))


def scan_sections(data: Data, prefix: str = "") -> tuple[PageSection, ...]:
    """Return the sections of one scan; the second on a page has a ``prefix``, and says first what it is."""
    pairs = kind_of_scan(data) is PAIRS
    intro = bullets([f"{scope_line(data)}.", expectation(data)]) if prefix else ""
    question = "Which experiments interfere?" if pairs else "Which effects differ?"
    sections = (
        PageSection("attention", question, intro + _attention(data)),
        PageSection("flagged", "What flagged tests look like", _flagged(data, prefix)),
        PageSection("maps", "Every pair at a glance", _maps(data, prefix) if pairs else ""),
        *page_sections(plain_sections(data)),
    )
    if prefix:
        first, *others = sections
        named = (replace(each, heading=f"By segment: {each.heading}") for each in others)
        sections = tuple(replace(each, name=prefix + each.name) for each in (first, *named))
    return filled(*sections)


def _attention(data: Data) -> str:
    """Say the verdict in a sentence, then show the ranked table."""
    flagged, shown = alarms(data), strongest(data)
    call = "".join(f'<p class="call alarm" role="alert">{marked(caution)}</p>' for caution in rows_repeat(data))
    if sentence := outcome(data):
        alarm = ' alarm" role="alert' if flagged or data["verdicts"].get("assignment broken") else ""
        how, _, verdict_text = sentence.partition("): ") if "): " in sentence else sentence.partition(": ")
        bracket = ")" if "): " in sentence else ""
        verdict = marked(verdict_text[:1].upper() + verdict_text[1:])
        call += f'<p class="call{alarm}"><strong>{verdict}</strong> {marked(how + bracket)}.</p>'
    if not shown:
        return f"{call}<p>Nothing could be tested.</p>"
    cut = f'<p class="key">The {len(shown)} most urgent of {alarm_count(data):,}.</p>'
    cut = cut if len(flagged) > len(shown) else ""
    near = "" if flagged else '<p class="key">The tests with the smallest p:</p>'
    return f"{call}{cut}{near}{_ranked(data, shown)}"


def _ranked(data: Data, rows: list[Row]) -> str:
    """Show the same columns as on a terminal, both sides of a test in the first."""
    plain = ranked_table(data, rows)
    joined = kind_of_scan(data).joined
    header = (f" {joined} ".join(plain.header[:2]) if joined == "by" else "pair", *plain.header[2:])
    body = []
    for row, cells in zip(rows, plain.rows, strict=True):
        mark = f'<span class="mark" aria-hidden="true">{MARKS.get(row["verdict"], "○")}</span>'
        verdict = f'<span class="{row["verdict"].split()[0]}">{mark}{escape(cells[-1])}</span>'
        body.append((escape(name_sides(data, row)), *(escape(cell) for cell in cells[2:-1]), verdict))
    return card_table("Tests by urgency", header, body, "cards wide")


def _maps(data: Data, prefix: str) -> str:
    """Draw for every metric its map, and its p-values against chance; a handful of tests is read as a table."""
    if len(data[PAIRS.rows]) <= FEW_ROWS and not data.get("unlisted"):
        return ""
    articles = []
    for metric in data["metrics"]:
        links = {
            (pair["a"], pair["b"]): f"{prefix}flag-{at}"
            for at, pair in enumerate(data["effects"])
            if pair["metric"] == metric
        }
        drawn, chance = heat_map(data, metric, links), expected_figure(data, metric)
        beside = "pair" if drawn.wide <= WIDTH and chance else "pair words"
        region = f'<figure class="maps" tabindex="0" role="region" aria-label="{escape(f"Map of {metric}")}">'
        figures = f"{region}{drawn.to_html()}</figure>" + (f"<figure>{chance.to_html()}</figure>" if chance else "")
        articles.append(f'<article>\n<h3>{escape(metric)}</h3>\n<div class="{beside}">{figures}</div>\n</article>')
    keys = [_MAP_KEY]
    if data.get("unlisted"):
        listed = len(data[PAIRS.rows])
        keys.append(_LISTED_KEY.format(listed=listed, tests=listed + data["unlisted"]["tests"]))
    return (
        "".join(f'<p class="key">{escape(key)}</p>' for key in keys)
        + f"<figure>{map_key(marks_of(data)).to_html()}</figure>"
        + f'<p class="key">{escape(_EXPECTED_KEY)}</p>'
        + "\n".join(articles)
    )


def _flagged(data: Data, prefix: str) -> str:
    """Show each flagged test, to be unfolded: its words, its numbers, its picture."""
    rows = {(name_sides(data, row), row["metric"]): row for row in alarms(data)}
    if kind_of_scan(data) is PAIRS:
        flagged = []
        for pair in data["effects"]:
            words = bullets(effect_sentences(data, pair))
            name = f"Means of {pair['metric']}: {pair['a']} × {pair['b']}"
            means = table_html(means_table(data, pair), name, kind="grid")
            drawn = f"<figure>{effects_figure(data, pair).to_html()}</figure>" if pair["effects"] else ""
            flagged.append((pair, f'<div class="pair"><div>{words}{means}</div>{drawn}</div>'))
    else:
        flagged = [(row, _follow_ups_body(data, row)) for row in alarms(data) if row["follow_ups"]]
    details = []
    for at, (test, body) in enumerate(flagged):
        name, metric = name_sides(data, test), test["metric"]
        row = rows.get((name, metric))
        verdict = f", {row['verdict']}, corrected {spoken_p(row['p_adjusted'])}" if row else ""
        details.append(
            f"<details{' open' if at < OPENED else ''}><summary><strong>{escape(name)}</strong>"
            f'<span>{marked(metric + verdict)}</span></summary><div id="{prefix}flag-{at}">{body}</div></details>'
        )
    key = f'<p class="key">{escape(_EFFECTS_KEY)}</p>' if details and kind_of_scan(data) is PAIRS else ""
    return key + "\n".join(details)


def _follow_ups_body(data: Data, test: Row) -> str:
    """Compare each level with the rest, in words and as a table."""
    figures = error_figures([row["se"] for row in test["follow_ups"]], share=test["metric"] in data["shares"])
    rows = tuple(
        (
            row["level"], f"{row['arm']} − {row['control']}",
            *(figures.change(row[side], signed=True) for side in ("effect", "rest", "difference")),
            figures.bare(row["se"]), p_value(row["p"]), p_value(row["p_adjusted"]),
        )
        for row in test["follow_ups"]
    )  # fmt: skip
    header = (test["covariate"], "arms", "effect", "in the rest", "difference", "SE", "p", "corrected p")
    name = f"{test['experiment']} by {test['covariate']}: {test['metric']}"
    sentences = bullets(follow_up_sentences(data, test))
    return f'<div class="pair words">{sentences}{table_html(Table(header, rows), name, kind="cards wide")}</div>'
