"""ClickHouse: people, cohorts and events as in other engines, and where it would say something else by itself."""

from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kanab.counting.connect import open_table
from kanab.counting.engine import clickhouse
from kanab.counting.engine.people import Events
from kanab.counting.engine.sql import count_table
from kanab.description import Mean
from kanab.errors import SourceError
from kanab.plan.model import make_plan

from . import test_binned_metrics, test_cohorts
from .conftest import Loader
from .test_engines import required


@pytest.mark.parametrize("kind", test_cohorts.COLUMNS)
def test_clickhouse_finds_the_day_in_utc_wherever_its_session_is(clickhouse_loader: Loader, kind: str) -> None:
    client = clickhouse_loader.backend.con
    client.set_client_setting("session_timezone", "America/Los_Angeles")
    try:
        test_cohorts.test_the_zone_of_the_session_moves_nobody(clickhouse_loader, kind)
    finally:
        client.set_client_setting("session_timezone", "UTC")


@pytest.mark.parametrize("text", ["yesterday", "2027-02-30", "", "2027-01-01T25:00"])
def test_a_text_that_is_no_time_is_no_other_day_and_not_missing(clickhouse_loader: Loader, text: str) -> None:
    values = pa.array(["2027-01-01", text, None, "2027-01-01"])
    test_cohorts.test_a_column_without_times_is_refused(clickhouse_loader, values)


def test_bins_of_clickhouse_are_those_of_rows(clickhouse_loader: Loader) -> None:
    test_binned_metrics.test_every_engine_counts_the_same_people_in_bins(clickhouse_loader, "zero")


def test_people_without_events_have_none_and_not_zero(clickhouse_loader: Loader) -> None:
    """Left to itself ClickHouse fills left joins with 0."""
    day = datetime(2027, 1, 1)
    exposures = pa.table({"who": [1, 2, 3, 4], "variant": ["A", "B", "A", "B"], "time": [day] * 4})
    events = pa.table({"who": [1, 2], "y": [3, 4], "time": [day, day]})
    plan = make_plan("variant", [Mean("y", bounds=(0, 9), resolution=1, missing="exclude")])
    first, then = (clickhouse_loader.load(required(rows)) for rows in (exposures, events))
    counted = count_table(first, plan, unit="who", aggregate="max", events=Events(then))
    assert counted.tallies["variant"].moments_of("y").counts.tolist() == [1, 1]
    assert counted.missing == {"y": 2}


def settings(**values: tuple[Any, int]) -> dict[str, Any]:
    return {name: SimpleNamespace(value=value, readonly=fixed) for name, (value, fixed) in values.items()}


def test_settings_that_change_an_answer_are_sent_and_refused_where_they_are_fixed() -> None:
    server = settings(join_use_nulls=("0", 0), decimal_check_overflow=("1", 1), max_query_size=("262144", 1))
    assert clickhouse.needed_settings(server) == {"join_use_nulls": 1}
    fixed = settings(join_use_nulls=("0", 1))
    with pytest.raises(SourceError, match="setting join_use_nulls is not 1, and its user may not change it"):
        clickhouse.needed_settings(fixed)


def test_a_server_that_is_down_is_named_without_its_password() -> None:
    pytest.importorskip("clickhouse_connect")
    with pytest.raises(SourceError, match=r"no connection to clickhouse://127\.0\.0\.1:9/shop") as problem:
        open_table("clickhouse://ann:secret@127.0.0.1:9/shop", table="people")
    assert "secret" not in str(problem.value)
