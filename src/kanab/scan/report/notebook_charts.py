"""Charts of scans for notebooks, as Vega-Lite: maps of all tests, p-values against chance, effects of flagged pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from kanab.report.charts import Spec, chart_of
from kanab.report.figures import Row, scaled, spoken_p
from kanab.report.forest import Forest, Panel
from kanab.report.notebook_charts import chosen_chart
from kanab.report.palette import INK, MUTED, QUIET, TRACK, UP, WIDTH
from kanab.scan.report.charts import HIGHEST, LIMITS, MARKS
from kanab.scan.report.words import effect_figures

Data = Mapping[str, Any]

PairChart = Literal["map", "p_values", "effects"]
"""What a scan of pairs can draw."""

_STEPS = [f"p ≥ {LIMITS[0]:g}", *(f"p < {limit:g}" for limit in LIMITS), "not shown"]
_SHADES = [TRACK, "#c8d9ee", "#8fb3dc", "#4a83c2", UP, "#ffffff"]
_AXIS = {"labelColor": MUTED, "titleColor": MUTED, "titleFontWeight": "normal", "domain": False, "tickColor": MUTED}


def pair_chart(data: Data, what: str, metric: str | None) -> Any:
    """Return the chart of a scan of pairs from its plain data."""
    metrics = data["metrics"]
    return chosen_chart(
        {
            "map": lambda: {name: _pairs_map(data, name) for name in metrics},
            "p_values": lambda: {name: _expected(data, name) for name in metrics},
            "effects": lambda: {name: chart_of(_flagged(data, name)) for name in metrics},
        },
        what,
        metric,
    )


def segment_scan_chart(data: Data, metric: str | None) -> Any:
    """Return the map of a scan of segments from its plain data."""
    return chosen_chart({"map": lambda: {name: _segments_map(data, name) for name in data["metrics"]}}, "map", metric)


def _pairs_map(data: Data, metric: str) -> Spec | None:
    rows = [row for row in data["pairs"] if row["metric"] == metric]
    tiles = [_tile(row, *sides) for row in rows for sides in ((row["a"], row["b"]), (row["b"], row["a"]))]
    return _map(tiles, data["experiments"], data["experiments"], f"Pairs of experiments on {metric}")


def _segments_map(data: Data, metric: str) -> Spec | None:
    rows = [row for row in data["segments"] if row["metric"] == metric]
    tiles = [_tile(row, row["covariate"], row["experiment"]) for row in rows]
    across, down = (list(dict.fromkeys(tile[side] for tile in tiles)) for side in "xy")
    return _map(tiles, across, down, f"Effects on {metric} by segment")


def _tile(row: Row, x: str, y: str) -> Spec:
    p = row["p_robust"]
    step = _STEPS[-1] if p is None else _STEPS[sum(p < limit for limit in LIMITS)]
    return {"x": x, "y": y, "p": step, "verdict": row["verdict"]}


def _map(tiles: Sequence[Spec], across: Sequence[str], down: Sequence[str], title: str) -> Spec | None:
    """Return a square for every test, the darker the smaller p, with a mark where there is a verdict to act upon."""
    if not tiles:
        return None
    side = max(8.0, min(36.0, WIDTH / len(across)))
    axis = {"title": None, "domain": False, "ticks": False}
    x = {"field": "x", "type": "nominal", "sort": list(across), "axis": axis}
    y = {"field": "y", "type": "nominal", "sort": list(down), "axis": axis}
    colour = {"field": "p", "type": "ordinal", "scale": {"domain": _STEPS, "range": _SHADES}, "legend": {"title": None}}
    shapes = {"field": "verdict", "type": "nominal", "legend": {"title": None}}
    marked = [tile for tile in tiles if tile["verdict"] in MARKS]
    mark = {"type": "point", "filled": True, "size": side * 3, "color": INK, "opacity": 1}
    layers: list[Spec] = [
        {"data": {"values": list(tiles)}, "mark": {"type": "rect", "stroke": "white"},
         "encoding": {"x": x, "y": y, "color": colour}},
    ]  # fmt: skip
    if marked:
        encoding = {"x": x, "y": y, "shape": shapes}
        layers.append({"data": {"values": marked}, "mark": mark, "encoding": encoding})
    return _spec({"step": side}, {"step": side}, layers, title)


def _expected(data: Data, metric: str) -> Spec | None:
    """Return observed against expected p-values, in powers of ten; the line is chance alone."""
    quantiles = data["quantiles"][metric]
    points = [
        {"expected": -math.log10(expected), "observed": HIGHEST if observed <= 0 else -math.log10(observed)}
        for expected, observed in zip(quantiles["expected"], quantiles["observed"], strict=True)
        if expected and observed is not None
    ]
    if not points:
        return None
    points = [point | {"observed": min(HIGHEST, point["observed"])} for point in points]
    end = max(point["expected"] for point in points)
    label = {
        "labelExpr": "format(pow(10, -datum.value), datum.value > 3 ? '.0e' : '.1~g')",
        "grid": False,
        "tickCount": 6,
    }
    x = {"field": "expected", "type": "quantitative", "axis": label | {"title": "p expected by chance alone"}}
    y = {"field": "observed", "type": "quantitative", "axis": label | {"title": "p observed"}}
    encoding = {"x": x, "y": y}
    line = [{"expected": 0, "observed": 0}, {"expected": end, "observed": end}]
    layers = [
        {"data": {"values": line}, "mark": {"type": "line", "color": MUTED}, "encoding": encoding},
        {"data": {"values": points}, "mark": {"type": "point", "filled": True, "color": UP}, "encoding": encoding},
    ]
    least = min(value for value in quantiles["observed"] if value is not None)
    return _spec(
        WIDTH, 260, layers, f"Observed against expected p-values of {metric}: the smallest is {spoken_p(least)}"
    )


def _flagged(data: Data, metric: str) -> Forest | None:
    """Return the effects of every flagged pair within the arms of the other experiment, a panel for each pair."""
    panels = []
    for pair in data["effects"]:
        if pair["metric"] != metric:
            continue
        figures = effect_figures(data, pair)
        rows: list[Spec] = []
        for effect in pair["effects"]:
            low, high = effect["interval"]
            clear = low > 0 or high < 0
            sizes = {"estimate": effect["effect"], "low": low, "high": high}
            rows.append({
                "row": str(len(rows)), "weight": "bold" if clear else "normal", "colour": UP if clear else QUIET,
                "label": f"{effect['experiment']} {effect['arm']}, {effect['within']} {effect['level']}",
                "text": f"{figures.change(effect['effect'], signed=True)} ({figures.between(effect['interval'])})",
                **{name: scaled(value, figures.share) for name, value in sizes.items()},
            })  # fmt: skip
        panels.append(Panel(rows, f"effect on {metric}: {pair['a']} and {pair['b']}"))
    if not panels:
        return None
    return Forest(panels, f"Flagged pairs: effects on {metric} within arms of the other", "95 % intervals.")


def _spec(width: Any, height: Any, layers: Sequence[Spec], title: str) -> Spec:
    return {
        "width": width, "height": height, "layer": list(layers), "usermeta": {"title": title}, "description": title,
        "config": {"font": "sans-serif", "view": {"stroke": None}, "axis": _AXIS},
        "resolve": {"scale": {"shape": "independent"}},
    }  # fmt: skip
