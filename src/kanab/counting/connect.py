"""Open any source as an Ibis table: files, frames, connection URLs with a table or a query.

A message about a connection never repeats its user, its password or its options.
"""

import importlib.util
import re
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit
from uuid import uuid4

import ibis

from kanab.counting.engine.dialects import engine_of, first_row, named_engine, query_text, without_notices
from kanab.counting.files import (
    EMPTY_FIELDS,
    PLAIN,
    CsvForm,
    check_whole,
    file_kind,
    has_file_ending,
    header_of,
    is_packed,
    lake_rows,
    matching_files,
    no_table,
    open_lake,
    read_files,
)
from kanab.counting.frames import column_names, get_column, is_dataset, load_frame
from kanab.counting.parquet_files import open_parquet
from kanab.counting.remote import copied, is_remote, remote_dataset
from kanab.errors import QueryError, SourceError, closest, listed, need_extra

_MYSQL = ("mysql", "mariadb")
_EXTRAS = {"spark": ("spark", "pyspark"), "duckdb": ("sql", "duckdb")}  # of a scheme, and the package that it installs
_EXTRAS |= dict.fromkeys(("postgresql", "postgres"), ("postgres", "psycopg"))
_EXTRAS |= dict.fromkeys(_MYSQL, ("mysql", "pymysql")) | {"clickhouse": ("clickhouse", "clickhouse_connect")}
_ELSEWHERE = ("ftp", "file", "s3a", "az", "dbfs")
_PEOPLE = "people"  # the table of a source, the same in every connection made for one, so that statements are, too
_STARTED: list[Any] = []  # connections whose Spark session was started here
_WHOLE_NUMBER = r"^-?(0|[1-9][0-9]{0,14})$"
_ROWS_TO_TELL = 10_000  # lines of a CSV file that show most columns of texts
_STEPS_OF_SQLITE = 1_000_000  # some milliseconds
_SPARK_TIMEOUT = 5.0  # seconds to wait for a Spark master; Spark itself would try for minutes


@without_notices()
def open_table(source: Any, *, table: str | None = None, sql: str | None = None, form: CsvForm = PLAIN) -> Any:
    """Open a path, glob, connection URL, frame, dict of columns or Ibis table as an Ibis table.

    A connection needs ``table`` or ``sql``; of an Excel file ``table`` names the sheet.
    """
    if isinstance(source, (str, PathLike)) and "://" in fspath(source) and not is_remote(fspath(source)):
        return _open_connection(fspath(source), table, sql)
    if isinstance(source, (str, PathLike)):
        rows = _open_files(_memory(), fspath(source), table, form, _PEOPLE)
        return rows if sql is None else _query_rows(rows, sql)
    if type(source).__module__.partition(".")[0] == "sqlalchemy":
        url = getattr(source, "url", source)  # of an engine, or itself
        if not hasattr(url, "render_as_string"):
            fact = f"a {type(source).__name__} is no engine"
            raise SourceError(fact, "Give SQLAlchemy's engine or URL, and table=….")
        return _open_connection(str(url.render_as_string(hide_password=False)), table, sql)
    if table is not None:
        raise no_table()
    source = load_frame(source)
    package = type(source).__module__.partition(".")[0]
    if package in ("ibis", "pyspark"):
        if sql is not None:
            raise SourceError("an Ibis or Spark table takes no sql", "Choose its rows before, or by where=….")
        if package == "ibis":
            return _countable(source)
        name = f"kanab_people_{uuid4().hex}"
        source.createOrReplaceTempView(name)
        return ibis.pyspark.connect(source.sparkSession).table(name)
    rows = _open_frame(_memory(), source, _PEOPLE)
    return rows if sql is None else _query_rows(rows, sql)


@contextmanager
def opened_table(
    source: Any, *, table: str | None = None, sql: str | None = None, form: CsvForm = PLAIN
) -> Iterator[Any]:
    """Open a table for a while: a connection made for it is closed at the end."""
    rows = open_table(source, table=table, sql=sql, form=form)
    try:
        yield rows
    finally:
        backend = rows.get_backend()
        came_with_source = type(source).__module__.partition(".")[0] == "ibis" and source.get_backend() is backend
        if not came_with_source:
            _close(backend)


