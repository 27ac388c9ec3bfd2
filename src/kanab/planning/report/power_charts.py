"""Charts of power as static SVG: the effect that is found and the power, by people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.planning.report.line_chart import ChartLine, LineChart
from kanab.planning.report.power_words import chance, change, is_nothing, rounded
from kanab.report.axes import ChartAxis, Point, percent_axis, round_axis
from kanab.report.figures import percent
from kanab.report.palette import UP

Data = Mapping[str, Any]
Row = Mapping[str, Any]

HEIGHT = 250.0
_STEPS = (1, 2, 5)
_FEW_TICKS = 6
_UNITS = ((10**9, "bn"), (10**6, "M"), (10**3, "k"))


def power_charts(data: Data, points: Sequence[Row]) -> dict[str, str]:
    """Draw both curves as SVG, by name; a curve of which too little can be reached is left out."""
    charts = {"effect": effect_curve(data, points), "power": power_of_effect(data, points)}
    return {name: chart.to_svg() for name, chart in charts.items() if chart is not None}


def effect_curve(data: Data, points: Sequence[Row]) -> LineChart | None:
    """Return the chart of the effect that is found with the asked power, by people; the answer is marked."""
    scale, unit = (100, ", percentage points") if data["binary"] else (1, "")
    reached = [row for row in points if row["effect"] is not None and math.isfinite(row["effect"])]
    if len(reached) < 2:
        return None
    size = "largest" if data["margin"] and data["margin"].startswith("equivalence") else "smallest"
    level = chance(points[0]["at_power"])
    title = f"{size} {'interaction' if data['interaction'] else 'change'} with power {level}{unit}"
    largest = max(abs(scale * row["effect"]) for row in reached)
    rows: list[Point] = [
        (row["people"], 0.0 if is_nothing(scale * row["effect"], largest) else scale * row["effect"]) for row in reached
    ]
    here = _nearest(rows, data["people"])
    label = (f"{here[0]:,} people", f"{rounded(here[1])}{' points' if data['binary'] else ''}")
    description = "; ".join(f"{people:,} people, {rounded(y)}" for people, y in _some(rows))
    values = [y for _, y in rows] + ([0.0] if data["margin"] is None else [])
    return LineChart(
        f"The {title}", f"{description}.", _people(rows), round_axis(min(values), max(values), title),
        [ChartLine(UP, rows, [here])], label=label, high=HEIGHT,
    )  # fmt: skip


def power_of_effect(data: Data, points: Sequence[Row]) -> LineChart | None:
    """Return the chart of the power for the answer's effect, by people, with a line at the asked power."""
    rows: list[Point] = [(row["people"], row["power"]) for row in points if row["power"] is not None]
    if len(rows) < 2:
        return None
    title = f"power for {'an interaction' if data['interaction'] else 'a change'} of {change(data)}"
    here = _nearest(rows, data["people"])
    description = "; ".join(f"{people:,} people, {chance(y)}" for people, y in _some(rows))
    wanted = float(points[0]["at_power"])
    return LineChart(
        f"The {title}", f"{description}.", _people(rows), percent_axis(title), [ChartLine(UP, rows, [here])],
        label=(f"{here[0]:,} people", chance(here[1])), label_below=True, high=HEIGHT,
        asked=(wanted, f"asked: {percent(wanted)}"),
    )  # fmt: skip


def _people(rows: Sequence[Point]) -> ChartAxis:
    """Return an axis of round numbers of people within the range, few enough to stand side by side."""
    low, high = rows[0][0], rows[-1][0]
    values = [
        float(step * 10**power)
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in _STEPS
        if low <= step * 10**power <= high
    ]
    if len(values) > _FEW_TICKS:
        values = [value for value in values if str(value).startswith("1")]
    ticks = [(value, _short_number(value)) for value in values or [low, high]]
    return ChartAxis(low, high, ticks, "people in all", ratio=True)


def _short_number(value: float) -> str:
    """Return a number with its unit.

    >>> [_short_number(value) for value in (500, 20_000, 5_000_000, 10**9)]
    ['500', '20k', '5M', '1bn']
    """
    size, unit = next(((size, unit) for size, unit in _UNITS if value >= size), (1, ""))
    return f"{value / size:g}{unit}"


def _nearest(rows: Sequence[Point], people: float) -> Point:
    return min(rows, key=lambda row: abs(row[0] - people))


def _some(rows: Sequence[Point]) -> list[Point]:
    """Return a handful of points, evenly, for the description that screen readers read."""
    step = max(1, (len(rows) - 1) // 4)
    return list(rows[::step])
