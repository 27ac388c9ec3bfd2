"""Engines without a server here: the statement in their dialect, compared with a file that people can read.

``python -m tests.sources.test_compiled`` writes the files again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ibis
import ibis.expr.operations as ops
import pytest
import sqlglot
from ibis.backends.sql import compilers
from sqlglot import exp

from kanab.counting.engine.dialects import query_text
from kanab.counting.engine.profiles import SampleProfiles
from kanab.counting.engine.sql import _careful_query, _make_query
from kanab.counting.engine.statement import first_stage, query_parts, write_statement
from kanab.errors import SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan

DIALECTS = ("bigquery", "databricks", "snowflake", "trino")
FOLDER = Path(__file__).parent / "compiled"
WIDE = {"bigquery": "NUMERIC", "databricks": "DECIMAL(20, 0)", "snowflake": "DECIMAL(20, 0)", "trino": "DECIMAL(20, 0)"}

PLAN = Plan(
    (
        MetricPlan("spend", (0, 60), 0.01, missing="zero"),
        MetricPlan("balance", (-400, 400), 0.01, missing="zero"),
        MetricPlan("bought", binary=True),
        MetricPlan("each", ratio=("balance", "spend")),
    ),
    (ExperimentPlan("variant", (("A", 1), ("B", 1)), adjust=("tier",), segments=("vip",)),),
)
COLUMNS = {"variant": "string", "tier": "int64", "vip": "boolean"}
COLUMNS |= {"spend": "float64", "balance": "float64", "bought": "boolean"}


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


def compiled(name: str) -> str:
    backend = Dialect(name)
    people = ops.DatabaseTable("people", schema=ibis.schema(COLUMNS), source=backend).to_expr()
    query = _careful_query(people, _make_query(people, PLAN, flags=()), SampleProfiles({}, {}))
    stage = first_stage(people, query)
    text = write_statement(query_text(stage), query_parts(stage, query), query, backend.dialect)
    return f"{sqlglot.parse_one(text, dialect=backend.dialect).sql(dialect=backend.dialect, pretty=True)}\n"


@pytest.mark.parametrize("name", DIALECTS)
def test_the_statement_in_a_dialect_is_the_one_that_was_read(name: str) -> None:
    assert compiled(name) == (FOLDER / f"{name}.sql").read_text()


@pytest.mark.parametrize("name", DIALECTS)
def test_sums_are_wide_texts_leave_and_nothing_is_grouped_twice(name: str) -> None:
    text = compiled(name)
    statement = sqlglot.parse_one(text, dialect=name)
    assert text.count(f" AS {WIDE[name]})") >= 7
    assert "GROUPING" not in text
    answers = [column.this for column in statement.selects[2:]]
    assert {type(answer) for answer in answers} <= {exp.Cast, exp.Case}
    assert len(list(statement.find_all(exp.Table))) == 2  # people once, their signatures once


def test_an_engine_that_rounds_what_leaves_it_is_refused_with_the_reason() -> None:
    with pytest.raises(SourceError, match="mssql cannot be counted in exactly: its texts of floats have six digits"):
        compiled("mssql")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for dialect in DIALECTS:
        (FOLDER / f"{dialect}.sql").write_text(compiled(dialect))
