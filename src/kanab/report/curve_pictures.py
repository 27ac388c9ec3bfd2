"""Distributions and effects over time as static SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.report.axes import (
    ABOVE,
    ChartAxis,
    Frame,
    gutter,
    legend,
    percent_axis,
    round_numbers,
    stepped,
    svg,
)
from kanab.report.curves import Drawn, DrawnDistribution, distribution_of, effects_over_time
from kanab.report.forest import Forest, Panel
from kanab.report.palette import MUTED
from kanab.report.words import metrics_of

_HIGH = 150.0


def curve_pictures(data: Mapping[str, Any]) -> dict[str, str]:
    """Return pictures as SVG, named "quantiles: metric" and "windows: column"."""
    drawn = {}
    for metric in metrics_of(data):
        if distribution := distribution_of(data, metric):
            drawn[f"quantiles: {metric}"] = distribution_svg(distribution)
    return drawn | {f"windows: {column}": windows_svg(each) for column, each in effects_over_time(data).items()}


def distribution_svg(distribution: DrawnDistribution) -> str:
    """Draw histograms of the arms over each other, below them the shares of people up to each value, and quantiles."""
    start, end, colours = distribution.start, distribution.end, distribution.colours
    share = percent_axis("share of people up to", 25)
    left = gutter(label for _, label in share.ticks)
    numbers = round_numbers(start, end)
    highest = max((bar["value"] for bar in distribution.bars), default=0.0) or 1.0
    parts, top = legend(colours, 0.0)
    crowd = Frame(ChartAxis(start, end, numbers), ChartAxis(0.0, highest, [], "people"), top + ABOVE, _HIGH, left)
    shares = Frame(ChartAxis(start, end, numbers, distribution.metric), share, crowd.bottom + ABOVE + 6, _HIGH, left)
    parts += [*crowd.ground(), *shares.ground()]
    for arm, colour in colours.items():
        bars = [(bar["low"], bar["value"]) for bar in distribution.bars if bar["arm"] == arm and bar["high"] <= end]
        if bars:
            outline = [(start, 0.0), *stepped(bars, end), (end, 0.0)]
            parts += [crowd.area(outline, colour), crowd.line(outline, colour, wide=1.5)]
        steps = [(step["x"], step["value"]) for step in distribution.steps if step["arm"] == arm and step["x"] <= end]
        if steps:
            parts.append(shares.line(steps, colour, wide=2.5))
    for mark in distribution.marks:
        parts.append(crowd.line([(mark["x"], 0.0), (mark["x"], highest)], mark["colour"], wide=1.5, dashes="3 3"))
        parts.append(shares.dot((mark["x"], mark["value"]), mark["colour"], size=4.5))
    parts += [
        shares.words((furthest["x"], furthest["value"]), [name], below=True, colour=MUTED)
        for name, furthest in _furthest(distribution.marks).items()
    ]
    return svg(shares.bottom, distribution.title, distribution.description, parts)


def _furthest(marks: Sequence[Drawn]) -> dict[str, Drawn]:
    """Return of each quantile the mark furthest right, beside which its name has room."""
    return {mark["name"]: mark for mark in sorted(marks, key=lambda mark: (mark["value"], mark["x"]))}


def windows_svg(windows: Forest) -> str:
    """Draw effects over the days since the first exposure, a panel for each arm: a line across each window."""
    parts, top = [], 0.0
    for panel in windows.panels:
        frame = _days_frame(panel, top + ABOVE)
        least, most = panel.domain
        first, last = frame.x.least, frame.x.most
        parts += [*frame.ground(), frame.line([(first, 0.0), (last, 0.0)], MUTED, wide=1)]
        for row in panel.rows:
            if row["estimate"] is None:
                continue
            low, high = least if row["low"] is None else row["low"], most if row["high"] is None else row["high"]
            across = row["start"], row["end"]
            band = [(across[0], low), (across[0], high), (across[1], high), (across[1], low)]
            parts.append(frame.area(band, row["colour"], opacity=0.2))
            parts.append(frame.line([(day, row["estimate"]) for day in across], row["colour"]))
        top = frame.bottom + 14
    return svg(top - 14, windows.title, windows.description, parts)


def _days_frame(panel: Panel, top: float) -> Frame:
    least, most = panel.domain
    effect = ChartAxis(least, most, round_numbers(least, most), panel.axis)
    first, last = min(row["start"] for row in panel.rows), max(row["end"] for row in panel.rows)
    days = ChartAxis(first, last, round_numbers(first, last), "days since the first exposure")
    return Frame(days, effect, top, 1.1 * _HIGH, gutter(label for _, label in effect.ticks))
