"""Lines over two axes with dots at what was asked, as static SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kanab.report.axes import ABOVE, ChartAxis, Frame, Point, gutter, legend, svg, text
from kanab.report.palette import MUTED


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
