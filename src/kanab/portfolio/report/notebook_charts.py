"""Charts of combined effects and portfolios for notebooks, as Vega-Lite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.portfolio.report.charts import effect_colour
from kanab.portfolio.report.words import combined_figures, combined_heading, listed_effects, portfolio_figures
from kanab.report.charts import Spec, chart_of
from kanab.report.figures import Figures, Row, percent, scaled
from kanab.report.forest import Forest, Panel
from kanab.report.notebook_charts import chosen_chart
from kanab.report.palette import QUIET

Data = Mapping[str, Any]


def combined_chart(data: Data, metric: str | None) -> Any:
    """Return the effect of every release with its interval, and all of them together below."""
    drawn: dict[str, list[Row]] = {}
    for effect in data["effects"]:
        drawn.setdefault(effect["metric"], []).append(effect)
    level = percent(data["confidence"])
    return chosen_chart(
        {"effects": lambda: {name: chart_of(_combined(effects, level)) for name, effects in drawn.items()}},
        "effects",
        metric,
    )


def _combined(effects: Sequence[Row], level: str) -> Forest:
    panels = []
    for effect in effects:
        figures = combined_figures(effect)
        parts = [_row(part, figures, str(at), part["name"], QUIET) for at, part in enumerate(effect["parts"])]
        together = _row(effect, figures, str(len(parts)), "together", effect_colour(effect)) | {"weight": "bold"}
        panels.append(Panel([*parts, together], _axis(effect["metric"], figures)))
    return Forest(panels, combined_heading(effects[0]), f"{level} intervals.")


def portfolio_chart(data: Data) -> Any:
    """Return every effect as it was seen and after shrinkage."""
    return chosen_chart({"effects": lambda: {data["metric"]: chart_of(_shrunk(data))}}, "effects")


def _shrunk(data: Data) -> Forest | None:
    figures = portfolio_figures(data)
    rows: list[Spec] = []
    for effect in listed_effects(data):
        seen = _row(effect, figures, str(len(rows)), f"{effect['name']}, as seen", QUIET)
        after = {**effect, "estimate": effect["shrunk"], "interval": effect["shrunk_interval"]}
        rows += [seen, _row(after, figures, str(len(rows) + 1), "↳ after shrinkage", effect_colour(after))]
    title = f"Effects on {data['metric']}, seen and after shrinkage"
    return Forest([Panel(rows, _axis(data["metric"], figures))], title, title) if rows else None


def _row(effect: Row, figures: Figures, place: str, name: str, colour: str) -> Spec:
    low, high = effect["interval"]
    sizes = {"estimate": effect["estimate"], "low": low, "high": high}
    return {
        "row": place, "label": name, "weight": "normal", "colour": colour,
        "text": f"{figures.bare(effect['estimate'], signed=True)} ({figures.between(effect['interval'])})",
        **{key: scaled(value, figures.share) for key, value in sizes.items()},
    }  # fmt: skip


def _axis(metric: str, figures: Figures) -> str:
    return f"effect on {metric}{', percentage points' if figures.share else ''}"
