"""Scans as pictures: plain SVG, drawn here, because a hundred by a hundred squares need no chart library."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Literal

from kanab.report.chart import Chart, chosen_chart
from kanab.report.figures import Row, spoken_p
from kanab.report.palette import INK, LETTER, MUTED, QUIET, TRACK, UP, WIDTH
from kanab.report.style import LIGHT
from kanab.report.text import mapped, printable
from kanab.report.words import is_internal
from kanab.scan.report.words import PAIRS, effect_figures, name_sides, number_of
from kanab.scan.stats.verdicts import ALARMS

Data = Mapping[str, Any]

LIMITS = (0.05, 0.01, 0.001, 0.0001)
"""A square is darker for every one of these limits that its p is below."""

MARKS = {"interference": "●", "differs": "●", "watch": "▲", "assignment broken": "×"}
"""Shapes, so that nothing hangs on colour alone."""

GRID, WIDEST, NAMES = 640.0, 40.0, 16
"""The side of a large map, the side of a square in a small one, the letters of a name that are shown."""

HIGHEST = 8.0
"""Powers of ten: rarer p-values are drawn at the edge, so that one of them does not squeeze the others."""

MOST_DESCRIBED = 20
"""So many marks of a map are put into words for screen readers."""

_ROW = 46

PairChart = Literal["map", "p_values", "effects"]
"""What a scan of pairs can draw."""

PICTURE_STYLE = """
.e1,.e2,.e3,.e4{fill:var(--up)}
.e1{fill-opacity:.22}.e2{fill-opacity:.42}.e3{fill-opacity:.68}
.none{fill:var(--page)}
.lines{stroke:var(--page);stroke-width:1;fill:none}
.lines.strong{stroke:var(--muted);stroke-width:1.5}
.zero{stroke:var(--muted);stroke-width:1.5}
.points{stroke:var(--up);stroke-width:5;stroke-linecap:round;fill:none}
.dot,.tri{stroke:var(--page);stroke-width:1.5;fill:var(--alarm)}
.tri{fill:var(--down)}
.cross{stroke:var(--ink);stroke-width:2;fill:none}
.same{fill:var(--line)}
"""
"""What pictures of scans need of a style sheet; pages turn its colours dark."""


def pair_chart(data: Data, what: str, metric: str | None) -> Chart:
    """Return the chart of a scan of pairs from its plain data."""
    clean = mapped(data, printable)
    metrics = clean["metrics"]
    flagged = [pair for pair in clean["effects"] if pair["effects"]]
    style = PICTURE_STYLE
    for name, colour in LIGHT.items():  # programs other than browsers know no variables
        style = style.replace(f"var(--{name})", colour)
    return chosen_chart(
        {
            "map": lambda: {
                name: [heat_map(clean, name), legend(marks_of(clean))] for name in metrics if clean["pairs"]
            },
            "p_values": lambda: {name: [drawn] for name in metrics if (drawn := expected_chart(clean, name))},
            "effects": lambda: {
                name: [effects_chart(clean, pair) for pair in flagged if pair["metric"] == name] for name in metrics
            },
        },
        what,
        metric,
        style=style,
        internal=is_internal(data),
    )


def heat_map(data: Data, metric: str, links: Mapping[tuple[str, str], str] | None = None) -> str:
    """Draw every pair of one metric as a square, the darker the smaller p; marks where there is a verdict to act upon.

    ``links`` lead from the mark of a flagged pair to its place on the page.
    """
    names = list(data["experiments"])
    place = {name: at for at, name in enumerate(names)}
    side = min(WIDEST, GRID / len(names))
    rows = [row for row in data["pairs"] if row["metric"] == metric]
    longest = max(len(_shorten(name)) for name in names) + 1 + len(str(len(names)))
    left, top = 12 + 8.5 * longest, 24.0  # the room for the names beside the map
    size = side * len(names)
    parts = [f'<g transform="translate({left:g} {top:g})">']
    parts.append(f'<rect width="{size:g}" height="{size:g}" fill="{TRACK}"/>')
    parts += [_squares(cells, side, style) for style, cells in _by_style(rows, place).items()]
    diagonal = [(at, at) for at in range(len(names))]
    parts += [_squares(diagonal, side, 'class="same"'), _lines(len(names), side)]
    marked = [row for row in rows if row["verdict"] in MARKS]
    parts += [_mark(data, row, place, side, (links or {}).get((row["a"], row["b"]), "")) for row in marked]
    parts += [*_labels(names, side), "</g>"]
    shown = "; ".join(f"{name_sides(data, row)} {row['verdict']}" for row in marked[:MOST_DESCRIBED])
    more = f" and {len(marked) - MOST_DESCRIBED} more" if len(marked) > MOST_DESCRIBED else ""
    pairs = data["unlisted"]["tables"] if data.get("unlisted") else len(rows)
    description = f"{number_of(pairs, 'pair')}; marked: {shown or 'none'}{more}."
    kind = "map large" if size > WIDTH else "map"
    return _svg((left + size + 14, top + size + 4), f"Pairs of experiments on {metric}", description, parts, kind)


def _shorten(name: str) -> str:
    """Cut the middle out of a long name: many names differ only at their end."""
    return name if len(name) <= NAMES else f"{name[: NAMES // 2]}…{name[1 - NAMES // 2 :]}"


def _by_style(rows: Iterable[Row], place: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
    """Group squares by their style: both halves of the map, so that a row is all of one experiment."""
    squares: dict[str, list[tuple[int, int]]] = {}
    for row in rows:
        p = row["p_robust"]
        if row["verdict"] == "not testable":
            style = 'class="none"'
        elif passed := 0 if p is None else sum(p < limit for limit in LIMITS):
            style = f'class="e{passed}"'
        else:
            continue
        a, b = place[row["a"]], place[row["b"]]
        squares.setdefault(style, []).extend([(a, b), (b, a)])
    return squares


def _squares(cells: Iterable[tuple[int, int]], side: float, style: str) -> str:
    """Draw squares of one style as one path; neighbours in a row become one piece."""
    runs: list[list[int]] = []
    for down, across in sorted(cells):
        if runs and runs[-1][0] == down and runs[-1][1] + runs[-1][2] == across:
            runs[-1][2] += 1
        else:
            runs.append([down, across, 1])
    drawn = "".join(
        f"M{_short(across * side)} {_short(down * side)}h{_short(count * side)}v{_short(side)}H{_short(across * side)}z"
        for down, across, count in runs
    )
    return f'<path {style} d="{drawn}"/>'


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _lines(count: int, side: float) -> str:
    """Draw thin lines between squares, where squares are large enough; every tenth one where they are not."""
    step = 1 if side >= 12 else 10 if side >= 1.2 else 100
    size = _short(count * side)
    drawn = "".join(f"M0 {_short(at * side)}H{size}M{_short(at * side)} 0V{size}" for at in range(step, count, step))
    return f'<path class="lines" d="{drawn}"/>'


def _mark(data: Data, row: Row, place: Mapping[str, int], side: float, link: str) -> str:
    """Draw a dot, a triangle or a cross on both squares of a pair, with its numbers on hovering."""
    title = f"{name_sides(data, row)}: {row['verdict']}, {spoken_p(row['p_robust'])}"
    if row["verdict"] == "assignment broken":
        title = f"{name_sides(data, row)}: {row['note']}"
    size = max(side * 0.24, 3.5)
    shapes = []
    for down, across in ((row["a"], row["b"]), (row["b"], row["a"])):
        x, y = (place[across] + 0.5) * side, (place[down] + 0.5) * side
        shapes.append(_shape(row["verdict"], x, y, size))
    body = f"<g><title>{escape(title)}</title>{''.join(shapes)}</g>"
    return f'<a href="#{escape(link)}">{body}</a>' if link else body


def _shape(verdict: str, x: float, y: float, size: float) -> str:
    if verdict in ("interference", "differs"):
        return f'<circle class="dot" cx="{_short(x)}" cy="{_short(y)}" r="{_short(size)}"/>'
    at, reach = f"M{_short(x - size)}", _short(size * 2)
    if verdict == "watch":
        return f'<path class="tri" d="{at} {_short(y + size * 0.8)}h{reach}l-{_short(size)} -{reach}z"/>'
    return f'<path class="cross" d="{at} {_short(y - size)}l{reach} {reach}m0 -{reach}l-{reach} {reach}"/>'


def _labels(names: Sequence[str], side: float) -> list[str]:
    """Draw names and numbers down the side, numbers along the top; as many as there is room for."""
    step = 1 if side >= 15 else 5 if side >= 5 else 10 if side >= 1.6 else 50
    numbered = 5 if side >= 15 else 10 if side >= 2.5 else 50 if side >= 0.8 else 100
    labels = []
    for at in range(len(names)):
        if step == 1 or (at + 1) % step == 0 or at == 0:
            middle = (at + 0.5) * side
            labels.append(_text(-8, middle + 4.5, f"{_shorten(names[at])} {at + 1}", "end"))
            if side >= 22 or (at + 1) % numbered == 0 or at == 0:
                labels.append(_text(middle, -8, str(at + 1), "middle"))
    return labels


def _text(x: float, y: float, words: str, anchor: str, colour: str = MUTED, *, more: str = "") -> str:
    return (
        f'<text x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}" font-size="14" fill="{colour}"{more}>'
        f"{escape(words)}</text>"
    )


def expected_chart(data: Data, metric: str) -> str:
    """Plot observed against expected p-values on scales of powers of ten; nothing where nothing was tested."""
    quantiles = data["quantiles"][metric]
    points = [
        (-math.log10(expected), HIGHEST * 2 if observed <= 0 else -math.log10(observed))
        for expected, observed in zip(quantiles["expected"], quantiles["observed"], strict=True)
        if expected and observed is not None
    ]
    if not points:
        return ""
    across = max(2.0, max(x for x, _ in points) * 1.05)
    up = min(max(across, *(y for _, y in points)) * 1.05, max(HIGHEST, across * 1.05))
    wide, high, left, top = WIDTH - 86.0, 280.0, 66.0, 10.0

    def x_of(value: float) -> float:
        return left + value / across * wide

    def y_of(value: float) -> float:
        return top + high - min(value, up) / up * high

    end = min(across, up)
    parts = [f'<rect x="{left:g}" y="{top:g}" width="{wide:g}" height="{high:g}" fill="{TRACK}"/>']
    parts.append(f'<path class="lines strong" d="M{left:g} {top + high:g}L{_short(x_of(end))} {_short(y_of(end))}"/>')
    inside = "".join(f"M{_short(x_of(x))} {_short(y_of(y))}h0" for x, y in points if y <= up)
    parts.append(f'<path class="points" d="{inside}"/>')
    parts += [_shape("watch", x_of(x), top + 6, 5) for x, y in points if y > up]
    parts += [_text(x_of(at), top + high + 20, f"{10.0**-at:g}", "middle") for at in _ticks(across)]
    parts += [_text(left - 8, y_of(at) + 4.5, f"{10.0**-at:g}", "end") for at in _ticks(up)]
    parts.append(_text(left, top + high + 42, "p expected by chance alone", "start"))
    parts.append(_text(-top - high, 12, "p observed", "start", more=' transform="rotate(-90)"'))
    least = min(value for value in quantiles["observed"] if value is not None)
    description = f"The smallest observed is {spoken_p(least)}, where {quantiles['expected'][0]:.2g} is expected."
    return _svg(
        (WIDTH, top + high + 52), f"Observed against expected p-values of {metric}", description, parts, "expected"
    )


def _ticks(most: float) -> list[int]:
    step = max(1, math.ceil(most / 6))
    return list(range(0, int(most) + 1, step))


def effects_chart(data: Data, flagged: Row) -> str:
    """Draw effects within arms with their intervals, one line each; the upright mark is no effect."""
    effects = flagged["effects"]
    figures = effect_figures(data, flagged)
    ends = [0.0, *(end for effect in effects for end in effect["interval"])]
    least, most = min(ends), max(ends)
    air = 0.04 * (most - least) or 1.0
    scale = WIDTH / (most - least + 2 * air)

    def x_of(value: float) -> str:
        return _short((value - least + air) * scale)

    parts, described = [], []
    for at, effect in enumerate(effects):
        y = at * _ROW
        low, high = effect["interval"]
        value = f"{figures.change(effect['effect'], signed=True)} ({figures.between(effect['interval'])})"
        label = f"{effect['experiment']} where {effect['within']} is {effect['level']}"
        if len({other["arm"] for other in effects if other["experiment"] == effect["experiment"]}) > 1:
            arms = f"{effect['arm']} − {effect['control']}"
            label = f"{effect['experiment']} {arms}, {effect['within']} {effect['level']}"
        clear = low > 0 or high < 0
        colour = UP if clear else QUIET
        room = max(8, int(WIDTH / LETTER) - len(value) - 2)
        parts.append(
            _text(
                0,
                y + 14,
                label if len(label) <= room else f"{label[: room - 1]}…",
                "start",
                INK,
                more=' font-weight="600"' if clear else "",
            )
        )
        parts.append(_text(WIDTH, y + 14, value, "end", INK))
        parts.append(f'<rect y="{y + 21}" width="{WIDTH}" height="18" rx="4" fill="{TRACK}"/>')
        parts.append(f'<path class="zero" d="M{x_of(0)} {y + 21}v18"/>')
        parts.append(
            f'<path d="M{x_of(low)} {y + 30}H{x_of(high)}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/>'
        )
        parts.append(f'<circle cx="{x_of(effect["effect"])}" cy="{y + 30}" r="5.5" fill="{colour}"/>')
        described.append(f"{label} {value}")
    title = f"Effects of {flagged['a']} and {flagged['b']} on {flagged['metric']}"
    return _svg((WIDTH, _ROW * len(effects) + 2), title, f"95 % intervals. {'; '.join(described)}.", parts, "effects")


def legend(verdicts: Iterable[str]) -> str:
    """Draw what the squares and marks mean, as a small picture with words."""
    parts, x, below = [], 0.0, 36
    steps = [f"p ≥ {LIMITS[0]:g}", *(f"< {limit:g}" for limit in LIMITS)]
    for at, words in enumerate(steps):
        style = f'class="e{at}"' if at else f'fill="{TRACK}"'
        parts.append(f'<rect x="{_short(x)}" y="3" width="16" height="16" fill="{TRACK}"/>')
        parts.append(f'<rect {style} x="{_short(x)}" y="3" width="16" height="16"/>')
        parts.append(_text(x + 22, 16, words, "start"))
        x += 22 + LETTER * len(words) + 14
    x = 0.0
    for verdict in verdicts:
        parts.append(_shape(verdict, x + 8, below, 5.5))
        parts.append(_text(x + 22, below + 5, verdict, "start"))
        x += 22 + LETTER * len(verdict) + 14
    return _svg(
        (WIDTH, below + 12 if x else below - 14),
        "Key to the map",
        f"Darker squares have smaller p: {', '.join(steps)}.",
        parts,
        "legend",
    )


def marks_of(data: Data) -> list[str]:
    """Return the verdicts that are marked on the maps of this scan."""
    present = {row["verdict"] for row in data[PAIRS.rows]}
    return [verdict for verdict in (*ALARMS, "assignment broken") if verdict in present]


def _svg(size: tuple[float, float], title: str, description: str, parts: Sequence[str], kind: str) -> str:
    """Return a picture with a title and a description that screen readers read out."""
    wide, high = map(_short, size)
    return (
        f'<svg role="img" aria-label="{escape(title)}" class="{kind}" xmlns="http://www.w3.org/2000/svg" '
        f'width="{wide}" height="{high}" viewBox="0 0 {wide} {high}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{''.join(parts)}</svg>"
    )
