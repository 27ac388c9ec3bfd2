"""BigQuery's dialect without BigQuery: an emulator that the machine runs, read with Google's own client.

    bqemulator start --rest-port 9050 &
    BIGQUERY_EMULATOR_HOST=http://127.0.0.1:9050 python -m tests.sources.engines bigquery

Emulators want another sqlglot than Ibis, so that they live in an environment of their own.
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
def connected() -> Iterator[Any]:
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


def put(backend: Any, name: str, table: pa.Table) -> Any:
    fields = backend.compiler.type_mapper
    columns = ", ".join(f"`{name}` {fields.to_string(kind)}" for name, kind in ibis.memtable(table).schema().items())
    backend.raw_sql(f"CREATE TABLE kanab.{name} ({columns})")
    rows = [{column: _plain(value) for column, value in row.items()} for row in table.to_pylist()]
    assert not backend.client.insert_rows_json(f"shop.kanab.{name}", rows)
    return backend.table(name)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
