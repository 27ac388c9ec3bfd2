"""Scans as a document: the alarms, what they look like, every pair at a glance, and the figures of these."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from kanab.choices import INTERNAL
from kanab.report.colours import ALARM, DOWN, INK, MUTED, PAGE, QUIET, TRACK, UP
from kanab.report.digits import Row, spoken_p
from kanab.report.document import Alert, Fold, Part, Section
from kanab.report.drawing import ChartAxis
from kanab.report.figure import (
    Cell,
    Dots,
    Figure,
    Forest,
    ForestRow,
    HeatMap,
    Line,
    Mark,
    Paint,
    Plot,
    bar_of,
    chosen_figure,
    forest_figure,
)
from kanab.report.html_page import Report
from kanab.report.text import mapped, printable
from kanab.report.words import is_internal
from kanab.scan.report import scan_words as words
from kanab.scan.report.scan_words import PAIRS, effect_figures, kind_of_scan, name_sides, number_of
from kanab.scan.stats.scan_verdicts import ALARMS

Data = Mapping[str, Any]

MOST_FLAGGED = 5
"""So many flagged tests are explained one after the other; a page folds the others away."""

SCAN_STYLE = """
a{color:var(--up)}
svg a:focus-visible{outline:2px solid var(--ink)}
tbody th,summary{overflow-wrap:anywhere}
article:first-of-type{margin-top:1.25rem}
article h3{margin-bottom:.6rem}
.call{margin-top:1rem}
figure:has(svg.large){overflow-x:auto}
svg.large{max-width:none}
details{border-top:1px solid var(--line);padding:.7rem 0}
summary{cursor:pointer}
@media screen and (max-width:40rem){.cards td:last-child{grid-column:1/-1}}
@media (min-width:48rem){svg.large{max-width:100%}}
@media (min-width:58rem){article:has(>figure+figure):not(:has(svg.large)){display:grid;
grid-template-columns:1fr 27.5rem;gap:0 2.5rem}article>h3{grid-column:1/-1}article>figure+figure{margin-top:0}}
@media print{figure:has(svg.large){overflow:visible}svg.large{max-width:14cm}
details{break-inside:avoid}
details::details-content{content-visibility:visible;display:block}}
"""
"""What the page of a scan adds to the style sheet of all reports."""

_MAP_KEY = (
    "Every square is a pair of experiments, named at the side and numbered along the top; each pair appears on both "
    "sides of the diagonal. Empty: not testable. Marks show the verdict after correction, shades the raw p. "
    "The chart below a map compares p-values with chance. On the line: as many small ones as chance makes. "
    "Points above the line at the right are more than chance; a triangle is beyond the edge."
)
_LISTED_KEY = " Drawn are the {listed:,} most urgent of {tests:,} tests; squares of the others are left plain."
_EFFECTS_KEY = "Dot, the effect; line, its 95 % interval; upright mark, no effect. Blue where the interval excludes 0."


def scan_report(*scans: Data) -> Report:
    """Return one or both scans as a document; the headings of the second, by segment, say so."""
    first, *others = (mapped(data, printable) for data in scans)
    sections = scan_sections(first)
    for data in others:
        opening, *rest = scan_sections(data)
        for each in (replace(opening, parts=(*_lead(data), *opening.parts)), *rest):
            sections.append(replace(each, heading=f"By segment: {each.heading}", name=f"by-segment-{each.name}"))
    question = "Which experiments interfere?" if kind_of_scan(first) is PAIRS else "Which effects differ?"
    internal = words.INTERNAL_SCAN if any(map(is_internal, scans)) else ""
    return Report("Scan", question, _lead(first), sections, SCAN_STYLE, internal)


def _lead(data: Data) -> list[str | Alert]:
    lead: list[str | Alert] = [f"{words.scope_line(data)}.", words.expectation(data)]
    if sentence := words.outcome(data):
        alarmed = words.alarms(data) or data["verdicts"].get("assignment broken")
        lead.append(Alert(sentence, "alarm" if alarmed else "fine"))
    return lead


def scan_sections(data: Data) -> list[Section]:
    """Return the whole scan in reading order: the alarms, what they look like, the rest, and at what k."""
    pairs = kind_of_scan(data) is PAIRS
    few = len(words.with_verdict(data, "nothing found", "clear within tolerance")) <= words.FEW_ROWS
    shown = few and not data.get("unlisted")  # these are shown one by one
    sections = [
        Section("What needs attention", words.attention(data), "attention"),
        Section("What flagged tests look like", _flagged(data), "flagged", key=_EFFECTS_KEY if pairs else ""),
        map_section(data) if pairs and len(data["pairs"]) > words.FEW_ROWS else Section("", ()),
        Section("The rest", () if shown else tuple(words.rest_sentences(data)), "rest"),
        Section("Assignment", (*words.assignment_sentences(data), *words.broken_tables(data)), "assignment"),
        Section("Not testable", tuple(words.untestable_sentences(data)), "untestable"),
        Section("Privacy", tuple(words.privacy_sentences(data)), "privacy"),
        Section("Notes", (*words.note_sentences(data), *words.method_sentences(data)), "notes"),
    ]
    return [section for section in sections if section.parts]


def _flagged(data: Data) -> tuple[Part, ...]:
    """Return what the flagged tests look like: words, means or levels, and effects; of many the last ones folded."""
    if kind_of_scan(data) is PAIRS:
        tests = [(pair, _pair_parts(data, pair)) for pair in data["effects"]]
    else:
        tests = [(row, _level_parts(data, row)) for row in words.alarms(data) if row["follow_ups"]]
    sections = [Section(f"{name_sides(data, test)}: {test['metric']}", parts) for test, parts in tests]
    folds = [Fold(section.heading, section.parts) for section in sections[MOST_FLAGGED:]]
    first = sections[:MOST_FLAGGED]
    if kind_of_scan(data) is PAIRS:  # maps link to them
        first = [replace(section, name=f"flag-{at}") for at, section in enumerate(first)]
    more = f"{number_of(len(folds), 'more flagged test')} in the report (--html) and plain data."
    return (*first, Section("More", (more, *folds))) if folds else (*first,)


def _pair_parts(data: Data, pair: Row) -> tuple[Part, ...]:
    drawn = (effects_figure(data, pair),) if pair["effects"] else ()
    return *words.effect_sentences(data, pair), *drawn, words.means_table(data, pair)


def _level_parts(data: Data, test: Row) -> tuple[Part, ...]:
    fold = Fold("Every level against the rest", (words.follow_ups_table(data, test),))
    return *words.follow_up_sentences(data, test), fold


def map_section(data: Data) -> Section:
    """Return for every metric its map, and its p-values against chance."""
    flagged = [(pair["a"], pair["b"], pair["metric"]) for pair in data["effects"][:MOST_FLAGGED]]
    parts: list[Part] = [map_key(marks_of(data))]
    for metric in data["metrics"]:
        links = {(a, b): f"flag-{at}" for at, (a, b, of) in enumerate(flagged) if of == metric}
        drawn = (heat_map(data, metric, links), expected_figure(data, metric))
        parts.append(Section(metric, tuple(figure for figure in drawn if figure is not None)))
    key = _MAP_KEY
    if data.get("unlisted"):
        listed = len(data["pairs"])
        key += _LISTED_KEY.format(listed=listed, tests=listed + data["unlisted"]["tests"])
    return Section("Every pair at a glance", (*parts,), "maps", key=key)


# ── figures ────────────────────────────────────────────────────────────────────────────────────


LIMITS = (0.05, 0.01, 0.001, 0.0001)
"""A square is darker for every one of these limits that its p is below."""

MARKS = {"interference": "●", "differs": "●", "watch": "▲", "assignment broken": "×"}
"""Shapes, so that nothing hangs on colour alone."""

HIGHEST = 8.0
"""Powers of ten: rarer p-values are drawn at the edge, so that one of them does not squeeze the others."""

MOST_DESCRIBED = 20
"""So many marks of a map are put into words for screen readers."""

_SHADES = tuple(Paint(UP, "square", opacity) for opacity in (0.22, 0.42, 0.68, 1.0))
_PAINTS = {
    "interference": Paint(ALARM), "differs": Paint(ALARM), "watch": Paint(DOWN, "triangle"),
    "assignment broken": Paint(INK, "cross"), "not testable": Paint(PAGE, "square"),
}  # fmt: skip

PairChart = Literal["map", "p_values", "effects"]
"""What a scan of pairs can draw."""


def pair_figure(data: Data, what: str, metric: str | None) -> Figure:
    """Return what a scan's ``chart`` shows, from its plain data."""
    clean = mapped(data, printable)
    metrics = clean["metrics"]
    flagged = [pair for pair in clean["effects"] if pair["effects"]]
    kinds = {
        "map": lambda: {name: [heat_map(clean, name), map_key(marks_of(clean))] for name in metrics if clean["pairs"]},
        "p_values": lambda: {name: [figure] for name in metrics if (figure := expected_figure(clean, name))},
        "effects": lambda: {
            name: [effects_figure(clean, pair) for pair in flagged if pair["metric"] == name] for name in metrics
        },
    }
    return chosen_figure(kinds, what, metric, note=INTERNAL if is_internal(data) else "")


