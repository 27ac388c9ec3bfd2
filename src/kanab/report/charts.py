"""Charts of a readout as Vega-Lite, through Altair, for notebooks; pages have the pictures of `pictures`.

Altair is the extra ``[charts]`` and not imported before a chart is drawn.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.errors import MissingExtraError
from kanab.report.curves import DrawnDistribution, distribution_of, effects_over_time
from kanab.report.forest import (
    Forest,
    Panel,
    effect_forest,
    received_forest,
    segment_forest,
    shortened,
)
from kanab.report.palette import INK, MUTED, TRACK, WIDTH
from kanab.report.pictures import STEP

Data = Mapping[str, Any]
Spec = dict[str, Any]

_HEIGHT = 150


def forest_chart(data: Data, metric: str | None = None) -> Spec | None:
    """Return `effect_forest` as a chart; None without effects.

    Raises `MissingExtraError` where the extra is not installed, as the other charts do.
    """
    return chart_of(effect_forest(data, metric))


def segment_chart(data: Data, metric: str | None = None) -> Spec | None:
    """Return `segment_forest` as a chart; None without segments."""
    return chart_of(segment_forest(data, metric))


def received_chart(data: Data, metric: str) -> Spec | None:
    """Return `received_forest` as a chart; None where nothing was asked of receiving."""
    return chart_of(received_forest(data, metric))


def chart_of(forest: Forest | None) -> Spec | None:
    """Return a forest plot as a chart; None without one."""
    if forest is None:
        return None
    alt = altair()
    panels = [_forest_panel(alt, panel) for panel in forest.panels]
    return _finished(alt, panels, forest.title, forest.description)


def window_charts(data: Data) -> dict[str, Spec]:
    """Return for each metric that has several windows its effects over the days since the first exposure.

    A panel for each arm: a line across each window at its effect, another one along its interval.
    """
    return {column: _windows(altair(), windows) for column, windows in effects_over_time(data).items()}


def _windows(alt: Any, windows: Forest) -> Spec:
    panels = [_window_panel(alt, panel) for panel in windows.panels]
    return _finished(alt, panels, windows.title, windows.description)


def _window_panel(alt: Any, panel: Panel) -> Any:
    """Return one arm's effects over time, with the line of no effect."""
    domain = panel.domain
    drawn = [
        row
        | {"low": domain[0] if row["low"] is None else row["low"]}
        | {"high": domain[1] if row["high"] is None else row["high"]}
        for row in panel.rows
    ]
    base = alt.Chart(alt.Data(values=drawn)).encode(color=alt.Color("colour:N", scale=None))
    axis = alt.Axis(title="days since the first exposure", grid=False, tickCount=8)

    def y(name: str) -> Any:
        scale = alt.Scale(domain=domain, nice=False)
        return alt.Y(f"{name}:Q", scale=scale, axis=alt.Axis(title=panel.axis, grid=False, tickCount=5))

    across = {"x": alt.X("start:Q", axis=axis), "x2": "end:Q"}
    zero = base.mark_rule(strokeWidth=1).encode(**across, y=y("zero"), color=alt.value(MUTED))
    effect = base.mark_rule(strokeWidth=3, strokeCap="round").encode(**across, y=y("estimate"))
    interval = base.mark_rule(strokeWidth=3, opacity=0.45).encode(
        x=alt.X("middle:Q", axis=axis), y=y("low"), y2="high:Q"
    )
    return alt.layer(zero, interval, effect).properties(width=WIDTH - 60, height=170)


def distribution_chart(data: Data, metric: str) -> Spec | None:
    """Return histograms of the arms over each other, and below them the shares of people up to each value.

    Quantiles are marked in both. None where nothing was asked of quantiles. People in open bins are not drawn.
    """
    shown = distribution_of(data, metric)
    if shown is None:
        return None
    alt = altair()
    scale = alt.Scale(domain=[shown.start, shown.end], nice=False)
    panels = [_histogram(alt, shown, scale), _cumulative(alt, shown, scale, data["control"])]
    return _finished(alt, panels, shown.title, shown.description)


def _histogram(alt: Any, shown: DrawnDistribution, scale: Any) -> Any:
    colour = alt.Color("colour:N", scale=None)
    rules = alt.Chart(alt.Data(values=shown.marks)).mark_rule(strokeDash=[3, 3], strokeWidth=1.5)
    drawn = alt.Chart(alt.Data(values=shown.bars)).mark_rect(opacity=0.4, stroke=None, clip=True)
    x = alt.X("low:Q", scale=scale, axis=alt.Axis(title=None, grid=False, tickCount=6))
    crowd = alt.Y("value:Q", stack=None, axis=alt.Axis(title="people", labels=False, ticks=False, grid=False))
    return alt.layer(
        drawn.encode(x=x, x2="high:Q", y=crowd, y2="none:Q", color=colour),
        rules.encode(x=alt.X("x:Q", scale=scale), color=colour),
    ).properties(width=WIDTH, height=_HEIGHT)


