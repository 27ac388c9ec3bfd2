"""What figures are drawn with: sizes, axes with round numbers, and elements of SVG."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from kanab.report.colours import MUTED, TRACK

WIDTH = 440
"""Narrow enough that letters stay readable when a phone shrinks the picture."""

LETTER = 7.5
"""How wide a letter is taken to be, at the size that pictures use."""

TICKS = 5

Shape = Literal["dot", "ring", "square", "diamond", "triangle", "cross", ""]
Point = tuple[float, float]
Tick = tuple[float, str]


@dataclass(frozen=True)
class ChartAxis:
    """A range of values, the round numbers that are written along it, and what they are."""

    least: float
    most: float
    ticks: Sequence[Tick] = ()
    title: str = ""
    ratio: bool = False

    def part(self, value: float) -> float:
        """Return how far along the axis a value stands, from 0 to 1; what is beyond an end stands there."""
        low, at, high = (math.log(each) if self.ratio else each for each in (self.least, value, self.most))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def numbered_axis(least: float, most: float, title: str = "") -> ChartAxis:
    """Return an axis between two values with round numbers along it."""
    return ChartAxis(least, most, round_numbers(least, most), title)


def axis_around(values: Iterable[float | None], title: str) -> ChartAxis:
    """Return an axis with 0 and all values that are not None, a little air, and round numbers along it."""
    ends = [0.0, *(value for value in values if value is not None)]
    air = 0.05 * (max(ends) - min(ends)) or 1.0
    return numbered_axis(min(ends) - air, max(ends) + air, title)


def round_axis(least: float, most: float, title: str, count: int = TICKS) -> ChartAxis:
    """Return an axis that begins and ends at round numbers around two values."""
    most = most if most > least else least + 1.0
    step = _step(least, most, count)
    ends = math.floor(least / step + 1e-9) * step, math.ceil(most / step - 1e-9) * step
    return ChartAxis(*ends, round_numbers(*ends, count, step), title)


def percent_axis(title: str, step: int = 20) -> ChartAxis:
    """Return an axis of shares from 0 to 100 %."""
    return ChartAxis(0.0, 1.0, [(part / 100, f"{part} %") for part in range(0, 101, step)], title)


def round_numbers(least: float, most: float, count: int = TICKS, step: float | None = None) -> list[Tick]:
    """Return about so many round numbers between two, or those of a step, and how they are written."""
    step = step or _step(least, most, count)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    places = range(math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9) + 1)
    return [(place * step, f"{place * step:,.{decimals}f}".replace("-", "−")) for place in places]


def _step(least: float, most: float, count: int) -> float:
    rough = (most - least) / count
    power = math.floor(math.log10(rough))
    return min((part * 10.0**power for part in (1, 2, 5, 10)), key=lambda size: abs(math.log(size / rough)))


# ── elements of SVG ────────────────────────────────────────────────────────────────────────────


def element(tag: str, body: str = "", **attributes: str | float) -> str:
    """Return an element; attributes that are empty are left out."""
    shown = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value) if isinstance(value, str) else f"{value:g}"}"'
        for name, value in attributes.items()
        if value != ""
    )
    return f"<{tag}{shown}>{body}</{tag}>" if body else f"<{tag}{shown}/>"


def document(wide: float, high: float, parts: Iterable[str], **attributes: str | float) -> str:
    """Return elements as a whole picture; ``attributes`` come first."""
    return element(
        "svg", "".join(parts), **attributes, xmlns="http://www.w3.org/2000/svg", font_family="sans-serif",
        width=wide, height=high, viewBox=f"0 0 {wide:g} {high:g}",
    )  # fmt: skip


def text(
    x: float, y: float, words: str, *, size: int = 14, colour: str = MUTED, anchor: str = "", bold: bool = False
) -> str:
    """Write words at a place."""
    weight = "bold" if bold else ""
    return element("text", escape(words), x=x, y=y, text_anchor=anchor, font_size=size, fill=colour, font_weight=weight)


def glyph(
    shape: Shape, x: float, y: float, size: float, colour: str, *, edge: str = "", opacity: float | str = ""
) -> str:
    """Draw a mark about a place, with an ``edge`` that sets it off from what lies below."""
    edge_width = 1.5 if edge else ""
    corner, wide = f"M{x - size:g}", f"{2 * size:g}"
    match shape:
        case "dot":
            return element("circle", cx=x, cy=y, r=size, fill=colour, stroke=edge, stroke_width=edge_width)
        case "ring":
            return element("circle", cx=x, cy=y, r=size, fill=TRACK, stroke=colour, stroke_width=2)
        case "square":
            drawn = f"{corner} {y - size:g}h{wide}v{wide}h-{wide}z"
            return element("path", d=drawn, fill=colour, fill_opacity=opacity)
        case "triangle":
            drawn = f"{corner} {y + size * 0.8:g}h{wide}l-{size:g} -{wide}z"
            return element("path", d=drawn, fill=colour, stroke=edge, stroke_width=edge_width)
        case "cross":
            drawn = f"{corner} {y - size:g}l{wide} {wide}m0 -{wide}l-{wide} {wide}"
            return element("path", d=drawn, stroke=colour, stroke_width=2, fill="none")
    return ""


def letters_beside(words: str) -> int:
    """Return how many letters fit into a line beside words at its end."""
    return max(8, int(WIDTH / LETTER) - len(words) - 2)


def cut(words: str, most: int) -> str:
    """Return as many letters of words as there is room for."""
    return words if len(words) <= most else f"{words[: most - 1]}…"


def level_axis(axis: ChartAxis, y: float, left: float, wide: float) -> list[str]:
    """Draw small marks and round numbers below a line, kept within the picture, and what they are."""
    parts = []
    for value, label in axis.ticks:
        x, half = left + axis.part(value) * wide, len(label) * LETTER / 2
        parts.append(element("path", d=f"M{x:g} {y:g}v4", stroke=MUTED))
        parts.append(text(min(max(x, half), WIDTH - half), y + 18, label, size=13, anchor="middle"))
    return [*parts, text(left, y + 40, axis.title)] if axis.title else parts
