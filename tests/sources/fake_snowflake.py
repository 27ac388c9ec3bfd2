"""Snowflake's dialect without Snowflake: fakesnow reads the statements and has DuckDB run them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ibis
import pyarrow as pa
import pytest


@contextmanager
def connected() -> Iterator[Any]:
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


def put(backend: Any, name: str, table: pa.Table) -> Any:
    """Create a table in Snowflake's types; its rows go to DuckDB directly, which takes less time."""
    kinds = ibis.memtable(table).schema().items()
    columns = ", ".join(f'"{column}" {backend.compiler.type_mapper.to_string(kind)}' for column, kind in kinds)
    backend.con.cursor().execute(f'CREATE TABLE "{name}" ({columns})')
    backend.con._duck_conn.from_arrow(table).insert_into(f"SHOP.PUBLIC.{name}")
    return backend.table(name)
