"""Cohorts: who enrolled in which period, near midnight and at the end of the year, in every engine."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import ibis
import pyarrow as pa
import pytest

from kanab.counting.engine.people import Events, Units
from kanab.counting.engine.sql import count_table, show_sql
from kanab.counting.in_memory import count_rows
from kanab.errors import SourceError
from kanab.plan.joint_plan import join_plans
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.periods import Span

from .conftest import Loader
from .test_engines import assert_same
from .test_joint import assert_part

PLAN = Plan(
    (MetricPlan("spend", (0, 500), 0.01, missing="zero"),),
    (ExperimentPlan("variant", (("A", 1), ("B", 1)), adjust=("tier",)),),
    (CovariatePlan("tier", (1, 2)),),
)
LAST = datetime(2026, 12, 28)  # the Monday on which 2026-W53 begins; 2027-W01 begins on 4 January
TIMES = [
    LAST - timedelta(microseconds=1),
    LAST,
    LAST
    + timedelta(days=3, hours=23, minutes=59, seconds=59, microseconds=999_999),  # 31 December, just before midnight
    LAST + timedelta(days=4),
    LAST + timedelta(days=6, hours=23, minutes=59, seconds=59, microseconds=700_000),
    LAST + timedelta(days=7),
    LAST + timedelta(days=13, hours=23, minutes=30),
    LAST + timedelta(days=14),
    None,
    datetime(1969, 12, 31, 23, 59, 59, 500_000),
]
ROWS: dict[str, Any] = {
    "variant": ["A", "B", "A", "B", None, "A", "B", "A", "B", "B"],
    "tier": [1, 2, 2, 1, 1, None, 2, 2, 1, 1],
    "spend": [float(2**place) for place in range(10)],
}
SPANS = [
    Span("at", "7d", "2026-W52", "2026-W53"),
    Span("at", "7d", "2026-W53", "2027-W01"),
    Span("at", "7d", None, "2026-W53"),
    Span("at", "1d", "2026-12-30", "2027-01-01"),
    Span("at", "14d", None, "2026-12-17"),
]
AHEAD = timezone(timedelta(hours=5, minutes=30))


def texts() -> list[str | None]:
    """The same moments in words, in several zones."""
    zones = [UTC, AHEAD, timezone(-timedelta(hours=8))]
    found: list[str | None] = []
    for place, one in enumerate(TIMES):
        moved = "" if one is None else one.replace(tzinfo=UTC).astimezone(zones[place % 3]).isoformat(" T"[place % 2])
        found.append(f" {moved.replace('+00:00', 'Z')}" if moved else None)
    return found


COLUMNS = {
    "naive": pa.array(TIMES, pa.timestamp("us")),
    "aware": pa.array([None if one is None else one.replace(tzinfo=UTC) for one in TIMES], pa.timestamp("us", "UTC")),
    "texts": pa.array(texts(), pa.string()),
    "dates": pa.array([None if one is None else one.date() for one in TIMES], pa.date32()),
}


def by_hand(span: Span) -> dict[str, Any]:
    """The rows of a span, picked by comparing dates."""
    first, end = span.days
    there = []
    for place, one in enumerate(TIMES):
        day = None if one is None else (one.date() - date(1970, 1, 1)).days
        if day is not None and day < end and (first is None or day >= first):
            there.append(place)
    return {name: [values[place] for place in there] for name, values in ROWS.items()}


@pytest.mark.parametrize("kind", COLUMNS)
def test_only_people_of_the_span_are_counted(engine: Loader, kind: str) -> None:
    rows = pa.table(ROWS | {"at": COLUMNS[kind]})
    table = engine.load(rows)
    for span in SPANS if engine.name != "pyspark" else SPANS[3:]:  # Spark counts the others in another zone, below
        expected = count_rows(by_hand(span), PLAN)
        assert_same(count_rows(rows, PLAN, span=span), expected)
        assert_same(count_table(table, PLAN, Units(span=span)), expected)


@pytest.fixture
def faraway(engine: Loader) -> Iterator[Loader]:
    """An engine whose session is in another zone."""

    def move(zone: str) -> None:
        if engine.name == "pyspark":
            engine.backend._session.conf.set("spark.sql.session.timeZone", zone)
        elif engine.name == "duckdb":
            engine.backend.raw_sql(f"SET TimeZone = '{zone}'")
        elif engine.name == "clickhouse":
            engine.backend.con.set_client_setting("session_timezone", zone)
        else:
            engine.backend.raw_sql(f"SET TIME ZONE '{zone}'").close()

    move("America/Los_Angeles")
    yield engine
    move("UTC")


@pytest.mark.parametrize("kind", COLUMNS)
def test_the_zone_of_the_session_moves_nobody(faraway: Loader, kind: str) -> None:
    rows = pa.table(ROWS | {"at": COLUMNS[kind]})
    table = faraway.load(rows)
    for span in SPANS[1:3]:
        assert_same(count_table(table, PLAN, Units(span=span)), count_rows(by_hand(span), PLAN))


def test_sparks_zone_is_put_back(spark_loader: Loader) -> None:
    settings = spark_loader.backend._session.conf
    settings.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        count_table(spark_loader.load(pa.table(ROWS | {"at": COLUMNS["naive"]})), PLAN, Units(span=SPANS[0]))
        assert settings.get("spark.sql.session.timeZone") == "Asia/Kolkata"
    finally:
        settings.set("spark.sql.session.timeZone", "UTC")


def test_a_person_is_of_the_cohort_of_their_earliest_row(engine: Loader) -> None:
    rows = {
        "who": [1, 1, 1, 2, 2, 3, 4, 4, None],
        "variant": ["A", "A", "A", "B", "B", "A", "B", "B", "A"],
        "tier": [1, 1, 1, 2, 2, 1, 2, 2, 1],
        "spend": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0],
        "at": ["2027-01-05", "2027-01-03T23:59Z", None, "2027-01-04T01:00+02:00", "2026-12-31", None, "2027-01-04",
               "2027-01-09", "2027-01-01"],
    }  # fmt: skip
    counted = count_table(engine.load(rows), PLAN, Units(unit="who", span=SPANS[0]))
    assert_same(counted, count_rows({"variant": ["A", "B"], "tier": [1, 2], "spend": [7.0, 24.0]}, PLAN))
    assert (counted.outside, counted.excluded) == (0, 0)
    later = count_table(engine.load(rows), PLAN, Units(unit="who", span=SPANS[1]))
    assert later.tallies["variant/tier"].moments_of("spend").sums.tolist() == [[0, 0], [0, 19200]]


def test_with_events_a_person_is_of_the_cohort_of_their_first_exposure(engine: Loader) -> None:
    exposures = {
        "who": [1, 1, 2, 2, 3, 4, 4],
        "variant": ["A", "A", "B", None, "B", "A", "B"],
        "tier": [1, 1, 2, 2, 2, 1, 1],
        "seen": [LAST + timedelta(days=day) for day in (6, 8, 7, 0, 1, 2, 9)],
    }
    events = {
        "who": [1, 1, 2, 3, 4],
        "time": [LAST + timedelta(days=day) for day in (6, 14, 7, 2, 3)],
        "spend": [1.0, 2.0, 4.0, 8.0, 16.0],
    }
    span, after = Span("seen", "7d", "2026-W52", "2026-W53"), Span("seen", "7d", "2026-W53", "2027-W01")
    seen, happened = engine.load(exposures), Events(engine.load(events), window="2d", exposure_time="seen")
    counted = count_table(seen, PLAN, Units(unit="who", events=happened, span=span))
    assert counted.tallies["variant/tier"].moments_of("spend").sums.tolist() == [[100, 0], [0, 800]]
    assert (counted.excluded, counted.outside) == (1, 0)
    later = count_table(seen, PLAN, Units(unit="who", events=happened, span=after))  # person 2 had no arm before
    assert later.tallies["variant/tier"].people.tolist() == [[0, 0], [0, 1]]
    assert later.excluded == 0
    with pytest.raises(SourceError, match=r"people enroll at their first exposure\. Make cohorts by its time, 'seen'"):
        count_table(seen, PLAN, Units(unit="who", events=happened, span=SPANS[0]))


def test_older_plans_are_counted_over_the_same_cohorts(engine: Loader, duckdb_loader: Loader) -> None:
    times = COLUMNS["texts" if engine.name == "duckdb" else "naive"]  # Spark takes seconds to read a text
    rows = ROWS | {"at": times, "banner": [0, 1, 0, 1, 1, None, 0, 1, 0, 1]}
    other = Plan(
        (MetricPlan("spend", (0, 20), 0.5, missing="exclude"),),
        (ExperimentPlan("banner", ((0, 1), (1, 1)), segments=("tier",)),),
        (CovariatePlan("tier", bins=(1.5,)),),
    )
    table, in_duckdb = engine.load(pa.table(rows)), duckdb_loader.load(pa.table(rows))
    for span in SPANS[1:3]:
        counted = count_table(table, join_plans([PLAN, other], table.columns), Units(span=span))
        together = count_rows(pa.table(rows), PLAN, [other], span)
        for found, expected in zip((counted, *counted.earlier), (together, *together.earlier), strict=True):
            assert_same(found, expected)
        for found, plan in zip((counted, *counted.earlier), (PLAN, other), strict=True):
            assert_part(found, count_table(in_duckdb, plan, Units(span=span)))


def test_several_first_exposures_have_several_cohorts(engine: Loader, duckdb_loader: Loader) -> None:
    exposures = {
        "who": [1, 1, 2, 3, 3, 4],
        "variant": ["A", None, "B", None, "A", "B"],
        "banner": [None, 1, 0, 1, None, 0],
        "tier": [1, 2, 1, 2, 1, 1],
        "time": [LAST + timedelta(days=day) for day in (0, 7, 1, 2, 8, 9)],
    }
    events = {"who": [1, 1, 2, 3], "time": [LAST + timedelta(days=day) for day in (0, 7, 1, 8)], "spend": [1, 2, 4, 8]}
    other = Plan(PLAN.metrics, (ExperimentPlan("banner", ((0, 1), (1, 1)), adjust=("tier",)),), PLAN.covariates)
    seen, happened = engine.load(exposures), Events(engine.load(events), window="1d")
    alone = duckdb_loader.load(exposures), Events(duckdb_loader.load(events), window="1d")
    for span in (Span("time", "7d", "2026-W52", "2026-W53"), Span("time", "7d", "2026-W53", "2027-W01")):
        counted = count_table(
            seen, join_plans([PLAN, other], seen.columns, apart=True), Units(unit="who", events=happened, span=span)
        )
        for found, plan in zip((counted, *counted.earlier), (PLAN, other), strict=True):
            assert_part(found, count_table(alone[0], plan, Units(unit="who", events=alone[1], span=span)))


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, 2, 3, 4]),
        pa.array([1.5, None, 2.0, 3.0]),
        pa.array([True, False, None, True]),
        pa.array(["2027-01-01", "yesterday", None, "2027-01-01"]),
        pa.array(["2027-01-01", "2027-02-30", None, "2027-01-01"]),
        pa.array(["2027-01-01", "", None, "2027-01-01"]),
        pa.array(["2027-01-01T25:00", "2027-01-01", None, "2027-01-01"]),
    ],
)
def test_a_column_without_times_is_refused(engine: Loader, values: pa.Array) -> None:
    rows = pa.table({"variant": list("ABAB"), "tier": [1, 2, 1, 2], "spend": [1.0] * 4, "at": values})
    for count in (
        lambda: count_table(engine.load(rows), PLAN, Units(span=SPANS[0])),
        lambda: count_rows(rows, PLAN, span=SPANS[0]),
    ):
        with pytest.raises(SourceError, match=r"column 'at' holds no points in time"):
            count()


def test_nobody_is_enrolled_by_a_column_of_nothing(duckdb_loader: Loader) -> None:
    table = duckdb_loader.load(pa.table(ROWS)).mutate(at=ibis.null())
    empty = pa.table(ROWS | {"at": pa.nulls(10, pa.timestamp("us"))})
    for count in (
        lambda: count_table(table, PLAN, Units(span=SPANS[0])),
        lambda: count_table(duckdb_loader.load(empty), PLAN, Units(span=SPANS[0])),
        lambda: count_rows(empty, PLAN, span=SPANS[0]),
    ):
        with pytest.raises(SourceError, match="nobody is in an arm of the plan"):
            count()
    named = pa.table(ROWS | {"enrolled_at": COLUMNS["naive"]})
    for count in (
        lambda span: count_table(duckdb_loader.load(named), PLAN, Units(span=span)),
        lambda span: count_rows(named, PLAN, span=span),
    ):
        with pytest.raises(SourceError, match=r"there is no column 'enroled_at'\. Did you mean enrolled_at"):
            count(Span("enroled_at", "7d", None, "2027-W01"))
    assert {"20815", "20822"} <= {
        *re.findall(
            r"\d+",
            show_sql(duckdb_loader.load(named), PLAN, Units(span=Span("enrolled_at", "7d", "2026-W52", "2026-W53"))),
        )
    }
