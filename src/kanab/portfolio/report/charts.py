"""Forest plots of combined effects and the picture of shrinkage: plain SVG, drawn here, without a chart library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from kanab.portfolio.report.words import (
    bars,
    combined_figures,
    combined_heading,
    listed_effects,
    portfolio_figures,
)
from kanab.report.axes import svg
from kanab.report.chart import Chart, chosen_chart
from kanab.report.figures import Row, percent
from kanab.report.palette import DOWN, INK, LETTER, MUTED, QUIET, TRACK, UP, WIDTH
from kanab.report.text import mapped, printable

Data = Mapping[str, Any]

Place = Callable[[float], float]
"""Where a value stands in a picture."""

_ROW = 46.0
_AXIS = 34.0


def combined_chart(data: Data, metric: str | None) -> Chart:
    """Return the forest plots of combined effects from their plain data, of one metric or of all."""
    clean = mapped(data, printable)
    pictures: dict[str, list[str]] = {}
    for effect in clean["effects"]:
        pictures.setdefault(effect["metric"], []).append(forest_picture(clean, effect))
    return chosen_chart({"effects": lambda: pictures}, "effects", metric)


def portfolio_chart(data: Data) -> Chart:
    """Return the picture of shrinkage from the plain data of a portfolio."""
    return Chart((shrinkage_picture(mapped(data, printable)),))


def forest_picture(data: Data, effect: Row) -> str:
    """Draw the effect of every release with its interval, and a diamond for all of them together."""
    figures = combined_figures(effect)
    rows = effect["parts"]
    shown = [*rows, effect] + ([{"interval": effect["prediction"]}] if effect["prediction"] else [])
    x_of = _scale(bars(shown))
    parts, described = [], []
    heaviest = max(part["weight"] for part in rows)
    for place, part in enumerate(rows):
        value = f"{figures.bare(part['estimate'], signed=True)} ({figures.between(part['interval'])})"
        y = place * _ROW
        side = 5 + 7 * (part["weight"] / heaviest) ** 0.5
        parts += _ground(y, part["name"], value, x_of)
        parts.append(_line(part["interval"], y, x_of, QUIET, 3))
        middle = x_of(part["estimate"])
        parts.append(
            f'<rect x="{_short(middle - side / 2)}" y="{_short(y + 30 - side / 2)}" width="{_short(side)}" '
            f'height="{_short(side)}" fill="{QUIET}"/>'
        )
        described.append(f"{part['name']} {value}")
    y = len(rows) * _ROW
    value = f"{figures.bare(effect['estimate'], signed=True)} ({figures.between(effect['interval'])})"
    parts += _ground(y, "together", value, x_of, bold=True)
    if effect["prediction"]:
        parts.append(_line(effect["prediction"], y, x_of, MUTED, 1.5, dashed=True))
    low, middle, high = (x_of(value) for value in (effect["interval"][0], effect["estimate"], effect["interval"][1]))
    colour = effect_colour(effect)
    parts.append(
        f'<path d="M{_short(low)} {_short(y + 30)}L{_short(middle)} {_short(y + 22)}L{_short(high)} {_short(y + 30)}'
        f'L{_short(middle)} {_short(y + 38)}z" fill="{colour}"/>'
    )
    described.append(f"together {value}")
    high_end = (len(rows) + 1) * _ROW
    parts += _axis(high_end, effect["metric"], x_of, share=effect["share"])
    level = percent(data["confidence"])
    return svg(high_end + _AXIS, combined_heading(effect), f"{level} intervals. {'; '.join(described)}.", parts)


def shrinkage_picture(data: Data) -> str:
    """Draw every effect as it was seen (grey ring) and after shrinkage (dot), and the mean that all are drawn to."""
    figures, rows = portfolio_figures(data), listed_effects(data)
    x_of = _scale([*bars(rows), data["prior"]["mean"]])
    mean = x_of(data["prior"]["mean"])
    parts, described = [], []
    for place, row in enumerate(rows):
        y = place * _ROW
        value = f"{figures.bare(row['estimate'], signed=True)} → {figures.bare(row['shrunk'], signed=True)}"
        parts += _ground(y, row["name"], value, x_of)
        mark = f"M{_short(mean)} {_short(y + 19)}v22"
        parts.append(f'<path d="{mark}" stroke="{MUTED}" stroke-width="1.5" stroke-dasharray="3 2"/>')
        parts.append(_line(row["interval"], y - 5, x_of, QUIET, 1.5))
        colour = effect_colour({**row, "interval": row["shrunk_interval"]})
        parts.append(_line(row["shrunk_interval"], y + 5, x_of, colour, 3))
        parts.append(
            f'<circle cx="{_short(x_of(row["estimate"]))}" cy="{_short(y + 25)}" r="4" fill="{TRACK}" '
            f'stroke="{QUIET}" stroke-width="2"/>'
        )
        parts.append(f'<circle cx="{_short(x_of(row["shrunk"]))}" cy="{_short(y + 35)}" r="5" fill="{colour}"/>')
        described.append(f"{row['name']} {value}")
    high = len(rows) * _ROW
    parts += _axis(high, data["metric"], x_of, share=data["share"])
    return svg(
        high + _AXIS, f"Effects on {data['metric']}, seen and after shrinkage", f"{'; '.join(described)}.", parts
    )


def effect_colour(row: Row) -> str:
    """Return blue for clearly better, orange for clearly worse, grey otherwise."""
    low, high = (0.0 if end is None else end for end in row["interval"])
    if low <= 0 <= high:
        return QUIET
    return UP if (low > 0) == (row["better"] == "higher") else DOWN


def _scale(ends: Sequence[float]) -> Place:
    """Return where a value stands: 0 and all ends are inside."""
    least, most = min(0.0, *ends), max(0.0, *ends)
    air = 0.04 * (most - least) or 1.0
    return lambda value: (value - least + air) * WIDTH / (most - least + 2 * air)


def _ground(y: float, name: str, value: str, x_of: Place, *, bold: bool = False) -> list[str]:
    """Draw a row's name, its numbers, its track and its piece of the zero line."""
    room = max(8, int(WIDTH / LETTER) - len(value) - 2)
    cut = name if len(name) <= room else f"{name[: room - 1]}…"
    weight = ' font-weight="600"' if bold else ""
    return [
        f'<text x="0" y="{_short(y + 13)}" font-size="14" fill="{INK}"{weight}>{escape(cut)}</text>',
        f'<text x="{WIDTH}" y="{_short(y + 13)}" text-anchor="end" font-size="14" fill="{INK}">{escape(value)}</text>',
        f'<rect y="{_short(y + 19)}" width="{WIDTH}" height="22" rx="4" fill="{TRACK}"/>',
        f'<path d="M{_short(x_of(0))} {_short(y + 19)}v22" stroke="{MUTED}" stroke-width="1.5"/>',
    ]


def _line(
    interval: Sequence[float],
    y: float,
    x_of: Place,
    colour: str,
    wide: float,
    *,
    dashed: bool = False,
) -> str:
    low, high = (_short(x_of(end)) for end in interval)
    dashes = ' stroke-dasharray="4 3"' if dashed else ' stroke-linecap="round"'
    return f'<path d="M{low} {_short(y + 30)}H{high}" stroke="{colour}" stroke-width="{wide:g}"{dashes}/>'


def _axis(y: float, metric: str, x_of: Place, *, share: bool) -> list[str]:
    words = f"effect on {metric}{', percentage points' if share else ''}; the upright mark is no effect"
    zero = min(max(x_of(0), 6.0), WIDTH - 6.0)
    return [
        f'<text x="{_short(zero)}" y="{_short(y + 10)}" text-anchor="middle" font-size="13" fill="{MUTED}">0</text>',
        f'<text x="0" y="{_short(y + 28)}" font-size="14" fill="{MUTED}">{escape(words)}</text>',
    ]


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
