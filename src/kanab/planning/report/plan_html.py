"""The forecast of a plan as one page: tables of classes and of effects, and how effects shrink with the days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kanab.planning.epsilon import PersonAccount
from kanab.planning.report.line_chart import ChartLine, LineChart
from kanab.planning.report.power_html import PLAN_STYLE
from kanab.planning.report.power_words import short
from kanab.report.axes import ChartAxis, Point, round_axis, round_numbers
from kanab.report.chart import Chart, chosen_chart
from kanab.report.figures import bind_numbers, percent
from kanab.report.forest import Forest, Panel
from kanab.report.page import Page, PageSection, card_table, filled, header_html
from kanab.report.palette import DOWN, GREEN, QUIET, UP, VIOLET
from kanab.report.pictures import forest_svg
from kanab.report.text import mapped, printable
from kanab.tabular import Table, number

Data = Mapping[str, Any]

_KEY = (
    "In the pictures: the smallest change that is found with the planned power, by the days that people are let in. "
    "Grey, plain; blue, after the adjustment that helps most. The dots are the plan as it is."
)


def forecast_chart(data: Data, metric: str | None) -> Chart:
    """Return the smallest effect that is found on every metric, plain and adjusted."""
    clean = mapped(data, printable)
    metrics = dict.fromkeys(row["metric"] for row in clean["effects"])
    return chosen_chart(
        {"effects": lambda: {name: [forest_svg(_detectable(clean, name))] for name in metrics}}, "effects", metric
    )


def _detectable(data: Data, metric: str) -> Forest:
    panels = []
    effects = [row for row in data["effects"] if row["metric"] == metric]
    for experiment in dict.fromkeys(row["experiment"] for row in effects):
        rows: list[dict[str, Any]] = []
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


def plan_charts(data: Data, later: Mapping[float, Data]) -> dict[str, str]:
    """Draw a curve for every experiment and metric as SVG; ``later`` are forecasts of the same plan by days."""
    names = dict.fromkeys((row["experiment"], row["metric"]) for row in data["effects"])
    charts = {
        f"{metric} in {experiment}": effect_by_days(data, later, experiment, metric) for experiment, metric in names
    }
    return {name: chart.to_svg() for name, chart in charts.items() if chart is not None}


def effect_by_days(data: Data, later: Mapping[float, Data], experiment: str, metric: str) -> LineChart | None:
    """Return the chart of the detectable effect by days: plain, and with the adjustment that helps most."""

    def effects_of(forecast: Data) -> dict[str | None, float]:
        rows = [row for row in forecast["effects"] if (row["experiment"], row["metric"]) == (experiment, metric)]
        share = all(row["relative"] is not None for row in rows)
        return {row["adjusted_for"]: 100 * row["relative"] if share else row["effect"] for row in rows}

    now = effects_of(data)
    by_days = {days: effects_of(forecast) for days, forecast in later.items()}
    adjusted = min((name for name in now if name), key=lambda name: now[name], default=None)
    lines = []
    for name, colour in [(None, QUIET)] + ([(adjusted, UP)] if adjusted else []):
        line = [(days, effects[name]) for days, effects in by_days.items() if effects.get(name) is not None]
        lines.append(ChartLine(colour, line, [(data["days"], now[name])] if name in now else []))
    points = [point for line in lines for point in line.points]
    if min(len(line.points) for line in lines) < 2:
        return None
    relative = all(row["relative"] is not None for row in data["effects"] if row["metric"] == metric)
    title = f"smallest change of {metric}{', % of the mean' if relative else ''}"
    described = "; ".join(f"{days:g} days {short(y)}" for days, y in points[:: max(1, len(points) // 8)])
    first, last = min(days for days, _ in points), max(days for days, _ in points)
    x = ChartAxis(first, last, round_numbers(first, last), "days")
    y = round_axis(0.0, max(y for _, y in points), title)
    return LineChart(f"The {title} in {experiment}, by days", f"{described}.", x, y, lines)


_EPSILON_KEY = (
    "In the picture: how much wider intervals are than without noise, by ε. A smaller ε is a stronger promise to "
    "everybody, and more noise."
)


def epsilon_chart(rows: Sequence[Data], marked: Sequence[Data]) -> LineChart:
    """Return the chart of how much wider intervals are by ε: a line per metric, with the asked values ``marked``."""

    def points(of: Sequence[Data]) -> dict[str, list[Point]]:
        lines: dict[str, list[Point]] = {}
        for row in of:
            lines.setdefault(f"{row['metric']} in {row['experiment']}", []).append((row["epsilon"], 100 * row["wider"]))
        return lines

    wide, asked = points(rows), points(marked)
    palette = (UP, QUIET, DOWN, GREEN, VIOLET)
    names = {name: palette[place % len(palette)] for place, name in enumerate(asked)}
    described = "; ".join(f"{name} at ε {e:g}: {short(y)} %" for name, dots in asked.items() for e, y in dots)
    everything = [point for dots in (*wide.values(), *asked.values()) for point in dots]
    ticks = [(epsilon, f"{epsilon:g}") for epsilon in sorted({row["epsilon"] for row in marked})]
    x = ChartAxis(min(e for e, _ in everything), max(e for e, _ in everything), ticks, "ε", ratio=True)
    y = round_axis(0.0, max(y for _, y in everything), "interval wider by, %")
    lines = [ChartLine(colour, wide.get(name, []), asked[name]) for name, colour in names.items()]
    return LineChart("What noise costs, by ε", f"{described}.", x, y, lines, names=names)


def plan_report(
    data: Data,
    name: str,
    summary: str,
    tables: Sequence[Table],
    *,
    charts: Mapping[str, str],
    epsilon: str = "",
    account: PersonAccount | None = None,
) -> str:
    """Return the page in one file without script or outside request; ``tables`` are those of the forecast.

    ``epsilon`` is the picture of what noise costs, where the forecast has a table of it: the last one. ``account`` is
    what one person spends.
    """
    drawn = "".join(f"<figure>{svg}</figure>" for svg in charts.values())
    pictures = f'<p class="key">{escape(_KEY)}</p><div class="pair">{drawn}</div>' if drawn else ""
    whole, *effects = (_table(table) for table in tables)
    noise = effects.pop() if data.get("epsilons") else ""
    if epsilon:
        noise += f'<p class="key">{escape(_EPSILON_KEY)}</p><figure>{epsilon}</figure>'
    spent = "" if account is None else f"<p>{escape(bind_numbers(account.sentence))}</p>{_table(account.table)}"
    notes = "".join(f"<li>{escape(bind_numbers(note))}</li>" for note in data["notes"])
    header = header_html("Forecast of a plan", name, escape(bind_numbers(summary)))
    sections = filled(
        PageSection("tables", "When is every table whole?", whole),
        PageSection("effects", "Which effects can be seen?", "".join(effects) + pictures),
        PageSection("account", "What does one person spend?", spent),
        PageSection("epsilon", "What does ε cost?", noise),
        PageSection("basis", "What this rests on", f'<ul class="said">{notes}</ul>'),
    )
    return Page(f"Forecast: {name}", header, sections, "before anybody was counted", PLAN_STYLE).to_html()


def _table(table: Table) -> str:
    rows = [[escape(cell) for cell in row] for row in table.rows]
    return card_table(table.header[0], table.header, rows, "cards wide")
