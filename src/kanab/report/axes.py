"""Two axes and what stands between them, as parts of static SVG: lines, steps, bands, dots, words."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from kanab.report.palette import INK, LETTER, MUTED, TRACK, WIDTH

TICKS = 5
ABOVE, BELOW = 30.0, 46.0
"""The room for the title of the upright axis above a frame, and for numbers and title of the level one below it."""

_RIGHT = 7.0
_LINE = 20.0

Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True)
class ChartAxis:
    """A range of values, the round numbers that are written along it, and what they are."""

    least: float
    most: float
    ticks: Sequence[Tick]
    title: str = ""
    ratio: bool = False

    def part(self, value: float) -> float:
        """Return how far along the axis a value stands, from 0 to 1; what is beyond an end stands there.

        >>> round(ChartAxis(10, 1000, [], ratio=True).part(100), 9)
        0.5
        """
        low, at, high = (math.log(each) if self.ratio else each for each in (self.least, value, self.most))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5


@dataclass(frozen=True)
class Frame:
    """A place in a picture with a level and an upright axis; everything is drawn in the units of these axes."""

    x: ChartAxis
    y: ChartAxis
    top: float
    high: float
    left: float

    @property
    def bottom(self) -> float:
        """Where the next thing may begin, below the level axis and its title."""
        return self.top + self.high + (BELOW if self.x.title else BELOW / 2)

    def x_of(self, value: float) -> float:
        """Return where a value of the level axis stands in the picture."""
        return self.left + self.x.part(value) * (WIDTH - _RIGHT - self.left)

    def y_of(self, value: float) -> float:
        """Return where a value of the upright axis stands in the picture."""
        return self.top + (1 - self.y.part(value)) * self.high

    def ground(self, *, grid: bool = True) -> list[str]:
        """Draw both axes: small marks, numbers that stay within the picture, titles, and thin lines across."""
        parts = [text(0, self.top - 16, self.y.title, size=14)] if self.y.title else []
        for value, label in self.y.ticks:
            y = self.y_of(value)
            if grid:
                parts.append(f'<path d="M{_short(self.left)} {_short(y)}H{_short(WIDTH - _RIGHT)}" stroke="{TRACK}"/>')
            parts.append(f'<path d="M{_short(self.left - 4)} {_short(y)}h4" stroke="{MUTED}"/>')
            parts.append(text(self.left - 8, y + 4.5, label, anchor="end"))
        end = self.top + self.high
        for value, label in self.x.ticks:
            x, half = self.x_of(value), len(label) * LETTER / 2
            parts.append(f'<path d="M{_short(x)} {_short(end)}v4" stroke="{MUTED}"/>')
            parts.append(text(min(max(x, half), WIDTH - half), end + 18, label, anchor="middle"))
        return [*parts, text(self.left, end + 40, self.x.title, size=14)] if self.x.title else parts

    def line(self, points: Iterable[Point], colour: str, *, wide: float = 3.0, dashes: str = "") -> str:
        """Draw a line through points."""
        drawn = "L".join(f"{_short(self.x_of(x))} {_short(self.y_of(y))}" for x, y in points)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ' stroke-linejoin="round" stroke-linecap="round"'
        return f'<path d="M{drawn}" fill="none" stroke="{colour}" stroke-width="{wide:g}"{dashed}/>'

    def area(self, points: Sequence[Point], colour: str, *, opacity: float = 0.16) -> str:
        """Fill what a line around points encloses."""
        drawn = "L".join(f"{_short(self.x_of(x))} {_short(self.y_of(y))}" for x, y in points)
        return f'<path d="M{drawn}z" fill="{colour}" fill-opacity="{opacity:g}"/>'

    def dot(self, point: Point, colour: str, *, size: float = 5.4) -> str:
        """Draw a point."""
        x, y = _short(self.x_of(point[0])), _short(self.y_of(point[1]))
        return f'<circle cx="{x}" cy="{y}" r="{size:g}" fill="{colour}"/>'

    def words(self, point: Point, lines: Sequence[str], *, below: bool, colour: str = INK, bold: bool = False) -> str:
        """Write lines to the right of a point, below or above it; where there is no room, on its other side."""
        x, y = self.x_of(point[0]), self.y_of(point[1])
        fits = x + 10 + max(map(len, lines)) * LETTER * 1.05 <= WIDTH
        below = below if fits else not below
        first = y + 18 if below else y - 10 - 17 * (len(lines) - 1)
        at, anchor = (x + 10, "start") if fits else (x - 10, "end")
        return "".join(
            text(at, first + 17 * place, line, size=14, colour=colour, anchor=anchor, bold=bold)
            for place, line in enumerate(lines)
        )


def stepped(points: Sequence[Point], end: float) -> list[Point]:
    """Return the corners of a line that stays level from each point until the next one, the last until the end.

    >>> stepped([(0, 1.0), (2, 0.5)], 3)
    [(0, 1.0), (2, 1.0), (2, 0.5), (3, 0.5)]
    """
    ends = [*(x for x, _ in points[1:]), end]
    return [corner for (x, y), until in zip(points, ends, strict=True) for corner in ((x, y), (until, y))]


def gutter(labels: Iterable[str]) -> float:
    """Return the room for the numbers of an upright axis, and for the marks beside them."""
    return max((len(label) for label in labels), default=0) * LETTER + 10


def legend(colours: Mapping[str, str], top: float) -> tuple[list[str], float]:
    """Draw names beside dots of their colours, in as many lines as they need; also return where these end."""
    parts, x, most = [], 0.0, int(WIDTH / LETTER) - 4
    for name, colour in colours.items():
        shown = name if len(name) <= most else f"{name[: most - 1]}…"
        wide = 18 + len(shown) * LETTER + 14
        if x and x + wide > WIDTH + 14:
            x, top = 0.0, top + _LINE
        parts.append(f'<circle cx="{_short(x + 6)}" cy="{_short(top + 9)}" r="5.4" fill="{colour}"/>')
        parts.append(text(x + 18, top + 14, shown, size=14, colour=INK))
        x += wide
    return parts, top + _LINE


def text(
    x: float, y: float, words: str, *, size: int = 13, colour: str = MUTED, anchor: str = "start", bold: bool = False
) -> str:
    """Write words at a place."""
    place = f'x="{_short(x)}" y="{_short(y)}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    weight = ' font-weight="bold"' if bold else ""
    return f'<text {place} font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>'


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def svg(high: float, title: str, description: str, parts: Iterable[str]) -> str:
    """Return a picture of so many pixels' height that screen readers can read out."""
    name = "chart-" + hashlib.sha256(f"{title}{description}".encode()).hexdigest()[:12]
    size = f'width="{WIDTH}" height="{_short(high)}" viewBox="0 0 {WIDTH} {_short(high)}"'
    return (
        f'<svg role="img" aria-label="{escape(title)}" aria-describedby="{name}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="sans-serif" {size}><title>{escape(title)}</title>'
        f'<desc id="{name}">{escape(description)}</desc>{"".join(parts)}</svg>'
    )


