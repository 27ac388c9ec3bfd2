"""What forest plots show: effects, effects at levels, effects of receiving, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanab.errors import listed
from kanab.report.figures import Figures, Row, figures_of, is_share, percent, scaled
from kanab.report.palette import DOWN, LETTER, QUIET, UP, WIDTH
from kanab.report.received_section import leading_rows, received_figures, spoken_ranges
from kanab.report.tables import clear_level, rows_of_levels, segment_places
from kanab.report.words import lower_is_better, metrics_of, tone

Data = Mapping[str, Any]
Drawn = dict[str, Any]

MOST_LEVELS = 24
"""So many comparisons of levels fit into one panel; more show the clearest ones."""

_COLOURS = {"better": UP, "worse": DOWN}


@dataclass(frozen=True)
class Panel:
    """Rows over one axis: each has a place, a label, a text, an estimate, an interval and a colour."""

    rows: Sequence[Drawn]
    axis: str

    @property
    def domain(self) -> tuple[float, float]:
        """The least and the most that is drawn, "no difference" included, with a little air; never empty."""
        drawn = [row[side] for row in self.rows for side in ("low", "high", "estimate")]
        known = [0.0, *(value for value in drawn if value is not None)]
        least, most = min(known), max(known)
        air = 0.05 * (most - least) or 1.0
        return least - air, most + air


@dataclass(frozen=True)
class Forest:
    """Panels under each other, with a title and a description for screen readers."""

    panels: Sequence[Panel]
    title: str
    description: str


def effect_forest(data: Data, metric: str | None = None) -> Forest | None:
    """Return every effect with its interval, a panel for each metric; None without effects.

    Of each arm only the row that carries the verdict has a colour, after correction: blue is clearly more than the
    control, orange clearly less; where less is better, the other way round.
    """
    chosen = metrics_of(data) if metric is None else [metric]
    by_metric = {name: rows for name in chosen if (rows := _forest_rows(data, name))}
    if not by_metric:
        return None
    described = "; ".join(f"{row['label']} {row['text']}" for rows in by_metric.values() for row in rows)
    panels = [Panel(rows, _axis_title(data, name)) for name, rows in by_metric.items()]
    title = f"Effects on {listed(by_metric)} against {data['control']}"
    return Forest(panels, title, f"{percent(data['confidence'])} intervals. {described}.")


def segment_forest(data: Data, metric: str | None = None) -> Forest | None:
    """Return the effect at each level, a panel for each segment; None without segments.

    Intervals hold for all levels of a panel together. Only what is not exploratory is coloured.
    """
    places = [place for place in segment_places(data) if metric in (None, place[0])]
    if not places:
        return None
    panels, texts = [], []
    for name, covariate in places:
        levels = rows_of_levels(data, name, covariate)
        rows = _segment_rows(data, name, levels)
        texts += [f"{row['label']} {row['text']}" for row in rows]
        cut = f"; the {len(rows)} clearest of {len(levels)}" if len(rows) < len(levels) else ""
        exploratory = ", exploratory" if levels[0]["exploratory"] else ""
        panels.append(Panel(rows, f"{_axis_title(data, name, f' by {covariate}')}{exploratory}{cut}"))
    title = f"The effect at each level: {listed(f'{name} by {covariate}' for name, covariate in places)}"
    described = f"{percent(data['confidence'])} intervals that hold together in each panel. {'; '.join(texts)}."
    return Forest(panels, title, described)


def received_forest(data: Data, metric: str) -> Forest | None:
    """Return the effects of being assigned and of receiving on one axis; None where nothing was asked of receiving.

    Fieller's set may be two rays, or have no end: then the line runs to the edge.
    """
    rows = leading_rows([row for row in data.get("received", ()) if row["metric"] == metric])
    if not rows:
        return None
    figures = received_figures(data, rows)
    drawn: list[Drawn] = []
    for row in rows:
        same = [e for e in data["effects"] if (e["metric"], e["arm"]) == (metric, row["arm"])]
        assigned = next((e for e in same if e["covariates"] == row["covariates"]), same[0])
        drawn.append(_forest_row(assigned, figures, str(len(drawn))) | {"label": f"assigned to {row['arm']}"})
        place = str(len(drawn))
        for number, ends in enumerate(row["ranges"] or [None]):
            shown = {**row, "interval": ends, "method": "difference", "p": None if ends is None else 1.0}
            text = f"{figures.bare(row['estimate'], signed=True)} ({spoken_ranges(row, figures)})"
            words = {"label": f"received ({row['received']})", "weight": "bold", "text": text}
            spec = _forest_row(shown | {"verdict": None}, figures, place)
            drawn.append(spec | (words if number == 0 else {"label": "", "text": ""}))
    covariates = rows[0]["covariates"]
    panel = Panel(drawn, f"{_axis_title(data, metric)}{', adjusted' if covariates else ''}")
    title = f"Effects on {metric} of being assigned and of receiving"
    described = "; ".join(f"{row['label']} {row['text']}" for row in drawn if row["label"])
    described += f"; adjusted for {listed(covariates)}" if covariates else ""
    return Forest([panel], title, f"{percent(data['confidence'])} intervals. {described}.")


def _axis_title(data: Data, metric: str, by: str = "") -> str:
    return f"effect on {metric}{by}{', percentage points' if is_share(data, metric) else ''}"


def colour_of(row: Row) -> str:
    """Return the colour of a row: blue for the better, orange for the worse, grey where it carries no clear verdict."""
    return _COLOURS.get(tone(row), QUIET)


def _forest_rows(data: Data, metric: str) -> list[Drawn]:
    """Return what is drawn for each effect: where, in which colour, with which words."""
    effects = [row for row in data["effects"] if row["metric"] == metric]
    share = is_share(data, metric)
    figures = figures_of(effects, share=share)
    rows: list[Drawn] = []
    for arm in dict.fromkeys(row["arm"] for row in effects):
        for row in effects:
            if row["arm"] == arm and row["estimate"] is not None:
                rows.append(_forest_row(row, figures, str(len(rows))))
    return rows


def _forest_row(row: Row, figures: Figures, place: str) -> Drawn:
    low, high = row["interval"] or (row["estimate"], row["estimate"])
    value = figures.bare(row["estimate"], signed=True)
    return {
        "row": place,
        "label": f"↳ adjusted for {listed(row['covariates'])}" if row["method"] == "adjusted" else row["arm"],
        "weight": "normal" if row["method"] == "adjusted" else "bold",
        "text": f"{value}, not testable" if row["p"] is None else f"{value} ({figures.between(row['interval'])})",
        "estimate": scaled(row["estimate"], figures.share),
        "low": scaled(low, figures.share),
        "high": scaled(high, figures.share),
        "colour": colour_of(row),
    }


def _segment_rows(data: Data, metric: str, levels: Sequence[Row]) -> list[Drawn]:
    """Return what is drawn for the effect at each level, the clearest if there are many."""
    together = [{**level, "interval": level["interval_adjusted"]} for level in levels]
    figures = figures_of(together, share=is_share(data, metric))
    order = sorted(together, key=lambda level: 2.0 if level["p_adjusted"] is None else level["p_adjusted"])
    clearest = order[:MOST_LEVELS]
    better = "lower" if lower_is_better(data, metric) else "higher"
    rows: list[Drawn] = []
    for level in together:
        if level in clearest:
            clear = clear_level(level, data["confidence"])
            side = "up" if level["estimate"] > 0 else "down"
            kind = "untestable" if level["p"] is None else side if clear else "unclear"
            seen = {**level, "method": "difference", "verdict": kind, "better": better}
            row = _forest_row(seen, figures, str(len(rows)))
            short = f"{level['level']}, {level['arm']}"
            name = f"{level['covariate']} = {short}"
            name = name if len(name) <= _room(row["text"]) else short
            rows.append(row | {"label": name, "weight": "bold" if clear else "normal"})
    return rows


def shortened(label: str, text: str) -> str:
    """Return as much of a name as fits beside the row's numbers."""
    room = _room(text)
    return label if len(label) <= room else f"{label[: room - 1]}…"


def _room(text: str) -> int:
    return max(8, int(WIDTH / LETTER) - len(text) - 2)
