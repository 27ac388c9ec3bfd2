"""Odds ratios over strata in a report: sentences, a table, and a forest plot on a scale of ratios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.report.figures import Figures, Row, figures_of, percent, spoken_p
from kanab.report.words import spoken_arm
from kanab.tabular import Table, number

Data = Mapping[str, Any]

_UNCORRECTED = "Not corrected for several comparisons: the verdicts are those of the effects above."
STRATA_HEADING = "Odds ratios over strata"


def strata_parts(data: Data) -> tuple[str | Table, ...]:
    """Return the common odds ratio of every metric, covariate and arm that was asked for, and those of the levels."""
    parts: list[str | Table] = []
    for row in data.get("strata", ()):
        parts += [*strata_sentences(data, row), _strata_table(data, row)]
    return (_UNCORRECTED, *parts) if parts else ()


def strata_sentences(data: Data, row: Row) -> list[str]:
    """Return what all levels say together, whether they differ, and what is rough about it."""
    who = f"{row['metric']} over {row['covariate']}, {spoken_arm(row['arm'])} against {spoken_arm(row['control'])}"
    if row["p"] is None:
        return [f"{who}: {row['note']}."]
    level = f"{percent(data['confidence'])} interval"
    test = f"Mantel–Haenszel χ² = {number(row['chi2'], 3)}, {spoken_p(row['p'])}"
    if row["odds_ratio"] is None:
        common = f"no common odds ratio, because events are on one side only ({test})"
    else:
        figures = _figures(row["odds_ratio"], row["odds_ratio_interval"])
        interval = figures.spoken(row["odds_ratio_interval"])
        common = f"common odds ratio {figures.bare(row['odds_ratio'])} ({level} {interval}; {test})"
    sentences = [f"{who}: {common}{_risks(row, level)}."]
    if row["equal_odds"] is not None:
        equal = row["equal_odds"]
        evidence = f"Breslow–Day χ²({equal['df']}) = {number(equal['chi2'], 3)}, {spoken_p(equal['p'])}"
        sentences.append(
            f"The odds ratio differs by {row['covariate']} ({evidence}): read the levels, not the common one."
            if equal["p"] < 1 - data["confidence"]
            else f"No sign that the odds ratio differs by {row['covariate']} ({evidence})."
        )
    note = row["note"]
    return [*sentences, *([f"{note[:1].upper()}{note[1:]}."] if note else [])]


def _risks(row: Row, level: str) -> str:
    """Return the risk ratio and the risk difference over the levels."""
    parts = []
    if row["risk_ratio"] is not None:
        figures = _figures(row["risk_ratio"], row["risk_ratio_interval"])
        interval = figures.spoken(row["risk_ratio_interval"])
        parts.append(f"risk ratio {figures.bare(row['risk_ratio'])} ({level} {interval})")
    figures = figures_of(
        [{"estimate": row["risk_difference"], "interval": row["risk_difference_interval"]}], share=True
    )
    interval = figures.spoken(row["risk_difference_interval"])
    parts.append(f"risk difference {figures.bare(row['risk_difference'], signed=True)} points ({interval})")
    return f"; {', '.join(parts)}"


def _figures(estimate: float | None, interval: Sequence[float | None] | None) -> Figures:
    return figures_of([{"estimate": estimate, "interval": interval}], share=False)


def _strata_table(data: Data, row: Row) -> Table:
    figures = strata_figures(row)
    cells = [
        (
            level["level"],
            f"{level['people_control']:,}",
            f"{level['people_arm']:,}",
            _rate(level["events_control"], level["people_control"]),
            _rate(level["events_arm"], level["people_arm"]),
            figures.bare(level["odds_ratio"]),
            figures.between(level["odds_ratio_interval"]),
            percent(level["weight"], 1),
        )
        for level in row["levels"]
    ]
    common = figures.bare(row["odds_ratio"]), figures.between(row["odds_ratio_interval"])
    all_levels = ("all levels", "", "", "", "", *common, "")
    interval = f"{percent(data['confidence'])} interval"
    header = (row["covariate"], "people, control", "arm", "rate, control", "arm", "odds ratio", interval, "weight")
    return Table(header, (*cells, all_levels))


def _rate(events: int, people: int) -> str:
    return percent(events / people, 2) if people else "–"


def strata_figures(row: Row) -> Figures:
    """Return how the odds ratios of one row and its levels are written: to the decimals of the narrowest interval."""
    places = [of for of in (row, *row["levels"]) if of["odds_ratio_interval"] is not None]
    return figures_of(
        [{"estimate": of["odds_ratio"], "interval": of["odds_ratio_interval"]} for of in places], share=False
    )
