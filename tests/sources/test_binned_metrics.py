"""People by the bins of a metric, for quantiles: the same in memory and in every engine."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import kanab as kb
from kanab.counted import Counted
from kanab.counting.engine.sql import count_table
from kanab.counting.in_memory import count_rows
from kanab.description import Mean, Quantile
from kanab.plan.joint_plan import join_plans
from kanab.plan.model import make_plan

from .conftest import Loader

EDGES = [0.0, 50.0, 100.0, 200.0, 400.0]
RNG = np.random.default_rng(7)
LATENCY = np.round(np.exp(RNG.normal(4.5, 0.9, 600)), 2)
LATENCY[:5] = [50.0, 100.0, 0.0, -3.0, 400.0]
ROWS = {
    "variant": RNG.choice(["A", "B"], 600).tolist(),
    "tier": RNG.integers(1, 4, 600).tolist(),
    "latency": [None if number % 50 == 7 else value for number, value in enumerate(LATENCY.tolist())],
}
PLAN = make_plan(
    "variant",
    [Mean("latency", bounds=(0, 5000), resolution=0.01), Quantile("latency", at=[0.5, 0.9], bins=EDGES)],
    adjust=["tier"],
)


def with_rule(rule: str) -> kb.Plan:
    return replace(PLAN, metrics=(replace(PLAN.metrics[0], missing=rule), *PLAN.metrics[1:]))


@pytest.mark.parametrize("rule", ["exclude", "zero"])
def test_every_engine_counts_the_same_people_in_bins(engine: Loader, rule: str) -> None:
    plan = with_rule(rule)
    here, there = count_rows(ROWS, plan), count_table(engine.load(pa.table(ROWS)), plan)
    assert there.tallies == here.tallies
    assert there.tallies["variant/latency"].metrics == ()
    assert signatures(there) == signatures(here)


def test_bins_close_on_the_left_and_missing_values_are_zero_or_apart() -> None:
    zero, apart = (count_rows(ROWS, with_rule(rule)).tallies["variant/latency"] for rule in ("zero", "exclude"))
    assert apart.factors[1].labels == ("< 0", "0 – 50", "50 – 100", "100 – 200", "200 – 400", "≥ 400", "missing")
    known = np.array([value for value in ROWS["latency"] if value is not None])
    places = np.searchsorted(EDGES, known, side="right")
    assert [*apart.people_by("latency").values()] == [*np.bincount(places), ROWS["latency"].count(None)]
    assert zero.people_by("latency")["0 – 50"] == apart.people_by("latency")["0 – 50"] + 12


def test_a_plan_with_other_bins_is_counted_in_the_same_pass(duckdb_loader: Loader) -> None:
    zero = with_rule("zero")
    plans = (zero, replace(zero, metrics=(replace(zero.metrics[0], bins=(0.0, 100.0, 1000.0)), *zero.metrics[1:])))
    table = duckdb_loader.load(pa.table(ROWS))
    joint = count_table(table, join_plans(plans, table.columns))
    alone = [count_rows(ROWS, plan) for plan in plans]
    assert joint.tallies == alone[0].tallies
    assert joint.earlier[0].tallies == alone[1].tallies


def test_a_person_of_several_rows_is_in_the_bin_of_the_sum(duckdb_loader: Loader) -> None:
    visits = {"user": [n // 2 for n in range(80)], "variant": ["A", "A", "B", "B"] * 20, "latency": [30.0] * 80}
    table = duckdb_loader.load(pa.table(visits))
    counted = kb.count(
        table,
        arm="variant",
        metrics=[kb.Mean("latency", bounds=(0, 500)), kb.Quantile("latency", at=0.5, bins=EDGES)],
        rows=kb.Rows(unit="user"),
    )
    assert counted.tallies["variant/latency"].people_by("latency") == {"50 – 100": 40}


def test_the_gate_merges_neighbouring_bins_and_tells_nothing_of_how_many_people_were_in_each() -> None:
    released = kb.release(count_rows(ROWS, PLAN))
    table, levels = released.tables["variant/latency"], released.receipt.maps["variant/latency"]
    assert dict(levels.groups)["< 0 … 0 – 50"] == ("< 0", "0 – 50")
    assert levels.scores["< 0 … 0 – 50"] == 0.5  # halfway; a mean would be near 1
    assert int(table.people.min()) >= 10
    assert table.total == 600


def signatures(counted: Counted) -> dict[tuple[int, ...], int]:
    signed = counted.signatures
    assert signed is not None
    people: dict[tuple[int, ...], int] = {}
    for cells, count in zip(signed.cells.tolist(), signed.people.tolist(), strict=True):
        people[tuple(cells)] = people.get(tuple(cells), 0) + count
    return people
