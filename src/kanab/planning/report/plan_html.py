"""The forecast of a plan as one page: tables of classes and of effects, and how effects shrink with the days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kanab.planning.report.power_charts import CHART_CONFIG, SCHEMA
from kanab.planning.report.power_html import PLAN_STYLE
from kanab.planning.report.power_words import short
from kanab.report.charts import chart_svg
from kanab.report.figures import bind_numbers
from kanab.report.page import Page, PageSection, card_table, filled, header_html
from kanab.report.palette import DOWN, INK, QUIET, UP, WIDTH
from kanab.tabular import Table

Data = Mapping[str, Any]
Spec = dict[str, Any]

_KEY = (
    "In the pictures: the smallest change that is found with the planned power, by the days that people are let in. "
    "Grey, plain; blue, after the adjustment that helps most. The dots are the plan as it is."
)


def plan_charts(data: Data, later: Mapping[float, Data]) -> dict[str, str]:
    """Draw a curve for every experiment and metric as SVG; ``later`` are forecasts of the same plan by days.

    Raises `MissingExtraError` without the extra ``[charts]``.
    """
    names = dict.fromkeys((row["experiment"], row["metric"]) for row in data["effects"])
    specs = {
        f"{metric} in {experiment}": effect_by_days(data, later, experiment, metric) for experiment, metric in names
    }
    return {name: chart_svg(spec) for name, spec in specs.items() if spec is not None}


def effect_by_days(data: Data, later: Mapping[float, Data], experiment: str, metric: str) -> Spec | None:
    """Return the chart of the detectable effect by days: plain, and with the adjustment that helps most."""

    def effects_of(forecast: Data) -> dict[str | None, float]:
        rows = [row for row in forecast["effects"] if (row["experiment"], row["metric"]) == (experiment, metric)]
        share = all(row["relative"] is not None for row in rows)
        return {row["adjusted_for"]: 100 * row["relative"] if share else row["effect"] for row in rows}

    now = effects_of(data)
    adjusted = min((name for name in now if name), key=lambda name: now[name], default=None)
    lines = [(None, QUIET)] + ([(adjusted, UP)] if adjusted else [])
    points: list[Spec] = [
        {"days": days, "y": effect, "colour": colour}
        for name, colour in lines
        for days, forecast in later.items()
        if (effect := effects_of(forecast).get(name)) is not None
    ]
    if len(points) < 2 * len(lines):
        return None
    relative = all(row["relative"] is not None for row in data["effects"] if row["metric"] == metric)
    title = f"smallest change of {metric}{', % of the mean' if relative else ''}"
    description = "; ".join(
        f"{point['days']:g} days {short(point['y'])}" for point in points[:: max(1, len(points) // 8)]
    )
    x = {"field": "days", "type": "quantitative", "axis": {"title": "days", "grid": False, "tickCount": 6}}
    y = {"field": "y", "type": "quantitative", "axis": {"title": title, "format": ",.4~r"}, "scale": {"zero": True}}
    encoding = {"x": x, "y": y, "color": {"field": "colour", "type": "nominal", "scale": None}}
    here = [{"days": data["days"], "y": now[name], "colour": colour} for name, colour in lines if name in now]
    return {
        "$schema": SCHEMA, "width": WIDTH, "height": 260, "padding": 2, "background": "transparent",
        "config": CHART_CONFIG, "autosize": {"type": "fit", "contains": "padding"}, "description": f"{description}.",
        "usermeta": {"title": f"The {title} in {experiment}, by days"},
        "layer": [
            {"data": {"values": points}, "mark": {"type": "line", "strokeWidth": 3}, "encoding": encoding},
            {"data": {"values": here}, "mark": {"type": "point", "filled": True, "size": 110, "opacity": 1},
             "encoding": encoding},
        ],
    }  # fmt: skip


_EPSILON_KEY = (
    "In the picture: how much wider intervals are than without noise, by ε. A smaller ε is a stronger promise to "
    "everybody, and more noise."
)


def epsilon_chart(rows: Sequence[Data], marked: Sequence[Data]) -> Spec:
    """Return the chart of how much wider intervals are by ε: a line per metric, with the asked values ``marked``."""

    def points(of: Sequence[Data]) -> list[Spec]:
        return [
            {"epsilon": row["epsilon"], "y": 100 * row["wider"], "of": f"{row['metric']} in {row['experiment']}"}
            for row in of
        ]

    names = list(dict.fromkeys(point["of"] for point in points(marked)))
    palette = [UP, QUIET, DOWN, INK]
    colours = {"domain": names, "range": [palette[place % len(palette)] for place in range(len(names))]}
    description = "; ".join(f"{p['of']} at ε {p['epsilon']:g}: {short(p['y'])} %" for p in points(marked))
    x = {
        "field": "epsilon", "type": "quantitative", "scale": {"type": "log", "nice": False},
        "axis": {"title": "ε", "grid": False, "values": sorted({row["epsilon"] for row in marked}), "format": "~g"},
    }  # fmt: skip
    y = {"field": "y", "type": "quantitative", "axis": {"title": "interval wider by, %", "format": ",.4~r"}}
    colour = {
        "field": "of",
        "type": "nominal",
        "scale": colours,
        "legend": {"title": None, "orient": "bottom", "labelFontSize": 13, "labelLimit": 320, "columns": 2},
    }
    encoding = {"x": x, "y": y, "color": colour}
    dot = {"type": "point", "filled": True, "size": 110, "opacity": 1}
    return {
        "$schema": SCHEMA, "width": WIDTH, "height": 260, "padding": 2, "background": "transparent",
        "config": CHART_CONFIG, "autosize": {"type": "fit", "contains": "padding"}, "description": f"{description}.",
        "usermeta": {"title": "What noise costs, by ε"},
        "layer": [
            {"data": {"values": points(rows)}, "mark": {"type": "line", "strokeWidth": 3}, "encoding": encoding},
            {"data": {"values": points(marked)}, "mark": dot, "encoding": encoding},
        ],
    }  # fmt: skip


def epsilon_svg(rows: Sequence[Data], marked: Sequence[Data]) -> str:
    """Return that chart as SVG. Raises `MissingExtraError` without the extra ``[charts]``."""
    return chart_svg(epsilon_chart(rows, marked))


def plan_report(
    data: Data, name: str, summary: str, tables: Sequence[Table], *, charts: Mapping[str, str], epsilon: str = ""
) -> str:
    """Return the page in one file without script or outside request; ``tables`` are those of the forecast.

    ``epsilon`` is the picture of what noise costs, where the forecast has a table of it: the last one.
    """
    drawn = "".join(f"<figure>{svg}</figure>" for svg in charts.values())
    pictures = f'<p class="key">{escape(_KEY)}</p><div class="pair">{drawn}</div>' if drawn else ""
    whole, *effects = (_table(table) for table in tables)
    noise = effects.pop() if data.get("epsilons") else ""
    if epsilon:
        noise += f'<p class="key">{escape(_EPSILON_KEY)}</p><figure>{epsilon}</figure>'
    notes = "".join(f"<li>{escape(bind_numbers(note))}</li>" for note in data["notes"])
    header = header_html("Forecast of a plan", name, escape(bind_numbers(summary)))
    sections = filled(
        PageSection("tables", "When is every table whole?", whole),
        PageSection("effects", "Which effects can be seen?", "".join(effects) + pictures),
        PageSection("epsilon", "What does ε cost?", noise),
        PageSection("basis", "What this rests on", f'<ul class="said">{notes}</ul>'),
    )
    return Page(f"Forecast: {name}", header, sections, "before anybody was counted", PLAN_STYLE).to_html()


def _table(table: Table) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return card_table(table.header[0], table.header, rows, "cards wide")