def heat_map(data: Data, metric: str, links: Mapping[tuple[str, str], str] | None = None) -> Figure:
    """Return every pair of one metric, the darker the smaller p; marks where there is a verdict to act upon.

    ``links`` lead from the mark of a flagged pair to its place on the page.
    """
    place = {name: at for at, name in enumerate(data["experiments"])}
    rows = [row for row in data["pairs"] if row["metric"] == metric]
    marked = [row for row in rows if row["verdict"] in MARKS]
    cells = []
    for row in rows:
        passed = 0 if row["p_robust"] is None else sum(row["p_robust"] < limit for limit in LIMITS)
        if row["verdict"] == "not testable" or passed:
            paint = _SHADES[passed - 1] if row["verdict"] != "not testable" else _PAINTS["not testable"]
            cells.append(Cell(place[row["a"]], place[row["b"]], paint))
    for row in marked:
        broken = row["verdict"] == "assignment broken"
        words = row["note"] if broken else f"{row['verdict']}, {spoken_p(row['p_robust'])}"
        link = (links or {}).get((row["a"], row["b"]), "")
        paint = _PAINTS[row["verdict"]]
        cells.append(Cell(place[row["a"]], place[row["b"]], paint, f"{name_sides(data, row)}: {words}", link))
    shown = "; ".join(f"{name_sides(data, row)} {row['verdict']}" for row in marked[:MOST_DESCRIBED])
    more = f" and {len(marked) - MOST_DESCRIBED} more" if len(marked) > MOST_DESCRIBED else ""
    pairs = data["unlisted"]["tables"] if data.get("unlisted") else len(rows)
    description = f"{number_of(pairs, 'pair')}; marked: {shown or 'none'}{more}."
    return Figure(f"Pairs of experiments on {metric}", description, [HeatMap(list(place), cells)])


