"""Frozen rows, in memory and in engines that need no server."""

from datetime import datetime
from functools import cache
from typing import Any

import pytest

from .frozen import read_lines

ENGINES = ("memory", "duckdb", "sqlite")
TIMES = ("at", "time")
"""Columns of times, which are frozen as texts."""


@cache
def load(name: str, engine: str) -> Any:
    """Return frozen rows as columns, or as a table of an engine; skip the test where that is not installed."""
    columns = next(line["rows"] for line in read_lines("columns") if line["id"] == name)
    columns |= {name: list(map(datetime.fromisoformat, columns[name])) for name in TIMES if name in columns}
    if engine == "memory":
        return columns
    table, backend = pytest.importorskip("pyarrow").table(columns), connected(engine)
    if engine == "duckdb":
        return backend.create_table(name, table)
    made = backend.create_table(name, schema=pytest.importorskip("ibis").Schema.from_pyarrow(table.schema))
    columns |= {name: list(map(str, columns[name])) for name in TIMES if name in columns}
    marks = ", ".join("?" * len(columns))
    backend.con.executemany(f"INSERT INTO {name} VALUES ({marks})", list(zip(*columns.values(), strict=True)))
    backend.con.commit()
    return made


@cache
def connected(engine: str) -> Any:
    """Return an empty database of an engine."""
    ibis = pytest.importorskip("ibis")
    return ibis.duckdb.connect() if engine == "duckdb" else ibis.sqlite.connect()
