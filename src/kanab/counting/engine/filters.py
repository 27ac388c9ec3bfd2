"""The rows of a source before anybody is counted: those for which an SQL condition holds, and a second table joined.

A condition that cannot be read is an error that says what is wrong with it.
"""

import re
from collections.abc import Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from kanab.counting.engine.dialects import first_row, query_text, run_query
from kanab.counting.engine.group_keys import kind_of
from kanab.counting.frames import check_column
from kanab.errors import QueryError, SourceError, closest, listed


def filter_rows(table: Any, where: str) -> Any:
    """Return the rows of a table for which an SQL condition holds; raise `SourceError` where it is none."""
    backend = table.get_backend()
    where = re.sub(r"^\s*where\s", "", where, flags=re.IGNORECASE)
    try:
        condition = sqlglot.parse_one(where, dialect=backend.dialect, into=exp.Condition)
        for column in condition.find_all(exp.Column):
            if column.name in table.columns:
                column.this.set("quoted", True)  # it may be called group or order
        text = f"SELECT * FROM ({query_text(table)}) AS kanab_rows WHERE {condition.sql(dialect=backend.dialect)}"
        list(run_query(backend, f"{text} LIMIT 0"))
        return backend.sql(text, schema=table.schema())
    except sqlglot.errors.SqlglotError:
        raise _unreadable(where, table) from None
    except QueryError:
        raise _unknown_column(condition, table) or _unreadable(where, table) from None


def _unreadable(where: str, table: Any) -> SourceError:
    """Return the error of a text that is no SQL; often a column is called like one of SQL's own words."""
    dialect = table.get_backend().dialect
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", " ", where)
    for name in table.columns:
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", bare, re.IGNORECASE) and not _is_name(name, dialect):
            return SourceError(
                f"the filter names the column {name!r}, which is a word of SQL itself",
                f"Write it in double quotes, and the whole in single ones: --where '\"{name}\" = …'.",
            )
    return SourceError(
        "the filter is not a condition that the engine understands",
        "Write it as after WHERE, for example: country = 'NO' AND age >= 18.",
    )


def _is_name(name: str, dialect: Any) -> bool:
    """Return whether a word by itself is read as a column."""
    try:
        return isinstance(sqlglot.parse_one(f"{name} = 1", dialect=dialect), exp.EQ)
    except sqlglot.errors.SqlglotError:
        return False


def _unknown_column(condition: Any, table: Any) -> SourceError | None:
    """Return the error of the first column that is not in the table; a text in double quotes is read as one."""
    known = [name.lower() for name in table.columns]
    for column in condition.find_all(exp.Column):
        name = column.name
        if name.lower() not in known:
            near = closest(name, table.columns, 3, 0.5)
            hint = f"Did you mean {listed(near)}?" if near else f"A text stands in single quotes: '{name}'."
            return SourceError(f"the filter names a column {name!r}, which is not there", hint)
    return None


def join_table(people: Any, other: Any, on: Sequence[str] | str | None) -> Any:
    """Return the rows of a table with the columns of another one, whose rows share the columns ``on``.

    Every row stays; where the other table has no match its columns are missing.
    """
    keys = [on] if isinstance(on, str) else list(on or ())
    for table in (people, other):
        for key in keys:
            check_column(key, table.columns)
    for key in keys:
        if (kind_of(people, key) == "text") != (kind_of(other, key) == "text"):
            raise SourceError(
                f"{key!r} holds texts in one table and numbers in the other", "Write it alike in both: 007 is a text."
            )
    twice = [name for name in other.columns if name in people.columns and name not in keys]
    if twice:
        raise SourceError(f"both tables have a column {listed(twice)}", "Rename or remove it in one of them.")
    known = other.filter(*(other[key].notnull() for key in keys))
    distinct = known.select(*keys).distinct()
    if _rows(known) != _rows(distinct):
        raise SourceError(
            f"the joined table has several rows with one {listed(keys)}",
            "Give each once: which of them counts is not for us to choose.",
        )
    if not _rows(people.semi_join(known, keys).limit(1)):
        raise SourceError(f"no {listed(keys)} of the joined table is in the source", "Check that both name it alike.")
    renamed = known.rename({f"{key}_kanab": key for key in keys})
    joined = people.left_join(renamed, [people[key] == renamed[f"{key}_kanab"] for key in keys])
    return joined.select(*people.columns, *(name for name in other.columns if name not in keys))


def _rows(table: Any) -> int:
    return int(first_row(table.aggregate(rows=table.count()))["rows"])
