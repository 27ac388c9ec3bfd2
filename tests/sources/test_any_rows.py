"""Whatever the rows are: an engine and NumPy agree to the last digit."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanab.counting.engine.sql import count_table
from kanab.counting.in_memory import count_rows
from kanab.errors import GridError, KanabError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan

from .conftest import Loader
from .test_engines import assert_same

cents = st.integers(-100_000, 100_000).map(lambda steps: steps / 100)
reals = st.floats(-1e6, 1e6, allow_nan=False)
wholes = st.integers(-(2**40), 2**40)
some = [
    st.none() | cents,
    st.none() | reals,
    st.none() | wholes,
    st.booleans() | st.none(),
    st.sampled_from([0.0, 1.0]),
]


@st.composite
def worlds(draw: st.DrawFn) -> tuple[pa.Table, Plan]:
    people = draw(st.integers(1, 30))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=people, max_size=people))

    number = draw(st.sampled_from(some))
    declared = draw(st.booleans())
    missing = draw(st.sampled_from(["zero", "exclude"]))
    metric = MetricPlan("y", (-50.0, 60.5), 0.5, missing=missing) if declared else MetricPlan("y", missing=missing)
    arms = draw(st.sampled_from([None, (("A", 1), ("B", 2))]))
    cut = draw(st.sampled_from([{}, {"bins": 3}, {"bins": (0.0, 2.5)}, {"top": 2}]))
    table = pa.table(
        {
            "variant": pa.array(column(st.sampled_from(["A", "B", None])), pa.string()),
            "other": pa.array(column(st.sampled_from([0, 1, None])), pa.int64()),
            "x": pa.array(column(st.sampled_from([None, -3.0, 0.0, 0.5, 2.5, 7.0, math.nan])), pa.float64()),
            "y": pa.array(column(number)),
        }
    )
    if pa.types.is_null(table["y"].type):
        table = table.set_column(3, "y", table["y"].cast(pa.float64()))
    plan = Plan(
        (metric,),
        (
            ExperimentPlan("variant", arms, adjust=("x",), interactions=("other",)),
            ExperimentPlan("other", segments=("x",)),
        ),
        (CovariatePlan("x", **cut),),
    )
    return table, plan


def outcome(count: Any, table: Any, plan: Plan) -> Any:
    try:
        return count(table, plan)
    except KanabError as problem:
        return type(problem)


def refuse_alike(found: Any, expected: type) -> bool:
    """Rows with two faults, such as a single arm and values finer than every grid, fail by whichever is seen first."""
    return isinstance(found, type) and (
        issubclass(found, expected) or issubclass(expected, found) or {found, expected} == {GridError, SourceError}
    )


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds())
def test_duckdb_and_numpy_agree_on_any_rows(duckdb_loader: Loader, world: tuple[pa.Table, Plan]) -> None:
    table, plan = world
    found, expected = outcome(count_table, duckdb_loader.load(table), plan), outcome(count_rows, table, plan)
    if isinstance(expected, type):
        assert refuse_alike(found, expected)
    else:
        assert_same(found, expected)
