"""Bridge what differs between engines: exact sums, failing casts, repeated subqueries.

Engines put values of the data into their errors, and errors reach logs: only the kind of an engine's
error is passed on, never its text.
"""

import math
import warnings
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal
from uuid import uuid4

import ibis
import ibis.expr.operations as ops
import numpy as np
import sqlglot
from ibis.backends import BaseBackend
from ibis.common.graph import Graph
from numpy.typing import NDArray
from sqlglot import exp

from kanab.counting.engine import clickhouse, sqlite_functions
from kanab.errors import QueryError, SourceError

_ROWS_AT_ONCE = 50_000
_MOST_TEXTS = 500  # statements that are remembered, a few kilobytes each
_TEXTS: dict[Hashable, str] = {}
_INTERRUPTED = ("Query interrupted", "interrupted")  # what DuckDB and SQLite raise an error of their own for

Sums = Literal["wide", "decimal", "words"]


@ibis.udf.scalar.builtin(name="kanab_bytes")  # type: ignore[untyped-decorator]
def as_bytes(text: str) -> str:  # type: ignore[empty-body]
    """Return a text as bytes, which are compared one by one: neither case nor accents nor blanks are alike."""


_BYTES: exp.Expr = sqlglot.parse_one("CAST(CONVERT(text USING utf8mb4) AS BINARY)", dialect="mysql")


def _mysql_bytes(node: Any) -> Any:
    """Write in MySQL what is no function there."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "kanab_bytes":
        return node
    (text,) = node.expressions
    return _BYTES.transform(lambda part: text if isinstance(part, exp.Column) else part)


def _without_nan(node: Any, changed: Any) -> Any:
    """Write for engines without NaN, and without a test for it."""
    if isinstance(node, ops.IsNan):
        return ops.Literal(False, dtype="boolean")
    return node if changed is None else node.__recreate__(changed)


def _finite(node: Any, changed: Any) -> Any:
    """Replace infinity, which MySQL lacks beside NaN, by a number that is too large: an error where it is reached."""
    if isinstance(node, ops.Literal) and node.dtype.is_floating() and node.value == math.inf:
        return ops.Exp(ops.Literal(710.0, dtype="float64"))
    return _without_nan(node, changed)


def _in_utc(backend: Any) -> None:
    """Set MySQL's session to UTC, as Ibis tries to by a name that not every server knows."""
    with backend.con.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")


def _by_killing(backend: Any) -> None:
    """Stop what MySQL computes for a connection that was given up: it would not notice before the end."""
    given_up = backend.con.thread_id()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may not know the name of a time zone
        backend.reconnect()
    with backend.con.cursor() as cursor:
        cursor.execute(f"KILL {given_up}")


def _as_it_is(*_: Any) -> None:
    """Change nothing about a connection, and doubt nothing about a table."""


def _by_fetching(result: Any) -> Iterator[tuple[Any, ...]]:
    while rows := result.fetchmany(_ROWS_AT_ONCE):
        yield from rows


def _by_cursor(cursor: Any) -> Iterator[tuple[Any, ...]]:
    try:
        yield from _by_fetching(cursor)
    finally:
        cursor.close()


def _by_texts(cursor: Any) -> Iterator[tuple[Any, ...]]:
    """Yield rows whose texts may come as bytes."""
    for row in _by_cursor(cursor):
        yield tuple(value.decode() if isinstance(value, bytes) else value for value in row)


def _by_batches(frame: Any) -> Iterator[tuple[Any, ...]]:
    for batch in frame.collect():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@dataclass(frozen=True)
