"""What the figures of planning show: effects that are found, and power, by people, by days and by ε."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kanab.planning.power_words import chance, change, is_nothing, rounded
from kanab.planning.power_words import short as shown
from kanab.report.colours import ARMS, MUTED, QUIET, UP
from kanab.report.digits import percent
from kanab.report.drawing import ChartAxis, Point, numbered_axis, percent_axis, round_axis
from kanab.report.figure import Bar, Dots, Figure, Forest, ForestRow, Label, Line, Mark, Paint, Plot, chosen_figure
from kanab.report.text import mapped, printable
from kanab.tabular import number

Data = Mapping[str, Any]
Say = Callable[[float], str]

_HIGH, _LOW = 250.0, 190.0
_STEPS = (1, 2, 5)
_FEW_TICKS = 6
_UNITS = ((10**9, "bn"), (10**6, "M"), (10**3, "k"))


def _line(points: Sequence[Point], dots: Sequence[Point], colour: str = UP) -> list[Mark]:
    return [Line(points, colour), Dots(dots, colour)]


# ── by people ──────────────────────────────────────────────────────────────────────────────────


def curve_figure(answer: Data, points: Sequence[Data], note: str) -> Figure:
    """Return the effect that is found, or the power, by people; ``answer`` is that of the first point."""
    solved = "power" if answer.get("solved") == "power" else "effect"
    draw = power_of_effect if solved == "power" else effect_curve
    drawn = draw(answer, points) if points else None
    return chosen_figure({solved: lambda: {solved: [drawn] if drawn else []}}, solved, note=note)


def power_figures(data: Data, points: Sequence[Data]) -> list[Figure]:
    """Return both curves of a planned experiment; one of which too little can be reached is left out."""
    return [figure for figure in (effect_curve(data, points), power_of_effect(data, points)) if figure]


def effect_curve(data: Data, points: Sequence[Data]) -> Figure | None:
    """Return the effect that is found with the asked power, by people; the answer is marked."""
    scale, unit = (100, ", percentage points") if data["binary"] else (1, "")
    reached = [row for row in points if row["effect"] is not None and math.isfinite(row["effect"])]
    if len(reached) < 2:
        return None
    size = "largest" if data["margin"] and data["margin"].startswith("equivalence") else "smallest"
    level = chance(points[0]["at_power"])
    title = f"{size} change with power {level}{unit}"
    largest = max(abs(scale * row["effect"]) for row in reached)
    rows: list[Point] = [
        (row["people"], 0.0 if is_nothing(scale * row["effect"], largest) else scale * row["effect"]) for row in reached
    ]
    here = _nearest(rows, data["people"])
    words = (f"{here[0]:,} people", f"{rounded(here[1])}{' points' if data['binary'] else ''}")
    values = [y for _, y in rows] + ([0.0] if data["margin"] is None else [])
    y = round_axis(min(values), max(values), title)
    return _by_people(rows, y, [here], rounded, [Label(here, words, below=False, bold=True)])


def power_of_effect(data: Data, points: Sequence[Data]) -> Figure | None:
    """Return the power for the answer's effect, by people, with a line at the power that was asked for, if one was."""
    rows: list[Point] = [(row["people"], row["power"]) for row in points if row["power"] is not None]
    if len(rows) < 2:
        return None
    y = percent_axis(f"power for a change of {change(data)}")
    here, wanted = _nearest(rows, data["people"]), points[0]["at_power"]
    more: list[Mark] = []
    if wanted is not None:
        more.append(Line([(rows[0][0], wanted), (rows[-1][0], wanted)], MUTED, wide=1, dashes="4 4"))
        more.append(Label((rows[0][0], wanted), [f"asked: {percent(wanted)}"], below=False, colour=MUTED))
    more.append(Label(here, (f"{here[0]:,} people", chance(here[1])), bold=True))
    return _by_people(rows, y, [here], chance, more)


