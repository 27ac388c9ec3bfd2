"""Charts of power: the effect that is found and the power, by people, as static SVG.

The charts are Vega-Lite in plain data; turning them into SVG needs the extra ``[charts]``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from kanab.planning.report.power_words import chance, change, is_nothing, rounded
from kanab.report.charts import chart_svg
from kanab.report.figures import percent
from kanab.report.palette import INK, MUTED, TRACK, UP, WIDTH

Data = Mapping[str, Any]
Row = Mapping[str, Any]
Spec = dict[str, Any]

HEIGHT = 320
SCHEMA = "https://vega.github.io/schema/vega-lite/v5.21.0.json"
_STEPS = (1, 2, 5)
_FEW_TICKS = 6


def power_charts(data: Data, points: Sequence[Row]) -> dict[str, str]:
    """Draw both curves as SVG, by name; a curve of which too little can be reached is left out.

    Raises `MissingExtraError` without the extra ``[charts]``.
    """
    specs = {"effect": effect_curve(data, points), "power": power_of_effect(data, points)}
    return {name: chart_svg(spec) for name, spec in specs.items() if spec is not None}


def effect_curve(data: Data, points: Sequence[Row]) -> Spec | None:
    """Return the chart of the effect that is found with the asked power, by people; the answer is marked."""
    scale, unit = (100, ", percentage points") if data["binary"] else (1, "")
    rows = [
        {"people": row["people"], "y": scale * row["effect"]}
        for row in points
        if row["effect"] is not None and math.isfinite(row["effect"])
    ]
    if len(rows) < 2:
        return None
    size = "largest" if data["margin"] and data["margin"].startswith("equivalence") else "smallest"
    level = chance(points[0]["at_power"])
    title = f"{size} {'interaction' if data['interaction'] else 'change'} with power {level}{unit}"
    largest = max(abs(row["y"]) for row in rows)
    rows = [row | {"y": 0.0} if is_nothing(row["y"], largest) else row for row in rows]
    here = _nearest(rows, data["people"])
    label = [f"{here['people']:,} people", f"{rounded(here['y'])}{' points' if data['binary'] else ''}"]
    description = "; ".join(f"{row['people']:,} people, {rounded(row['y'])}" for row in _some(rows))
    y = {"scale": {"zero": data["margin"] is None, "nice": True}, "axis": {"title": title, "format": ",.4~r"}}
    return _curve(rows, here, label, y, (f"The {title}", f"{description}."), up=True)


def power_of_effect(data: Data, points: Sequence[Row]) -> Spec | None:
    """Return the chart of the power for the answer's effect, by people, with a line at the asked power."""
    rows = [{"people": row["people"], "y": row["power"]} for row in points if row["power"] is not None]
    if len(rows) < 2:
        return None
    title = f"power for {'an interaction' if data['interaction'] else 'a change'} of {change(data)}"
    here = _nearest(rows, data["people"])
    description = "; ".join(f"{row['people']:,} people, {chance(row['y'])}" for row in _some(rows))
    wanted = float(points[0]["at_power"])
    y = {
        "scale": {"domain": [0, 1], "nice": False},
        "axis": {"title": title, "format": "%", "values": [0, 0.2, 0.4, 0.6, 0.8, 1]},
    }
    label = [f"{here['people']:,} people", chance(here["y"])]
    spec = _curve(rows, here, label, y, (f"The {title}", f"{description}."), up=False)
    line = {"mark": {"type": "rule", "strokeDash": [4, 4], "color": MUTED}, "data": {"values": [{"y": wanted}]}}
    words = {"type": "text", "align": "left", "baseline": "bottom", "x": 4, "dy": -3, "color": MUTED}
    spec["layer"] += [
        line | {"encoding": {"y": {"field": "y", "type": "quantitative"}}},
        {
            "mark": words | {"text": f"asked: {percent(wanted)}"},
            "data": {"values": [{"y": wanted}]},
            "encoding": {"y": {"field": "y", "type": "quantitative"}},
        },
    ]
    return spec


def _curve(rows: Sequence[Row], here: Row, label: list[str], y: Spec, titles: tuple[str, str], *, up: bool) -> Spec:
    """Return one line over people, its answer as a dot with words beside it; ``titles`` are title and description."""
    people = {"field": "people", "type": "quantitative", "scale": {"type": "log", "nice": False}, "axis": _people(rows)}
    value = {"field": "y", "type": "quantitative"} | y
    encoding = {"x": people, "y": value}
    text = {
        "type": "text", "align": "left", "baseline": "bottom" if up else "top", "dx": 10, "dy": -20 if up else 6,
        "color": INK, "fontWeight": "bold", "text": label,
    }  # fmt: skip
    dot = {"data": {"values": [dict(here)]}, "encoding": encoding}
    return {
        "$schema": SCHEMA, "width": WIDTH, "height": HEIGHT, "description": titles[1], "usermeta": {"title": titles[0]},
        "autosize": {"type": "fit", "contains": "padding"}, "padding": 2, "background": "transparent",
        "layer": [
            {"data": {"values": [dict(row) for row in rows]}, "mark": {"type": "line", "color": UP, "strokeWidth": 3},
             "encoding": encoding},
            dot | {"mark": {"type": "point", "filled": True, "size": 110, "opacity": 1, "color": UP}},
            dot | {"mark": text},
        ],
        "config": CHART_CONFIG,
    }  # fmt: skip


CHART_CONFIG: Spec = {
    "font": "sans-serif", "view": {"stroke": None}, "text": {"fontSize": 14},
    "axis": {
        "domain": False, "grid": True, "gridColor": TRACK, "tickColor": MUTED, "tickSize": 4, "labelColor": MUTED,
        "titleColor": MUTED, "labelFontSize": 13, "titleFontSize": 14, "titleFontWeight": "normal", "labelPadding": 4,
        "titlePadding": 8,
    },
    "axisX": {"titleAnchor": "start"},
    "axisY": {
        "titleAngle": 0, "titleAlign": "left", "titleAnchor": "start", "titleX": 0, "titleY": -14, "tickCount": 5,
    },
}  # fmt: skip


def _people(rows: Sequence[Row]) -> Spec:
    """Return an axis of round numbers of people within the range, few enough to stand side by side."""
    low, high = rows[0]["people"], rows[-1]["people"]
    values = [
        step * 10**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for step in _STEPS
        if low <= step * 10**power <= high
    ]
    if len(values) > _FEW_TICKS:
        values = [value for value in values if str(value).startswith("1")]
    label = "replace(format(datum.value, '~s'), 'G', 'bn')"
    return {"title": "people in all", "values": values or [low, high], "labelExpr": label, "grid": False}


def _nearest(rows: Sequence[Row], people: float) -> Row:
    return min(rows, key=lambda row: abs(row["people"] - people))


def _some(rows: Sequence[Row]) -> list[Row]:
    """Return a handful of points, evenly, for the description that screen readers read."""
    step = max(1, (len(rows) - 1) // 4)
    return list(rows[::step])
