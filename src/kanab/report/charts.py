"""Charts of a readout as Vega-Lite, through Altair, for notebooks and for the pictures that `pictures` does not draw.

Altair and vl-convert are the extra ``[charts]``; nothing of them is imported before a chart is drawn.
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from kanab.errors import MissingExtraError
from kanab.report.figures import Row, figures_of, is_share, percent, scaled
from kanab.report.forest import (
    Forest,
    Panel,
    colour_of,
    effect_forest,
    ratio_ticks,
    received_forest,
    segment_forest,
    shortened,
    strata_forest,
    value_range,
)
from kanab.report.palette import DOWN, INK, MUTED, QUIET, TRACK, UP, WIDTH
from kanab.report.pictures import STEP, forest_pictures
from kanab.report.quantile_section import quantile_name
from kanab.report.window_section import spoken_days, window_rows
from kanab.report.words import metrics_of
from kanab.tabular import number as written

Data = Mapping[str, Any]
Spec = dict[str, Any]

_ARMS = (QUIET, UP, DOWN, "#4b7f33", "#7a3e9d")
_HEIGHT = 150


def forest_chart(data: Data, metric: str | None = None) -> Spec | None:
    """Return `effect_forest` as a chart; None without effects.

    Raises `MissingExtraError` where the extra is not installed, as the other charts do.
    """
    return _chart_of(effect_forest(data, metric))


def segment_chart(data: Data, metric: str | None = None) -> Spec | None:
    """Return `segment_forest` as a chart; None without segments."""
    return _chart_of(segment_forest(data, metric))


def received_chart(data: Data, metric: str) -> Spec | None:
    """Return `received_forest` as a chart; None where nothing was asked of receiving."""
    return _chart_of(received_forest(data, metric))


def strata_chart(data: Data, metric: str | None = None) -> Spec | None:
    """Return `strata_forest` as a chart; None without any."""
    return _chart_of(strata_forest(data, metric))


def _chart_of(forest: Forest | None) -> Spec | None:
    if forest is None:
        return None
    alt = _altair()
    panels = [_forest_panel(alt, panel) for panel in forest.panels]
    return _finished(alt, panels, forest.title, forest.description)


def window_charts(data: Data) -> dict[str, Spec]:
    """Return for each metric that has several windows its effects over the days since the first exposure.

    A panel for each arm: a line across each window at its effect, another one along its interval.
    """
    rows = window_rows(data)
    if not rows:
        return {}
    alt = _altair()
    charts = {}
    for column, effects in rows.items():
        share = is_share(data, effects[0]["metric"])
        figures = figures_of(effects, share=share)
        panels = [
            _window_panel(alt, [row for row in effects if row["arm"] == arm], f"effect of {arm}", share=share)
            for arm in dict.fromkeys(row["arm"] for row in effects)
        ]
        texts = [
            f"{row['arm']}, days {spoken_days(row)}: {figures.bare(row['estimate'], signed=True)}" for row in effects
        ]
        title = f"Effects on {column} by days since the first exposure"
        intervals = f"{percent(data['confidence'])} intervals"
        charts[column] = _finished(alt, panels, title, f"{intervals}. {'; '.join(texts)}.")
    return charts


def _window_panel(alt: Any, effects: Sequence[Row], title: str, *, share: bool) -> Any:
    """Return one arm's effects over time, with the line of no effect."""
    values = []
    for row in effects:
        low, high = row["interval"] or (row["estimate"], row["estimate"])
        start, end = row["days"]
        sizes = {"estimate": row["estimate"], "low": low, "high": high}
        days = {"start": start, "end": end, "middle": (start + end) / 2, "zero": 0, "colour": colour_of(row)}
        values.append(days | {name: scaled(value, share) for name, value in sizes.items()})
    domain = value_range([value[side] for value in values for side in ("low", "high", "estimate")], ratio=False)
    drawn = [
        value
        | {"low": domain[0] if value["low"] is None else value["low"]}
        | {"high": domain[1] if value["high"] is None else value["high"]}
        for value in values
    ]
    base = alt.Chart(alt.Data(values=drawn)).encode(color=alt.Color("colour:N", scale=None))
    axis = alt.Axis(title="days since the first exposure", grid=False, tickCount=8)
    points = ", percentage points" if share else ""

    def y(name: str) -> Any:
        scale = alt.Scale(domain=domain, nice=False)
        return alt.Y(f"{name}:Q", scale=scale, axis=alt.Axis(title=f"{title}{points}", grid=False, tickCount=5))

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
    read = next((each for each in data.get("distributions", ()) if each["metric"] == metric), None)
    if read is None:
        return None
    alt = _altair()
    edges, bars, steps, marks = read["edges"], [], [], []
    arms = [data["control"], *(arm for arm in read["people"] if arm != data["control"])]
    colours = {arm: _ARMS[place % len(_ARMS)] for place, arm in enumerate(arms)}
    for arm in arms:
        people, colour = read["people"].get(arm, []), colours[arm]
        total, below = sum(people) or 1, 0
        for place, (low, high) in enumerate(pairwise(edges), 1):
            share = people[place] / total
            bars.append({"low": low, "high": high, "value": share / (high - low), "none": 0, "colour": colour})
        for edge, count in zip(edges, people, strict=False):
            below += count
            steps.append({"x": edge, "value": below / total, "colour": colour, "arm": arm})
    for row in (row for row in data["quantiles"] if row["metric"] == metric):
        for arm, side in ((row["control"], "quantile_control"), (row["arm"], "quantile_arm")):
            if row[side] is not None:
                marks.append({"x": row[side], "value": row["probability"], "colour": colours[arm], "arm": arm,
                              "name": quantile_name(row["probability"])})  # fmt: skip
    described = "; ".join(dict.fromkeys(f"{mark['name']} of {mark['arm']} {written(mark['x'])}" for mark in marks))
    seen = 1.3 * max((mark["x"] for mark in marks), default=edges[-1]) - 0.3 * edges[0]
    end = min((edge for edge in edges if edge >= seen), default=edges[-1])
    scale = alt.Scale(domain=[edges[0], end], nice=False)
    colour = alt.Color("colour:N", scale=None)
    x = alt.Axis(title=None, grid=False, tickCount=6)
    titled = alt.Axis(title=metric, grid=False, tickCount=6)
    rules = alt.Chart(alt.Data(values=marks)).mark_rule(strokeDash=[3, 3], strokeWidth=1.5)
    drawn = alt.Chart(alt.Data(values=bars)).mark_rect(opacity=0.4, stroke=None, clip=True)
    crowd = alt.Y("value:Q", stack=None, axis=alt.Axis(title="people", labels=False, ticks=False, grid=False))
    histogram = alt.layer(
        drawn.encode(x=alt.X("low:Q", scale=scale, axis=x), x2="high:Q", y=crowd, y2="none:Q", color=colour),
        rules.encode(x=alt.X("x:Q", scale=scale), color=colour),
    ).properties(width=WIDTH, height=_HEIGHT)
    y = alt.Y(
        "value:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(title="share up to", format="%", tickCount=4, grid=False),
    )
    line = alt.Chart(alt.Data(values=steps)).mark_line(strokeWidth=2.5, clip=True)
    points = alt.Chart(alt.Data(values=marks)).mark_point(filled=True, size=70, opacity=1)
    named = alt.Chart(alt.Data(values=[mark for mark in marks if mark["arm"] == data["control"]]))
    legend = alt.Chart(alt.Data(values=[
        {"x": end, "value": 0.12 + 0.13 * place, "arm": arm, "colour": colours[arm]}
        for place, arm in enumerate(reversed(arms))
    ]))  # fmt: skip
    at = alt.X("x:Q", scale=scale, axis=titled)
    shares = alt.layer(
        line.encode(x=at, y=y, color=colour),
        points.encode(x=at, y=y, color=colour),
        named.mark_text(align="left", dx=9, dy=13, color=MUTED).encode(x=at, y=y, text="name:N"),
        legend.mark_text(align="right", fontWeight="bold").encode(x=at, y=y, text="arm:N", color=colour),
    ).properties(width=WIDTH, height=_HEIGHT)
    return _finished(alt, [histogram, shares], f"The distribution of {metric} in each arm", f"{described}.")


