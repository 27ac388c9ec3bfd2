"""How an effect settled over the seals, as a plain picture: the estimate after each, with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanab.dashboard.results import HistoryPoint
from kanab.report.colours import MUTED
from kanab.report.digits import Digits, figures_of, is_share, scaled
from kanab.report.drawing import ChartAxis, Point, axis_around
from kanab.report.figure import Area, Dots, Figure, Line, Mark, Plot, bar_of
from kanab.report.pictures import colour_of
from kanab.report.words import headlines, verdict_rows
from kanab.tabular import Table

MOST_DESCRIBED = 12
"""So many seals are read out by a screen reader; the table below the picture holds all."""

Row = Mapping[str, Any]
Steps = list[tuple[str, Row]]


def lines_of(points: Sequence[HistoryPoint]) -> list[tuple[str, str]]:
    """Return every metric and arm of the newest point."""
    return [(row["metric"], row["arm"]) for row in verdict_rows(points[-1].data)]


def steps_of(points: Sequence[HistoryPoint], metric: str, arm: str) -> Steps:
    """Return the effect on one metric after each seal; those at which it could not be computed are left out."""
    steps = []
    for point in points:
        row = next((row for row in headlines(point.data, metric) if row["arm"] == arm), None)
        if row is not None and row["estimate"] is not None:
            steps.append((point.through, row))
    return steps


def timeline(points: Sequence[HistoryPoint], metric: str, arm: str) -> Figure | None:
    """Return the figure; None where fewer than two seals say something about it."""
    steps = steps_of(points, metric, arm)
    if len(steps) < 2:
        return None
    share = is_share(points[-1].data, metric)
    figures = figures_of([row for _, row in steps], share=share)
    y = _effect_axis(steps, f"{metric}, {arm}{', percentage points' if share else ''}", share=share)
    lows, middles, highs = _levels(steps, y, share=share)
    x = ChartAxis(-0.25, len(steps) - 0.75, [(0, steps[0][0]), (len(steps) - 1, steps[-1][0])])
    marks: list[Mark] = [Line([(x.least, 0.0), (x.most, 0.0)], MUTED, wide=1.5), Line(middles, MUTED, wide=1.5)]
    for low, at, high, (_, row) in zip(lows, middles, highs, steps, strict=True):
        marks += [Line([low, high], colour_of(row)), Dots([at], colour_of(row), size=4.5)]
    described = "; ".join(
        f"{through} {effect_text(figures, row)}" for through, row in steps[:: -(-len(steps) // MOST_DESCRIBED)]
    )
    panel = Plot(x, y, marks, text=effect_text(figures, steps[-1][1]))
    return Figure(f"Effect of {arm} on {metric} after each seal", f"{described}.", [panel])


def _effect_axis(steps: Steps, title: str = "", *, share: bool) -> ChartAxis:
    """Return an axis for every estimate and for the later intervals: the first may be far wider."""
    ends = [row["estimate"] for _, row in steps]
    for _, row in steps[-max(3, len(steps) * 2 // 3) :]:
        ends += row["interval"] or ()
    return axis_around([scaled(end, share) for end in ends], title)


def _levels(steps: Steps, axis: ChartAxis, *, share: bool) -> tuple[list[Point], list[Point], list[Point]]:
    """Return the low ends, the estimates and the high ends of steps; an open end is that of the axis."""
    lows, middles, highs = list[Point](), list[Point](), list[Point]()
    for place, (_, row) in enumerate(steps):
        bar = bar_of(row["estimate"], row["interval"], "", share=share)
        lows.append((place, axis.least if bar.low is None else bar.low))
        middles.append((place, bar.at or 0.0))
        highs.append((place, axis.most if bar.high is None else bar.high))
    return lows, middles, highs


def effect_text(figures: Digits, row: Row) -> str:
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


def trend_of(data: Row, points: Sequence[HistoryPoint] = (), arm: str | None = None) -> Trend | None:
    """Return the effect on the first primary metric, or on the first one, over the history or alone; None without."""
    rows = verdict_rows(data)
    rows = [row for row in rows if row.get("role") == "primary"] or rows
    main = [row for row in rows if row["metric"] == rows[0]["metric"]]
    row = next((row for row in main if row["arm"] == arm), main[0] if main else None)
    if row is None or row["estimate"] is None:
        return None
    steps = steps_of(points, row["metric"], row["arm"]) or [("", row)]
    return Trend(row["metric"], row["arm"], is_share(data, row["metric"]), steps)


def sparkline(trend: Trend) -> Figure:
    """Return the figure, in the colour of the newest verdict; the level line is no difference."""
    y = replace(_effect_axis(trend.steps, share=trend.share), ticks=())
    lows, middles, highs = _levels(trend.steps, y, share=trend.share)
    colour, last = colour_of(trend.steps[-1][1]), len(trend.steps) - 1
    marks: list[Mark] = [Line([(-1, 0.0), (last + 1, 0.0)], MUTED, wide=1, dashes="2 2")]
    if last:
        marks += [Area([*highs, *reversed(lows)], colour, opacity=0.2), Line(middles, colour, wide=1.75)]
    else:
        marks.append(Line([*lows, *highs], colour))
    marks.append(Dots(middles[-1:], colour, size=3))
    panel = Plot(ChartAxis(0, last) if last else ChartAxis(-1, 1), y, marks, high=28, wide=132)
    return Figure(_label(trend), "", [panel])


def _label(trend: Trend) -> str:
    """Return the newest effect in words."""
    rows = [row for _, row in trend.steps]
    seals = f", over {len(rows)} seals" if len(rows) > 1 else ""
    return (
        f"Effect of {trend.arm} on {trend.metric}: {effect_text(figures_of(rows, share=trend.share), rows[-1])}{seals}"
    )
