"""Charts of forecasts and power curves for notebooks, as Vega-Lite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.charts import Spec, chart_of
from kanab.report.figures import percent
from kanab.report.forest import Forest, Panel
from kanab.report.notebook_charts import chosen_chart
from kanab.report.palette import MUTED, QUIET, TRACK, UP, WIDTH
from kanab.tabular import number

Data = Mapping[str, Any]


def forecast_chart(data: Data, metric: str | None) -> Any:
    """Return the smallest effect that is found on every metric, plain and adjusted."""
    metrics = dict.fromkeys(row["metric"] for row in data["effects"])
    return chosen_chart(
        {"effects": lambda: {name: chart_of(_detectable(data, name)) for name in metrics}}, "effects", metric
    )


def _detectable(data: Data, metric: str) -> Forest:
    panels = []
    effects = [row for row in data["effects"] if row["metric"] == metric]
    for experiment in dict.fromkeys(row["experiment"] for row in effects):
        rows: list[Spec] = []
        for row in (row for row in effects if row["experiment"] == experiment):
            adjusted = row["adjusted_for"]
            name = f"↳ adjusted for {adjusted}" if adjusted else f"{row['people']:,} people"
            relative = "" if row["relative"] is None else f" ({100 * row['relative']:+.3g} %)"
            rows.append({
                "row": str(len(rows)), "label": name,
                "weight": "normal" if adjusted else "bold", "text": f"{number(row['effect'])}{relative}",
                "estimate": row["effect"], "low": 0.0, "high": row["effect"], "colour": UP if adjusted else QUIET,
            })  # fmt: skip
        panels.append(Panel(rows, f"smallest change of {metric} in {experiment}"))
    power = percent(effects[0]["power"])
    return Forest(panels, f"The smallest change of {metric} that is found with power {power}", f"Power {power}.")


def curve_chart(data: Data) -> Any:
    """Return the effect that is found, or the power, by people."""
    points = data["points"]
    solved = "power" if points and points[0]["solved"] == "power" else "effect"
    return chosen_chart({solved: lambda: {solved: _curve(data, solved)}}, solved)


def _curve(data: Data, solved: str) -> Spec | None:
    points = [{"people": point["people"], "y": point[solved]} for point in data["points"]]
    if len(points) < 2:
        return None
    first = data["points"][0]
    power = solved == "power"
    title = (
        f"power for a change of {number(first['effect'])}"
        if power
        else f"smallest change with power {percent(first['power'])}"
    )
    scale = {"domain": [0, 1]} if power else {"zero": True}
    x = {"field": "people", "type": "quantitative", "scale": {"type": "log", "nice": False},
         "axis": {"title": "people in all", "grid": False, "format": "~s"}}  # fmt: skip
    y = {"field": "y", "type": "quantitative", "scale": scale,
         "axis": {"title": solved, "format": "%" if power else ",.4~r", "gridColor": TRACK}}  # fmt: skip
    axis = {"labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal", "domain": False}
    return {
        "width": WIDTH, "height": 260, "data": {"values": points}, "encoding": {"x": x, "y": y},
        "layer": [{"mark": {"type": "line", "color": UP, "strokeWidth": 3}},
                  {"mark": {"type": "point", "filled": True, "color": UP, "size": 60, "opacity": 1}}],
        "usermeta": {"title": f"The {title}, by people"}, "description": title,
        "config": {"font": "sans-serif", "view": {"stroke": None}, "axis": axis},
    }  # fmt: skip
