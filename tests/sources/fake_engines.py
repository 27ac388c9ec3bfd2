"""Dialects without their servers: an emulator of BigQuery that the machine runs, and fakesnow, which has DuckDB run it.

    bqemulator start --rest-port 9050 &
    BIGQUERY_EMULATOR_HOST=http://127.0.0.1:9050 python -m tests.sources.engines bigquery

Emulators of BigQuery want another sqlglot than Ibis, so that they live in an environment of their own.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import ibis
import pyarrow as pa
import pytest

HOST = os.environ.get("BIGQUERY_EMULATOR_HOST")


@contextmanager
def bigquery_connected() -> Iterator[Any]:
    """Ibis' own backend, and a new dataset for it."""
    if HOST is None:
        pytest.skip("there is no emulator of BigQuery here; start one, and set BIGQUERY_EMULATOR_HOST")
    bigquery = pytest.importorskip("google.cloud.bigquery")
    nobody = pytest.importorskip("google.auth.credentials").AnonymousCredentials()
    client = bigquery.Client(project="shop", credentials=nobody, client_options={"api_endpoint": HOST})
    client.delete_dataset("kanab", delete_contents=True, not_found_ok=True)
    client.create_dataset("kanab")
    yield ibis.bigquery.connect(client=client, credentials=nobody, project_id="shop", dataset_id="kanab")
    client.close()


def put_in_bigquery(backend: Any, name: str, table: pa.Table) -> Any:
    fields = backend.compiler.type_mapper
    columns = ", ".join(f"`{name}` {fields.to_string(kind)}" for name, kind in ibis.memtable(table).schema().items())
    backend.raw_sql(f"CREATE TABLE kanab.{name} ({columns})")
    rows = [{column: _plain(value) for column, value in row.items()} for row in table.to_pylist()]
    assert not backend.client.insert_rows_json(f"shop.kanab.{name}", rows)
    return backend.table(name)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@contextmanager
def snowflake_connected() -> Iterator[Any]:
    """Ibis' own backend around a connection of fakesnow, without two things that fakesnow does not do.

    It cannot read how Ibis sets up a session. And it adds every column as doubles, since Snowflake adds texts
    too; what is summed here are numbers.
    """
    from fakesnow import transforms  # noqa: PLC0415 - slow to import
    from fakesnow.instance import FakeSnow  # noqa: PLC0415
    from ibis.backends.snowflake import Backend  # noqa: PLC0415

    backend = Backend()
    backend.con = FakeSnow().connect(database="SHOP", schema="PUBLIC")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transforms, "numeric_agg_implicit_cast", lambda expression: expression)
        yield backend
    backend.con.close()


def put_in_snowflake(backend: Any, name: str, table: pa.Table) -> Any:
    """Create a table in Snowflake's types; its rows go to DuckDB directly, which takes less time."""
    kinds = ibis.memtable(table).schema().items()
    columns = ", ".join(f'"{column}" {backend.compiler.type_mapper.to_string(kind)}' for column, kind in kinds)
    backend.con.cursor().execute(f'CREATE TABLE "{name}" ({columns})')
    backend.con._duck_conn.from_arrow(table).insert_into(f"SHOP.PUBLIC.{name}")
    return backend.table(name)
