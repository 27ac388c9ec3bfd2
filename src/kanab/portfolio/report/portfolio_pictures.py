"""What the figures of many experiments show: one effect in several releases, and effects before and after shrinkage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.portfolio.report.words import combined_figures, combined_heading, listed_effects, portfolio_figures
from kanab.report.drawing import DOWN, MUTED, QUIET, UP
from kanab.report.figure import Bar, Figure, Forest, ForestRow, bar_of, chosen_figure, forest_figure
from kanab.report.figures import Figures, Row, percent, scaled
from kanab.report.text import mapped, printable

Data = Mapping[str, Any]


def combined_chart(data: Data, metric: str | None) -> Figure:
    """Return the forests of combined effects from their plain data, of one metric or of all."""
    clean = mapped(data, printable)
    drawn: dict[str, list[Figure]] = {}
    for effect in clean["effects"]:
        drawn.setdefault(effect["metric"], []).append(combined_figure(clean, effect))
    return chosen_figure({"effects": lambda: drawn}, "effects", metric)


def combined_figure(data: Data, effect: Row) -> Figure:
    """Return the effect of every release with its interval, and a diamond for all of them together."""
    figures = combined_figures(effect)

    def row(part: Row, name: str, bars: list[Bar], *, bold: bool = False) -> ForestRow:
        value = f"{figures.bare(part['estimate'], signed=True)} ({figures.between(part['interval'])})"
        return ForestRow(name, value, bars, bold)

    heaviest = max(part["weight"] for part in effect["parts"])
    rows = []
    for part in effect["parts"]:
        size = 2.5 + 3.5 * (part["weight"] / heaviest) ** 0.5
        rows.append(row(part, part["name"], [_bar(part, figures, QUIET, shape="square", size=size)]))
    bars = [_bar(effect, figures, effect_colour(effect), shape="diamond")]
    if effect["prediction"]:
        seen = {"estimate": None, "interval": effect["prediction"]}
        bars.insert(0, _bar(seen, figures, MUTED, wide=1.5, dashes="4 3"))
    rows.append(row(effect, "together", bars, bold=True))
    level = f"{percent(data['confidence'])} intervals. "
    return forest_figure(combined_heading(effect), [Forest(rows, _axis(effect))], level)


def shrinkage_figure(data: Data) -> Figure:
    """Return every effect as it was seen (grey ring) and after shrinkage (dot), and the mean that all are drawn to."""
    figures, rows = portfolio_figures(data), []
    for row in listed_effects(data):
        shrunk = {**row, "estimate": row["shrunk"], "interval": row["shrunk_interval"]}
        value = f"{figures.bare(row['estimate'], signed=True)} → {figures.bare(row['shrunk'], signed=True)}"
        seen = _bar(row, figures, QUIET, shape="ring", size=4, wide=1.5, down=-5)
        rows.append(ForestRow(row["name"], value, [seen, _bar(shrunk, figures, effect_colour(shrunk), size=5, down=5)]))
    mean = scaled(data["prior"]["mean"], data["share"]) or 0.0
    panel = Forest(rows, _axis(data), upright=(0.0, mean))
    return forest_figure(f"Effects on {data['metric']}, seen and after shrinkage", [panel])


def _axis(of: Row) -> str:
    return f"effect on {of['metric']}{', percentage points' if of['share'] else ''}; the upright mark is no effect"


def _bar(row: Row, figures: Figures, colour: str, **look: Any) -> Bar:
    return bar_of(row["estimate"], row["interval"], colour, share=figures.share, **look)


def effect_colour(row: Row) -> str:
    """Return blue for clearly better, orange for clearly worse, grey otherwise."""
    low, high = (0.0 if end is None else end for end in row["interval"])
    if low <= 0 <= high:
        return QUIET
    return UP if (low > 0) == (row["better"] == "higher") else DOWN