class Engine:
    """One kind of engine: what it does otherwise than others, which is all that they are asked about it.

    ``sums``: how the sum of 64-bit integers is exact. The engine widens it by itself, or it is taken of decimals,
    or of the high and the low 32 bits ("words").
    ``sums_fail``: the sum of 64-bit integers is an error where it is too large, and so need not be exact by other means
    for the rows of one person.
    ``casts_fail``: an infinite or too large double is an error when cast to an integer, not another number.
    ``repeats``: people made of many rows are made again by every statement, unless they are cached.
    ``adds_doubles``: the sum of doubles is plain addition, and much quicker than that of integers.
    ``quantiles``: there is an exact quantile.
    ``at_hand``: it runs in this process, and keeps a table for next to nothing.
    ``native``: numbers leave with all their digits as they are, but not as texts.
    ``exact_text``: a function that makes texts equal only where they are the same, letter by letter.
    ``microseconds``: a function that makes whole numbers of points in time, which are texts there.
    ``subtracts_days``: it knows the days between two dates.
    ``rewrite``: what is written otherwise in its SQL than Ibis does, node by node.
    ``standard``: what means something else there than in other engines, by nodes of an Ibis expression.
    ``in_memory``: it is a library of frames without SQL, whose tables are handed to DuckDB.
    ``refused``: why it cannot be counted in at all.
    ``prepare``: what a connection needs before a query. ``check``: whether columns hold what they say.
    ``run``: how it is asked. ``fetch``: how rows are read. ``cancel``: how it is told that nobody waits any more, where
    it does not notice.
    """

    name: str
    sums: Sums = "decimal"
    sums_fail: bool = False
    casts_fail: bool = False
    repeats: bool = False
    adds_doubles: bool = False
    quantiles: bool = True
    at_hand: bool = False
    native: bool = False
    exact_text: Callable[[Any], Any] | None = None
    microseconds: Callable[[Any], Any] | None = None
    subtracts_days: bool = True
    rewrite: Callable[[exp.Expr], exp.Expr] | None = None
    standard: Callable[[Any, Any], Any] | None = None
    in_memory: bool = False
    refused: str = ""
    prepare: Callable[[Any], None] = _as_it_is
    run: Callable[[Any, str], Any] = lambda backend, text: backend.raw_sql(text)
    check: Callable[[Any, Iterable[str]], None] = _as_it_is
    fetch: Callable[[Any], Iterable[tuple[Any, ...]]] = _by_fetching
    cancel: Callable[[Any], None] = _as_it_is

    def total(self, value: Any) -> Any:
        """Return the exact sum of 64-bit integers; too large a one is an error, never wrapped."""
        if self.sums == "words":
            return sqlite_functions.from_words((value >> 32).sum(), (value & 0xFFFF_FFFF).sum())
        return value.sum() if self.sums == "wide" else value.cast("decimal(20, 0)").sum()

    def total_of_rows(self, value: Any) -> Any:
        """Return the exact sum of 64-bit integers of one person; too large a one is an error, never wrapped."""
        return value.sum() if self.sums_fail else self.total(value)

    def text(self, expression: exp.Expr) -> exp.Expr:
        """Return an expression of SQL as text, unless the engine hands out numbers."""
        return expression if self.native else exp.Cast(this=expression, to=exp.DataType(this=exp.DType.TEXT))

    def text_rows(self, rows: Iterable[Sequence[Any]]) -> Iterable[Sequence[Any]]:
        """Return rows of texts, where the engine hands out numbers."""
        return ([_as_text(value) for value in row] for row in rows) if self.native else rows


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else repr(value)


_ENGINES = (
    Engine(
        "duckdb",
        "wide",
        casts_fail=True,
        adds_doubles=True,
        at_hand=True,
        cancel=lambda backend: backend.con.interrupt(),  # its threads would keep the connection from being closed
    ),
    Engine("postgres", "wide", casts_fail=True, fetch=_by_cursor),
    Engine("pyspark", sums_fail=True, repeats=True, fetch=lambda frame: map(tuple, frame.collect())),
    Engine(
        "clickhouse",
        standard=clickhouse.standard_node,
        run=clickhouse.run,
        fetch=lambda result: result.result_rows,
    ),
    Engine("datafusion", quantiles=False, subtracts_days=False, fetch=_by_batches),
    Engine(
        "mysql",
        "wide",
        quantiles=False,
        exact_text=as_bytes,
        rewrite=_mysql_bytes,
        standard=_finite,
        prepare=_in_utc,
        fetch=_by_texts,
        cancel=_by_killing,
    ),
    Engine("polars", in_memory=True),
    Engine("snowflake"),
    Engine("databricks"),
    Engine("bigquery", quantiles=False, fetch=lambda rows: (tuple(row.values()) for row in rows)),
    Engine("trino", quantiles=False),
    Engine("redshift", refused="Ibis does not know it"),
    Engine("mssql", refused="its texts of floats have six digits, and its texts are compared without their case"),
    Engine(
        "sqlite",
        "words",
        sums_fail=True,
        standard=_without_nan,
        quantiles=False,
        native=True,
        exact_text=sqlite_functions.without_collation,
        microseconds=sqlite_functions.from_text,
        prepare=sqlite_functions.add_functions,
        check=sqlite_functions.check_storage,
        fetch=_by_cursor,
    ),
)