def survival_chart(data: Data, metric: str) -> Spec | None:
    """Return the share of every arm without the event after each day, with its interval, and who is at risk below.

    None where nothing was asked of survival.
    """
    read = next((each for each in data.get("survival_curves", ()) if each["metric"] == metric), None)
    if read is None:
        return None
    alt = _altair()
    curves = sorted(read["curves"], key=lambda curve: curve["arm"] != data["control"])
    colours = {curve["arm"]: _ARMS[place % len(_ARMS)] for place, curve in enumerate(curves)}
    end = max(curve["days"][-1]["day"] for curve in curves)
    wide = 1.03 * end
    steps = [step | {"colour": colours[curve["arm"]]} for curve in curves for step in _survival_steps(curve, wide)]
    places = _survival_places(curves, end)
    risk = [
        {"x": day, "arm": curve["arm"], "colour": colours[curve["arm"]], "text": f"{left:,}"}
        for curve in curves
        for day, left in _still_at_risk(curve)
        if day in places
    ]
    colour = alt.Color("colour:N", scale=None)
    scale = alt.Scale(domain=[0, wide], nice=False)
    x = alt.X("x:Q", scale=scale, axis=alt.Axis(title=None, grid=False, values=places, format=",d"))
    titled = alt.Axis(title=f"without {metric}", format="%", tickCount=5, grid=False)
    y = alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=titled)
    base = alt.Chart(alt.Data(values=steps)).encode(x=x, color=colour)
    band = base.mark_rect(opacity=0.16, stroke=None).encode(x2="next:Q", y=alt.Y("low:Q", axis=titled), y2="high:Q")
    line = base.mark_line(interpolate="step-after", strokeWidth=2.5).encode(y=y)
    shares = alt.layer(band, line).properties(width=WIDTH, height=1.4 * _HEIGHT)
    rows = alt.Y("arm:N", sort=list(colours), axis=alt.Axis(title=None, domain=False, ticks=False, labelPadding=24))
    below = alt.Axis(title=f"{read['covariate']}; people still at risk after so many", domain=False, ticks=False,
                     grid=False, values=places, labels=False)  # fmt: skip
    numbers = (
        alt.Chart(alt.Data(values=risk))
        .mark_text(fontSize=11)
        .encode(x=alt.X("x:Q", scale=scale, axis=below), y=rows, text="text:N", color=colour)
    )
    table = numbers.properties(width=WIDTH, height=20 * len(curves))
    said = "; ".join(f"{curve['arm']} {100 * curve['days'][-1]['share']:.1f} %" for curve in curves)
    title = f"How long it is until {metric}"
    described = f"Without {metric} after {end:,.10g} days: {said}. {percent(data['confidence'])} intervals."
    return _finished(alt, [shares, table], title, described)


