"""Several plans in one pass: each part is what counting that plan by itself gives, in every engine."""

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.counted import Counted
from kanab.counting.engine.people import Events, Units
from kanab.counting.engine.sql import count_table
from kanab.counting.in_memory import count_rows
from kanab.description import Covariate, Mean
from kanab.errors import KanabError, SourceError
from kanab.plan.joint_plan import join_plans
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan

from .conftest import Loader
from .test_engines import DECLARED, SHOP, assert_same
from .test_people import VISITS

AB = (("A", 1), ("B", 1))


def joined(table: Any, plans: Sequence[Plan], **choices: Any) -> Counted:
    return count_table(table, join_plans(plans, table.columns, apart="events" in choices), Units(**choices))


def assert_part(found: Counted, alone: Counted) -> None:
    """Everything but signatures, whose rows are those of all plans together."""
    assert list(found.tallies) == list(alone.tallies)
    for name, tally in alone.tallies.items():
        assert found.tallies[name].factors == tally.factors
        assert found.tallies[name] == tally, name
    for field in ("clamped", "missing", "excluded", "outside", "ranges", "bounds_declared", "where"):
        assert getattr(found, field) == getattr(alone, field), field
    assert list(found.clamped) == list(alone.clamped)
    assert people_of(found) == people_of(alone)


def people_of(counted: Counted) -> dict[Any, int]:
    """People by their classes in the plan's own tables, without those who are in none."""
    found: dict[Any, int] = {}
    signatures = counted.signatures
    assert signatures is not None
    for i, n in enumerate(signatures.people.tolist()):
        cells = tuple(signatures.cells[i].tolist())
        present = () if signatures.present is None else tuple(signatures.present[i].tolist())
        if any(cell >= 0 for cell in cells):
            key = *zip(signatures.tables, cells, strict=True), *zip(signatures.metrics, present, strict=True)
            found[key] = found.get(key, 0) + n
        else:
            assert not any(present)
    return found


def assert_row_by_row(counted: Counted) -> None:
    signatures = [each.signatures for each in (counted, *counted.earlier)]
    assert all(each.people.tolist() == signatures[0].people.tolist() for each in signatures)
    marks = [part for each in signatures for part in (each.cells, each.present) if part is not None]
    wide = np.concatenate(marks, axis=1)
    assert len(np.unique(wide, axis=0)) == len(wide)


def assert_all(counted: Counted, alone: Sequence[Counted], together: Counted) -> None:
    """Each part as by itself, and the whole as NumPy has it."""
    assert_row_by_row(counted)
    assert len(counted.earlier) == len(alone) - 1
    for found, expected in zip((counted, *counted.earlier), alone, strict=True):
        assert_part(found, expected)
    assert_same(counted, together)
    for found, expected in zip(counted.earlier, together.earlier, strict=True):
        assert_same(found, expected)


OTHERS = (
    # the same experiment: other bins, other bounds, another rule for missing values, squares per class
    Plan(
        (
            MetricPlan("spend", (0, 30), 0.5),
            MetricPlan("orders", squares="class"),
            MetricPlan("rating", (1, 5), 1, missing="exclude", sensitive="yes"),
            MetricPlan("balance", missing="exclude"),
        ),
        (ExperimentPlan("variant", AB, control="B", segments=("tier", "prior")),),
        (CovariatePlan("prior", bins=3), CovariatePlan("device", top=1)),
        k=20,
    ),
    # other arms, another experiment alone, products, and a metric that was a covariate
    Plan(
        (
            MetricPlan("spend"),
            MetricPlan("orders", (0, 4), 1),
            MetricPlan("per order", ratio=("spend", "orders")),
            MetricPlan("tier", missing="exclude"),
        ),
        (ExperimentPlan("variant", adjust=("device",)), ExperimentPlan("banner")),
        (CovariatePlan("device", top=1),),
    ),
    # only the other experiment, the pair the other way round, the product too
    Plan(
        (
            MetricPlan("orders"),
            MetricPlan("spend", (0, 60), 0.01),
            MetricPlan("back", ratio=("orders", "spend")),
            MetricPlan("huge"),
        ),
        (ExperimentPlan("banner", ((0, 1), (1, 1)), adjust=("prior",), interactions=("variant",)),
         ExperimentPlan("variant", AB)),
        (CovariatePlan("prior", bins=(10.0, 50.0)),),
    ),
)  # fmt: skip


def test_older_plans_are_counted_again_in_one_pass(engine: Loader) -> None:
    plans = (DECLARED, OTHERS[0]) if engine.name == "pyspark" else (DECLARED, *OTHERS)  # four take Spark minutes
    counted = joined(engine.load(SHOP), plans)
    assert_all(counted, [count_rows(SHOP, one) for one in plans], count_rows(SHOP, plans[0], plans[1:]))


