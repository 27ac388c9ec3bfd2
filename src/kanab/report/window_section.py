"""The effect by time since the first exposure, where a metric has several windows: does it fade, or grow?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.plan.windows import metric_window, windows_by_column
from kanab.report.figures import Row, figures_of, is_share, percent
from kanab.report.words import headlines, metrics_of
from kanab.tabular import Table, p_value

Data = Mapping[str, Any]


def window_rows(data: Data) -> dict[str, list[Row]]:
    """Return the effects that carry verdicts, by column, where it has several windows; each with its days."""
    rows: dict[str, list[Row]] = {}
    for column, names in windows_by_column(metrics_of(data)).items():
        for name in names:
            window = metric_window(name)
            assert window is not None
            rows.setdefault(column, []).extend({**row, "days": window.days} for row in headlines(data, name))
    return rows


def window_parts(data: Data) -> tuple[str | Table, ...]:
    """Return a table of effects in the order of time for every column that has several windows."""
    parts: list[str | Table] = []
    for column, rows in window_rows(data).items():
        share = is_share(data, rows[0]["metric"])
        figures = figures_of(rows, share=share)
        unit = " (points)" if share else ""
        cells = tuple(
            (
                spoken_days(row),
                row["arm"],
                figures.bare(row["estimate"], signed=True),
                figures.between(row["interval"]),
                p_value(row["p_adjusted"]),
            )
            for row in rows
        )
        parts += [
            f"{column} by days since the first exposure: an effect that fades may be novelty, one that grows learning. "
            "Each window is compared by itself.",
            Table(("days", "arm", f"effect{unit}", f"{percent(data['confidence'])} interval", "p, corrected"), cells),
        ]
    return tuple(parts)


def spoken_days(row: Row) -> str:
    """Return the days of a window.

    >>> spoken_days({"days": (7.0, 14.0)}), spoken_days({"days": (0.0, 0.5)})
    ('7 to 14', '0 to 0.5')
    """
    start, end = row["days"]
    return f"{start:g} to {end:g}"
