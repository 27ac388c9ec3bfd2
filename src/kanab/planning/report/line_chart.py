"""Lines over two axes with dots at what was asked, as static SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kanab.report.axes import ABOVE, ChartAxis, Frame, Point, gutter, legend, percent_axis, round_axis, svg, text
from kanab.report.chart import Chart, chosen_chart
from kanab.report.figures import percent
from kanab.report.palette import MUTED, UP
from kanab.report.words import is_internal
from kanab.tabular import number

_STEPS = (1, 2, 5)
_FEW_TICKS = 6
_UNITS = ((10**9, "bn"), (10**6, "M"), (10**3, "k"))


@dataclass(frozen=True)
class ChartLine:
    """A line through points, and dots on it."""

    colour: str
    points: Sequence[Point]
    dots: Sequence[Point]


@dataclass(frozen=True)
class LineChart:
    """Lines over two axes, with a title and a description for screen readers.

    ``label`` stands beside the first dot; ``asked`` is a value of the upright axis and its name, drawn as a dashed
    line across; ``names`` are names of colours for a legend.
    """

    title: str
    description: str
    x: ChartAxis
    y: ChartAxis
    lines: Sequence[ChartLine]
    label: Sequence[str] = ()
    label_below: bool = False
    asked: tuple[float, str] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    high: float = 190.0

    def to_svg(self) -> str:
        """Return the chart as a picture."""
        frame = Frame(self.x, self.y, ABOVE, self.high, gutter(label for _, label in self.y.ticks))
        parts = [*frame.ground(), *self._asked(frame)]
        for line in self.lines:
            parts.append(frame.line(line.points, line.colour))
            parts += [frame.dot(dot, line.colour) for dot in line.dots]
        if self.label:
            parts.append(frame.words(self.lines[0].dots[0], self.label, below=self.label_below, bold=True))
        names, bottom = legend(self.names, frame.bottom + 8) if self.names else ([], frame.bottom)
        return svg(bottom, self.title, self.description, [*parts, *names])

    def _asked(self, frame: Frame) -> list[str]:
        if self.asked is None:
            return []
        value, name = self.asked
        across = frame.line([(self.x.least, value), (self.x.most, value)], MUTED, wide=1, dashes="4 4")
        return [across, text(frame.left + 4, frame.y_of(value) - 6, name, size=14)]


def curve_chart(data: Mapping[str, Any]) -> Chart:
    """Return the effect that is found, or the power, by people, from the plain data of a curve."""
    points = data["points"]
    solved = "power" if points and points[0]["solved"] == "power" else "effect"
    return chosen_chart({solved: lambda: {solved: _curve(points, solved)}}, solved, internal=is_internal(data))


def _curve(points: Sequence[Mapping[str, Any]], solved: str) -> list[str]:
    rows: list[Point] = [(point["people"], point[solved]) for point in points]
    if len(rows) < 2:
        return []
    if solved == "power":
        y = percent_axis(f"power for a change of {number(points[0]['effect'])}")
    else:
        sizes = [size for _, size in rows]
        y = round_axis(min(0.0, *sizes), max(sizes), f"smallest change with power {percent(points[0]['power'])}")
    described = "; ".join(f"{people:,} people, {number(value)}" for people, value in some_points(rows))
    line = ChartLine(UP, rows, rows)
    return [LineChart(f"The {y.title}, by people", f"{described}.", people_axis(rows), y, [line]).to_svg()]


def people_axis(rows: Sequence[Point]) -> ChartAxis:
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


def some_points(rows: Sequence[Point]) -> list[Point]:
    """Return a handful of points, evenly, for the description that screen readers read."""
    step = max(1, (len(rows) - 1) // 4)
    return list(rows[::step])
