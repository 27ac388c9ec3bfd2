"""What the figures of a readout show: effects, effects at levels and of receiving, distributions, effects over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, Literal

from kanab.choices import INTERNAL
from kanab.errors import listed
from kanab.report.drawing import (
    ARMS,
    DOWN,
    MUTED,
    QUIET,
    UP,
    ChartAxis,
    axis_around,
    letters_beside,
    numbered_axis,
    percent_axis,
)
from kanab.report.figure import (
    Area,
    Bar,
    Dots,
    Figure,
    Forest,
    ForestRow,
    Label,
    Line,
    Mark,
    Paint,
    Plot,
    bar_of,
    chosen_figure,
    forest_figure,
)
from kanab.report.figures import Figures, Row, figures_of, is_share, percent
from kanab.report.quantile_section import quantile_name
from kanab.report.received_section import leading_rows, received_figures, spoken_ranges
from kanab.report.tables import clear_level, rows_of_levels, segment_places
from kanab.report.window_section import spoken_days, window_rows
from kanab.report.words import is_internal, lower_is_better, metrics_of, tone
from kanab.tabular import number as written

Data = Mapping[str, Any]

ReadoutChart = Literal["effects", "segments", "received", "quantiles", "windows"]
"""What a readout can draw."""

MOST_LEVELS = 24
"""So many comparisons of levels fit into one panel; more show the clearest ones."""

_COLOURS = {"better": UP, "worse": DOWN}


def readout_figure(data: Data, what: str, metric: str | None) -> Figure:
    """Return what a readout's ``chart`` shows, from its plain data."""
    kinds = {kind: partial(_of_kind, data, kind) for kind in _KINDS}
    return chosen_figure(kinds, what, metric, note=INTERNAL if is_internal(data) else "")


def readout_figures(data: Data) -> dict[str, Figure]:
    """Return every figure of a report, named "effects: metric", "segments: metric", "quantiles: metric" …"""
    return {f"{kind}: {name}": figure for kind in _KINDS for name, (figure,) in _of_kind(data, kind).items()}


def _of_kind(data: Data, kind: str) -> dict[str, list[Figure]]:
    names = window_rows(data) if kind == "windows" else metrics_of(data)
    return {name: [figure] for name in names if (figure := _KINDS[kind](data, name))}


# ── forests ────────────────────────────────────────────────────────────────────────────────────


def effect_figure(data: Data, metric: str) -> Figure | None:
    """Return every effect on a metric with its interval; None without effects.

    Of each arm only the row that carries the verdict has a colour, after correction: blue is clearly more than the
    control, orange clearly less; where less is better, the other way round.
    """
    effects = [row for row in data["effects"] if row["metric"] == metric]
    figures = figures_of(effects, share=is_share(data, metric))
    arms = list(dict.fromkeys(row["arm"] for row in effects))
    drawn = [row for row in effects if row["estimate"] is not None]
    rows = [_forest_row(row, figures) for row in sorted(drawn, key=lambda row: arms.index(row["arm"]))]
    title = f"Effects on {metric} against {data['control']}"
    return forest_figure(title, [Forest(rows, _axis_title(data, metric))], _level(data)) if rows else None


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
        panels.append(Forest(rows, f"{_axis_title(data, metric, f' by {covariate}')}{exploratory}{cut}"))
    title = f"The effect at each level: {listed(f'{metric} by {covariate}' for covariate in covariates)}"
    return forest_figure(title, panels, _level(data, " that hold together in each panel")) if panels else None


def received_figure(data: Data, metric: str) -> Figure | None:
    """Return the effects of being assigned and of receiving on one axis; None where nothing was asked of receiving.

    Fieller's set may be two rays, or have no end: then the line runs to the edge.
    """
    rows = leading_rows([row for row in data.get("received", ()) if row["metric"] == metric])
    if not rows:
        return None
    figures, drawn = received_figures(data, rows), []
    for row in rows:
        same = [e for e in data["effects"] if (e["metric"], e["arm"]) == (metric, row["arm"])]
        assigned = next((e for e in same if e["covariates"] == row["covariates"]), same[0])
        drawn.append(_forest_row(assigned, figures, label=f"assigned to {row['arm']}"))
        text = f"{figures.bare(row['estimate'], signed=True)} ({spoken_ranges(row, figures)})"
        bars = [_bar({**row, "interval": ends, "verdict": None}, figures) for ends in row["ranges"] or [None]]
        drawn.append(ForestRow(f"received ({row['received']})", text, bars, bold=True))
    covariates = rows[0]["covariates"]
    panel = Forest(drawn, f"{_axis_title(data, metric)}{', adjusted' if covariates else ''}")
    more = f"; adjusted for {listed(covariates)}" if covariates else ""
    return forest_figure(f"Effects on {metric} of being assigned and of receiving", [panel], _level(data), more)


def _level(data: Data, kind: str = "") -> str:
    return f"{percent(data['confidence'])} intervals{kind}. "


def _axis_title(data: Data, metric: str, by: str = "") -> str:
    return f"effect on {metric}{by}{', percentage points' if is_share(data, metric) else ''}"


def colour_of(row: Row) -> str:
    """Return the colour of a row: blue for the better, orange for the worse, grey where it carries no clear verdict."""
    return _COLOURS.get(tone(row), QUIET)


def _bar(row: Row, figures: Figures) -> Bar:
    return bar_of(row["estimate"], row["interval"], colour_of(row), share=figures.share)