def round_axis(least: float, most: float, title: str, count: int = TICKS) -> ChartAxis:
    """Return an axis that begins and ends at round numbers around two values.

    >>> axis = round_axis(0, 2.03, "effect")
    >>> axis.least, axis.most, [label for _, label in axis.ticks]
    (0.0, 2.5, ['0.0', '0.5', '1.0', '1.5', '2.0', '2.5'])
    """
    most = most if most > least else least + 1.0
    step = _step(least, most, count)
    ends = math.floor(least / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step
    return ChartAxis(*ends, round_numbers(*ends, count, step), title)


def percent_axis(title: str, step: int = 20) -> ChartAxis:
    """Return an axis of shares from 0 to 100 %."""
    return ChartAxis(0.0, 1.0, [(part / 100, f"{part} %") for part in range(0, 101, step)], title)


def round_numbers(least: float, most: float, count: int = TICKS, step: float | None = None) -> list[Tick]:
    """Return about so many round numbers between two, or those of a step, and how they are written.

    >>> round_numbers(-0.12, 1.8)
    [(0.0, '0.0'), (0.5, '0.5'), (1.0, '1.0'), (1.5, '1.5')]
    """
    step = step or _step(least, most, count)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)
    return [(place * step, f"{place * step:,.{decimals}f}".replace("-", "−")) for place in places]


def _step(least: float, most: float, count: int) -> float:
    rough = (most - least) / count
    power = math.floor(math.log10(rough))
    return min((part * 10.0**power for part in (1, 2, 5, 10)), key=lambda size: abs(math.log(size / rough)))
