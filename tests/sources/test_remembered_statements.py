"""Statements are written once per plan and columns: counting again asks Ibis for nothing, and gives the same digits."""

import gc
import weakref
from pathlib import Path

import duckdb
import ibis
import pyarrow as pa
import pytest
from ibis.backends.duckdb import Backend

from kanab.counting.connect import open_table, opened_table
from kanab.counting.engine import dialects
from kanab.counting.engine.dialects import first_row, query_text
from kanab.counting.engine.sql import count_table
from kanab.description import Mean
from kanab.plan.model import make_plan

PLAN = make_plan("variant", [Mean("spend", bounds=(0, 500)), "orders"], adjust=["tier"])


@pytest.fixture(autouse=True)
def _nothing_remembered(monkeypatch):
    monkeypatch.setattr(dialects, "_TEXTS", {})


@pytest.fixture
def compiled(monkeypatch):
    """The expressions that Ibis compiles."""
    expressions = []
    compile_ = Backend.compile
    monkeypatch.setattr(
        Backend, "compile", lambda self, expression: expressions.append(expression) or compile_(self, expression)
    )
    return expressions


def write(file: Path, people: int, seed: float) -> str:
    with duckdb.connect() as connection:
        connection.execute(f"SELECT setseed({seed})")
        connection.execute(
            f"""COPY (SELECT if(random() < 0.5, 'A', 'B') AS variant, 1 + floor(random() * 3)::INTEGER AS tier,
            round(random() * 100, 2) AS spend, floor(3 * random() * random())::INTEGER AS orders FROM range({people}))
            TO '{file}' (FORMAT parquet)"""
        )
    return str(file)


def count(source):
    with opened_table(source) as people:
        return count_table(people, PLAN)


def test_a_plan_is_compiled_once_for_files_with_the_same_columns(tmp_path, compiled):
    first, second = (write(tmp_path / f"{seed}.parquet", 3000, seed) for seed in (0.1, 0.2))
    count(first)
    before = len(compiled)
    assert before > 0
    again = count(second)
    assert len(compiled) == before
    dialects._TEXTS.clear()
    afresh = count(second)
    assert len(compiled) == 2 * before
    assert again.tallies == afresh.tallies
    assert again.tallies != count(first).tallies


def test_values_that_python_takes_for_equal_are_told_apart():
    table = open_table({"x": [1.0, 2.0]})
    literals = [ibis.literal(value, type=kind) for value, kind in ((1, "int64"), (True, "boolean"))]
    literals += [ibis.literal(value, type="float64") for value in (1.0, 0.0, -0.0)]
    for _ in range(2):
        texts = [query_text(table.mutate(y=literal)) for literal in literals]
        assert len(set(texts)) == len(texts)


def test_a_remembered_statement_keeps_no_connection_open(tmp_path):
    people = open_table(write(tmp_path / "people.parquet", 100, 0.1))
    count_table(people, PLAN)
    connection = weakref.ref(people.get_backend())
    del people
    gc.collect()
    assert dialects._TEXTS
    assert connection() is None


def test_tables_in_memory_are_not_remembered(compiled):
    for values in ([1, 2], [3, 4]):
        table = ibis.memtable(pa.table({"x": values}))
        assert first_row(table.aggregate(total=table.x.sum())) == {"total": sum(values)}
    assert len(compiled) == 2
    assert not dialects._TEXTS


def test_no_more_than_some_statements_are_remembered(monkeypatch):
    monkeypatch.setattr(dialects, "_MOST_TEXTS", 3)
    table = open_table({"x": [1.0]})
    for number in range(8):
        assert f" {number}.5" in query_text(table.mutate(y=table.x + (number + 0.5)))
        assert len(dialects._TEXTS) <= 3
