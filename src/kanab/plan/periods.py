"""Cohorts by the calendar: periods of enrollment, their labels, and which of them are over.

Everything is in UTC. Weeks are ISO weeks; other periods are counted from 1970-01-01.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any

from kanab.errors import PlanError
from kanab.plan.values import duration

_FIRST = date(1970, 1, 1).toordinal()
_MONDAY = 4  # 1970-01-05 began an ISO week
_WEEK = 7


@dataclass(frozen=True)
class Periods:
    """Time cut into periods of whole days, numbered in order."""

    every: str = "7d"

    def __post_init__(self) -> None:
        if duration(self.every) % timedelta(days=1):
            raise PlanError("a cohort is a period of whole days", "For example every='7d' (--every 7d).")

    @cached_property
    def days(self) -> int:
        """The length of a period in days."""
        return duration(self.every).days

    @property
    def _weekly(self) -> bool:
        return self.days == _WEEK

    def first_day(self, number: int) -> int:
        """Return the day on which a period begins, counted from 1970-01-01."""
        return number * self.days + (_MONDAY if self._weekly else 0)

    def of_day(self, day: int | date) -> int:
        """Return the number of the period that a day is in; a day is a date, or counted from 1970-01-01."""
        counted = day.toordinal() - _FIRST if isinstance(day, date) else day
        return (counted - (_MONDAY if self._weekly else 0)) // self.days

    def label(self, number: int) -> str:
        """Return the label of a period, its ISO week or first day; raise `PlanError` outside the calendar."""
        try:
            first = date.fromordinal(self.first_day(number) + _FIRST)
            if not self._weekly:
                return first.isoformat()
            year, week, _ = first.isocalendar()
        except (ValueError, OverflowError):
            raise PlanError("a cohort lies outside the calendar", "Check the times of enrollment.") from None
        return f"{year:04d}-W{week:02d}"

    def number(self, label: Any) -> int:
        """Return the number of the period of a label. Raises `PlanError` where it is no label of a period."""
        match = re.fullmatch(r"([0-9]{4})-W([0-9]{2})" if self._weekly else r"[0-9]{4}-[0-9]{2}-[0-9]{2}", str(label))
        try:
            if match is None:
                raise ValueError
            day = date.fromisocalendar(int(match[1]), int(match[2]), 1) if self._weekly else date.fromisoformat(label)
        except ValueError:
            example = "an ISO week such as 2026-W46" if self._weekly else "the day it begins, such as 2026-11-09"
            raise PlanError("that is no cohort's label", f"Cohorts of {self.every} are called by {example}.") from None
        number = self.of_day(day)
        if self.first_day(number) != day.toordinal() - _FIRST:
            raise PlanError(
                f"no cohort of {self.every} begins on {label}", f"The one with that day is {self.label(number)}."
            )
        return number

    def last_due(self, now: datetime, window: str) -> str:
        """Return the last period that is over, and whose people have all been measured for the window."""
        moment = now if now.tzinfo is None else now.astimezone(UTC)
        return self.label(self.of_day((moment - duration(window)).date()) - 1)


@dataclass(frozen=True)
class Span:
    """Some cohorts in a row: the column of the time of enrollment, and which periods of it.

    ``after`` is the label of the last period that is not among them (None: from the beginning),
    ``through`` of the last one that is.

    >>> Span("enrolled_at", "7d", "2026-W52", "2027-W01").days        # two weeks
    (20815, 20829)
    """

    column: str
    every: str
    after: str | None
    through: str

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise PlanError("cohorts need the column of the time of enrollment", "Name it (--cohort).")
        if self.after is not None and self.periods.number(self.after) >= self.periods.number(self.through):
            raise PlanError("there are no cohorts between these two", "Give the earlier one first.")
        self.periods.number(self.through)

    @property
    def periods(self) -> Periods:
        """The periods that the labels name."""
        return Periods(self.every)

    @property
    def days(self) -> tuple[int | None, int]:
        """The first day, if there is one, and the day after the last, counted from 1970-01-01."""
        periods = self.periods
        first = None if self.after is None else periods.first_day(periods.number(self.after) + 1)
        return first, periods.first_day(periods.number(self.through) + 1)
