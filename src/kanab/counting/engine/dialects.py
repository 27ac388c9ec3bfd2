"""What differs between engines, and nothing else: exact sums, failing casts, repeated subqueries.

Engines put values of the data into their errors, and errors reach logs: what an engine says stays
behind, and only the kind of its complaint comes through.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kanab.errors import QueryError

_ANSI = "spark.sql.ansi.enabled"
_ROWS_AT_ONCE = 50_000


@dataclass(frozen=True)
class Engine:
    """One kind of engine.

    ``sums_widen``: the sum of 64-bit integers has more than 64 bits by itself. ``casts_fail``: an
    infinite or too large double is an error when cast to an integer, not another number.
    ``repeats``: a subquery that is used five times runs five times, unless it is kept.
    ``adds_doubles``: the sum of doubles is plain addition, and much quicker than that of integers.
    """

    name: str
    sums_widen: bool = False
    casts_fail: bool = False
    repeats: bool = False
    adds_doubles: bool = False

    def total(self, value: Any) -> Any:
        """The exact sum of 64-bit integers; too large a one is an error, never wrapped."""
        return value.sum() if self.sums_widen else value.cast("decimal(20, 0)").sum()


_ENGINES = (
    Engine("duckdb", True, True, adds_doubles=True),
    Engine("postgres", True, True),
    Engine("pyspark", repeats=True),
)


def engine_of(table: Any) -> Engine:
    """The engine that holds an Ibis table."""
    name = table.get_backend().name
    return next((one for one in _ENGINES if one.name == name), Engine(name))


def query_text(expression: Any) -> str:
    """The SQL of an Ibis expression; tables in memory are made known to the engine."""
    backend = expression.get_backend()
    backend._run_pre_execute_hooks(expression)
    return str(backend.compile(expression))


def run(backend: Any, text: str) -> Iterator[tuple[Any, ...]]:
    """The rows that a query gives, as plain Python values."""
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
    """The only row of an aggregate."""
    rows = list(run(expression.get_backend(), query_text(expression)))
    return dict(zip(expression.columns, rows[0], strict=True))


@contextmanager
def without_notices() -> Iterator[None]:
    """Ibis 12 calls a method that DuckDB 2 wants to rename; that is nobody's business here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fetch_arrow_table", category=DeprecationWarning)
        yield


@contextmanager
def strict_arithmetic(table: Any) -> Iterator[None]:
    """Spark can be told to wrap around on overflow; within this block it fails instead."""
    backend = table.get_backend()
    if backend.name != "pyspark":
        with without_notices():
            yield
        return
    settings = backend._session.conf
    before = settings.get(_ANSI)
    settings.set(_ANSI, "true")
    try:
        yield
    finally:
        settings.set(_ANSI, before)


@contextmanager
def cached(stage: Any, engine: Engine) -> Iterator[Any]:
    """A subquery that is used several times; kept by the engine for a while where it would run as often."""
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
