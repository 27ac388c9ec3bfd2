"""What pictures over two axes show: distributions, survival curves, effects over the days since the first exposure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kanab.report.figures import Row, figures_of, is_share, percent, scaled
from kanab.report.forest import Forest, Panel, colour_of
from kanab.report.palette import ARMS
from kanab.report.quantile_section import quantile_name
from kanab.report.window_section import spoken_days, window_rows
from kanab.tabular import number as written

Data = Mapping[str, Any]
Drawn = dict[str, Any]


@dataclass(frozen=True)
class DrawnDistribution:
    """One metric in bins: people of each arm, shares up to each edge, and quantiles, with the colours of the arms.

    ``bars`` have an arm, a low and a high edge and a value, people per unit; ``steps`` an x and the share up to it;
    ``marks`` an arm, the x of a quantile, its probability as value and its name. ``end`` is where the picture ends.
    """

    metric: str
    colours: Mapping[str, str]
    bars: Sequence[Drawn]
    steps: Sequence[Drawn]
    marks: Sequence[Drawn]
    start: float
    end: float

    @property
    def title(self) -> str:
        """What the picture shows, in a few words."""
        return f"The distribution of {self.metric} in each arm"

    @property
    def description(self) -> str:
        """Every quantile of every arm, for screen readers."""
        spoken = (f"{mark['name']} of {mark['arm']} {written(mark['x'])}" for mark in self.marks)
        return f"{'; '.join(dict.fromkeys(spoken))}."


@dataclass(frozen=True)
class DrawnSurvival:
    """The share of every arm without the event after each day, with its interval, and who is still at risk.

    ``steps`` run from x to next and have a share, a low and a high end; ``risk`` is a number of people as text at x.
    """

    metric: str
    covariate: str
    colours: Mapping[str, str]
    steps: Sequence[Drawn]
    risk: Sequence[Drawn]
    places: Sequence[float]
    end: float
    title: str
    description: str


def distribution_of(data: Data, metric: str) -> DrawnDistribution | None:
    """Return the bins of a metric in each arm and its quantiles; None where nothing was asked of quantiles.

    People in open bins are not drawn.
    """
    read = next((each for each in data.get("distributions", ()) if each["metric"] == metric), None)
    if read is None:
        return None
    edges, bars, steps = read["edges"], [], []
    colours = _coloured([data["control"], *(arm for arm in read["people"] if arm != data["control"])])
    for arm, colour in colours.items():
        people, below = read["people"].get(arm, []), 0
        total = sum(people) or 1
        for place, (low, high) in enumerate(pairwise(edges), 1):
            value = people[place] / total / (high - low)
            bars.append({"low": low, "high": high, "value": value, "none": 0, "colour": colour, "arm": arm})
        for edge, count in zip(edges, people, strict=False):
            below += count
            steps.append({"x": edge, "value": below / total, "colour": colour, "arm": arm})
    marks = _quantile_marks([row for row in data["quantiles"] if row["metric"] == metric], colours)
    seen = 1.3 * max((mark["x"] for mark in marks), default=edges[-1]) - 0.3 * edges[0]
    end = min((edge for edge in edges if edge >= seen), default=edges[-1])
    return DrawnDistribution(metric, colours, bars, steps, marks, edges[0], end)


def _quantile_marks(rows: Sequence[Row], colours: Mapping[str, str]) -> list[Drawn]:
    marks: dict[tuple[str, float], Drawn] = {}
    for row in rows:
        for arm, side in ((row["control"], "quantile_control"), (row["arm"], "quantile_arm")):
            if row[side] is not None:
                chance = row["probability"]
                marks[arm, chance] = {
                    "x": row[side], "value": chance, "colour": colours[arm], "arm": arm, "name": quantile_name(chance),
                }  # fmt: skip
    return list(marks.values())


def survival_of(data: Data, metric: str, most_places: int = 7) -> DrawnSurvival | None:
    """Return the survival curves of a metric with so many days at which people at risk are told; None without any."""
    read = next((each for each in data.get("survival_curves", ()) if each["metric"] == metric), None)
    if read is None:
        return None
    curves = sorted(read["curves"], key=lambda curve: curve["arm"] != data["control"])
    colours = _coloured([curve["arm"] for curve in curves])
    end = max(curve["days"][-1]["day"] for curve in curves)
    places = _even_days(curves, end, most_places)
    steps, risk = [], []
    for curve in curves:
        arm = {"arm": curve["arm"], "colour": colours[curve["arm"]]}
        steps += [step | arm for step in _survival_steps(curve, 1.03 * end)]
        risk += [{"x": day, "text": f"{left:,}"} | arm for day, left in _still_at_risk(curve) if day in places]
    said = "; ".join(f"{curve['arm']} {100 * curve['days'][-1]['share']:.1f} %" for curve in curves)
    described = f"Without {metric} after {end:,.10g} days: {said}. {percent(data['confidence'])} intervals."
    title = f"How long it is until {metric}"
    return DrawnSurvival(metric, read["covariate"], colours, steps, risk, places, 1.03 * end, title, described)


def _coloured(arms: Sequence[str]) -> dict[str, str]:
    return {arm: ARMS[place % len(ARMS)] for place, arm in enumerate(arms)}


def _survival_steps(curve: Row, end: float) -> list[Drawn]:
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


def _even_days(curves: Sequence[Row], end: float, count: int) -> list[float]:
    """Return about so many of the days on which a curve steps, evenly, and the first."""
    days = sorted({0.0, *(day["day"] for curve in curves for day in curve["days"])})
    return sorted({min(days, key=lambda day: abs(day - end * part / (count - 1))) for part in range(count)})


def effects_over_time(data: Data) -> dict[str, Forest]:
    """Return for each metric that has several windows its effects by days since the first exposure, a panel per arm.

    Rows have the days at which a window starts and ends, its effect and its interval; an open end is None.
    """
    answers = {}
    for column, effects in window_rows(data).items():
        share = is_share(data, effects[0]["metric"])
        figures = figures_of(effects, share=share)
        points = ", percentage points" if share else ""
        panels = [
            Panel([_window(row, share=share) for row in effects if row["arm"] == arm], f"effect of {arm}{points}")
            for arm in dict.fromkeys(row["arm"] for row in effects)
        ]
        texts = [
            f"{row['arm']}, days {spoken_days(row)}: {figures.bare(row['estimate'], signed=True)}" for row in effects
        ]
        title = f"Effects on {column} by days since the first exposure"
        answers[column] = Forest(panels, title, f"{percent(data['confidence'])} intervals. {'; '.join(texts)}.")
    return answers


def _window(row: Row, *, share: bool) -> Drawn:
    low, high = row["interval"] or (row["estimate"], row["estimate"])
    start, end = row["days"]
    sizes = {"estimate": row["estimate"], "low": low, "high": high}
    days = {"start": start, "end": end, "middle": (start + end) / 2, "zero": 0, "colour": colour_of(row)}
    return days | {name: scaled(value, share) for name, value in sizes.items()}
