"""The readout in one line per metric and arm, for a narrow terminal or a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanab.choices import INTERNAL
from kanab.report.decision import decision_sentences
from kanab.report.digits import Row, metric_figures
from kanab.report.text import mapped, printable, wrapped
from kanab.report.words import alarm_sentences, correction_name, is_internal, title, tone, verdict_rows
from kanab.tabular import Table, p_value

WIDTH = 80
"""Columns of a terminal that nobody widened."""

_LEAST_NAME = 6
_POINTS = " (points)"
_VERDICTS = {"untestable": "not testable", "early": "too early"}


def brief_text(data: Mapping[str, Any]) -> str:
    """Return the decision, alarms, and the effect that carries the verdict of each metric and arm, within 80 columns.

    Where there is no room for standard errors, intervals say them; names that leave no room for numbers are shortened.
    """
    clean = mapped(data, printable)
    alarms = alarm_sentences(clean)
    alarms += [caution["sentence"] for caution in clean.get("cautions", ()) if caution["kind"] == "rows-not-people"]
    sentences = (f"{title(clean)}.", *decision_sentences(clean), *alarms)
    lines = [line for sentence in sentences for line in wrapped(sentence, WIDTH)]
    rows = verdict_rows(clean)
    lines += str(_table(clean, rows)).splitlines() if rows else []
    return "\n".join([*lines, *(wrapped(INTERNAL, WIDTH) if is_internal(clean) else ())])


def _table(data: Mapping[str, Any], rows: list[Row]) -> Table:
    method = correction_name(data)
    header: tuple[str, ...] = (
        "metric", "arm", "effect", "SE", "interval", "relative", f"p ({method})" if method else "p", "verdict",
    )  # fmt: skip
    cells = [_cells(data, row, corrected=bool(method)) for row in rows]
    needed = _widths(header, cells)
    if sum(needed) + 2 * (len(needed) - 1) > WIDTH:
        header, *cells = (line[:3] + line[4:] for line in (header, *cells))
        needed = _widths(header, cells)
    room = WIDTH - sum(2 + wide for wide in needed[2:]) - 2
    arms = max(min(needed[1], max(_LEAST_NAME, room // 3)), min(needed[1], room - needed[0]))
    widths = (max(_LEAST_NAME, room - arms), arms)
    short = (tuple(_cut(*name) for name in zip(line, widths, strict=False)) + line[2:] for line in cells)
    return Table(header, tuple(short))


def _widths(header: tuple[str, ...], cells: Sequence[tuple[str, ...]]) -> list[int]:
    return [max(map(len, column)) for column in zip(header, *cells, strict=True)]


def _cells(data: Mapping[str, Any], row: Row, *, corrected: bool) -> tuple[str, ...]:
    figures, relative = metric_figures(data, row["metric"])
    change = relative.bare(row["relative"], signed=True)
    return (
        f"{row['metric']}{_POINTS}" if figures.share else row["metric"],
        row["arm"],
        figures.bare(row["estimate"], signed=True),
        figures.bare(row["se_population"]),
        figures.between(row["interval"]),
        change if change == "–" else f"{change} %",
        p_value(row["p_adjusted"] if corrected else row["p"]),
        verdict_word(tone(row)),
    )


def verdict_word(row_tone: str) -> str:
    """Return a row's tone as it is written in a line."""
    return _VERDICTS.get(row_tone, row_tone)


def _cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    unit = _POINTS if name.endswith(_POINTS) and width > _LEAST_NAME + len(_POINTS) else ""
    return f"{name[: width - 1 - len(unit)]}…{unit}"
