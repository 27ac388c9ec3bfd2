"""Bridge what differs between engines: exact sums, failing casts, repeated subqueries.

Engines put values of the data into their errors, and errors reach logs: only the kind of an engine's
error is passed on, never its text.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import QueryError

_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Engine:
    """One kind of engine.

    ``sums_widen``: the sum of 64-bit integers has more than 64 bits by itself. ``casts_fail``: an
    infinite or too large double is an error when cast to an integer, not another number.
    ``repeats``: a subquery that is used five times runs five times, unless it is cached.
    ``adds_doubles``: the sum of doubles is plain addition, and much quicker than that of integers.
    """

    name: str
    sums_widen: bool = False
    casts_fail: bool = False
    repeats: bool = False
    adds_doubles: bool = False

    def total(self, value: Any) -> Any:
        """Return the exact sum of 64-bit integers; too large a one is an error, never wrapped."""
        return value.sum() if self.sums_widen else value.cast("decimal(20, 0)").sum()


_ENGINES = (
    Engine("duckdb", True, True, adds_doubles=True),
    Engine("postgres", True, True),
    Engine("pyspark", repeats=True),
)


def engine_of(table: Any) -> Engine:
    """Return the engine that holds an Ibis table."""
    name = table.get_backend().name
    return next((engine for engine in _ENGINES if engine.name == name), Engine(name))


def query_text(expression: Any) -> str:
    """Return the SQL of an Ibis expression; register tables in memory with the engine."""
    backend = expression.get_backend()
    backend._run_pre_execute_hooks(expression)
    return str(backend.compile(expression))


def run_query(backend: Any, text: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query as plain Python values; raise `QueryError` where the engine refuses it."""
    try:
        result = backend.raw_sql(text)
        if hasattr(result, "collect"):  # a Spark data frame
            yield from (tuple(row) for row in result.collect())
            return
        while rows := result.fetchmany(_ROWS_AT_ONCE):
            yield from rows
    except Exception as problem:
        raise QueryError(problem) from None


def first_row(expression: Any) -> dict[str, Any]:
    """Return the only row of an aggregate."""
    rows = list(run_query(expression.get_backend(), query_text(expression)))
    return dict(zip(expression.columns, rows[0], strict=True))


def fetch_numbers(expression: Any) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a query of doubles; NaN where there is nothing."""
    backend, names = expression.get_backend(), expression.columns
    text = query_text(expression)
    if backend.name != "duckdb":
        rows = list(run_query(backend, text))
        columns = zip(*rows, strict=True) if rows else ([] for _ in names)
        return {name: np.array(column, dtype=np.float64) for name, column in zip(names, columns, strict=True)}
    try:
        arrays = backend.raw_sql(text).fetchnumpy()  # many times as fast as rows
    except Exception as problem:
        raise QueryError(problem) from None
    return {name: np.ma.filled(arrays[name].astype(np.float64), math.nan) for name in names}


@contextmanager
def without_notices() -> Iterator[None]:
    """Silence a warning: Ibis 12 calls a method that DuckDB 2 wants to rename."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fetch_arrow_table", category=DeprecationWarning)
        yield


@contextmanager
def strict_arithmetic(table: Any) -> Iterator[None]:
    """Let Spark fail on overflow within a block, even where it is set to wrap around."""
    with without_notices(), spark_setting(table, "spark.sql.ansi.enabled", "true"):
        yield


@contextmanager
def spark_setting(table: Any, name: str, value: str) -> Iterator[None]:
    """Change a setting of a table's Spark session within a block; do nothing for other engines."""
    backend = table.get_backend()
    if backend.name != "pyspark":
        yield
        return
    settings = backend._session.conf
    before = settings.get(name)
    settings.set(name, value)
    try:
        yield
    finally:
        settings.set(name, before)


@contextmanager
def cached(stage: Any, engine: Engine) -> Iterator[Any]:
    """Give a subquery that is used several times; cached by the engine where it would run as often."""
    if not engine.repeats:
        yield stage
        return
    try:
        cached_stage = stage.cache()
    except Exception as problem:
        raise QueryError(problem) from None
    try:
        yield cached_stage
    finally:
        cached_stage.release()