def _cumulative(alt: Any, shown: DrawnDistribution, scale: Any, control: str) -> Any:
    axis = alt.Axis(title="share up to", format="%", tickCount=4, grid=False)
    y = alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    at = alt.X("x:Q", scale=scale, axis=alt.Axis(title=shown.metric, grid=False, tickCount=6))
    colour = alt.Color("colour:N", scale=None)
    line = alt.Chart(alt.Data(values=shown.steps)).mark_line(strokeWidth=2.5, clip=True)
    points = alt.Chart(alt.Data(values=shown.marks)).mark_point(filled=True, size=70, opacity=1)
    named = alt.Chart(alt.Data(values=[mark for mark in shown.marks if mark["arm"] == control]))
    legend = alt.Chart(alt.Data(values=[
        {"x": shown.end, "value": 0.12 + 0.13 * place, "arm": arm, "colour": shown.colours[arm]}
        for place, arm in enumerate(reversed([*shown.colours]))
    ]))  # fmt: skip
    return alt.layer(
        line.encode(x=at, y=y, color=colour),
        points.encode(x=at, y=y, color=colour),
        named.mark_text(align="left", dx=9, dy=13, color=MUTED).encode(x=at, y=y, text="name:N"),
        legend.mark_text(align="right", fontWeight="bold").encode(x=at, y=y, text="arm:N", color=colour),
    ).properties(width=WIDTH, height=_HEIGHT)


def altair() -> Any:
    """Return the chart library. Raises `MissingExtraError` where the extra is not installed."""
    try:
        return importlib.import_module("altair")
    except ImportError:
        raise MissingExtraError("drawing charts", "charts") from None


def _forest_panel(alt: Any, panel: Panel) -> Any:
    """Return a row for each effect."""
    rows = panel.rows
    least, most = domain = panel.domain
    drawn = [
        row | {"from": least if row["low"] is None else row["low"], "to": most if row["high"] is None else row["high"]}
        for row in rows
    ]
    base, x = _base(alt, drawn), _x(alt, domain, panel.axis)
    line = base.mark_rule(strokeWidth=3, strokeCap="round", yOffset=10).encode(x=x("from"), x2="to")
    point = base.mark_point(filled=True, size=90, opacity=1, yOffset=10).encode(x=x("estimate"))
    layers = [*_ground(alt, base, x), line, point, *_texts(alt, base)]
    for side, shape, edge in (("low", "triangle-left", "from"), ("high", "triangle-right", "to")):
        if any(row[side] is None for row in rows):
            arrow = base.transform_filter(f"datum.{side} === null")
            layers.append(arrow.mark_point(shape=shape, filled=True, size=80, opacity=1, yOffset=10).encode(x=x(edge)))
    return alt.layer(*layers).properties(width=WIDTH, height=STEP * len({row["row"] for row in rows}))


def _base(alt: Any, rows: Sequence[Spec]) -> Any:
    """Return a chart with one line per row, each in its own colour."""
    values = [row | {"name": shortened(row["label"], row["text"])} for row in rows]
    return alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("row:N", axis=None, sort=None), color=alt.Color("colour:N", scale=None)
    )


def _x(alt: Any, domain: Sequence[float], axis_title: str) -> Any:
    axis = alt.Axis(title=axis_title, grid=False, tickCount=5)
    scale = alt.Scale(domain=list(domain), nice=False)
    return lambda field: alt.X(f"{field}:Q", axis=axis, scale=scale)


def _ground(alt: Any, base: Any, x: Any) -> list[Any]:
    """Return a track for every row and its piece of the line of no difference, so that it never runs through words."""
    track = base.mark_bar(height=22, yOffset=10, cornerRadius=4)
    zero = base.transform_calculate(zero="0").mark_tick(orient="vertical", size=22, thickness=1.5, yOffset=10)
    return [
        track.encode(x=alt.value(0), x2=alt.value(WIDTH), color=alt.value(TRACK)),
        zero.encode(x=x("zero"), color=alt.value(MUTED)),
    ]


def _texts(alt: Any, base: Any) -> list[Any]:
    """Return the row's name on the left and its numbers on the right, above the line."""
    names = []
    for weight in ("bold", "normal"):
        text = base.transform_filter(f"datum.weight === '{weight}'")
        marked = text.mark_text(align="left", dy=-14, fontWeight=weight)
        names.append(marked.encode(x=alt.value(0), text="name:N", color=alt.value(INK)))
    numbers = base.mark_text(align="right", dy=-14)
    return [*names, numbers.encode(x=alt.value(WIDTH), text="text:N", color=alt.value(INK))]


def _finished(alt: Any, panels: Sequence[Any], title: str, description: str) -> Spec:
    """Return the panels under each other, each with its own scale, in one style."""
    chart = panels[0] if len(panels) == 1 else alt.vconcat(*panels, spacing=28)
    axis = {"domain": False, "ticks": True, "tickColor": MUTED, "tickSize": 4, "labelColor": MUTED, "titleColor": MUTED}
    letters = {"labelFontSize": 13, "titleFontSize": 14, "titleFontWeight": "normal", "titleAnchor": "start"}
    chart = chart.properties(
        description=description, usermeta={"title": title}, padding={"left": 0, "right": 0, "top": 2, "bottom": 2}
    )
    styled = chart.configure(
        background="transparent", font="sans-serif", axis={**axis, **letters, "labelPadding": 4, "titlePadding": 8},
        view={"stroke": None}, text={"fontSize": 14}, rule={"aria": False},
    )  # fmt: skip
    spec: Spec = styled.to_dict()
    return spec
