"""What the figures of a scan show: every pair at a glance, p-values against chance, effects within arms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from kanab.choices import INTERNAL
from kanab.report.colours import ALARM, DOWN, INK, MUTED, PAGE, QUIET, TRACK, UP
from kanab.report.digits import Row, spoken_p
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
from kanab.report.text import mapped, printable
from kanab.report.words import is_internal
from kanab.scan.report.scan_words import PAIRS, effect_figures, name_sides, number_of
from kanab.scan.stats.scan_verdicts import ALARMS

Data = Mapping[str, Any]

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
