"""Engines without a server here: the statement in their dialect, compared with a file that people can read.

``python -m tests.sources.test_compiled`` writes the files again.
"""

from pathlib import Path

import ibis
import ibis.expr.operations as ops
import pytest
import sqlglot
from sqlglot import exp

from kanab.counting.engine.dialects import query_text
from kanab.counting.engine.profiles import SampleProfiles
from kanab.counting.engine.sql import _careful_query, _make_query
from kanab.counting.engine.statement import first_stage, query_parts, write_statement
from kanab.errors import SourceError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan

from .conftest import Loader
from .dialects_in_duckdb import Dialect, InDuckDB, problems_of
from .shapes import SHAPES

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
    assert text.count(f" AS {WIDE[name]})") == 6  # sums, squares and products of whole numbers
    assert "GROUPING" not in text
    answers = [column.this for column in statement.selects[2:]]
    assert {type(answer) for answer in answers} <= {exp.Cast, exp.Case}
    assert len(list(statement.find_all(exp.Table))) == 2  # people once, their signatures once


@pytest.mark.slow
@pytest.mark.parametrize("name", DIALECTS)
def test_no_statement_of_ten_shapes_says_what_engines_understand_differently(name: str) -> None:
    if name == "bigquery":
        return  # sqlglot does not read all of it for DuckDB; an emulator does
    backend = InDuckDB(name)
    for count in SHAPES.values():
        count(Loader(name, backend, backend.put).store)
    assert len(backend.statements) > len(SHAPES)
    for text in backend.statements:
        assert list(problems_of(sqlglot.parse_one(text, dialect=backend.dialect))) == []


@pytest.mark.parametrize("text", ['SELECT SUM("a" * "b") FROM "t"', 'SELECT SUM("a") AS "s" FROM "t" GROUP BY 1'])
def test_what_engines_understand_differently_is_noticed(text: str) -> None:
    assert list(problems_of(sqlglot.parse_one(text, dialect="trino")))


def test_an_engine_that_rounds_what_leaves_it_is_refused_with_the_reason() -> None:
    with pytest.raises(SourceError, match="mssql cannot be counted in exactly: its texts of floats have six digits"):
        compiled("mssql")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for dialect in DIALECTS:
        (FOLDER / f"{dialect}.sql").write_text(compiled(dialect))
