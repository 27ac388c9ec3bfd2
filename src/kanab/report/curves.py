"""What pictures over two axes show: distributions, effects over the days since the first exposure."""

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


def _coloured(arms: Sequence[str]) -> dict[str, str]:
    return {arm: ARMS[place % len(ARMS)] for place, arm in enumerate(arms)}


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