def engine_of(table: Any) -> Engine:
    """Return the engine that holds an Ibis table."""
    return named_engine(table.get_backend().name)


def named_engine(name: str) -> Engine:
    """Return an engine by the name that Ibis has for it; raise `SourceError` where it cannot be counted in."""
    engine = next((engine for engine in _ENGINES if engine.name == name), Engine(name))
    if engine.refused:
        raise SourceError(
            f"{engine.name} cannot be counted in exactly: {engine.refused}",
            "Write the rows to Parquet or CSV, and count the file.",
        )
    return engine


def query_text(expression: Any) -> str:
    """Return the SQL of an Ibis expression; register tables in memory with the engine."""
    backend = expression.get_backend()
    engine = named_engine(backend.name)
    try:
        if engine.standard is not None:
            expression = expression.op().replace(engine.standard).to_expr()
        backend._run_pre_execute_hooks(expression)
        if engine.at_hand:
            return _remembered_text(backend, expression)
        if engine.rewrite is not None:
            expression = backend.compiler.to_sqlglot(expression).transform(engine.rewrite)
            return str(expression.sql(dialect=backend.dialect))
        return str(backend.compile(expression))
    except Exception as problem:
        raise SourceError(
            f"{engine.name} cannot do what this plan needs ({type(problem).__name__})",
            "Count with another engine, such as DuckDB: export the table to a Parquet file.",
        ) from None


def _remembered_text(backend: Any, expression: Any) -> str:
    """Return the SQL of an expression, written once: Ibis takes longer over it than DuckDB over a small file."""
    graph = Graph.from_bfs(expression.op())
    if any(isinstance(node, ops.InMemoryTable) for node in graph):  # whose rows would be remembered, too
        return str(backend.compile(expression))
    outline = _outline(graph)
    text = _TEXTS.get(outline)
    if text is None:
        text = str(backend.compile(expression))
        if len(_TEXTS) >= _MOST_TEXTS:
            _TEXTS.clear()
        _TEXTS[outline] = text
    return text


def _outline(graph: Graph) -> Hashable:
    """Return all that decides the SQL of an expression: its nodes, which name each other by their places.

    It does not hold the connection, and tells 1 from true, 1.0 and -0.0 from 0.0, which are equal to Python.
    """
    places = {node: place for place, node in enumerate(graph)}

    def plain(value: Any) -> Hashable:
        if isinstance(value, ops.Node):
            return places[value]
        if isinstance(value, tuple):
            return tuple(map(plain, value))
        if isinstance(value, Mapping):
            return tuple((name, plain(part)) for name, part in value.items())
        if isinstance(value, BaseBackend):
            return str(value.name)
        return type(value), repr(value) if isinstance(value, float) else value

    return tuple((type(node), tuple(map(plain, node.args))) for node in graph)


@contextmanager
def asking(backend: Any) -> Iterator[None]:
    """Raise `QueryError` for what an engine raises, without its text; where it was interrupted, see that it ends."""
    try:
        yield
    except SourceError:
        raise
    except (Exception, KeyboardInterrupt) as problem:
        if not isinstance(problem, KeyboardInterrupt) and str(problem) not in _INTERRUPTED:
            raise QueryError(problem) from None
        with suppress(Exception):
            named_engine(backend.name).cancel(backend)
        raise KeyboardInterrupt from None


