"""The largest values of a class, from every engine as from rows."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from kanab.counting.engine import sql
from kanab.counting.engine.sql import count_table
from kanab.counting.rows import count_rows
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan, make_plan

from .conftest import Loader
from .test_engines import SHOP, assert_same, plain_largest


def test_pairs_bins_and_other_levels_have_the_largest_of_rows(engine: Loader) -> None:
    plan = Plan(
        (
            MetricPlan("spend", (0, 5_000), 0.01),
            MetricPlan("balance", (-20_000, 100), 0.5, missing="exclude"),
            MetricPlan("orders"),
            MetricPlan("bought", binary=True),
        ),
        (
            ExperimentPlan("variant", (("A", 1), ("B", 1)), adjust=("prior", "device"), interactions=("banner",)),
            ExperimentPlan("banner", segments=("vip",)),
        ),
        (CovariatePlan("prior", bins=3), CovariatePlan("device", top=1)),
    )
    counted = count_table(engine.load(SHOP), plan)
    assert_same(counted, count_rows(SHOP, plan))
    assert set(plain_largest(counted)) >= {
        (table, metric)
        for table in ("variant/prior", "variant/device", "variant/banner", "banner/vip")
        for metric in ("spend", "balance")
    }


def test_missing_levels_negative_zero_and_nan_are_the_classes_of_the_table(engine: Loader) -> None:
    table = pa.table(
        {
            "variant": ["A", "B"] * 6,
            "x": pa.array([0.0, -0.0, None, 0.0, -0.0, math.nan, None, None, -0.0, 0.0, math.nan, 2.5], pa.float64()),
            "y": pa.array([1.5, None, 3.0, 9.5, 9.5, 2.0, math.nan, -8.0, 9.5, -9.5, 4.0, 7.0], pa.float64()),
        }
    )
    plan = make_plan("variant", ["y"], adjust=["x"])
    counted = count_table(engine.load(table), plan)
    assert_same(counted, count_rows(table, plan))
    assert plain_largest(counted) == {
        ("variant/x", "y"): [[[95, 0, 40], [95, 70, 80]], [[95, 0, 30], [95, 0, 20]], [[205, 0, 70], [190, 70, 100]]]
    }


def test_only_the_chosen_rows_and_whole_people_are_looked_at(engine: Loader) -> None:
    table = engine.load(
        {
            "user": [1, 1, 2, 3, 3, 4, 5, 6],
            "variant": ["A", "A", "A", "B", "B", "B", "A", "B"],
            "kind": ["x", "x", "x", "x", "x", "x", "y", "y"],
            "spend": [4.0, 5.0, 2.0, 1.0, 1.0, 7.0, 100.0, 100.0],
        }
    )
    counted = count_table(table, make_plan("variant", ["spend"]), unit="user", where="kind = 'x'")
    assert plain_largest(counted) == {("variant", "spend"): [[9, 7], [2, 2], [11, 9]]}


def test_large_sums_ask_for_nothing_more(engine: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(sql, "query_largest", never)
    plan = make_plan("variant", ["spend"], bounds={"spend": (0, 60)}, resolution={"spend": 0.01})
    assert count_table(engine.load(SHOP), plan).largest == {}
