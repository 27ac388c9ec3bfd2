"""Charts of power as static SVG: the effect that is found and the power, by people."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.planning.report.line_chart import ChartLine, LineChart, people_axis, some_points
from kanab.planning.report.power_words import chance, change, is_nothing, rounded
from kanab.report.axes import Point, percent_axis, round_axis
from kanab.report.figures import percent
from kanab.report.palette import UP

Data = Mapping[str, Any]
Row = Mapping[str, Any]

HEIGHT = 250.0


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
    description = "; ".join(f"{people:,} people, {rounded(y)}" for people, y in some_points(rows))
    values = [y for _, y in rows] + ([0.0] if data["margin"] is None else [])
    return LineChart(
        f"The {title}", f"{description}.", people_axis(rows), round_axis(min(values), max(values), title),
        [ChartLine(UP, rows, [here])], label=label, high=HEIGHT,
    )  # fmt: skip


def power_of_effect(data: Data, points: Sequence[Row]) -> LineChart | None:
    """Return the chart of the power for the answer's effect, by people, with a line at the asked power."""
    rows: list[Point] = [(row["people"], row["power"]) for row in points if row["power"] is not None]
    if len(rows) < 2:
        return None
    title = f"power for {'an interaction' if data['interaction'] else 'a change'} of {change(data)}"
    here = _nearest(rows, data["people"])
    description = "; ".join(f"{people:,} people, {chance(y)}" for people, y in some_points(rows))
    wanted = float(points[0]["at_power"])
    return LineChart(
        f"The {title}", f"{description}.", people_axis(rows), percent_axis(title), [ChartLine(UP, rows, [here])],
        label=(f"{here[0]:,} people", chance(here[1])), label_below=True, high=HEIGHT,
        asked=(wanted, f"asked: {percent(wanted)}"),
    )  # fmt: skip


def _nearest(rows: Sequence[Point], people: float) -> Point:
    return min(rows, key=lambda row: abs(row[0] - people))