def test_a_bound_above_zero_does_not_refuse_people_whom_the_metric_is_not_about(engine: Loader) -> None:
    people = {"variant": ["A", "B", None], "banner": [0, 1, 1], "y": [1.0, 2.0, None]}
    above = Mean("y", bounds=(1, 5), missing="zero")
    first, second = make_plan("variant", [above]), make_plan("banner", [])
    counted = joined(engine.load(people), [first, second])
    assert counted.missing == {"y": 0}
    with pytest.raises(KanabError, match="outside its bounds"):
        joined(engine.load(people), [second, make_plan("banner", [above])])


def test_who_is_left_out_of_a_metric_is_decided_on_the_people_of_each_plan(engine: Loader) -> None:
    people = {"variant": ["A", "B", None], "banner": [0, 1, 1], "y": [1.0, 2.0, None]}
    counted = joined(engine.load(people), [make_plan("variant", ["y"]), make_plan("banner", ["y"])])
    rules = [
        each.tallies[name].metrics[0].missing for each, name in ((counted, "variant"), (counted.earlier[0], "banner"))
    ]
    assert rules == ["zero", "exclude"]


def test_a_column_of_nothing_is_missing_for_everybody(duckdb_loader: Loader) -> None:
    table = duckdb_loader.load({"variant": ["A", "B", None], "banner": [0, 1, 1]}).mutate(y=ibis.null())
    plans = [make_plan("variant", ["y"]), make_plan("banner", ["y"])]
    counted = joined(table, plans)
    assert (counted.missing, counted.earlier[0].missing) == ({"y": 2}, {"y": 3})


# ── several rows per person ────────────────────────────────────────────────────────────────────


def test_rows_are_added_up_once_for_all_plans(engine: Loader, duckdb_loader: Loader) -> None:
    rows = VISITS | {"banner": [None if place % 7 == 0 else place % 5 % 2 for place in range(len(VISITS["pages"]))]}
    plans = (
        make_plan("variant", [Mean("spend", missing="exclude"), "share", "pages"], adjust=["tier"]),
        Plan(
            (MetricPlan("spend", (0, 40), 0.5), MetricPlan("pages", (0, 3), 1), MetricPlan("bought")),
            (ExperimentPlan("banner", segments=("vip",)), ExperimentPlan("variant", AB, interactions=("banner",))),
        ),
        make_plan("variant", ["pages"], adjust=["vip"], arms={"A": 1, "B": 1}),
    )
    in_duckdb = duckdb_loader.load(rows)
    how = {"spend": "mean", "pages": "max"}
    counted = joined(engine.load(rows), plans, unit="user_id", aggregate=how)
    for found, plan in zip((counted, *counted.earlier), plans, strict=True):
        own = {name: word for name, word in how.items() if name in {one.name for one in plan.metrics}}
        assert_part(found, count_table(in_duckdb, plan, Units(unit="user_id", aggregate=own)))
    assert_row_by_row(counted)
    assert counted.excluded == counted.earlier[1].excluded == 2
    assert counted.earlier[0].excluded > 2


def test_each_experiment_has_its_own_first_exposure(engine: Loader, duckdb_loader: Loader) -> None:
    start = datetime(2026, 3, 1, 12)
    rng = np.random.default_rng(5)
    exposures = {
        "user_id": [int(one) for one in rng.integers(0, 40, 160)],
        "variant": [None if x < 0.3 else "ABC"[int(x * 100) % 3] for x in rng.random(160)],
        "banner": [None if x < 0.5 else int(x * 1000) % 2 for x in rng.random(160)],
        "tier": [None if x < 0.1 else int(x * 100) % 3 for x in rng.random(160)],
        "time": [start + timedelta(hours=int(h)) for h in rng.integers(0, 400, 160)],
    }
    events = {
        "user_id": [int(one) for one in rng.integers(0, 50, 400)],
        "time": [start + timedelta(hours=int(h)) for h in rng.integers(0, 500, 400)],
        "spend": [None if x < 0.2 else round(30 * float(x), 2) for x in rng.random(400)],
    }
    plans = (
        make_plan("variant", ["spend"], adjust=["tier"], arms={"A": 1, "B": 1}),
        make_plan("banner", [Mean("spend", missing="exclude")], adjust=["tier"]),
        make_plan("variant", [Mean("spend", bounds=(0, 12))]),
        make_plan("variant", [Mean("spend", bounds=(0, 5))], segments=["tier"], arms={"A": 1, "B": 1}),
    )
    seen, happened = engine.load(exposures), Events(engine.load(events), window="3d")
    counted = joined(seen, plans, unit="user_id", events=happened)
    alone = duckdb_loader.load(exposures), Events(duckdb_loader.load(events), window="3d")
    for found, plan in zip((counted, *counted.earlier), plans, strict=True):
        assert_part(found, count_table(alone[0], plan, Units(unit="user_id", events=alone[1])))
    assert_row_by_row(counted)


