"""How an effect settled over the seals, as a plain picture: the estimate after each, with its interval.

In the list of experiments the picture is small enough for a line: the estimate, and its interval as a band.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kanab.dashboard.results import HistoryPoint
from kanab.report.axes import svg
from kanab.report.figures import Figures, figures_of, is_share
from kanab.report.forest import colour_of
from kanab.report.palette import INK, LETTER, MUTED, TRACK, WIDTH
from kanab.report.words import headlines, metrics_of
from kanab.tabular import Table

HEIGHT, TOP, BOTTOM, EDGE = 190.0, 30.0, 26.0, 14.0
MOST_DESCRIBED = 12
"""So many seals are read out by a screen reader; the table below the picture holds all."""

Row = Mapping[str, Any]
Steps = list[tuple[str, Row]]


def lines_of(points: Sequence[HistoryPoint]) -> list[tuple[str, str]]:
    """Return every metric and arm of the newest point."""
    newest = points[-1].data
    return [(metric, row["arm"]) for metric in metrics_of(newest) for row in headlines(newest, metric)]


def steps_of(points: Sequence[HistoryPoint], metric: str, arm: str) -> Steps:
    """Return the effect on one metric after each seal; those at which it could not be computed are left out."""
    steps = []
    for point in points:
        row = next((row for row in headlines(point.data, metric) if row["arm"] == arm), None)
        if row is not None and row["estimate"] is not None:
            steps.append((point.through, row))
    return steps


@dataclass(frozen=True)
class EffectScale:
    """From effects to heights between ``top`` and ``bottom``; what is beyond the ends is drawn at them."""

    low: float
    high: float
    top: float
    bottom: float

    @classmethod
    def of(cls, steps: Steps, top: float, bottom: float) -> EffectScale:
        """Return a scale for every estimate and for the later intervals: the first may be far wider."""
        last_steps = steps[-max(3, len(steps) * 2 // 3) :]
        ends = [0.0, *(row["estimate"] for _, row in steps)]
        ends += [end for _, row in last_steps for end in row["interval"] or () if end is not None]
        air = 0.08 * (max(ends) - min(ends)) or 1.0
        return cls(min(ends) - air, max(ends) + air, top, bottom)

    def y(self, value: float) -> float:
        """Return the height of a value."""
        inside = min(max(value, self.low), self.high)
        return self.top + (self.high - inside) / (self.high - self.low) * (self.bottom - self.top)

    def ends(self, row: Row) -> tuple[float, float]:
        """Return the heights of the upper and the lower end of an interval; an open one ends with the picture."""
        low, high = row["interval"] or (row["estimate"], row["estimate"])
        return self.y(self.high if high is None else high), self.y(self.low if low is None else low)


def timeline(points: Sequence[HistoryPoint], metric: str, arm: str) -> str:
    """Return the picture as SVG; empty where fewer than two seals say something about it."""
    steps = steps_of(points, metric, arm)
    if len(steps) < 2:
        return ""
    figures = figures_of([row for _, row in steps], share=is_share(points[-1].data, metric))
    scale = EffectScale.of(steps, TOP, HEIGHT - BOTTOM)
    gap = (WIDTH - 2 * EDGE) / (len(steps) - 1)
    places = [(EDGE + at * gap, row) for at, (_, row) in enumerate(steps)]
    line = "L".join(f"{x:.1f} {scale.y(row['estimate']):.1f}" for x, row in places)
    parts = [
        f'<rect y="{TOP:g}" width="{WIDTH}" height="{HEIGHT - TOP - BOTTOM:g}" rx="4" fill="{TRACK}"/>',
        f'<path class="zero" d="M0 {scale.y(0.0):.1f}H{WIDTH}"/>',
        f'<path d="M{line}" fill="none" stroke="{MUTED}" stroke-width="1.5"/>',
        *(_mark(x, row, scale) for x, row in places),
        *_words(steps, figures, f"{metric}, {arm}"),
    ]
    description = "; ".join(
        f"{through} {effect_text(figures, row)}" for through, row in steps[:: -(-len(steps) // MOST_DESCRIBED)]
    )
    title = f"Effect of {arm} on {metric} after each seal"
    return svg(HEIGHT, title, f"{description}.", parts)


def _mark(x: float, row: Row, scale: EffectScale) -> str:
    """Draw one estimate with its interval, in the colour of its verdict at that seal."""
    colour = colour_of(row)
    top, bottom = scale.ends(row)
    return (
        f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/>'
        f'<circle cx="{x:.1f}" cy="{scale.y(row["estimate"]):.1f}" r="4.5" fill="{colour}"/>'
    )


def _words(steps: Steps, figures: Figures, name: str) -> list[str]:
    """Write the name and the newest effect above, the first and the last seal below."""
    newest = effect_text(figures, steps[-1][1])
    room = max(8, int(WIDTH / LETTER) - len(newest) - 2)
    cut = name if len(name) <= room else f"{name[: room - 1]}…"
    below = HEIGHT - 8
    ends = f'<text x="{WIDTH}" y="{below:g}" font-size="13" text-anchor="end" fill="{MUTED}">'
    return [
        f'<text x="0" y="16" font-size="14" font-weight="600" fill="{INK}">{escape(cut)}</text>',
        f'<text x="{WIDTH}" y="16" font-size="14" text-anchor="end" fill="{INK}">{escape(newest)}</text>',
        f'<text x="0" y="{below:g}" font-size="13" fill="{MUTED}">{escape(steps[0][0])}</text>',
        f"{ends}{escape(steps[-1][0])}</text>",
    ]


def effect_text(figures: Figures, row: Row) -> str:
    """Return an effect with its interval."""
    return f"{figures.change(row['estimate'], signed=True)} ({figures.between(row['interval'])})"


def history_table(points: Sequence[HistoryPoint]) -> Table:
    """Return the same as numbers: one row per seal, one column per metric and arm."""
    lines = lines_of(points)
    columns = []
    for metric, arm in lines:
        steps = dict(steps_of(points, metric, arm))
        figures = figures_of(steps.values(), share=is_share(points[-1].data, metric))
        columns.append(
            [effect_text(figures, steps[point.through]) if point.through in steps else "–" for point in points]
        )
    body = zip((point.through for point in points), (f"{point.people:,}" for point in points), *columns, strict=True)
    return Table(("through", "people", *(f"{metric}, {arm}" for metric, arm in lines)), tuple(body))


# ── small enough for a line of the list ──────────────────────────────────────────────────────────

SMALL_WIDTH, SMALL_HEIGHT, SMALL_EDGE = 132.0, 36.0, 4.0


@dataclass(frozen=True)
class Trend:
    """The main effect of an experiment after each of its last seals; one step where only the newest is known."""

    metric: str
    arm: str
    share: bool
    steps: Steps

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, ready for JSON."""
        steps = [
            {"through": through or None, "estimate": row["estimate"], "interval": row["interval"]}
            for through, row in self.steps
        ]
        return {"metric": self.metric, "arm": self.arm, "steps": steps}


