"""Distributions, survival curves and effects over time as static SVG."""

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
    text,
)
from kanab.report.curves import Drawn, DrawnDistribution, DrawnSurvival, distribution_of, effects_over_time, survival_of
from kanab.report.forest import Forest, Panel
from kanab.report.palette import LETTER, MUTED, WIDTH
from kanab.report.words import metrics_of

_HIGH = 150.0
_ROW = 20.0
_MOST_NAME = 16
"""So many letters of an arm's name stand beside the people at risk."""


def curve_pictures(data: Mapping[str, Any]) -> dict[str, str]:
    """Return pictures as SVG, named "quantiles: metric", "survival: metric" and "windows: column"."""
    drawn = {}
    for metric in metrics_of(data):
        if distribution := distribution_of(data, metric):
            drawn[f"quantiles: {metric}"] = distribution_svg(distribution)
        if survival := survival_of(data, metric, _places_with_room(data, metric)):
            drawn[f"survival: {metric}"] = survival_svg(survival)
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


def _places_with_room(data: Mapping[str, Any], metric: str) -> int:
    """Return at how many days people at risk can be told without their numbers touching."""
    curves = [curve for read in data.get("survival_curves", ()) if read["metric"] == metric for curve in read["curves"]]
    widest = max((len(f"{day['at_risk']:,}") for curve in curves for day in curve["days"]), default=1)
    return max(2, min(7, int((WIDTH - 2 * _MOST_NAME * LETTER) / (widest * LETTER)) + 1))


def survival_svg(survival: DrawnSurvival) -> str:
    """Draw the share of every arm without the event after each day, with its interval, and who is at risk below."""
    names = {arm: arm if len(arm) <= _MOST_NAME else f"{arm[: _MOST_NAME - 1]}…" for arm in survival.colours}
    share = percent_axis(f"without {survival.metric}")
    widest = max(len(risk["text"]) for risk in survival.risk)
    left = max(gutter(label for _, label in share.ticks), gutter(names.values()) + widest * LETTER / 2)
    days = ChartAxis(0.0, survival.end, [(day, f"{day:,.10g}") for day in survival.places])
    frame = Frame(days, share, ABOVE, 1.4 * _HIGH, left)
    parts, top = frame.ground(), frame.bottom + 20
    for arm, colour in survival.colours.items():
        steps = [step for step in survival.steps if step["arm"] == arm]
        last = steps[-1]["x"]
        ends = [stepped([(step["x"], step[side]) for step in steps], last) for side in ("low", "high")]
        parts.append(frame.area([*ends[0], *reversed(ends[1])], colour))
    for place, (arm, colour) in enumerate(survival.colours.items()):
        steps = [step for step in survival.steps if step["arm"] == arm]
        parts.append(frame.line(stepped([(s["x"], s["share"]) for s in steps], steps[-1]["x"]), colour, wide=2.5))
        y = top + _ROW * place + 14
        parts.append(text(0, y, names[arm], colour=colour, bold=True))
        at_risk = [(frame.x_of(risk["x"]), risk["text"]) for risk in survival.risk if risk["arm"] == arm]
        parts += [text(x, y, people, colour=colour, anchor="middle") for x, people in at_risk]
    end = top + _ROW * len(names) + 20
    parts.append(text(0, end, f"{survival.covariate}; people still at risk after so many", size=14))
    return svg(end + 6, survival.title, survival.description, parts)


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