def _countable(table: Any) -> Any:
    """Return an Ibis table as counting needs it: of an engine with SQL, which tells all different texts apart."""
    engine = engine_of(table)
    if engine.in_memory:
        return _open_frame(_memory(), _from_memory(table), _PEOPLE)
    if engine.exact_text is None:
        return table
    texts = {name: engine.exact_text(table[name]) for name, kind in table.schema().items() if kind.is_string()}
    return table.mutate(**texts) if texts else table


def _from_memory(table: Any) -> Any:
    """Return the Arrow table of an Ibis table of frames."""
    try:
        return table.to_pyarrow()
    except Exception as problem:
        fact = f"the frame could not be evaluated ({type(problem).__name__})"
        raise SourceError(fact, "Check how it was made, step by step.") from None


@without_notices()
def open_beside(table: Any, other: Any, form: CsvForm = PLAIN) -> Any:
    """Open another table where the first one is: by its name, or a file or a frame where DuckDB reads the first."""
    backend = table.get_backend()
    place = fspath(other) if isinstance(other, (str, PathLike)) else None
    name = f"kanab_{uuid4().hex}"
    if place is not None and backend.name == "duckdb" and has_file_ending(place):
        return _open_files(backend, place, None, form, name)
    if place is not None:
        return _countable(_open_table_or_query(backend, place, None))
    if type(other).__module__.partition(".")[0] == "ibis" and engine_of(other).in_memory:
        other = _from_memory(other)
    if type(other).__module__.partition(".")[0] not in ("ibis", "pyspark") and backend.name == "duckdb":
        return _open_frame(backend, other, name)
    beside = open_table(other)
    if beside.get_backend() is not backend:
        raise SourceError("two tables are in different places", "Take both from one connection.")
    return beside


# ── files and frames ───────────────────────────────────────────────────────────────────────────


def _memory() -> Any:
    need_extra("reading files", "sql", "duckdb")
    backend = ibis.duckdb.connect()
    backend.raw_sql("SET parquet_metadata_cache = true")  # several queries read the same files
    backend.raw_sql("SET enable_progress_bar = false")  # it would stand between the lines of a readout
    return backend


def _open_files(backend: Any, place: str, sheet: str | None, form: CsvForm, name: str) -> Any:
    """Open the files of a path or pattern, or of an address, as one table of a name."""
    if is_remote(place):
        return _open_remote(backend, place, sheet, form, name)
    pattern, files = Path(place).name, matching_files(place)
    if not files[0].exists():
        raise SourceError(f"there is no file {pattern!r}", "Check the path.")
    kinds = {file_kind(file) for file in files}
    if len(kinds) > 1:
        raise SourceError(f"the files of {pattern!r} are of different kinds", "Give files of one kind.")
    if sheet is not None and kinds != {"excel"}:
        raise no_table()
    if kinds == {"csv"} and not any(map(is_packed, files)):
        for file in files:
            check_whole(file)
        return _open_csv(backend, files, name, form)
    if kinds == {"parquet"}:
        return open_parquet(backend, files, name)
    return _open_frame(backend, open_lake(files[0]) if kinds == {"lake"} else read_files(files, sheet, form), name)


def _open_remote(backend: Any, place: str, sheet: str | None, form: CsvForm, name: str) -> Any:
    """Open files of an object store where they are, other ones by a copy that is deleted once it was read."""
    dataset = remote_dataset(place)
    if dataset is not None and sheet is None:
        return _open_frame(backend, dataset, name)
    with copied(place) as file:
        rows = _open_files(backend, str(file), sheet, form, f"{name}_file")
        return backend.create_table(name, rows)


def _open_frame(backend: Any, source: Any, name: str) -> Any:
    """Show a dict of columns, a frame, or whatever else speaks Arrow to DuckDB, which reads it where it is."""
    arrow = _as_arrow(load_frame(lake_rows(source)))
    try:
        backend.con.register(name, arrow)
        return backend.table(name)
    except Exception as problem:
        types = [f"{column.name} ({column.type})" for column in arrow.schema]
        raise SourceError(
            f"a {type(source).__name__} has a column of a type that DuckDB does not read ({type(problem).__name__})",
            f"Leave it out, or turn it into numbers or texts. Its columns: {listed(types)}.",
        ) from None


