"""Quantiles of the arms and their differences: sentences and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.figures import Row, figures_of, percent, spoken_p
from kanab.report.words import CORRECTIONS, correction_name, spoken_arm
from kanab.tabular import Table, p_value

Data = Mapping[str, Any]

HOW = (
    "Quantiles are had from people per bin, interpolated within a bin. An interval holds the differences that a "
    "binomial test of both arms does not reject (test inversion), each on its own."
)


def quantile_parts(data: Data) -> tuple[str | Table, ...]:
    """Return what became of every quantile in words, then all numbers."""
    rows = data.get("quantiles", ())
    if not rows:
        return ()
    corrected = CORRECTIONS["holm"] if data["correction"] == "dunnett" else correction_name(data)
    family = f" p is corrected over all {len(rows)} of them ({corrected})." if len(rows) > 1 and corrected else ""
    return *(_sentence(data, row) for row in rows), f"{HOW}{family}", _table(data, rows)


def quantile_name(probability: float) -> str:
    """Return how a quantile is called.

    >>> quantile_name(0.5), quantile_name(0.99), quantile_name(0.999)
    ('median', 'p99', 'p99.9')
    """
    return "median" if probability == 0.5 else f"p{100 * probability:.10g}"


def _sentence(data: Data, row: Row) -> str:
    called = quantile_name(row["probability"])
    name = f"{called[0].upper()}{called[1:]} of {row['metric']}"
    arm, control = spoken_arm(row["arm"]), spoken_arm(row["control"])
    if row["estimate"] is None:
        return f"{name}: {arm} against {control} is not told: {row['note']}."
    figures = figures_of([row], share=False)
    said = {"up": "more", "down": "less"}.get(row["verdict"])
    clear = f"is clearly {said} in {arm}" if said else f"in {arm} is not clearly different"
    p = row["p"] if row["p_adjusted"] is None else row["p_adjusted"]
    note = f"; {row['note']}" if row["note"] else ""
    return (
        f"{name} {clear}: {figures.mean(row['quantile_arm'])} against {figures.mean(row['quantile_control'])} "
        f"in {control}, {figures.change(row['estimate'], signed=True)} ({percent(data['confidence'])} interval "
        f"{figures.spoken(row['interval'])}, {spoken_p(p)}){note}."
    )


def _table(data: Data, rows: list[Row]) -> Table:
    cells = []
    for row in rows:
        figures = figures_of([row], share=False)
        cells.append(
            (
                f"{row['metric']} {quantile_name(row['probability'])}, {row['arm']}",
                "–" if row["quantile_control"] is None else figures.mean(row["quantile_control"]),
                "–" if row["quantile_arm"] is None else figures.mean(row["quantile_arm"]),
                "–" if row["estimate"] is None else figures.bare(row["estimate"], signed=True),
                "–" if row["interval"] is None else figures.between(row["interval"]),
                p_value(row["p"]),
                p_value(row["p_adjusted"]),
            )
        )
    level = percent(data["confidence"])
    header = ("quantile", str(rows[0]["control"]), "in the arm", "difference", f"{level} interval", "p", "p corrected")
    return Table(header, tuple(cells))