def expected_figure(data: Data, metric: str) -> Figure | None:
    """Return observed against expected p-values on scales of powers of ten; None where nothing was tested."""
    quantiles = data["quantiles"][metric]
    points = [
        (-math.log10(expected), HIGHEST * 2 if observed <= 0 else -math.log10(observed))
        for expected, observed in zip(quantiles["expected"], quantiles["observed"], strict=True)
        if expected and observed is not None
    ]
    if not points:
        return None
    across = max(2.0, max(x for x, _ in points) * 1.05)
    up = min(max(across, *(y for _, y in points)) * 1.05, max(HIGHEST, across * 1.05))
    marks: list[Mark] = [
        Line([(0.0, 0.0), (min(across, up),) * 2], MUTED, wide=1.5),
        Dots([point for point in points if point[1] <= up], UP, size=2.5),
        Dots([point for point in points if point[1] > up], DOWN, shape="triangle"),
    ]
    least = min(value for value in quantiles["observed"] if value is not None)
    description = f"The smallest observed is {spoken_p(least)}, where {quantiles['expected'][0]:.2g} is expected."
    panel = Plot(_powers(across, "p expected by chance alone"), _powers(up, "p observed"), marks, high=280)
    return Figure(f"Observed against expected p-values of {metric}", description, [panel])


def _powers(most: float, title: str) -> ChartAxis:
    step = max(1, math.ceil(most / 6))
    return ChartAxis(0.0, most, [(at, f"{10.0**-at:g}") for at in range(0, int(most) + 1, step)], title)


def effects_figure(data: Data, flagged: Row) -> Figure:
    """Return effects within arms with their intervals, blue where they are clear."""
    effects, figures = flagged["effects"], effect_figures(data, flagged)
    rows = []
    for effect in effects:
        label = f"{effect['experiment']} where {effect['within']} is {effect['level']}"
        if len({other["arm"] for other in effects if other["experiment"] == effect["experiment"]}) > 1:
            arms = f"{effect['arm']} − {effect['control']}"
            label = f"{effect['experiment']} {arms}, {effect['within']} {effect['level']}"
        value = f"{figures.change(effect['effect'], signed=True)} ({figures.between(effect['interval'])})"
        low, high = effect["interval"]
        clear = low > 0 or high < 0
        bar = bar_of(effect["effect"], effect["interval"], UP if clear else QUIET, share=figures.share)
        rows.append(ForestRow(label, value, [bar], bold=clear))
    panel = Forest(rows, f"effect on {flagged['metric']}{', percentage points' if figures.share else ''}")
    return forest_figure(
        f"Effects of {flagged['a']} and {flagged['b']} on {flagged['metric']}", [panel], "95 % intervals. "
    )


def map_key(verdicts: Iterable[str]) -> Figure:
    """Return what the squares and marks of maps mean."""
    steps = [f"p ≥ {LIMITS[0]:g}", *(f"< {limit:g}" for limit in LIMITS)]
    paints = dict(zip(steps, (Paint(TRACK, "square"), *_SHADES), strict=True))
    paints |= {verdict: _PAINTS[verdict] for verdict in verdicts}
    return Figure("Key to the map", f"Darker squares have smaller p: {', '.join(steps)}.", legend=paints)


def marks_of(data: Data) -> list[str]:
    """Return the verdicts that are marked on the maps of this scan."""
    present = {row["verdict"] for row in data[PAIRS.rows]}
    return [verdict for verdict in (*ALARMS, "assignment broken") if verdict in present]