def _as_arrow(source: Any) -> Any:
    """Return an Arrow table, or a dataset as it is: DuckDB reads those of its columns that are asked for."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra

    if is_dataset(source):
        return source
    if not isinstance(source, Mapping):
        with suppress(pa.ArrowException, TypeError, ValueError, AttributeError):
            return _as_engines_read(pa.table(source))
        source = {name: get_column(source, name) for name in column_names(source)}
    columns = {}
    for name, values in source.items():
        try:
            columns[str(name)] = pa.array(values, from_pandas=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise SourceError(
                f"column {str(name)!r} holds values of several kinds, or of a kind that engines do not have",
                "Give columns that hold one kind of value each: numbers, texts, true/false, dates; or leave it out.",
            ) from None
    try:
        return _as_engines_read(pa.table(columns))
    except pa.ArrowException:
        raise SourceError("the columns have different lengths", "Give one value per person in each.") from None


def _as_engines_read(arrow: Any) -> Any:
    """Return an Arrow table in types that DuckDB reads: a column of nothing is one of missing numbers."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
    import pyarrow.compute as pc  # noqa: PLC0415

    for place, column in enumerate(arrow.schema):
        if pa.types.is_run_end_encoded(column.type):
            arrow = arrow.set_column(place, column.name, pc.run_end_decode(arrow.column(place)))
        elif pa.types.is_null(column.type) or pa.types.is_decimal256(column.type) or pa.types.is_float16(column.type):
            arrow = arrow.set_column(place, column.name, arrow.column(place).cast(pa.float64()))
    return arrow


def _open_csv(backend: Any, files: Sequence[Path], name: str, form: CsvForm) -> Any:
    """Open all files, one below the other, as a table of a name, with the rules of ``files``: 007 is a text.

    Every column is the narrowest kind that all its fields are. That is looked up over all rows,
    because a code such as 007 may come late.
    """
    separator = form.separator(files[0])
    names = header_of(files[0], replace(form, sep=separator))
    for file in files[1:]:
        if header_of(file, replace(form, sep=separator)) != names:
            raise SourceError(
                f"{file.name} has other columns than {files[0].name}", "Give all files the same columns, in one order."
            )
    endings = {file.suffix.lower() for file in files}  # of which DuckDB knows the small letters alone
    try:
        written = backend.read_csv(
            [str(file) for file in files],
            table_name=name,
            compression="gzip" if endings == {".gz"} else "zstd" if endings == {".zst"} else "auto",
            columns=dict.fromkeys(names, "string"),
            header=True,
            delim=separator,
            quote='"',
            escape='"',
        )
        bare = {name: written[name].strip() for name in names}
        missing = ibis.null("string")
        fields = written.select(**{n: ibis.ifelse(bare[n].isin(EMPTY_FIELDS), missing, bare[n]) for n in names})
        likely = _field_kinds(fields.limit(_ROWS_TO_TELL), names, form)
        kinds = _field_kinds(fields, [name for name in names if likely[name] != "string"], form)
    except QueryError:
        raise SourceError(
            f"{files[0].name} is not a well-formed CSV file",
            "Check quotes, line ends, fields per line, what separates them (--sep), UTF-8.",
        ) from None
    return fields.select(**{name: _typed(fields[name], kinds.get(name, "string"), form) for name in names})


def _field_kinds(fields: Any, names: Iterable[str], form: CsvForm) -> Mapping[str, str]:
    """Return the type of each column: what every field that is there can be read as."""
    wanted = list(names)
    tests: dict[str, Any] = {}
    for place, name in enumerate(wanted):
        field = fields[name]
        tests |= {
            f"whole{place}": field.re_search(_WHOLE_NUMBER).all(),
            f"number{place}": field.re_search(f"^{form.number}$").all(),
            f"truth{place}": field.lower().isin(("true", "false")).all(),
            f"any{place}": field.count() > 0,
        }
    row = first_row(fields.aggregate(**tests)) if wanted else {}
    meaning = {"whole": "int64", "number": "float64", "truth": "boolean"}
    kinds = {}
    for place, name in enumerate(wanted):
        kind = next((kind for test, kind in meaning.items() if row[f"{test}{place}"]), "string")
        kinds[name] = kind if row[f"any{place}"] else "float64"
    return kinds


def _typed(field: Any, kind: str, form: CsvForm) -> Any:
    if kind in ("boolean", "string"):
        return field.lower() == "true" if kind == "boolean" else field
    return (field if form.decimal == "." else field.replace(form.decimal, ".")).cast(kind)


