"""Metrics of a part of the time after a person's first exposure: ``spend@7d..14d`` is the spend of the second week."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kanab.errors import PlanError

SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}
"""The length of a unit of time, by its letter."""
_NAME = re.compile(r"(.+)@(\d{1,6})([mhdw])\.\.(\d{1,6})([mhdw])")


@dataclass(frozen=True)
class MetricWindow:
    """A column of events, and from when to when after the first exposure they count, in seconds: without the end."""

    column: str
    start: int
    end: int

    @property
    def days(self) -> tuple[float, float]:
        """Both ends in days."""
        return self.start / SECONDS["d"], self.end / SECONDS["d"]


def metric_window(name: str) -> MetricWindow | None:
    """Return the window that a metric's name says; None where it says none. Raises `PlanError` for an empty one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    start, end = int(match[2]) * SECONDS[match[3]], int(match[4]) * SECONDS[match[5]]
    if start >= end:
        raise PlanError(f"the window of {name!r} is empty", "Write the earlier time first, such as spend@7d..14d.")
    return MetricWindow(match[1], start, end)


def windows_by_column(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the metrics of each column that has several windows, in the order of time."""
    columns: dict[str, list[tuple[int, int, str]]] = {}
    for name in names:
        window = metric_window(name)
        if window is not None:
            columns.setdefault(window.column, []).append((window.start, window.end, name))
    return {column: [name for *_, name in sorted(parts)] for column, parts in columns.items() if len(parts) > 1}
