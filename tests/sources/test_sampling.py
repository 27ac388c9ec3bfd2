"""The quick form: a sample decides, everybody is checked, and the digits stay the same."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kanab.counting.connect import opened_table
from kanab.counting.engine import sql
from kanab.counting.engine.measures import SampledMetric, quick_measure
from kanab.counting.engine.sql import count_table
from kanab.counting.grids import Profile
from kanab.counting.in_memory import count_rows
from kanab.description import Mean, Ratio
from kanab.errors import GridError, KanabError, SourceError
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan

from .conftest import Loader
from .test_engines import DECLARED, SHOP, assert_same, counted_alike

OPEN = make_plan(
    "variant",
    ["spend", Mean("balance", resolution=0.5), "ties", "orders", "bought", "huge", Mean("rating", missing="exclude")],
    adjust=["tier"],
)


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The queries that an engine was given, in order."""
    given: list[Any] = []
    ask = sql._ask

    def listen(people: Any, query: Any) -> Any:
        given.append(query)
        return ask(people, query)

    monkeypatch.setattr(sql, "_ask", listen)
    return given


def people(**columns: Any) -> pa.Table:
    size = len(next(iter(columns.values())))
    return pa.table({"variant": ["A", "B"] * (size // 2), **columns})


@pytest.mark.parametrize("engine", ["duckdb", "postgres"], indirect=True)  # Spark has no quick form
@pytest.mark.parametrize("few", [1, 20, 300])
@pytest.mark.parametrize("plan", [DECLARED, OPEN])
def test_a_small_sample_changes_no_digit(engine: Loader, plan: Plan, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", few)
    assert_same(count_table(engine.load(SHOP), plan), count_rows(SHOP, plan), sampled=True)


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


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds())
def test_on_any_rows_a_sample_of_three_is_enough(duckdb_loader: Loader, world: tuple[pa.Table, Plan]) -> None:
    table, plan = world
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", 3)
        found, expected = outcome(count_table, duckdb_loader.load(table), plan), outcome(count_rows, table, plan)
    if isinstance(expected, type):
        assert refuse_alike(found, expected)
    else:
        assert_same(found, expected, sampled=True)


def test_squares_beyond_what_doubles_hold_are_counted_again_as_integers(
    duckdb_loader: Loader, queries: list[Any]
) -> None:
    steps = np.array([2**26, 2**26 + 1, 3, 5] * 2)  # squares of arm A pass 2^53 and are odd
    table, plan = people(y=steps / 100), make_plan("variant", [Mean("y", bounds=(0, 1e6), resolution=0.01)])
    few = SampledMetric(Profile(0, 1), mean_square=1.0)
    measure = quick_measure(0, plan.metrics[0], "number", few, sql.engine_of(duckdb_loader.load({"x": [1]})))
    assert measure is not None
    assert measure.doubles
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kanab.counting.engine.measures._PEOPLE_IN_DOUBLES", 0)
        counted = count_table(duckdb_loader.load(table), plan)
    assert [query.measures[0].doubles for query in queries] == [True, False]
    assert_same(counted, count_rows(table, plan))
    squares = counted.tallies["variant"].squares("y")
    assert squares is not None
    assert squares.tolist() == [2 * (2**52 + 9), 2 * ((2**26 + 1) ** 2 + 25)]


def test_sums_below_the_limit_are_asked_for_once(duckdb_loader: Loader, queries: list[Any]) -> None:
    steps = np.arange(1_000)
    plan = Plan(
        (MetricPlan("y", (0, 500), 0.01), MetricPlan("z", (0, 1_000), 1)), make_plan("variant", ["y"]).experiments
    )
    table = people(y=steps / 100, z=steps)
    counted_alike(duckdb_loader, table, plan)
    assert [[one.doubles for one in query.measures] for query in queries] == [[True, True]]


def test_steps_whose_squares_would_crowd_doubles_are_integers_at_once(
    duckdb_loader: Loader, queries: list[Any]
) -> None:
    table, plan = people(y=[1 / 3, 2 / 3, 300.1, 0.2]), make_plan("variant", [Mean("y", bounds=(0, 500))])
    counted_alike(duckdb_loader, table, plan)
    assert [query.measures[0].doubles for query in queries] == [False]


@pytest.mark.parametrize(
    ("values", "open_ends", "found"),
    [
        (np.linspace(0, 99.99, 1_000), (), (0, 10_000)),  # crowded at both ends: everybody is seen to keep 0 to 100
        (np.linspace(0.01, 99.99, 1_000), ("lo",), (1, 10_000)),  # small numbers may go on towards 0
        (np.r_[np.zeros(990), np.linspace(1, 400, 10)], ("hi",), (0, 50_000)),  # a long tail
    ],
)
def test_ends_that_are_not_crowded_are_looked_up(
    duckdb_loader: Loader, queries: list[Any], values: Any, open_ends: tuple[str, ...], found: tuple[int, int]
) -> None:
    table, plan = people(y=np.round(values, 2)), make_plan("variant", ["y"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", 1_000)
        counted = count_table(duckdb_loader.load(table), plan)
    assert [query.measures[0].open_ends for query in queries] == [open_ends]
    assert counted.ranges == count_rows(table, plan).ranges == {"y": found}


@pytest.mark.parametrize("gap", [None, 0, 37])
def test_people_without_a_value_are_left_out_wherever_they_are(
    engine: Loader, gap: int | None, queries: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", 10)
    table = people(y=[None if place == gap else place % 7 for place in range(40)])
    plan = make_plan("variant", [Mean("y", bounds=(0, 9), resolution=1)])
    assert_same(count_table(engine.load(table), plan), count_rows(table, plan), sampled=True)
    assert len(queries) == (2 if gap == 37 else 1)  # which the sample does not show
    assert queries[-1].measures[0].leaves_out == (gap is not None)


def test_the_range_holds_missing_values_that_count_as_zero(engine: Loader) -> None:
    table = people(y=[3.0, None, 7.0, 6.0])
    zero, excluded = (make_plan("variant", [Mean("y", missing=rule)]) for rule in ("zero", "exclude"))
    assert count_table(engine.load(table), zero).ranges == count_rows(table, zero).ranges == {"y": (0, 10)}
    assert count_table(engine.load(table), excluded).ranges == count_rows(table, excluded).ranges == {"y": (2, 10)}
    declared = make_plan("variant", [Mean("y", bounds=(0, 10))])
    assert count_table(engine.load(table), declared).ranges == count_rows(table, declared).ranges == {}


@pytest.mark.parametrize(("step", "late"), [(1, 3), (0.01, 2), (0.01, 0.5), (0.01, -1)])
def test_a_factor_that_is_0_or_1_in_the_sample_alone_is_a_number_like_others(
    engine: Loader, queries: list[Any], step: float, late: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", 10)
    visits = [float(place % 3 > 0) for place in range(38)]
    table = people(visits=[*visits, late, late], spend=[place % 7 * 2.5 for place in range(40)])
    parts = Mean("spend", bounds=(0, 20), resolution=0.5), Mean("visits", bounds=(-1, 9), resolution=step)
    plan = make_plan("variant", [*parts, Ratio("spend", "visits")])
    counted = count_table(engine.load(table), plan)
    assert_same(counted, count_rows(table, plan), sampled=True)
    assert counted.signatures is not None
    assert counted.signatures.numbers is not None
    assert (counted.signatures.numbers.names, counted.signatures.cut) == (("visits",), {})
    assert [query.cut for query in queries] == [{"visits"}, set()]


@pytest.mark.parametrize(
    ("last", "values"), [([4, 5], []), ([4, 90], ["orders"])], ids=["few", "more than the sample shows"]
)
def test_small_counts_are_not_asked_about_however_late_that_is_known(
    duckdb_loader: Loader, last: list[int], values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kanab.counting.engine.profiles.SAMPLE_SIZE", 100)
    table, plan = people(orders=[0] * 98 + [1] * 100 + last), make_plan("variant", ["orders"])
    counted = count_table(duckdb_loader.load(table), plan)
    assert [*counted.signatures.values] == [*count_rows(table, plan).signatures.values] == values


def test_a_nan_that_the_statistics_of_a_file_leave_out_is_missing(tmp_path: Path) -> None:
    """DuckDB proves bounds by a file's statistics, in which no NaN shows; the sums show it."""
    people = 30_000
    rows: dict[str, list[Any]] = {"variant": ["A", "B"] * (people // 2), "tier": [1, 2, 3] * (people // 3)}
    rows["spend"] = [float(person % 1000) / 100 for person in range(people)]
    rows["spend"][-5] = math.nan
    file = tmp_path / "people.parquet"
    pq.write_table(pa.table(rows), file)
    stated = pq.read_metadata(file).row_group(0).column(2).statistics
    assert (stated.min, stated.max, stated.null_count) == (0.0, 9.99, 0)
    plan = make_plan("variant", [Mean("spend", bounds=(0, 50), resolution=0.01, missing="exclude")], adjust=["tier"])
    with opened_table(file) as table:
        counted = count_table(table, plan)
    assert counted.missing == {"spend": 1}
    assert counted.tallies == count_rows(rows, plan).tallies
