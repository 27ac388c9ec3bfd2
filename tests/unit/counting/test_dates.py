from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.dates import days_of
from kanab.counting.frames import get_column
from kanab.errors import SourceError

NEW_YEAR = 20819  # 2027-01-01
AHEAD = timezone(timedelta(hours=5, minutes=30))


def days(values: Any) -> list[int | None]:
    numbers, known = days_of(get_column({"at": values}, "at"), "at")
    return [int(day) if there else None for day, there in zip(numbers, known, strict=True)]


@pytest.mark.parametrize(
    ("text", "day"),
    [
        ("1970-01-01", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2026-12-31", NEW_YEAR - 1),
        ("2026-12-31T23:59:59", NEW_YEAR - 1),
        ("2026-12-31 23:59", NEW_YEAR - 1),
        ("2026-12-31T23:59:59.999999+00:00", NEW_YEAR - 1),
        ("2027-01-01T00:00:00Z", NEW_YEAR),
        ("2027-01-01T05:29:59+05:30", NEW_YEAR - 1),
        ("2027-01-01T05:30:00+0530", NEW_YEAR),
        ("2026-12-31T19:00-05", NEW_YEAR),
        ("2026-12-31T18:59:59 -05:00", NEW_YEAR - 1),
        (" 2027-01-01 ", NEW_YEAR),
        ("2027-01-01T00:00:00,5", NEW_YEAR),
        ("2024-02-29", 19782),
    ],
)
def test_iso_texts_are_read_in_utc(text: str, day: int) -> None:
    assert days([text, None]) == [day, None]


@pytest.mark.parametrize(
    "text",
    [
        "", "yesterday", "20270101", "2027-01-01T24:00", "2027-01-01T12:60", "2027-13-01", "2027-02-29", "2027-1-1",
        "2027-01-01T", "2027-01-01Z", "2027-01-01T12", "2027-W01-1", "2027-01-01T12:00:00+24:00", "٢٠٢٧-01-01",
        "01/02/2027", "2027-01-01T12:00:00\nZ",
    ],
)  # fmt: skip
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(SourceError, match=r"column 'at' holds no points in time\. Use timestamps, dates or ISO texts"):
        days(["2027-01-01", text])


@pytest.mark.parametrize(
    "values",
    [
        [1, 2],
        np.array([1.5, np.nan]),
        [True],
        [b"2027-01-01"],
        [timedelta(1)],
        np.array([1], "m8[D]"),
        [["2027-01-01"]],
    ],
)
def test_other_things_are_no_times(values: Any) -> None:
    with pytest.raises(SourceError, match="holds no points in time"):
        days(values)


MOMENTS = [
    datetime(2026, 12, 31, 23, 59, 59, 999_999),
    datetime(2027, 1, 1),
    None,
    datetime(1969, 12, 31, 23),
]
EXPECTED = [NEW_YEAR - 1, NEW_YEAR, None, -1]


def test_every_kind_of_table_has_the_same_days() -> None:
    assert days(MOMENTS) == EXPECTED
    assert days(np.array(MOMENTS, dtype="datetime64[us]")) == EXPECTED
    assert days(np.array(MOMENTS, dtype="datetime64[us]").astype(object)) == EXPECTED
    for kind in (pd.Series, pl.Series, pa.array):
        assert days(kind(MOMENTS)) == EXPECTED
    dates = [None if moment is None else moment.date() for moment in MOMENTS]
    for kind in (list, pl.Series, pa.array, lambda values: pd.Series(values, dtype=object)):
        assert days(kind(dates)) == EXPECTED


def test_zones_are_turned_into_utc() -> None:
    moments = [datetime(2027, 1, 1, 5, 29, tzinfo=AHEAD), datetime(2027, 1, 1, 5, 30, tzinfo=AHEAD), None]
    expected = [NEW_YEAR - 1, NEW_YEAR, None]
    assert days(moments) == expected
    assert days(pd.Series(moments)) == expected
    assert (
        days(pd.Series(pd.to_datetime([str(moment) for moment in moments[:2]])).dt.tz_convert("Asia/Kolkata"))
        == expected[:2]
    )
    assert days(pl.Series(moments).dt.convert_time_zone("Asia/Kolkata")) == expected
    assert days(pa.array(moments, pa.timestamp("us", "Asia/Kolkata"))) == expected
    assert days([pd.Timestamp(moments[0]), pd.NaT, pd.NA, float("nan")]) == [NEW_YEAR - 1, None, None, None]
    assert days([np.datetime64("2027-01-01T03"), np.datetime64("NaT")]) == [NEW_YEAR, None]


@pytest.mark.slow
@given(st.lists(st.datetimes(timezones=st.timezones() | st.none()), min_size=1, max_size=5))
def test_times_and_their_iso_texts_have_the_same_day(moments: list[datetime]) -> None:
    within = [
        moment
        for moment in moments
        if 1900 < moment.year < 9000 and (moment.utcoffset() or timedelta()) % timedelta(minutes=1) == timedelta()
    ]
    expected = [
        (moment if moment.tzinfo is None else moment.astimezone(UTC)).date().toordinal() - date(1970, 1, 1).toordinal()
        for moment in within
    ]
    if within:
        assert days(within) == days([moment.isoformat() for moment in within]) == expected
