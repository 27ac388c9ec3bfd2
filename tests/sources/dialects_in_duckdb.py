"""Dialects whose servers nobody can have here: their statements, checked, and run by DuckDB as sqlglot reads them."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import duckdb
import ibis
import ibis.expr.operations as ops
import pyarrow as pa
import sqlglot
from ibis.backends.sql import compilers
from sqlglot import exp

_NUMBER = itertools.count()
_NARROW = (exp.DType.INT, exp.DType.BIGINT)


class Dialect:
    """What compiling asks of a backend of Ibis, without its driver."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.compiler = getattr(compilers, name).compiler
        self.dialect = self.compiler.dialect

    def compile(self, expression: Any) -> str:
        return str(self.compiler.to_sqlglot(expression).sql(dialect=self.dialect))

    def _run_pre_execute_hooks(self, expression: Any) -> None:
        """Nothing is in memory."""


class InDuckDB(Dialect):
    """A backend that has DuckDB run the statements of a dialect, and keeps them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.con = duckdb.connect()
        self.statements: list[str] = []

    def put(self, _: Any, name: str, table: pa.Table) -> Any:
        self.con.register(name, table)
        return ops.DatabaseTable(name, schema=ibis.Schema.from_pyarrow(table.schema), source=self).to_expr()

    def sql(self, text: str, schema: Any) -> Any:
        name = f"rows{next(_NUMBER)}"
        self.con.execute(f"CREATE VIEW {name} AS {self._in_duckdb(text)}")
        return ops.DatabaseTable(name, schema=schema, source=self).to_expr()

    def raw_sql(self, text: str) -> Any:
        self.statements.append(text)
        return self.con.execute(self._in_duckdb(text))

    def _in_duckdb(self, text: str) -> str:
        return sqlglot.parse_one(text, dialect=self.dialect).transform(_as_meant).sql(dialect="duckdb")


def _as_meant(node: Any) -> Any:
    """Translate what sqlglot leaves as it is, or takes for something else."""
    if isinstance(node, exp.Quantile):  # PERCENTILE of Databricks lies between two values
        return exp.Anonymous(this="QUANTILE_CONT", expressions=[node.this, node.args["quantile"]])
    if isinstance(node, exp.Anonymous) and node.name.upper() == "INFINITY":
        return sqlglot.parse_one("CAST('Infinity' AS DOUBLE)")
    if isinstance(node, exp.Format):  # Trino's days
        return exp.Literal.string(node.name % tuple(int(part.name) for part in node.expressions))
    return node


def problems_of(statement: Any) -> Iterator[str]:
    """Yield what engines understand differently: narrow sums, groups by what is no key, names in other letters."""
    for total in statement.find_all(exp.Sum):
        if not _is_wide(total.this):
            yield f"a sum of something narrow: {total.sql()}"
    for group in statement.find_all(exp.Group):
        keys = [group.parent.selects[int(key.name) - 1] for key in group.expressions if isinstance(key, exp.Literal)]
        if any(key.find(exp.AggFunc) for key in keys) or group.args.get("grouping_sets"):
            yield f"groups by what is no key: {group.sql()}"
    for name in statement.find_all(exp.Column):
        if isinstance(name.this, exp.Identifier) and not name.this.quoted:
            yield f"a name without quotes: {name.sql()}"
    for union in statement.find_all(exp.Union):
        if len(union.left.selects) != len(union.right.selects):
            yield "parts of a union with different columns"


def _is_wide(summed: Any) -> bool:
    """Whether a sum is of decimals, of doubles, of what was summed before, or of true and false."""
    if isinstance(summed, exp.Cast) and summed.to.this in _NARROW:
        return isinstance(summed.this.unnest(), (exp.Predicate, exp.Connector, exp.Not, exp.Column))
    return isinstance(summed, (exp.Cast, exp.Column)) or _is_double(summed)


def _is_double(number: Any) -> bool:
    """Whether a product is one of doubles: of steps that were cast, or of what relations leave of amounts."""
    if isinstance(number, exp.Mul):
        return _is_double(number.left.unnest()) and _is_double(number.right.unnest())
    if isinstance(number, exp.Column):
        return re.fullmatch(r"r\d+", number.name) is not None
    return isinstance(number, exp.Cast) and number.to.this in (exp.DType.DOUBLE, exp.DType.FLOAT)