def _query_rows(rows: Any, sql: str) -> Any:
    """Return a query of files or of a frame, which it calls "rows"."""
    backend = rows.get_backend()
    backend.raw_sql(f"CREATE OR REPLACE TEMP VIEW rows AS {query_text(rows)}")
    try:
        return _query(backend, sql)
    except Exception as problem:
        raise SourceError(
            f"the query was refused ({type(problem).__name__})",
            f"The source is the table rows: SELECT * FROM rows WHERE …. Its columns: {listed(rows.columns)}.",
        ) from None


# ── connections ────────────────────────────────────────────────────────────────────────────────


def without_secrets(url: str) -> str:
    """Return a URL without user, password and options."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"


def _split(url: str) -> SplitResult:
    if url.startswith("spark://local"):  # local[4] is no host
        place, _, options = url.removeprefix("spark://").partition("?")
        return SplitResult("spark", place, "", options, "")
    try:
        return urlsplit(url)
    except ValueError:
        raise SourceError(
            "the connection URL cannot be read", "Percent-encode special characters of the user and the password."
        ) from None


def connect(url: str) -> Any:
    """Connect to the engine of a URL; raise `SourceError` where it cannot be reached."""
    url = re.sub(r"^(\w+)\+\w+://", r"\1://", url)  # SQLAlchemy's driver; Ibis has its own
    parts = _split(url)
    named_engine(parts.scheme)  # before anybody installs its driver
    if parts.scheme in _EXTRAS:
        need_extra(f"reading from {parts.scheme}", *_EXTRAS[parts.scheme])
    if parts.scheme == "spark":
        return _spark(parts, url)
    if parts.scheme in _ELSEWHERE:
        raise SourceError(
            f"files are not read from {parts.scheme}://",
            "Give a path, or an address that begins with https://, s3://, gs:// or abfs://.",
        )
    try:
        if parts.scheme == "duckdb":
            return ibis.duckdb.connect(_database(parts), read_only=True)
        if parts.scheme == "sqlite":
            return _sqlite(_database(parts))
        if parts.scheme in _MYSQL:
            return _mysql(url)
        return ibis.connect(url)
    except SourceError:
        raise
    except ImportError:
        remedy = f"Run: pip install 'ibis-framework[{parts.scheme}]'"
        raise SourceError(f"reading from {parts.scheme} needs a driver", remedy) from None
    except ValueError:
        raise SourceError(
            f"{parts.scheme!r} is not an engine that Ibis knows", "Use for example postgresql:// or spark://."
        ) from None
    except Exception as problem:
        raise _unreachable(url, problem) from None


def _unreachable(url: str, problem: Exception) -> SourceError:
    return SourceError(
        f"no connection to {without_secrets(url)} ({type(problem).__name__})",
        "Check host, port, database, user and password, and that the server runs.",
    )


def _database(parts: SplitResult) -> str:
    """Return the file of a database, which must be there: connecting would make an empty one.

    After three slashes it may also be beside us, as SQLAlchemy reads it: sqlite:///shop.db.
    """
    place = parts.netloc + parts.path
    existing = next((path for path in (place, place.removeprefix("/")) if Path(path).is_file()), None)
    if existing is None:
        raise SourceError(f"there is no file {Path(place).name!r}", "Check the path.")
    return existing


def _sqlite(place: str) -> Any:
    """Open a file of SQLite, which is not written to."""
    import sqlite3  # noqa: PLC0415 - few read from it

    connection = sqlite3.connect(f"{Path(place).absolute().as_uri()}?mode=ro", uri=True)
    connection.set_progress_handler(lambda: None, _STEPS_OF_SQLITE)  # Python sees there that somebody interrupts it
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
        return ibis.sqlite.from_connection(connection)
    except sqlite3.DatabaseError:
        connection.close()
        raise SourceError(f"{Path(place).name!r} is no database of SQLite", "Check the path.") from None


def _mysql(url: str) -> Any:
    """Connect to MySQL or MariaDB; Ibis knows one name, and asks for a driver of the same interface by another."""
    if importlib.util.find_spec("MySQLdb") is None:
        import pymysql  # noqa: PLC0415 - an extra

        pymysql.install_as_MySQLdb()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unable to set session timezone")  # `run_query` sets it by its offset
        backend = ibis.connect(f"mysql://{url.partition('://')[2]}")
    if type(backend.con).__module__.partition(".")[0] == "pymysql":
        _describe_queries(backend.con)
    return backend


def _describe_queries(connection: Any) -> None:
    """Give a connection of PyMySQL what Ibis asks about the columns of a query, under the names of another driver."""
    from pymysql.cursors import Cursor  # noqa: PLC0415 - an extra

    class Describing(Cursor):  # type: ignore[misc]
        @property
        def description_flags(self) -> list[int]:
            """The flags of the columns, such as that one is unsigned."""
            return [column.flags for column in self._result.fields]

    connection.cursorclass = Describing
    connection.get_character_set_info = lambda: {"mbmaxlen": 1}  # lengths are those of letters already


def _spark(parts: SplitResult, url: str) -> Any:
    """Start a Spark session: local, or with the master of a standalone cluster.

    Options of the URL are Spark's own: spark://host:7077?spark.executor.memory=4g.
    """
    from pyspark import SparkContext  # noqa: PLC0415 - an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415

    local = parts.netloc.startswith("local")
    if not local:
        _reach(parts, url)
    master = parts.netloc if "[" in parts.netloc else "local[*]" if local else f"spark://{parts.netloc}"
    builder = SparkSession.builder.master(master).appName("kanab").config("spark.ui.showConsoleProgress", "false")
    for name, value in parse_qsl(parts.query):
        builder = builder.config(name, value)
    running = SparkContext._active_spark_context is not None  # in any thread
    try:
        backend = ibis.pyspark.connect(builder.getOrCreate())
    except Exception as problem:
        raise SourceError(
            f"Spark did not start ({type(problem).__name__})",
            "It needs Java 17 or 21; set JAVA_HOME if there are several.",
        ) from None
    if not running:
        _STARTED.append(backend)
    return backend


def _close(backend: Any) -> None:
    """Close a connection that was made here; a Spark session, which may have other users, if it was started here."""
    if backend.name != "pyspark":
        backend.disconnect()
    elif any(backend is started for started in _STARTED):
        _STARTED[:] = [started for started in _STARTED if started is not backend]
        backend.disconnect()


def _reach(parts: SplitResult, url: str) -> None:
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 7077), timeout=_SPARK_TIMEOUT):
            return
    except (OSError, ValueError) as problem:
        raise _unreachable(url, problem) from None


def _open_connection(url: str, table: str | None, sql: str | None) -> Any:
    """Connect, and open a table or a query; what has neither is closed again."""
    backend = connect(url)
    try:
        return _countable(_open_table_or_query(backend, table, sql))
    except SourceError:
        _close(backend)
        raise


def _open_table_or_query(backend: Any, table: str | None, sql: str | None) -> Any:
    if (table is None) == (sql is None):
        names = _table_names(backend, "") if table is None else []
        known = f" There are: {listed(names)}." if names else ""
        raise SourceError(
            "a connection needs one table or one query", f"Name it (--table), or write it (--sql).{known}"
        )
    if sql is not None:
        try:
            return _query(backend, sql)
        except Exception as problem:
            raise SourceError(
                f"the query was refused ({type(problem).__name__})", "Run it in the engine's own shell to see why."
            ) from None
    schema, _, name = (table or "").rpartition(".")
    try:
        return backend.table(name, database=schema or None)
    except Exception:
        raise _no_table(backend, schema, name) from None


def _query(backend: Any, sql: str) -> Any:
    if backend.name != "duckdb":
        return backend.sql(sql)
    text = sql.strip().rstrip(";")
    backend.raw_sql(f"CREATE OR REPLACE TEMP VIEW kanab_query AS {text}")  # Ibis 12 cannot describe one to DuckDB 2
    return backend.table("kanab_query")


def _no_table(backend: Any, schema: str, name: str) -> SourceError:
    names = _table_names(backend, schema)
    near = closest(name, names, 3, 0.5)
    if near:
        hint = f"Did you mean {listed(near)}?"
    else:
        hint = f"There are: {listed(names)}." if names else "Check its name, its schema (schema.table) and your rights."
    return SourceError(f"there is no table {name!r}", hint)


def _table_names(backend: Any, schema: str) -> list[str]:
    """Return the names of a connection's tables, none where it does not tell."""
    try:
        if backend.name == "duckdb":  # Ibis 12 cannot list those of DuckDB 2
            return sorted(row[0] for row in backend.raw_sql("SELECT table_name FROM duckdb_tables()").fetchall())
        return sorted(backend.list_tables(database=schema or None))
    except Exception:
        return []
