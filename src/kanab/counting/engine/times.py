"""Find the day of enrollment in an engine, in UTC, whatever zone its session is in."""

from typing import Any

import ibis

from kanab.counting.dates import ISO_TIME, not_times
from kanab.counting.engine.dialects import Engine, engine_of, first_row
from kanab.counting.engine.measures import floor
from kanab.counting.frames import check_column
from kanab.errors import QueryError
from kanab.plan.periods import Span

_DAY = 86_400.0
MICROSECONDS = 1_000_000


@ibis.udf.scalar.builtin(name="epoch")  # type: ignore[untyped-decorator]
def epoch(moment: ibis.expr.datatypes.Timestamp(timezone="UTC")) -> float:  # type: ignore[empty-body, valid-type]
    """Return DuckDB's seconds from 1970; Ibis' own go through the session's zone."""


def day_number(table: Any, name: str) -> Any:
    """Return the day of a column of timestamps, dates or ISO texts, counted from 1970-01-01; missing stays missing.

    Times without a zone are in UTC. Texts are all read once first, so that a text which is no time
    raises `SourceError`.
    """
    check_column(name, table.columns)
    moment = table[name]
    kind = moment.type()
    engine = engine_of(table)
    if kind.is_null():
        return ibis.null("int64")
    if kind.is_string():
        _check_texts(table, name)
    if engine.microseconds and (kind.is_date() or kind.is_timestamp() or kind.is_string()):
        return floor(engine.microseconds(moment).cast("float64") / (_DAY * MICROSECONDS)).cast("int64")
    if kind.is_date():
        return _since_first(moment, engine)
    if kind.is_timestamp():
        if kind.timezone is None:
            return _since_first(moment.date(), engine)
        seconds = epoch(moment) if engine.name == "duckdb" else moment.truncate("s").epoch_seconds()
        return floor(seconds.cast("float64") / _DAY).cast("int64")
    if kind.is_string():
        return _of_text(moment.strip(), engine)
    raise not_times(name)


def point_in_time(table: Any, name: str) -> Any:
    """Return a column as points in time that can be compared; dates and texts become some."""
    check_column(name, table.columns)
    moment, engine = table[name], engine_of(table)
    kind = moment.type()
    if not (kind.is_timestamp() or kind.is_date() or kind.is_string()):
        raise not_times(name)
    if engine.microseconds:
        return engine.microseconds(moment)
    return moment if kind.is_timestamp() else moment.cast("timestamp")


def later(moment: Any, seconds: int) -> Any:
    """Return a point in time some seconds later."""
    return moment + (seconds * MICROSECONDS if moment.type().is_integer() else ibis.interval(seconds=seconds))


def in_span(day: Any, span: Span) -> Any:
    """Return whether a day is in the cohorts of a span; a missing one is in none."""
    first, end = span.days
    there = day < end if first is None else (day >= first) & (day < end)
    return there.fill_null(False)


def _since_first(day: Any, engine: Engine) -> Any:
    if not engine.subtracts_days:
        return floor(day.cast("timestamp").epoch_seconds().cast("float64") / _DAY).cast("int64")
    return day.delta(ibis.date(1970, 1, 1), unit="day").cast("int64")


def _of_text(text: Any, engine: Engine) -> Any:
    """Return the day of a date, moved by the hours that its zone is away from UTC."""
    rest = text.substr(10)
    ahead, behind = rest.find("+"), rest.find("-")
    zone = ibis.cases((ahead >= 0, rest.substr(ahead + 1)), (behind >= 0, rest.substr(behind + 1)), else_="")
    away = _minutes(zone) * ibis.ifelse(ahead >= 0, 1, -1)
    moved = floor((_minutes(rest.substr(1, 5)) - away).cast("float64") / 1440.0)
    return _since_first(text.substr(0, 10).cast("date"), engine) + moved.cast("int64")


def _minutes(clock: Any) -> Any:
    """Return the minutes of 13:30, 1330, 13 or nothing."""
    digits = clock.replace(":", "") + "0000"
    return digits.substr(0, 2).cast("int64") * 60 + digits.substr(2, 2).cast("int64")


def _check_texts(table: Any, name: str) -> None:
    text = table[name].strip()
    try:
        row = first_row(
            table.aggregate(fits=text.re_search(ISO_TIME).all(), last=text.substr(0, 10).cast("date").max())
        )
    except QueryError:
        raise not_times(name) from None
    if row["fits"] is False:
        raise not_times(name)
