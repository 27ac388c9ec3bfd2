from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kanab.collector.counting.cohorts import Calendar
from kanab.collector.protocol.nonces import seconds_of
from kanab.errors import MessageError
from kanab.plan.model import Cohorts, Plan
from kanab.plan.periods import Periods

DAY = 86_400


def at(month: int, day: int, hour: int = 0) -> int:
    return seconds_of(datetime(2026, month, day, hour, tzinfo=UTC))


@pytest.mark.parametrize(("every", "window", "life"), [("7d", "7d", "24h"), ("1d", "14d", "2d"), ("10d", "36h", "30m")])
def test_a_cohort_opens_and_ripens_by_its_period_window_and_message_lifetime(
    every: str, window: str, life: str
) -> None:
    calendar = Calendar(Plan((), (), cohorts=Cohorts(every, window), nonce_life=life))
    lives = {"24h": DAY, "2d": 2 * DAY, "30m": 1800}[life]
    measured = {"7d": 7 * DAY, "14d": 14 * DAY, "36h": 36 * 3600}[window]
    number = 300
    begin, end = (Periods(every).first_day(one) * DAY for one in (number, number + 1))
    assert calendar.opening(begin - 1).current == number - 1
    assert calendar.opening(begin).current == calendar.opening(end - 1).current == number
    assert calendar.opening(begin - 3600).last == number
    assert calendar.opening(begin - 3601).last == number - 1
    assert calendar.opening(end + lives - 1).enroll_from == number
    assert calendar.opening(end + lives).enroll_from == number + 1
    assert calendar.opening(end + measured + lives - 1).measure_from == number
    assert calendar.opening(end + measured + lives).measure_from == number + 1
    assert calendar.last_due(end + measured + lives - 1) == number - 1
    assert calendar.last_due(end + measured + lives) == number


@pytest.mark.parametrize("label", [None, "", "2026-W54", "2026-w46", "2026-11-09", "9" * 50, "2026-W46 "])
def test_what_is_no_label_is_refused_without_repeating_it(label: str | None) -> None:
    with pytest.raises(MessageError, match=r"such as 1970-W02, after @") as caught:
        Calendar(Plan((), (), cohorts=Cohorts("7d"))).number(label, "line 2")
    assert label is None or not label or label not in str(caught.value)
    assert caught.value.__context__ is None


def test_without_cohorts_there_is_one_that_stays_open() -> None:
    calendar = Calendar(Plan((), ()))
    assert calendar.number(None) == 0
    assert calendar.opening(at(11, 15)) == (0, 0, 0, 0)
    assert calendar.last_due(at(11, 15)) is None
