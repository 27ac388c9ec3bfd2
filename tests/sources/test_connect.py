"""Any source as a table: files, frames, connections; and clear errors without secrets."""

import contextlib
import gc
import gzip
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kanab.counting import connect
from kanab.counting.connect import open_table, opened_table
from kanab.counting.engine.sql import count_table
from kanab.counting.files import parse_fields, read_texts
from kanab.counting.in_memory import count_rows
from kanab.description import Covariate
from kanab.errors import MissingExtraError, SourceError
from kanab.plan.model import make_plan

from .conftest import Loader
from .test_engines import SHOP, assert_same

PLAN = make_plan("variant", ["spend", "bought"], adjust=["tier"], segments=["device"])


def written(folder: Path, text: str, name: str = "people.csv") -> Path:
    file = folder / name
    file.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return file


# ── files ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
def test_csv_has_the_levels_of_the_core(tmp_path: Path, name: str) -> None:
    text = (
        "variant,code,vip,size, city ,spend,empty,mixed\r\n"
        "A,007,TRUE,1,Oslo,0.10,,1\r\n"
        'B,011,false,2.0," Os, lo ",1e1,NA,x\r\n'
        "A,NA,,NULL,Oslo,.5,,\r\n"
        'B,12,True,-0,"a ""b""",+7,null, 3 \r\n'
        "\r\n"
        "A,3,FALSE,1,NaN,nan,,\r\n"
    )
    file = written(tmp_path, text, name)
    expected = {name: parse_fields(fields) for name, fields in read_texts(file).items()}
    table = open_table(str(file))
    assert {name: str(kind) for name, kind in table.schema().items()} == {
        "variant": "string", "code": "string", "vip": "boolean", "size": "float64",
        "city": "string", "spend": "float64", "empty": "float64", "mixed": "string",
    }  # fmt: skip
    plan = make_plan("variant", ["spend", "empty"], adjust=["code", "vip", "size"], segments=["city", "mixed"])
    assert_same(count_table(table, plan), count_rows(expected, plan))


def test_a_code_that_comes_late_makes_a_column_of_texts(tmp_path: Path) -> None:
    rows = ["variant,code,y"] + [f"{'AB'[i % 2]},{i % 9},{i}" for i in range(12_000)] + ["A,007,1"]
    table = open_table(written(tmp_path, "\n".join(rows)))
    assert str(table.schema()["code"]) == "string"
    assert str(table.schema()["y"]) == "int64"


def test_several_csv_files_must_agree_on_their_columns(tmp_path: Path) -> None:
    written(tmp_path, "variant,y\nA,1\nB,2\n", "a.csv")
    written(tmp_path, "variant,y\nA,3\nB,0.5\n", "b.csv")
    counted = count_table(open_table(str(tmp_path / "*.csv")), make_plan("variant", ["y"]))
    assert counted.tallies["variant"].moments_of("y").sums.tolist() == [40, 25]
    written(tmp_path, "y,variant\n1,A\n", "c.csv")
    with pytest.raises(SourceError, match=r"c\.csv has other columns than a\.csv"):
        open_table(str(tmp_path / "*.csv"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("variant,y\nA,1,2\nB,1\n", "not a well-formed CSV file"),
        ('variant,y\nA,"1\n', "not a well-formed CSV file"),
        ("variant,y\nA,\udcff\n", "not"),
    ],
)
def test_unreadable_csv_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(SourceError, match=problem):
        count_table(open_table(file), make_plan("variant", ["y"]))


# ── frames ─────────────────────────────────────────────────────────────────────────────────────


def test_a_spark_frame(spark_session: Any, parquet: Callable[[dict[str, Any]], Path]) -> None:
    frame = spark_session.read.parquet(str(parquet({"variant": ["A", "B"], "y": [1.5, 2.0]})))
    counted = count_table(open_table(frame), make_plan("variant", ["y"]))
    assert counted.tallies["variant"].moments_of("y").sums.tolist() == [15, 20]


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(SourceError, match="a int has no named columns"):
        open_table(7)
    for columns in ({"a": [1, "x"]}, {"a": [object()]}):
        with pytest.raises(SourceError, match="column 'a' holds values of several kinds"):
            open_table(columns)
    with pytest.raises(SourceError, match="the columns have different lengths"):
        open_table({"a": [1], "b": [1, 2]})
    with pytest.raises(SourceError, match="the source is a table by itself"):
        open_table(pd.DataFrame({"a": [1]}), table="a")


# ── connections ────────────────────────────────────────────────────────────────────────────────


