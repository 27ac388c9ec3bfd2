"""How long it is until an event: sentences and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kanab.report.figures import Row, percent, spoken_p
from kanab.report.words import CORRECTIONS, correction_name, spoken_arm
from kanab.tabular import Table, p_value

Data = Mapping[str, Any]

HOW = (
    "Curves are Kaplan and Meier's, from people per arm and day; who was last seen without the event counts up to that "
    "day. Days that were merged to k people are one step, at the last of them; who was last seen within them counts "
    "for a part of them, as in a life table. p is of the log-rank test."
)


def survival_parts(data: Data) -> tuple[str | Table, ...]:
    """Return whether the event comes sooner or later in words, then all numbers."""
    rows = data.get("survival", ())
    if not rows:
        return ()
    corrected = CORRECTIONS["holm"] if data["correction"] == "dunnett" else correction_name(data)
    family = f" It is corrected over all {len(rows)} comparisons ({corrected})." if len(rows) > 1 and corrected else ""
    return *(_sentence(data, row) for row in rows), f"{HOW}{family}", _table(rows)


def _sentence(data: Data, row: Row) -> str:
    arm, control = spoken_arm(row["arm"]), spoken_arm(row["control"])
    if row["p"] is None:
        return f"{row['metric']}: {arm} against {control} is not told: nobody had it while people of both were there."
    said = {"up": "clearly sooner", "down": "clearly later"}.get(row["verdict"], "not clearly sooner or later")
    p = row["p"] if row["p_adjusted"] is None else row["p_adjusted"]
    low, high = (_points(end) for end in row["interval"])
    return (
        f"{row['metric']} comes {said} in {arm} than in {control} ({spoken_p(p)}): after {_day(row['day'])} days "
        f"{_share(row['share_arm'])} are without it against {_share(row['share_control'])}, "
        f"{_points(row['difference'])} percentage points ({percent(data['confidence'])} interval {low} to {high}). "
        f"Half have it {_half(row['median_arm'], arm)}, {_half(row['median_control'], control)}."
    )


def _half(median: float | None, arm: str) -> str:
    return f"after {_day(median)} days in {arm}" if median is not None else f"not yet at the end in {arm}"


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def _signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def _points(share: float) -> str:
    return _signed(100 * share, 1)


def _day(day: float | None) -> str:
    """Write a day.

    >>> _day(14.0), _day(None)
    ('14', '–')
    """
    return "–" if day is None else f"{day:,.10g}"


def _median(row: Row, side: str) -> str:
    low, high = row[f"median_interval_{side}"]
    return "–" if row[f"median_{side}"] is None else f"{_day(row[f'median_{side}'])} ({_day(low)} to {_day(high)})"


def _table(rows: list[Row]) -> Table:
    cells = []
    for row in rows:
        difference, stay = row["interval"], row["mean_days_interval"]
        cells.append(
            (
                f"{row['metric']}, {row['arm']}",
                _median(row, "control"),
                _median(row, "arm"),
                _day(row["day"]),
                f"{_points(row['difference'])} ({_points(difference[0])} to {_points(difference[1])})",
                f"{_signed(row['mean_days_difference'], 2)} ({_signed(stay[0], 2)} to {_signed(stay[1], 2)})",
                p_value(row["p"]),
                p_value(row["p_adjusted"]),
            )
        )
    control = rows[0]["control"]
    header = (
        "until", f"median {control}", "median arm", "to day", "without it, points", "days without it", "p",
        "p corrected",
    )  # fmt: skip
    return Table(header, tuple(cells))
