"""What differs between engines, and nothing else: exact sums, failing casts, repeated subqueries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kanab.errors import SourceError

_ANSI = "spark.sql.ansi.enabled"


@dataclass(frozen=True)
class Engine:
    """One kind of engine.

    ``sums_widen``: the sum of 64-bit integers has more than 64 bits by itself. ``casts_fail``: an
    infinite or too large double is an error when cast to an integer, not another number.
    ``repeats``: a subquery that is used five times runs five times, unless it is kept.
    """

    name: str
    sums_widen: bool = False
    casts_fail: bool = False
    repeats: bool = False

    def total(self, value: Any) -> Any:
        """The exact sum of whole numbers; too large a one is an error, never wrapped."""
        if self.sums_widen:
            return value.sum()
        digits = 38 if value.type().is_decimal() else 20
        return value.cast(f"decimal({digits}, 0)").sum()


_KNOWN = (Engine("duckdb", True, True), Engine("postgres", True, True), Engine("pyspark", repeats=True))


def engine_of(table: Any) -> Engine:
    """The engine that holds an Ibis table."""
    name = table.get_backend().name
    return next((one for one in _KNOWN if one.name == name), Engine(name))


def fetch(expression: Any) -> Any:
    """An Arrow table of what an expression gives; what the engine says stays behind.

    Engines put values of the data into their errors, and these reach logs.
    """
    try:
        return expression.to_pyarrow()
    except SourceError:
        raise
    except Exception as problem:
        raise QueryError(type(problem).__name__) from None


class QueryError(SourceError):
    """A query that its engine refused or could not finish."""

    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the engine could not finish the count ({kind})",
            "Check the filter, your rights on the table, and the connection; --show-sql prints the query.",
        )


@contextmanager
def strict_arithmetic(table: Any) -> Iterator[None]:
    """Spark wraps around on overflow unless told otherwise; within this block it fails instead."""
    backend = table.get_backend()
    if backend.name != "pyspark":
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
def kept(stage: Any, engine: Engine) -> Iterator[Any]:
    """A subquery that is used several times: kept by the engine for a while, where it would repeat it."""
    if not engine.repeats:
        yield stage
        return
    try:
        held = stage.cache()
    except Exception as problem:
        raise QueryError(type(problem).__name__) from None
    try:
        yield held
    finally:
        held.release()
