"""What figures of effects show, and what they have in common."""

from collections.abc import Mapping
from typing import Any

from kanab.errors import listed
from kanab.report.colours import DOWN, QUIET, UP
from kanab.report.digits import Digits, Row, figures_of, is_share, percent
from kanab.report.figure import Bar, Figure, Forest, ForestRow, bar_of, forest_figure
from kanab.report.words import tone

Data = Mapping[str, Any]

_COLOURS = {"better": UP, "worse": DOWN}


def effect_figure(data: Data, metric: str) -> Figure | None:
    """Return every effect on a metric with its interval; None without effects.

    Of each arm only the row that carries the verdict has a colour, after correction: blue is clearly more than the
    control, orange clearly less; where less is better, the other way round.
    """
    effects = [row for row in data["effects"] if row["metric"] == metric]
    figures = figures_of(effects, share=is_share(data, metric))
    arms = list(dict.fromkeys(row["arm"] for row in effects))
    drawn = [row for row in effects if row["estimate"] is not None]
    rows = [forest_row(row, figures) for row in sorted(drawn, key=lambda row: arms.index(row["arm"]))]
    title = f"Effects on {metric} against {data['control']}"
    return forest_figure(title, [Forest(rows, axis_title(data, metric))], level_words(data)) if rows else None


def level_words(data: Data, kind: str = "") -> str:
    """Return which intervals are drawn."""
    return f"{percent(data['confidence'])} intervals{kind}. "


def axis_title(data: Data, metric: str, by: str = "") -> str:
    """Return what the axis of a metric's effects is called."""
    return f"effect on {metric}{by}{', percentage points' if is_share(data, metric) else ''}"


def colour_of(row: Row) -> str:
    """Return the colour of a row: blue for the better, orange for the worse, grey where it carries no clear verdict."""
    return _COLOURS.get(tone(row), QUIET)


def bar_of_row(row: Row, figures: Digits) -> Bar:
    """Return the bar of an effect in its colour."""
    return bar_of(row["estimate"], row["interval"], colour_of(row), share=figures.share)


def forest_row(row: Row, figures: Digits, label: str = "") -> ForestRow:
    """Return the line of an effect in a forest."""
    adjusted = row["method"] == "adjusted" and not label
    name = f"↳ adjusted for {listed(row['covariates'])}" if adjusted else label or row["arm"]
    value = figures.bare(row["estimate"], signed=True)
    text = f"{value}, not testable" if row["p"] is None else f"{value} ({figures.between(row['interval'])})"
    return ForestRow(name, text, [bar_of_row(row, figures)], bold=row["method"] != "adjusted")
