"""The calendar of cohorts: which ones are open, on the collector's clock, never on the sender's."""

from contextlib import suppress
from typing import NamedTuple

from kanab.collector.protocol.limits import HOURS_AHEAD
from kanab.collector.protocol.reasons import Reason, refused
from kanab.errors import PlanError
from kanab.plan.model import Plan
from kanab.plan.periods import Periods
from kanab.plan.values import duration

_DAY, _HOUR = 86_400, 3_600


class Opening(NamedTuple):
    """The cohorts open at a moment: the current, the first for enrollments, the first for totals, and the last."""

    current: int
    enroll_from: int
    measure_from: int
    last: int


ALWAYS = Opening(0, 0, 0, 0)
"""Without cohorts everything is in cohort 0, which is open until it is sealed."""


class Calendar:
    """The cohorts of a plan: their numbers, and when they open and are due.

    A cohort takes enrollments from an hour before its period, because clients may be fast, and until one message
    lifetime after it; and totals for the window after that period, and again one lifetime longer. Then it is due.
    """

    def __init__(self, plan: Plan) -> None:
        self.life = int(duration(plan.nonce_life).total_seconds())
        self.periods = None if plan.cohorts is None else Periods(plan.cohorts.every)
        if plan.cohorts is not None and self.periods is not None:
            self._window = int(duration(plan.cohorts.window).total_seconds())
            self._days, self._offset = self.periods.days, self.periods.first_day(0)

    def number(self, label: str | None, at: str = "") -> int:
        """Return the number of the cohort of a label; 0 where the plan has no cohorts, and so no labels."""
        if self.periods is None:
            if label is None:
                return 0
            raise refused(Reason.COHORT, "the plan has no cohorts", "Leave out the label.", at)
        number = None
        with suppress(PlanError):  # which would repeat what was sent
            number = None if label is None else self.periods.number(label)
        if number is None:
            fact = "the cohort is missing" if label is None else "that is no cohort's label"
            example = self.periods.label(0)
            raise refused(Reason.COHORT, fact, f"Write the cohort of enrollment, such as {example}, after @.", at)
        return number

    def opening(self, seconds: int) -> Opening:
        """Return the cohorts that are open at a moment, in seconds since 1970."""
        if self.periods is None:
            return ALWAYS
        before = seconds - self.life
        ahead = seconds + HOURS_AHEAD * _HOUR
        return Opening(self._at(seconds), self._at(before), self._at(before - self._window), self._at(ahead))

    def last_due(self, seconds: int) -> int | None:
        """Return the last cohort that takes nothing any more; None where cohort 0 stays open until it is sealed."""
        return None if self.periods is None else self.opening(seconds).measure_from - 1

    def _at(self, seconds: int) -> int:
        return (seconds // _DAY - self._offset) // self._days