# ── through the front door ─────────────────────────────────────────────────────────────────────


def test_names_that_look_like_aliases_are_left_alone(parquet: Any) -> None:
    rows = {"variant": list("ABAB"), "tier": [1, 2, 1, 2], "tier#2": [5, 5, 6, 6], "y": [1, 2, 3, 4]}
    plans = [
        make_plan("variant", ["y"], adjust=["tier"]),
        make_plan("variant", ["y"], adjust=[Covariate("tier", bins=(1.5,))]),
        make_plan("variant", ["y"], adjust=["tier#2"]),
    ]
    for source in (parquet(rows), rows):
        counted = kb.count(source, plans[0], earlier=plans[1:], rows=kb.Rows(where="y > 0" if source is rows else None))
        for found, plan in zip((counted, *counted.earlier), plans, strict=True):
            assert found.tallies == kb.count(rows, plan).tallies


def test_a_problem_of_an_older_plan_names_its_column(parquet: Any) -> None:
    rows = {"variant": list("ABAB"), "tier": [1, 2, 1, 2], "y": [1, 2, 3, 4]}
    old = Plan((MetricPlan("y"),), (ExperimentPlan("variant", adjust=("tier",)),), (CovariatePlan("tier", (1, 3)),))
    with pytest.raises(SourceError, match=r"covariate 'tier' holds a level that is not declared"):
        kb.count(parquet(rows), make_plan("variant", ["y"], adjust=["tier"]), earlier=[old])


# ── any rows ───────────────────────────────────────────────────────────────────────────────────

metrics = st.sampled_from(
    [
        MetricPlan("y"),
        MetricPlan("y", missing="exclude"),
        MetricPlan("y", (-50.0, 60.5), 0.5),
        MetricPlan("y", (-5.0, 6.0), 0.5, missing="exclude"),
        MetricPlan("y", resolution=0.25, squares="class"),
    ]
)
cuts: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"bins": 3}, {"bins": (0.0, 2.5)}, {"top": 2}])


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    arms = draw(st.sampled_from([None, AB]))
    uses = draw(st.sampled_from([(), ("x",)]))
    first = ExperimentPlan("variant", arms, adjust=uses)
    second = ExperimentPlan("other", segments=draw(st.sampled_from([(), ("x",)])))
    both = draw(st.sampled_from([(first,), (second,), (first, second), (second, first)]))
    if len(both) == 2 and draw(st.booleans()):
        both = (replace(both[0], interactions=(both[1].name,)), both[1])
    number = draw(metrics)
    own = (number, MetricPlan("z"), MetricPlan("r", ratio=draw(st.sampled_from([("y", "z"), ("z", "y")]))))
    return Plan(own if draw(st.booleans()) else (number,), both, (CovariatePlan("x", **draw(cuts)),))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[pa.Table, list[Plan]]:
    people = draw(st.integers(2, 25))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=people, max_size=people))

    table = pa.table(
        {
            "variant": pa.array(column(st.sampled_from(["A", "B", "C", None])), pa.string()),
            "other": pa.array(column(st.sampled_from([0, 1, None])), pa.int64()),
            "x": pa.array(column(st.sampled_from([None, -3.0, 0.0, 0.5, 2.5, 7.0, math.nan])), pa.float64()),
            "y": pa.array(column(st.none() | st.integers(-9000, 9000).map(lambda n: n / 100)), pa.float64()),
            "z": pa.array(column(st.none() | st.integers(0, 3)), pa.int64()),
        }
    )
    return table, draw(st.lists(plans(), min_size=2, max_size=4))


def outcome(count: Any, *given: Any) -> Any:
    try:
        return count(*given)
    except KanabError as problem:
        return type(problem)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=worlds())
def test_any_plans_over_any_rows_are_counted_as_each_by_itself(
    duckdb_loader: Loader, world: tuple[pa.Table, list[Plan]]
) -> None:
    table, wanted = world
    alone = [outcome(count_rows, table, one) for one in wanted]
    together = outcome(count_rows, table, wanted[0], wanted[1:])
    counted = outcome(joined, duckdb_loader.load(table), wanted)
    if any(isinstance(one, type) for one in alone):
        assert isinstance(together, type)
        assert isinstance(counted, type)
        return
    assert_all(counted, alone, together)
