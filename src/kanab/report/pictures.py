"""The pictures of a readout as static SVG, drawn here: pages need neither a script nor a chart library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from kanab.report.axes import round_numbers, svg
from kanab.report.curve_pictures import curve_pictures
from kanab.report.forest import (
    Drawn,
    Forest,
    Panel,
    effect_forest,
    received_forest,
    segment_forest,
    shortened,
)
from kanab.report.palette import INK, LETTER, MUTED, TRACK, WIDTH
from kanab.report.words import metrics_of

STEP = 50
"""The height of a row: a line of text above, the interval below."""

_AXIS, _BETWEEN = 46.0, 20.0

Place = Callable[[float], float]
"""Where a value stands in a picture."""


def report_pictures(data: Mapping[str, Any]) -> dict[str, str]:
    """Return every picture of a report as SVG, named "forest: metric", "segments: metric", "quantiles: metric" …"""
    makers = {
        "forest": effect_forest,
        "segments": segment_forest,
        "received": received_forest,
    }
    drawn = {f"{name}: {metric}": make(data, metric) for metric in metrics_of(data) for name, make in makers.items()}
    forests = {name: forest_svg(forest) for name, forest in drawn.items() if forest is not None}
    return forests | curve_pictures(data)


def forest_svg(forest: Forest) -> str:
    """Return panels under each other as static SVG, with a title and a description for screen readers."""
    parts, top = [], 2.0
    for panel in forest.panels:
        parts += _panel(panel, top)
        top += STEP * len({row["row"] for row in panel.rows}) + _AXIS + _BETWEEN
    return svg(top - _BETWEEN, forest.title, forest.description, parts)


def _panel(panel: Panel, top: float) -> list[str]:
    """Draw rows from the top, and the axis below them."""
    x_of = _scale(panel)
    tops = {place: top + STEP * at for at, place in enumerate(dict.fromkeys(row["row"] for row in panel.rows))}
    ground = [part for y in tops.values() for part in _ground(x_of(0.0), y)]
    rows = [part for row in panel.rows for part in _row(row, tops[row["row"]], x_of)]
    return [*ground, *rows, *_axis(panel, top + STEP * len(tops), x_of)]


def _scale(panel: Panel) -> Place:
    least, most = panel.domain
    return lambda value: (value - least) / (most - least) * WIDTH


def _ground(none: float, y: float) -> list[str]:
    """Draw a row's track and its piece of the line of no difference, so that it never runs through words."""
    return [
        f'<rect y="{y + 24:g}" width="{WIDTH}" height="22" rx="4" fill="{TRACK}"/>',
        f'<path d="M{none:.2f} {y + 24:g}v22" stroke="{MUTED}" stroke-width="1.5"/>',
    ]


def _row(row: Drawn, y: float, x_of: Place) -> list[str]:
    """Draw a row's name and numbers, and below them its interval, with an arrow where that has no end."""
    colour, middle, parts = row["colour"], y + 35, []
    if row["label"]:
        weight = ' font-weight="bold"' if row["weight"] == "bold" else ""
        name = escape(shortened(row["label"], row["text"]))
        text = f'<text x="{WIDTH}" y="{y + 16:g}" text-anchor="end" font-size="14" fill="{INK}">'
        parts.append(f'<text x="0" y="{y + 16:g}" font-size="14" fill="{INK}"{weight}>{name}</text>')
        parts.append(f"{text}{escape(row['text'])}</text>")
    if row["low"] is not None or row["high"] is not None or row["estimate"] is not None:
        low = 0.0 if row["low"] is None else x_of(row["low"])
        high = float(WIDTH) if row["high"] is None else x_of(row["high"])
        ends = f'stroke="{colour}" stroke-width="3" stroke-linecap="round"'
        parts.append(f'<path d="M{low:.2f} {middle:g}H{high:.2f}" {ends}/>')
    if row["low"] is None:
        parts.append(f'<path d="M0 {middle:g}l8 -5v10z" fill="{colour}"/>')
    if row["high"] is None:
        parts.append(f'<path d="M{WIDTH} {middle:g}l-8 -5v10z" fill="{colour}"/>')
    if row["estimate"] is not None:
        parts.append(f'<circle cx="{x_of(row["estimate"]):.2f}" cy="{middle:g}" r="5.4" fill="{colour}"/>')
    return parts


def _axis(panel: Panel, y: float, x_of: Place) -> list[str]:
    """Draw round numbers below small marks, kept within the picture, and what they are."""
    parts = []
    for value, label in round_numbers(*panel.domain):
        x, half = x_of(value), len(label) * LETTER / 2
        inside = min(max(x, half), WIDTH - half)
        parts.append(f'<path d="M{x:.2f} {y:g}v4" stroke="{MUTED}"/>')
        parts.append(
            f'<text x="{inside:.2f}" y="{y + 18:g}" text-anchor="middle" font-size="13" fill="{MUTED}">{label}</text>'
        )
    parts.append(f'<text x="0" y="{y + 40:g}" font-size="14" fill="{MUTED}">{escape(panel.axis)}</text>')
    return parts
