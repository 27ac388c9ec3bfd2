"""Turn points in time into days in UTC, counted from 1970-01-01: what cohorts are made of."""

import re
from datetime import UTC, date, datetime
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.frames import Array, is_na
from kanab.errors import SourceError
from kanab.plan.periods import Span

ISO_TIME = (
    "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
    "(?:[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?"
    " ?(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)?)?$"
)
"""A date, perhaps a time, perhaps a zone; written so that every engine reads it alike: no group is captured."""

_FIRST = date(1970, 1, 1).toordinal()


def in_span(values: Array, span: Span) -> NDArray[np.bool_]:
    """Return who was enrolled in the cohorts of a span; people without a time were in none."""
    days, known = days_of(values, span.column)
    first, end = span.days
    there = known & (days < end)
    return there if first is None else there & (days >= first)


def days_of(values: Array, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the days of points in time, and which of them are known (the others read 0).

    Times without a zone are in UTC.
    """
    if values.dtype.kind == "M":
        known = ~np.isnat(values)
        return np.where(known, values.astype("datetime64[D]").astype(np.int64), 0), known
    if values.dtype.kind not in "OUT":
        raise not_times(name)
    read: dict[Any, int | None] = {}
    try:
        for value in values:
            if value not in read:
                read[value] = _day(value)
    except (TypeError, ValueError, OverflowError):
        raise not_times(name) from None
    days = [read[value] for value in values]
    known = np.array([day is not None for day in days], dtype=bool)
    return np.array([0 if day is None else day for day in days], dtype=np.int64), known


def not_times(name: str) -> SourceError:
    """Return the error of a column that holds something else."""
    return SourceError(f"column {name!r} holds no points in time", "Use timestamps, dates or ISO texts.")


def _day(value: Any) -> int | None:
    if value is None or is_na(value) or (isinstance(value, float) and isnan(value)):
        return None
    if isinstance(value, str):
        return _day_of_text(value.strip())
    if isinstance(value, np.datetime64):
        return None if np.isnat(value) else int(value.astype("datetime64[D]").astype(np.int64))
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC)
    if not isinstance(value, date):
        raise TypeError
    return value.toordinal() - _FIRST


def _day_of_text(text: str) -> int:
    if re.fullmatch(ISO_TIME, text, flags=re.ASCII) is None:
        raise ValueError
    day = date.fromisoformat(text[:10]).toordinal() - _FIRST
    rest = text[10:]
    cut = max(rest.find("+"), rest.find("-"))
    minutes = _minutes(rest[1:6])
    if cut >= 0:
        minutes -= _minutes(rest[cut + 1 :]) * (1 if rest[cut] == "+" else -1)
    return day + minutes // 1440


def _minutes(clock: str) -> int:
    """Return the minutes of 13:30, 1330 or 13."""
    digits = f"{clock.replace(':', '')}0000"
    return int(digits[:2]) * 60 + int(digits[2:4])