def _by_people(rows: Sequence[Point], y: ChartAxis, dots: Sequence[Point], say: Say, more: Sequence[Mark]) -> Figure:
    """Return a curve; a handful of its points are put into words for screen readers."""
    some = rows[:: max(1, (len(rows) - 1) // 4)]
    described = "; ".join(f"{people:,} people, {say(value)}" for people, value in some)
    panel = Plot(_people_axis(rows), y, [*more, *_line(rows, dots)], _HIGH)
    return Figure(f"The {y.title}", f"{described}.", [panel])


def _nearest(rows: Sequence[Point], people: float) -> Point:
    return min(rows, key=lambda row: abs(row[0] - people))


def _people_axis(rows: Sequence[Point]) -> ChartAxis:
    """Return an axis of round numbers of people within the range, few enough to stand side by side."""
    low, high = rows[0][0], rows[-1][0]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    values = [value for power in powers for step in _STEPS if low <= (value := float(step * 10**power)) <= high]
    if len(values) > _FEW_TICKS:
        values = [value for value in values if str(value).startswith("1")]
    ticks = [(value, _short_number(value)) for value in values or [low, high]]
    return ChartAxis(low, high, ticks, "people in all", ratio=True)


def _short_number(value: float) -> str:
    """Return a number with its unit."""
    size, unit = next(((size, unit) for size, unit in _UNITS if value >= size), (1, ""))
    return f"{value / size:g}{unit}"


# ── of a plan ──────────────────────────────────────────────────────────────────────────────────


def forecast_figure(data: Data, metric: str | None) -> Figure:
    """Return the smallest effect that is found on every metric, plain and adjusted."""
    clean = mapped(data, printable)
    metrics = dict.fromkeys(row["metric"] for row in clean["effects"])
    return chosen_figure({"effects": lambda: {name: [_detectable(clean, name)] for name in metrics}}, "effects", metric)


def _detectable(data: Data, metric: str) -> Figure:
    effects = [row for row in data["effects"] if row["metric"] == metric]
    rows: dict[str, list[ForestRow]] = {}
    for row in effects:
        adjusted = row["adjusted_for"]
        name = f"↳ adjusted for {adjusted}" if adjusted else f"{row['people']:,} people"
        relative = "" if row["relative"] is None else f" ({100 * row['relative']:+.3g} %)"
        bar = Bar(0.0, row["effect"], row["effect"], UP if adjusted else QUIET)
        drawn = ForestRow(name, f"{number(row['effect'])}{relative}", [bar], bold=not adjusted)
        rows.setdefault(row["experiment"], []).append(drawn)
    panels = [Forest(each, f"smallest change of {metric} in {experiment}") for experiment, each in rows.items()]
    power = percent(effects[0]["power"])
    return Figure(f"The smallest change of {metric} that is found with power {power}", f"Power {power}.", panels)


def plan_figures(data: Data, later: Mapping[float, Data]) -> list[Figure]:
    """Return a curve for every experiment and metric; ``later`` are forecasts of the same plan by days."""
    names = dict.fromkeys((row["experiment"], row["metric"]) for row in data["effects"])
    drawn = (effect_by_days(data, later, experiment, metric) for experiment, metric in names)
    return [figure for figure in drawn if figure]


def effect_by_days(data: Data, later: Mapping[float, Data], experiment: str, metric: str) -> Figure | None:
    """Return the detectable effect by days: plain, and with the adjustment that helps most."""

    def effects_of(forecast: Data) -> dict[str | None, float]:
        rows = [row for row in forecast["effects"] if (row["experiment"], row["metric"]) == (experiment, metric)]
        share = all(row["relative"] is not None for row in rows)
        return {row["adjusted_for"]: 100 * row["relative"] if share else row["effect"] for row in rows}

    now = effects_of(data)
    by_days = {days: effects_of(forecast) for days, forecast in later.items()}
    adjusted = min((name for name in now if name), key=lambda name: now[name], default=None)
    lines: list[list[Point]] = []
    marks: list[Mark] = []
    for name, colour in [(None, QUIET)] + ([(adjusted, UP)] if adjusted else []):
        lines.append([(days, effects[name]) for days, effects in by_days.items() if effects.get(name) is not None])
        marks += _line(lines[-1], [(data["days"], now[name])] if name in now else [], colour)
    points = [point for line in lines for point in line]
    if min(map(len, lines)) < 2:
        return None
    relative = all(row["relative"] is not None for row in data["effects"] if row["metric"] == metric)
    title = f"smallest change of {metric}{', % of the mean' if relative else ''}"
    described = "; ".join(f"{days:g} days {shown(y)}" for days, y in points[:: max(1, len(points) // 8)])
    x = numbered_axis(min(days for days, _ in points), max(days for days, _ in points), "days")
    y = round_axis(0.0, max(y for _, y in points), title)
    return Figure(f"The {title} in {experiment}, by days", f"{described}.", [Plot(x, y, marks, _LOW)])


def epsilon_figure(rows: Sequence[Data], marked: Sequence[Data]) -> Figure:
    """Return how much wider intervals are by ε: a line per metric, with the asked values ``marked``."""

    def points(of: Sequence[Data]) -> dict[str, list[Point]]:
        lines: dict[str, list[Point]] = {}
        for row in of:
            lines.setdefault(f"{row['metric']} in {row['experiment']}", []).append((row["epsilon"], 100 * row["wider"]))
        return lines

    wide, asked = points(rows), points(marked)
    palette = (UP, QUIET, *ARMS[2:])
    colours = {name: palette[place % len(palette)] for place, name in enumerate(asked)}
    described = "; ".join(f"{name} at ε {e:g}: {shown(y)} %" for name, dots in asked.items() for e, y in dots)
    everything = [point for dots in (*wide.values(), *asked.values()) for point in dots]
    ticks = [(epsilon, f"{epsilon:g}") for epsilon in sorted({row["epsilon"] for row in marked})]
    x = ChartAxis(min(e for e, _ in everything), max(e for e, _ in everything), ticks, "ε", ratio=True)
    y = round_axis(0.0, max(y for _, y in everything), "interval wider by, %")
    marks = [mark for name, colour in colours.items() for mark in _line(wide.get(name, []), asked[name], colour)]
    legend = {name: Paint(colour) for name, colour in colours.items()}
    return Figure("What noise costs, by ε", f"{described}.", [Plot(x, y, marks, _LOW)], legend)