def test_a_table_or_a_query_of_a_database(postgres_url: str, postgres_loader: Loader) -> None:
    name = postgres_loader.load(SHOP).get_name()
    query = f"SELECT * FROM {name} WHERE tier = 2"
    everybody, some = count_rows(SHOP, PLAN), count_rows(SHOP.filter(pa.compute.field("tier") == 2), PLAN)
    for choice, expected in (
        ({"table": name}, everybody), ({"table": f"public.{name}"}, everybody), ({"sql": query}, some)
    ):  # fmt: skip
        with opened_table(postgres_url, **choice) as table:
            assert_same(count_table(table, PLAN), expected)


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"table": "custmers"}, "there is no table 'custmers'. Did you mean customers"),
        ({"table": "nowhere.customers"}, "there is no table 'customers'"),
        ({}, r"a connection needs one table or one query\. Name it .*There are: .*customers"),
        ({"table": "a", "sql": "b"}, "a connection needs one table or one query"),
        ({"sql": "SELECT nonsense"}, "the query was refused"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*was deleted while still open:ResourceWarning")
def test_what_a_database_does_not_have(
    postgres_url: str, postgres_loader: Loader, choice: dict[str, str], problem: str
) -> None:
    with contextlib.suppress(Exception):
        postgres_loader.backend.create_table("customers", pa.table({"a": [1]}))
    with pytest.raises(SourceError, match=problem):
        open_table(postgres_url, **choice)
    gc.collect()


def test_a_duckdb_file_is_read_and_never_made(tmp_path: Path) -> None:
    file = tmp_path / "shop.duckdb"
    with pytest.raises(SourceError, match=r"there is no file 'shop\.duckdb'"):
        open_table(f"duckdb://{file}", table="people")
    assert not file.exists()
    with duckdb.connect(str(file)) as connection:
        connection.execute(
            "CREATE TABLE people AS SELECT range AS y, if(range % 2 = 0, 'A', 'B') AS variant FROM range(10)"
        )
    plan = make_plan("variant", ["y"])
    assert count_table(open_table(f"duckdb://{file}", table="people"), plan).tallies["variant"].total == 10
    query = "SELECT * FROM people WHERE y < 6;"
    assert count_table(open_table(f"duckdb://{file}", sql=query), plan).tallies["variant"].total == 6
    with pytest.raises(SourceError, match="Did you mean people"):
        open_table(f"duckdb://{file}", table="peple")


def test_spark_by_url(spark_session: Any, parquet: Callable[[dict[str, Any]], Path]) -> None:
    file = parquet({"variant": ["A", "B"] * 3, "y": [1, 2, 3, 4, 5, 6]})
    table = open_table("spark://local[2]?spark.ui.enabled=false", sql=f"SELECT * FROM parquet.`{file}`")
    assert count_table(table, make_plan("variant", ["y"])).tallies["variant"].moments_of("y").sums.tolist() == [9, 12]
    with pytest.raises(SourceError, match="there is no table 'nothing'"):
        open_table("spark://local", table="nothing")


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.mark.parametrize("scheme", ["postgresql", "spark"])
def test_a_refused_connection_says_where_and_keeps_the_secret(scheme: str, closed_port: int) -> None:
    url = f"{scheme}://ann:s3cret@127.0.0.1:{closed_port}/shop?password=s3cret"
    with pytest.raises(SourceError, match=f"no connection to {scheme}://127.0.0.1:{closed_port}") as problem:
        open_table(url, table="people")
    assert "s3cret" not in str(problem.value)
    assert "ann" not in str(problem.value)


def test_a_url_that_cannot_be_read_keeps_its_secret() -> None:
    with pytest.raises(SourceError, match="the connection URL cannot be read") as problem:
        open_table("postgresql://ann:s3[cret@host/shop", table="people")
    assert "cret" not in str(problem.value)


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(SourceError, match="'nosuch' is not an engine that Ibis knows"):
        open_table("nosuch://host/db", table="people")


@pytest.mark.parametrize(
    ("package", "source", "line"),
    [
        ("psycopg", "postgresql://host/db", "pip install 'kanab[postgres]'"),
        ("pyspark", "spark://local", "pip install 'kanab[spark]'"),
    ],
)
def test_a_missing_extra_says_the_exact_line(
    monkeypatch: pytest.MonkeyPatch, package: str, source: str, line: str
) -> None:
    real = connect.importlib.util.find_spec
    monkeypatch.setattr(connect.importlib.util, "find_spec", lambda name: None if name == package else real(name))
    with pytest.raises(MissingExtraError) as problem:
        open_table(source, table="people")
    assert line in str(problem.value)


# ── columns ────────────────────────────────────────────────────────────────────────────────────


def test_wrong_columns_are_refused_with_their_neighbours(engine: Loader) -> None:
    table = engine.load(
        pa.table({"variant": ["A", "B"], "spend": [1.0, 2.0], "text": ["x", "y"], "day": pa.array([0, 1], pa.date32())})
    )
    texts = Covariate("text", bins=3)
    for plan, problem in (
        (make_plan("varient", ["spend"]), "there is no column 'varient'. Did you mean variant"),
        (make_plan("variant", ["spent"]), "there is no column 'spent'. Did you mean spend"),
        (make_plan("variant", ["text"]), "metric 'text' holds something other than numbers"),
        (make_plan("variant", ["day"]), "metric 'day' holds something other than numbers"),
        (make_plan("variant", ["spend"], adjust=["day"]), "column 'day' holds dates, and each would be a level"),
        (make_plan("variant", ["spend"], adjust=[texts]), "covariate 'text' cannot be cut into bins"),
    ):
        with pytest.raises(SourceError, match=problem):
            count_table(table, plan)


def test_names_instead_of_levels_are_refused_with_the_number_and_the_remedy(engine: Loader) -> None:
    people = 5_000
    table = engine.load({"variant": ["A", "B"] * (people // 2), "id": list(range(people)), "y": [1.0] * people})
    with pytest.raises(SourceError, match=r"'id' has more than 1,000 levels. .*--bin id=5.*--top id=20"):
        count_table(table, make_plan("variant", ["y"], adjust=["id"]))
    with pytest.raises(SourceError, match=r"arm column 'id' has more than 1,000 arms"):
        count_table(table, make_plan("id", ["y"]))
    binned = count_table(table, make_plan("variant", ["y"], adjust=[Covariate("id", bins=4)]))
    assert binned.tallies["variant/id"].shape == (2, 4)


def test_too_many_classes_or_signatures_are_refused(duckdb_loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    people = 400
    table = duckdb_loader.load(
        {"a": [i % 20 for i in range(people)], "b": [i // 20 for i in range(people)], "y": [1] * people}
    )
    plan = make_plan("a", ["y"], adjust=["b"])
    monkeypatch.setattr("kanab.counting.columns.MOST_CLASSES", 399)
    with pytest.raises(SourceError, match=r"a/b would have more than 399 classes"):
        count_table(table, plan)
    monkeypatch.setattr("kanab.counting.engine.answer.MOST_SIGNATURES", 100)
    with pytest.raises(SourceError, match=r"more than 100 combinations of levels together"):
        count_table(table, plan)


def test_no_rows_and_one_arm_are_errors(engine: Loader) -> None:
    empty = pa.table({"variant": pa.array([], pa.string()), "y": pa.array([], pa.float64())})
    with pytest.raises(SourceError, match="nobody is in an arm of the plan"):
        count_table(engine.load(empty), make_plan("variant", ["y"]))
    with pytest.raises(SourceError, match="column 'variant' holds a single arm"):
        count_table(engine.load({"variant": ["A"] * 3, "y": [1, 2, 3]}), make_plan("variant", ["y"]))


def test_an_engines_complaint_does_not_carry_values(duckdb_loader: Loader) -> None:
    table = duckdb_loader.load({"variant": ["A", "B"], "text": ["12345", "a secret"]})
    cast = table.mutate(y=table.text.cast("float64"))
    with pytest.raises(SourceError, match="the engine could not finish the query") as problem:
        count_table(cast, make_plan("variant", ["y"]))
    assert "secret" not in str(problem.value)
    assert problem.value.__suppress_context__


def test_level_types_survive_every_engine(engine: Loader) -> None:
    columns = {
        "variant": ["A", "B", "A", "B"],
        "big": pa.array([2**60 + 1, 2**60 + 1, 5, None], pa.int64()),
        "real": pa.array([0.1, np.nan, 1e-7, None]),
        "small": pa.array([1.5, 2.5, None, 1.5], pa.float32()),
        "y": [1, 2, 3, 4],
    }
    plan = make_plan("variant", ["y"], adjust=["big", "real", "small"])
    counted = count_table(engine.load(columns), plan)
    assert counted.tallies["variant/big"].factor("big").levels == (5, 2**60 + 1, None)
    assert counted.tallies["variant/real"].factor("real").levels == (1e-7, 0.1, None)
    assert counted.tallies["variant/small"].factor("small").levels == (1.5, 2.5, None)


def test_no_progress_bar_stands_in_a_readout(tmp_path: Path) -> None:
    file = tmp_path / "people.csv"
    file.write_text("variant,spend\nA,1\nB,2\n")
    settings = open_table(str(file)).get_backend().raw_sql("SELECT current_setting('enable_progress_bar')")
    assert settings.fetchall() == [(False,)]


@pytest.mark.parametrize(
    ("scheme", "package"), [("bigquery", "google"), ("snowflake", "snowflake"), ("trino", "trino")]
)
def test_an_engine_without_its_driver_says_what_to_install(
    scheme: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in {package, f"{package}.connector", *(name for name in sys.modules if name.startswith(f"{package}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SourceError, match=rf"Run: pip install 'ibis-framework\[{scheme}\]'") as problem:
        open_table(f"{scheme}://ann:secret@shop/people", table="people")
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize("scheme", ["mssql", "redshift"])
def test_an_engine_that_is_refused_asks_for_no_driver_first(scheme: str) -> None:
    with pytest.raises(SourceError, match=rf"{scheme} cannot be counted in exactly: .* Write the rows to Parquet"):
        open_table(f"{scheme}://ann:secret@shop/people", table="people")