def _survival_steps(curve: Row, end: float) -> list[Spec]:
    """Return the steps of a curve from each day to the next; without an interval it is where the share is."""
    steps = [{"x": 0.0, "share": 1.0, "low": 1.0, "high": 1.0}]
    for day in curve["days"]:
        low, high = day["interval"] or (day["share"], day["share"])
        steps.append({"x": day["day"], "share": day["share"], "low": low, "high": high})
    last = min(end, curve["days"][-1]["day"] + 0.03 * end)
    steps.append(steps[-1] | {"x": last})
    return [step | {"next": after["x"]} for step, after in zip(steps, [*steps[1:], steps[-1]], strict=True)]


def _still_at_risk(curve: Row) -> list[tuple[float, int]]:
    """Return how many people are at risk after each day: those of the next one."""
    days = [0.0, *(day["day"] for day in curve["days"])]
    left = [*(day["at_risk"] for day in curve["days"]), curve["later"]["at_risk"]]
    return [*dict(zip(days, left, strict=True)).items()]


def _survival_places(curves: Sequence[Row], end: float) -> list[float]:
    """Return about seven of the days on which a curve steps, evenly, and the first."""
    days = sorted({0.0, *(day["day"] for curve in curves for day in curve["days"])})
    return sorted({min(days, key=lambda day: abs(day - end * part / 6)) for part in range(7)})