def run_query(backend: Any, text: str) -> Generator[tuple[Any, ...]]:
    """Yield the rows of a query as plain Python values; raise `QueryError` where the engine refuses it."""
    engine = named_engine(backend.name)
    with asking(backend):
        engine.prepare(backend)
        yield from engine.fetch(engine.run(backend, text))


def fetch_texts(expression: Any) -> Iterable[Sequence[str | None]]:
    """Return the rows of a query with every column as text, so that no driver can round a number."""
    backend = expression.get_backend()
    engine, dialect = named_engine(backend.name), backend.dialect
    chosen = ", ".join(
        exp.alias_(engine.text(exp.column(name, quoted=True)), name, quoted=True).sql(dialect=dialect)
        for name in expression.columns
    )
    name = exp.to_identifier("kanab_texts", quoted=True).sql(dialect=dialect)
    return engine.text_rows(run_query(backend, f"SELECT {chosen} FROM (\n{query_text(expression)}\n) AS {name}"))


def first_row(expression: Any) -> dict[str, Any]:
    """Return the only row of an aggregate; what is true or false is so, even where the engine has only 1 and 0."""
    rows = list(run_query(expression.get_backend(), query_text(expression)))
    return {
        name: bool(value) if kind.is_boolean() and value is not None else value
        for (name, kind), value in zip(expression.schema().items(), rows[0], strict=True)
    }


def fetch_numbers(expression: Any) -> dict[str, NDArray[np.float64]]:
    """Return the columns of a query of doubles, NaN where there is nothing; Arrow's own way would load pandas."""
    names, backend = expression.columns, expression.get_backend()
    if named_engine(backend.name).at_hand:
        text = query_text(expression.fill_null(math.nan))
        with asking(backend):
            table = backend.raw_sql(text).fetch_arrow_table()
        whole = {name: table.column(name).combine_chunks() for name in names}
        return {name: np.asarray(np.from_dlpack(column), np.float64) for name, column in whole.items()}
    rows = list(run_query(backend, query_text(expression)))
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: np.array(column, dtype=np.float64) for name, column in zip(names, columns, strict=True)}


def arrow_batches(expression: Any, rows: int) -> Generator[Any]:
    """Yield the rows of an Ibis table as Arrow batches of so many rows, whichever engine holds them."""
    backend = expression.get_backend()
    if backend.name in ("duckdb", "postgres"):  # which hand out as much as is asked for
        with asking(backend):
            if backend.name == "duckdb":
                reader = backend.raw_sql(query_text(expression)).to_arrow_reader(rows)
            else:
                reader = expression.to_pyarrow_batches(chunk_size=rows)
            with reader:
                yield from reader
        return
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra

    schema = expression.schema().to_pyarrow()
    with closing(run_query(backend, query_text(expression))) as answer:
        while some := list(islice(answer, rows)):
            columns = [list(column) for column in zip(*some, strict=True)]
            for place, kind in enumerate(schema.types):
                if pa.types.is_boolean(kind):  # some engines have only 1 and 0
                    columns[place] = [None if value is None else bool(value) for value in columns[place]]
            try:
                arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            except pa.ArrowException as problem:
                raise QueryError(problem) from None
            yield pa.RecordBatch.from_arrays(arrays, schema.names)


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
def kept(people: Any) -> Iterator[Any]:
    """Give people made of many rows, of whom several statements ask: made once where the engine can keep them."""
    backend = people.get_backend()
    engine = named_engine(backend.name)
    if engine.repeats:
        with asking(backend):
            stage = people.cache()
        try:
            yield stage
        finally:
            stage.release()
        return
    if not engine.at_hand:
        yield people
        return
    text, name = query_text(people), f"kanab_{uuid4().hex}"
    with asking(backend):
        backend.raw_sql(f"CREATE TEMP TABLE {name} AS {text}")
    try:
        yield backend.table(name)
    finally:
        backend.raw_sql(f"DROP TABLE temp.{name}")
