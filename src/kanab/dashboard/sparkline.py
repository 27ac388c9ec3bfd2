"""The main effect over the seals, small enough for a line of the list: its estimate, and its interval as a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from kanab.dashboard.results import HistoryPoint
from kanab.dashboard.timeline import EffectScale, Steps, effect_text, steps_of
from kanab.report.figures import figures_of, is_share
from kanab.report.forest import colour_of
from kanab.report.palette import MUTED
from kanab.report.words import headlines, metrics_of

WIDTH, HEIGHT, EDGE = 132.0, 36.0, 4.0

Data = Mapping[str, Any]


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


def main_effect(data: Data, arm: str | None = None) -> Mapping[str, Any] | None:
    """Return the row of the first primary metric, or of the first metric: of an arm, or of the first one."""
    rows = [row for metric in metrics_of(data) for row in headlines(data, metric)]
    rows = [row for row in rows if row.get("role") == "primary"] or rows
    main = [row for row in rows if row["metric"] == rows[0]["metric"]]
    return next((row for row in main if row["arm"] == arm), main[0] if main else None)


def trend_of(data: Data, points: Sequence[HistoryPoint] = (), arm: str | None = None) -> Trend | None:
    """Return the main effect of a readout over its history, or alone; None where it could not be computed."""
    row = main_effect(data, arm)
    if row is None or row["estimate"] is None:
        return None
    steps = steps_of(points, row["metric"], row["arm"]) or [("", row)]
    return Trend(row["metric"], row["arm"], is_share(data, row["metric"]), steps)


def sparkline(trend: Trend) -> str:
    """Return the picture as SVG, in the colour of the newest verdict; the level line is no difference."""
    scale = EffectScale.of(trend.steps, EDGE, HEIGHT - EDGE)
    newest = trend.steps[-1][1]
    colour, label = colour_of(newest), escape(_label(trend))
    gap = (WIDTH - 2 * EDGE) / max(len(trend.steps) - 1, 1)
    first = EDGE if len(trend.steps) > 1 else WIDTH / 2
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
        f'width="{WIDTH:g}" height="{HEIGHT:g}" viewBox="0 0 {WIDTH:g} {HEIGHT:g}"><title>{label}</title>'
        f'<path d="M0 {scale.y(0.0):.1f}H{WIDTH:g}" stroke="{MUTED}" stroke-width="1" stroke-dasharray="2 2"/>'
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
