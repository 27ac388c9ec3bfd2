"""Ten shapes of plan in every engine, and what each engine does that others do not."""

import sqlite3
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ibis
import pyarrow as pa
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.counting.connect import open_table, opened_table
from kanab.counting.engine import clickhouse
from kanab.counting.engine.people import Events, Units
from kanab.counting.engine.sql import count_table
from kanab.description import Mean
from kanab.errors import QueryError, SourceError
from kanab.plan.model import make_plan

from . import test_binned_metrics, test_cohorts
from .conftest import ALL_ENGINES, Loader
from .mysql_server import Server
from .shapes import PEOPLE, SHAPES
from .test_engines import assert_same, required


@pytest.fixture(scope="module")
def reference(duckdb_loader: Loader) -> dict[str, Counted]:
    """Every shape as DuckDB counts it."""
    return {name: count(duckdb_loader.store) for name, count in SHAPES.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ALL_ENGINES[1:], "mysql", "snowflake", "bigquery", "databricks", "trino"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_plan_has_the_digits_that_duckdb_counts(
    name: str, shape: str, reference: dict[str, Counted], request: pytest.FixtureRequest
) -> None:
    loader: Loader = request.getfixturevalue(f"{name}_loader")
    assert len(SHAPES) == 10
    assert_same(SHAPES[shape](loader.store), reference[shape])


def shop_file(folder: Path, columns: str, rows: list[tuple[Any, ...]]) -> str:
    place = folder / "shop.db"
    connection = sqlite3.connect(place)
    connection.execute(f"CREATE TABLE people ({columns})")
    connection.executemany(f"INSERT INTO people VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.commit()
    connection.close()
    return f"sqlite://{place}"


ROWS = [("AB"[place % 2], ("tv", "TV")[place // 2 % 2], place / 4) for place in range(80)]


def test_a_file_of_sqlite_is_read_by_its_url_and_left_as_it_is(tmp_path: Path) -> None:
    url = shop_file(tmp_path, "variant TEXT, device TEXT COLLATE NOCASE, spend REAL", ROWS)
    before = (tmp_path / "shop.db").read_bytes()
    counted = kb.count(url, arm="variant", metrics=["spend"], adjust=["device"], rows=kb.Rows(table="people"))
    assert counted.tallies["variant/device"].factor("device").levels == ("TV", "tv")  # whatever NOCASE says
    assert counted.tallies["variant/device"].people.tolist() == [[20, 20], [20, 20]]
    assert (tmp_path / "shop.db").read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["shop.db"]


def test_a_text_in_a_column_of_numbers_is_refused_by_sqlite_too(tmp_path: Path) -> None:
    url = shop_file(tmp_path, "variant TEXT, device TEXT, spend REAL", [*ROWS, ("A", "tv", "secret")])
    with pytest.raises(SourceError, match="column 'spend' holds something other than it was declared to") as problem:
        kb.count(url, arm="variant", metrics=["spend"], rows=kb.Rows(table="people"))
    assert "secret" not in str(problem.value)


def test_what_is_no_database_of_sqlite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"there is no file 'none.db'"):
        kb.count(f"sqlite://{tmp_path}/none.db", arm="variant", metrics=["spend"], rows=kb.Rows(table="people"))
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.db").write_text("variant,spend\n" * 100)
    with pytest.raises(SourceError, match=r"'text.db' is no database of SQLite"):
        kb.count(f"sqlite://{tmp_path}/text.db", arm="variant", metrics=["spend"], rows=kb.Rows(table="people"))
    url = shop_file(tmp_path, "variant TEXT, device TEXT, spend REAL", ROWS)
    with pytest.raises(SourceError, match=r"there is no table 'peple'. Did you mean people\?"):
        kb.count(url, arm="variant", metrics=["spend"], rows=kb.Rows(table="peple"))


def test_a_connection_of_sqlite_is_closed_and_that_of_the_user_is_not(tmp_path: Path) -> None:
    url = shop_file(tmp_path, "variant TEXT, device TEXT, spend REAL", ROWS)
    with opened_table(url, table="people") as table:
        own = table.get_backend().con
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        own.execute("SELECT 1")
    backend = ibis.sqlite.connect(tmp_path / "shop.db")
    with opened_table(backend.table("people")) as table:
        assert table.columns == ("variant", "device", "spend")
    assert backend.con.execute("SELECT COUNT(*) FROM people").fetchone() == (80,)
    backend.disconnect()


def test_mariadb_is_read_by_its_url_under_either_name(mariadb: Server, mariadb_loader: Loader) -> None:
    name = mariadb_loader.store(PEOPLE).get_name()
    expected = kb.count(PEOPLE, arm="variant", metrics=["orders"], adjust=["device"])
    for url in (mariadb.url, mariadb.url.replace("mysql:", "mariadb:")):
        counted = kb.count(url, arm="variant", metrics=["orders"], adjust=["device"], rows=kb.Rows(table=name))
        assert counted.tallies == expected.tallies
    query = f"SELECT variant, device, orders FROM {name} WHERE orders < 4"
    counted = kb.count(mariadb.url, arm="variant", metrics=["orders"], adjust=["device"], rows=kb.Rows(sql=query))
    same = kb.count(PEOPLE, arm="variant", metrics=["orders"], adjust=["device"], rows=kb.Rows(where="orders < 4"))
    assert counted.tallies == same.tallies
    assert expected.tallies["variant/device"].factor("device").levels == ("Phone", "phone", "tv", None)


def test_a_mariadb_that_is_down_or_has_no_such_table_is_said_without_the_password(mariadb: Server) -> None:
    down = "mysql://ann:secret@127.0.0.1:1/shop"
    with pytest.raises(SourceError, match=r"no connection to mysql://127.0.0.1:1/shop \(OperationalError\)") as problem:
        open_table(down, table="people")
    assert "secret" not in str(problem.value)
    with pytest.raises(SourceError, match="there is no table 'nobody'"):
        open_table(mariadb.url, table="nobody")


def test_a_query_that_mariadb_cancels_is_an_error_without_data(mariadb_loader: Loader) -> None:
    table = mariadb_loader.store(PEOPLE)
    cursor = mariadb_loader.backend.con.cursor()
    cursor.execute("SET max_statement_time = 0.000001")
    try:
        with pytest.raises(QueryError, match="the engine could not finish the query"):
            kb.count(table, plan=make_plan("variant", ["spend"]))
    finally:
        cursor.execute("SET max_statement_time = 0")
        cursor.close()


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
    counted = count_table(first, plan, Units(unit="who", aggregate="max", events=Events(then)))
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
