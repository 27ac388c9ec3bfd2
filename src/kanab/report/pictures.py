"""What the figures of a readout show: effects, and effects at levels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.errors import listed
from kanab.report.drawing import (
    DOWN,
    QUIET,
    UP,
    letters_beside,
)
from kanab.report.figure import (
    Bar,
    Figure,
    Forest,
    ForestRow,
    bar_of,
    forest_figure,
)
from kanab.report.figures import Figures, Row, figures_of, is_share, percent
from kanab.report.tables import clear_level, rows_of_levels, segment_places
from kanab.report.words import lower_is_better, tone

Data = Mapping[str, Any]

MOST_LEVELS = 24
"""So many comparisons of levels fit into one panel; more show the clearest ones."""

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


def segment_figure(data: Data, metric: str) -> Figure | None:
    """Return the effect on a metric at each level, a panel for each segment; None without segments.

    Intervals hold for all levels of a panel together. Only what is not exploratory is coloured.
    """
    covariates = [covariate for name, covariate in segment_places(data) if name == metric]
    panels = []
    for covariate in covariates:
        levels = rows_of_levels(data, metric, covariate)
        rows = _segment_rows(data, metric, levels)
        cut = f"; the {len(rows)} clearest of {len(levels)}" if len(rows) < len(levels) else ""
        exploratory = ", exploratory" if levels[0]["exploratory"] else ""
        panels.append(Forest(rows, f"{axis_title(data, metric, f' by {covariate}')}{exploratory}{cut}"))
    title = f"The effect at each level: {listed(f'{metric} by {covariate}' for covariate in covariates)}"
    return forest_figure(title, panels, level_words(data, " that hold together in each panel")) if panels else None


def level_words(data: Data, kind: str = "") -> str:
    """Return which intervals are drawn."""
    return f"{percent(data['confidence'])} intervals{kind}. "


def axis_title(data: Data, metric: str, by: str = "") -> str:
    """Return what the axis of a metric's effects is called."""
    return f"effect on {metric}{by}{', percentage points' if is_share(data, metric) else ''}"


def colour_of(row: Row) -> str:
    """Return the colour of a row: blue for the better, orange for the worse, grey where it carries no clear verdict."""
    return _COLOURS.get(tone(row), QUIET)


def bar_of_row(row: Row, figures: Figures) -> Bar:
    """Return the bar of an effect in its colour."""
    return bar_of(row["estimate"], row["interval"], colour_of(row), share=figures.share)


def forest_row(row: Row, figures: Figures, label: str = "") -> ForestRow:
    """Return the line of an effect in a forest."""
    adjusted = row["method"] == "adjusted" and not label
    name = f"↳ adjusted for {listed(row['covariates'])}" if adjusted else label or row["arm"]
    value = figures.bare(row["estimate"], signed=True)
    text = f"{value}, not testable" if row["p"] is None else f"{value} ({figures.between(row['interval'])})"
    return ForestRow(name, text, [bar_of_row(row, figures)], bold=row["method"] != "adjusted")


def _segment_rows(data: Data, metric: str, levels: Sequence[Row]) -> list[ForestRow]:
    """Return what is drawn for the effect at each level, the clearest if there are many."""
    together = [{**level, "interval": level["interval_adjusted"]} for level in levels]
    figures = figures_of(together, share=is_share(data, metric))
    order = sorted(together, key=lambda level: 2.0 if level["p_adjusted"] is None else level["p_adjusted"])
    clearest = order[:MOST_LEVELS]
    better = "lower" if lower_is_better(data, metric) else "higher"
    rows = []
    for level in together:
        if level in clearest:
            clear = clear_level(level, data["confidence"])
            side = "up" if level["estimate"] > 0 else "down"
            kind = "untestable" if level["p"] is None else side if clear else "unclear"
            seen = {**level, "method": "difference", "verdict": kind, "better": better}
            short = f"{level['level']}, {level['arm']}"
            row = forest_row(seen, figures, label=f"{level['covariate']} = {short}")
            label = row.label if len(row.label) <= letters_beside(row.text) else short
            rows.append(ForestRow(label, row.text, row.bars, bold=clear))
    return rows