def main_effect(data: Row, arm: str | None = None) -> Mapping[str, Any] | None:
    """Return the row of the first primary metric, or of the first metric: of an arm, or of the first one."""
    rows = [row for metric in metrics_of(data) for row in headlines(data, metric)]
    rows = [row for row in rows if row.get("role") == "primary"] or rows
    main = [row for row in rows if row["metric"] == rows[0]["metric"]]
    return next((row for row in main if row["arm"] == arm), main[0] if main else None)


def trend_of(data: Row, points: Sequence[HistoryPoint] = (), arm: str | None = None) -> Trend | None:
    """Return the main effect of a readout over its history, or alone; None where it could not be computed."""
    row = main_effect(data, arm)
    if row is None or row["estimate"] is None:
        return None
    steps = steps_of(points, row["metric"], row["arm"]) or [("", row)]
    return Trend(row["metric"], row["arm"], is_share(data, row["metric"]), steps)


def sparkline(trend: Trend) -> str:
    """Return the picture as SVG, in the colour of the newest verdict; the level line is no difference."""
    scale = EffectScale.of(trend.steps, SMALL_EDGE, SMALL_HEIGHT - SMALL_EDGE)
    newest = trend.steps[-1][1]
    colour, label = colour_of(newest), escape(_label(trend))
    gap = (SMALL_WIDTH - 2 * SMALL_EDGE) / max(len(trend.steps) - 1, 1)
    first = SMALL_EDGE if len(trend.steps) > 1 else SMALL_WIDTH / 2
    places = [(first + at * gap, row) for at, (_, row) in enumerate(trend.steps)]
    tops = [f"{x:.1f} {scale.ends(row)[0]:.1f}" for x, row in places]
    bottoms = [f"{x:.1f} {scale.ends(row)[1]:.1f}" for x, row in places]
    if len(places) > 1:
        line = "L".join(f"{x:.1f} {scale.y(row['estimate']):.1f}" for x, row in places)
        drawn = (
            f'<path class="band" d="M{"L".join([*tops, *reversed(bottoms)])}Z" fill="{colour}"/>'
            f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="1.75" stroke-linejoin="round"/>'
        )
    else:
        drawn = f'<path d="M{tops[0]}L{bottoms[0]}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/>'
    x, y = places[-1][0], scale.y(newest["estimate"])
    return (
        f'<svg role="img" aria-label="{label}" class="sparkline" xmlns="http://www.w3.org/2000/svg" '
        f'width="{SMALL_WIDTH:g}" height="{SMALL_HEIGHT:g}" viewBox="0 0 {SMALL_WIDTH:g} {SMALL_HEIGHT:g}">'
        f"<title>{label}</title>"
        f'<path d="M0 {scale.y(0.0):.1f}H{SMALL_WIDTH:g}" stroke="{MUTED}" stroke-width="1" stroke-dasharray="2 2"/>'
        f'{drawn}<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/></svg>'
    )


def _label(trend: Trend) -> str:
    """Return the newest effect in words.

    >>> row = {"estimate": 0.05, "interval": [0.03, 0.07]}
    >>> _label(Trend("bought", "B", True, [("2026-W45", row), ("2026-W46", row)]))
    'Effect of B on bought: +5.0 points (3.0 to 7.0), over 2 seals'
    """
    rows = [row for _, row in trend.steps]
    seals = f", over {len(rows)} seals" if len(rows) > 1 else ""
    return (
        f"Effect of {trend.arm} on {trend.metric}: {effect_text(figures_of(rows, share=trend.share), rows[-1])}{seals}"
    )
