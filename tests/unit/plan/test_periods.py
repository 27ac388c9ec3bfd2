from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.errors import PlanError
from kanab.plan.periods import Periods, Span

FIRST = date(1970, 1, 1)


def test_weeks_are_iso_weeks_also_at_the_end_of_the_year() -> None:
    weeks = Periods("7d")
    labels = {day: weeks.label(weeks.of_day(date.fromisoformat(day))) for day in (
        "1970-01-05", "2026-11-09", "2026-12-31", "2027-01-03", "2027-01-04", "2024-12-29", "2024-12-30",
    )}  # fmt: skip
    assert labels == {
        "1970-01-05": "1970-W02", "2026-11-09": "2026-W46", "2026-12-31": "2026-W53", "2027-01-03": "2026-W53",
        "2027-01-04": "2027-W01", "2024-12-29": "2024-W52", "2024-12-30": "2025-W01",
    }  # fmt: skip
    assert weeks.number("1970-W02") == 0


def test_a_week_written_in_other_units_is_a_week() -> None:
    assert Periods("1w").label(0) == Periods("168h").label(0) == Periods("7d").label(0) == "1970-W02"


def test_other_periods_are_called_by_their_first_day_and_counted_from_1970() -> None:
    assert Periods("1d").label(Periods("1d").of_day(date(2026, 11, 9))) == "2026-11-09"
    fortnights = Periods("14d")
    number = fortnights.of_day(date(2026, 11, 9))
    assert fortnights.label(number) == "2026-11-05"
    assert (date(2026, 11, 5) - FIRST).days == 14 * number


@given(st.sampled_from(["1d", "7d", "14d", "30d", "2w"]), st.integers(-200_000, 1_000_000))
def test_a_label_stands_for_its_period_and_every_day_is_in_one(every: str, day: int) -> None:
    periods = Periods(every)
    number = periods.of_day(day)
    assert periods.number(periods.label(number)) == number
    assert periods.first_day(number) <= day < periods.first_day(number + 1) == periods.first_day(number) + periods.days
    assert periods.of_day(FIRST + timedelta(days=day)) == number


@pytest.mark.parametrize(
    ("every", "label"),
    [
        ("7d", "2026-11-09"), ("7d", "2025-W53"), ("7d", "2026-W00"), ("7d", "2026-W1"), ("7d", "W46"), ("7d", None),
        ("7d", 5), ("1d", "2026-W46"), ("1d", "2026-02-30"), ("1d", "20261109"), ("1d", "2026-11-09T00:00"),
        ("7d", "٢٠٢٦-W46"), ("7d", "0000-W01"),
    ],
)  # fmt: skip
def test_what_is_no_label_is_refused(every: str, label: Any) -> None:
    with pytest.raises(PlanError, match=r"no cohort's label\. Cohorts of \dd are called by"):
        Periods(every).number(label)


def test_a_day_within_a_period_is_not_its_label() -> None:
    with pytest.raises(PlanError, match=r"no cohort of 14d begins on 2026-11-09\. The one with that day is 2026-11-05"):
        Periods("14d").number("2026-11-09")


@pytest.mark.parametrize("every", ["36h", "90m", "0d", "d", "", None, 7, "1y"])
def test_a_period_is_whole_days(every: Any) -> None:
    with pytest.raises(PlanError, match="whole"):
        Periods(every)


def test_a_period_outside_the_calendar_has_no_label() -> None:
    for number in (10**6, -(10**6), 10**12):
        with pytest.raises(PlanError, match="outside the calendar"):
            Periods("7d").label(number)


def test_a_cohort_is_ripe_when_its_end_and_the_window_have_passed() -> None:
    weeks = Periods("7d")  # 2026-W45 ends as 9 November begins; 14 days later is the 23rd
    assert weeks.last_due(datetime(2026, 11, 22, 23, 59, 59), "14d") == "2026-W44"
    assert weeks.last_due(datetime(2026, 11, 23), "14d") == "2026-W45"
    assert weeks.last_due(datetime(2026, 11, 9, 11, 59), "12h") == "2026-W44"
    assert weeks.last_due(datetime(2026, 11, 9, 12), "12h") == "2026-W45"
    assert Periods("1d").last_due(datetime(2027, 1, 1, 1), "1h") == "2026-12-31"


def test_ripe_is_told_by_utc_wherever_the_clock_hangs() -> None:
    ahead = timezone(timedelta(hours=2))
    assert Periods("1d").last_due(datetime(2026, 11, 10, 1, tzinfo=ahead), "1m") == "2026-11-08"
    assert Periods("1d").last_due(datetime(2026, 11, 10, 1, tzinfo=UTC), "1m") == "2026-11-09"


def test_a_span_is_the_days_after_one_cohort_through_another() -> None:
    assert Span("at", "1d", "2026-12-30", "2027-01-01").days == (20818, 20820)
    assert Span("at", "7d", None, "2026-W53").days == (None, 20822)
    assert FIRST + timedelta(days=20822) == date(2027, 1, 4)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (("at", "7d", "2026-W02", "2026-W02"), "no cohorts between"),
        (("at", "7d", "2026-W03", "2026-W02"), "no cohorts between"),
        (("at", "7d", None, "2026-01-05"), "no cohort's label"),
        (("at", "7d", "x", "2026-W02"), "no cohort's label"),
        (("", "7d", None, "2026-W02"), "column"),
        ((None, "7d", None, "2026-W02"), "column"),
        (("at", "5h", None, "2026-W02"), "whole days"),
    ],
)
def test_a_span_that_means_nothing_is_refused(span: tuple[Any, ...], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Span(*span)