def report_charts(data: Data) -> dict[str, str]:
    """Return every picture of the report as SVG, named "forest: metric", "segments: metric" and so on.

    Raises `MissingExtraError` where one of them needs the extra ``[charts]``: distributions, survival, windows.
    """
    specs: dict[str, Spec | None] = {}
    for metric in metrics_of(data):
        specs[f"quantiles: {metric}"] = distribution_chart(data, metric)
        specs[f"survival: {metric}"] = survival_chart(data, metric)
    specs |= {f"windows: {column}": spec for column, spec in window_charts(data).items()}
    return forest_pictures(data) | {name: chart_svg(spec) for name, spec in specs.items() if spec is not None}


def charts_if_installed(data: Data) -> dict[str, str]:
    """Return the pictures of ``report_charts``; without the extra those that need none."""
    try:
        return report_charts(data)
    except MissingExtraError:
        return forest_pictures(data)


def chart_svg(spec: Mapping[str, Any]) -> str:
    """Return a chart as static SVG with a title and a description for screen readers; its marks have no names."""
    convert = _extra("vl_convert")
    version = re.search(r"v(\d+\.\d+)", spec["$schema"])
    drawn: str = convert.vegalite_to_svg(dict(spec), vl_version=version.group(1) if version else None)
    title, description = spec["usermeta"]["title"], spec["description"]
    name = "chart-" + hashlib.sha256(f"{title}{description}".encode()).hexdigest()[:12]
    head = f'<svg role="img" aria-label="{escape(title)}" aria-describedby="{name}" xmlns="http://www.w3.org/2000/svg"'
    body = re.sub(r'^<svg xmlns="[^"]*"( xmlns:xlink="[^"]*")?', head, drawn.strip(), count=1)
    body = re.sub(r' (role|aria-label|aria-roledescription)="[^"]*"(?=[^<]*>)', "", body[len(head) :])
    inside = f'<title>{escape(title)}</title><desc id="{name}">{escape(description)}</desc>'
    return head + body.replace(">", f">{inside}", 1)


def _altair() -> Any:
    return _extra("altair")


def _extra(package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError("drawing charts", "charts") from None


def _forest_panel(alt: Any, panel: Panel) -> Any:
    """Return a row for each effect; ratios stand on a logarithmic scale, about 1."""
    rows, ratio = panel.rows, panel.ratio
    least, most = domain = panel.domain
    drawn = [
        row | {"from": least if row["low"] is None else row["low"], "to": most if row["high"] is None else row["high"]}
        for row in rows
    ]
    base, x = _base(alt, drawn), _x(alt, domain, panel.axis, ratio=ratio)
    line = base.mark_rule(strokeWidth=3, strokeCap="round", yOffset=10).encode(x=x("from"), x2="to")
    point = base.mark_point(filled=True, size=90, opacity=1, yOffset=10).encode(x=x("estimate"))
    layers = [*_ground(alt, base, x, "1" if ratio else "0"), line, point, *_texts(alt, base)]
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


def _x(alt: Any, domain: Sequence[float], axis_title: str, *, ratio: bool) -> Any:
    ticks = {"values": ratio_ticks(*domain), "format": "~r"} if ratio else {"tickCount": 5}
    axis = alt.Axis(title=axis_title, grid=False, **ticks)
    scale = alt.Scale(domain=list(domain), nice=False, **({"type": "log"} if ratio else {}))
    return lambda field: alt.X(f"{field}:Q", axis=axis, scale=scale)


def _ground(alt: Any, base: Any, x: Any, none: str) -> list[Any]:
    """Return a track for every row and its piece of the line of no difference, so that it never runs through words."""
    track = base.mark_bar(height=22, yOffset=10, cornerRadius=4)
    zero = base.transform_calculate(zero=none).mark_tick(orient="vertical", size=22, thickness=1.5, yOffset=10)
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