def _forest_row(row: Row, figures: Figures, label: str = "") -> ForestRow:
    adjusted = row["method"] == "adjusted" and not label
    name = f"↳ adjusted for {listed(row['covariates'])}" if adjusted else label or row["arm"]
    value = figures.bare(row["estimate"], signed=True)
    text = f"{value}, not testable" if row["p"] is None else f"{value} ({figures.between(row['interval'])})"
    return ForestRow(name, text, [_bar(row, figures)], bold=row["method"] != "adjusted")


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
            row = _forest_row(seen, figures, label=f"{level['covariate']} = {short}")
            label = row.label if len(row.label) <= letters_beside(row.text) else short
            rows.append(ForestRow(label, row.text, row.bars, bold=clear))
    return rows


# ── plots ──────────────────────────────────────────────────────────────────────────────────────


def distribution_figure(data: Data, metric: str) -> Figure | None:
    """Return histograms of the arms over each other, below them the shares of people up to each value, and quantiles.

    None where nothing was asked of quantiles. People in open bins are not drawn.
    """
    read = next((each for each in data.get("distributions", ()) if each["metric"] == metric), None)
    if read is None:
        return None
    edges, arms = read["edges"], dict.fromkeys([data["control"], *read["people"]])
    colours = {arm: ARMS[place % len(ARMS)] for place, arm in enumerate(arms)}
    quantiles = _quantiles([row for row in data["quantiles"] if row["metric"] == metric])
    seen = 1.3 * max((x for x, *_ in quantiles), default=edges[-1]) - 0.3 * edges[0]
    end = min((edge for edge in edges[1:] if edge >= seen), default=edges[-1])
    crowd: list[Mark] = []
    shares: list[Mark] = []
    highest = 0.0
    for arm, colour in colours.items():
        people = read["people"].get(arm, [])
        total, outline = sum(people) or 1, [(edges[0], 0.0)]
        for (low, high), count in zip(pairwise(edges), people[1:], strict=False):
            if high <= end:
                height = count / total / (high - low)
                outline += [(low, height), (high, height)]
                highest = max(highest, height)
        outline.append((end, 0.0))
        steps = [(x, below / total) for x, below in zip(edges, accumulate(people), strict=False) if x <= end]
        if people:
            crowd += [Area(outline, colour), Line(outline, colour, wide=1.5)]
            shares.append(Line(steps, colour, wide=2.5))
    highest = highest or 1.0
    for x, chance, arm in quantiles:
        crowd.append(Line([(x, 0.0), (x, highest)], colours[arm], wide=1.5, dashes="3 3"))
        shares.append(Dots([(x, chance)], colours[arm], size=4.5))
    furthest = {chance: x for x, chance, _ in sorted(quantiles)}  # where the name has room
    shares += [Label((x, chance), [quantile_name(chance)], colour=MUTED) for chance, x in furthest.items()]
    panels = [
        Plot(numbered_axis(edges[0], end), ChartAxis(0.0, highest, title="people"), crowd),
        Plot(numbered_axis(edges[0], end, metric), percent_axis("share of people up to", 25), shares),
    ]
    spoken = "; ".join(f"{quantile_name(chance)} of {arm} {written(x)}" for x, chance, arm in quantiles)
    legend = {arm: Paint(colour) for arm, colour in colours.items()}
    return Figure(f"The distribution of {metric} in each arm", f"{spoken}.", panels, legend)


def _quantiles(rows: Sequence[Row]) -> list[tuple[float, float, str]]:
    """Return every quantile of every arm: its value, its probability and the arm."""
    marks = {}
    for row in rows:
        for arm, side in ((row["control"], "quantile_control"), (row["arm"], "quantile_arm")):
            if row[side] is not None:
                marks[arm, row["probability"]] = (row[side], row["probability"], arm)
    return list(marks.values())


def window_figure(data: Data, column: str) -> Figure:
    """Return the effects on a metric of several windows by days since the first exposure, a panel for each arm."""
    effects = window_rows(data)[column]
    share = is_share(data, effects[0]["metric"])
    figures = figures_of(effects, share=share)
    panels = []
    for arm in dict.fromkeys(row["arm"] for row in effects):
        rows = [row for row in effects if row["arm"] == arm]
        panels.append(_windows(rows, figures, f"effect of {arm}{', percentage points' if share else ''}"))
    texts = "; ".join(
        f"{row['arm']}, days {spoken_days(row)}: {figures.bare(row['estimate'], signed=True)}" for row in effects
    )
    title = f"Effects on {column} by days since the first exposure"
    return Figure(title, f"{_level(data)}{texts}.", panels)


def _windows(rows: Sequence[Row], figures: Figures, title: str) -> Plot:
    """Return a line across the days of each window, in its interval."""
    bars = [_bar(row, figures) for row in rows]
    y = axis_around([end for bar in bars for end in bar.ends], title)
    days = [day for row in rows for day in row["days"]]
    x = numbered_axis(min(days), max(days), "days since the first exposure")
    marks: list[Mark] = [Line([(x.least, 0.0), (x.most, 0.0)], MUTED, wide=1)]
    for row, bar in zip(rows, bars, strict=True):
        if bar.at is not None:
            start, end = row["days"]
            low, high = y.least if bar.low is None else bar.low, y.most if bar.high is None else bar.high
            marks.append(Area([(start, low), (start, high), (end, high), (end, low)], bar.colour, opacity=0.2))
            marks.append(Line([(start, bar.at), (end, bar.at)], bar.colour))
    return Plot(x, y, marks, high=165)


_KINDS: Mapping[str, Callable[[Data, str], Figure | None]] = {
    "effects": effect_figure,
    "segments": segment_figure,
    "received": received_figure,
    "quantiles": distribution_figure,
    "windows": window_figure,
}
