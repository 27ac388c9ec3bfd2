"""Ten shapes of plan in every engine, and what each engine does that others do not."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import ibis
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.counting.connect import open_table, opened_table
from kanab.errors import QueryError, SourceError
from kanab.plan.model import make_plan

from .conftest import ALL_ENGINES, Loader
from .mysql_server import Server
from .shapes import PEOPLE, SHAPES
from .test_engines import assert_same


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


# ── SQLite ─────────────────────────────────────────────────────────────────────────────────────


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


# ── MySQL and MariaDB ──────────────────────────────────────────────────────────────────────────


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
