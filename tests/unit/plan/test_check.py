from typing import Any

import pytest
from tests.approved import assert_approved

from kanab.errors import PlanError
from kanab.plan.check import check_plan, find_mistakes, path_to
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan


def plan_of(*experiments: ExperimentPlan, **parts: Any) -> Plan:
    return Plan(parts.pop("metrics", (MetricPlan("spend"),)), experiments, **parts)


AB = (("A", 1), ("B", 1))
SHOP = ExperimentPlan("checkout", AB)
BINARY = MetricPlan("bought", binary=True)
SPEND = MetricPlan("spend")
ODD: Any = {"name": 7, "bounds": (0, 1, 2), "edges": ("a",), "half": 2.5, "share": "1", "rule": "level"}
"""What a type checker would refuse."""

METRICS: list[tuple[MetricPlan, ...]] = [
    (MetricPlan("s" * 65),),
    (MetricPlan("a\nb"),),
    (MetricPlan(ODD["name"]),),
    (BINARY, BINARY),
    (MetricPlan("spend", (0, float("inf"))),),
    (MetricPlan("spend", ODD["bounds"]),),
    (MetricPlan("spend", (0, 1e9), 1e-9),),
    (MetricPlan("spend", (0, 0.2), 1),),
    (MetricPlan("spend", missing=ODD["rule"]),),
    (MetricPlan("bought", binary=True, of="bought"),),
    (MetricPlan("aov", ratio=("spend", "spend")), SPEND),
    (MetricPlan("aov", ratio=("spend", "bought")), BINARY),
    (MetricPlan("r", ratio=("q", "bought")), MetricPlan("q", ratio=("spend", "bought")), SPEND, BINARY),
    (MetricPlan("r", (0, 1), ratio=("spend", "bought")), SPEND, BINARY),
    (MetricPlan("bought", binary=True, bins=(0.0, 1.0)),),
    (MetricPlan("spend", bins=(1.0,)),),
    (MetricPlan("spend", bins=(2.0, 1.0)),),
    (MetricPlan("spend", bins=tuple(map(float, range(1001)))),),
    (MetricPlan("spend", (0, 9), bins=1),),
    (MetricPlan("spend", bins=5),),
]
COVARIATES = [
    CovariatePlan("spend"),
    CovariatePlan("arm"),
    CovariatePlan("tier", (1,)),
    CovariatePlan("tier", ("a", "a")),
    CovariatePlan("tier", (True, 1)),
    CovariatePlan("tier", ("a", None)),
    CovariatePlan("tier", (2, 1)),
    CovariatePlan("tier", ("", "b")),
    CovariatePlan("tier", ("a", "b"), score=True),
    CovariatePlan("tier", bins=ODD["half"]),
    CovariatePlan("tier", bins=()),
    CovariatePlan("tier", bins=ODD["edges"]),
    CovariatePlan("tier", top=0),
]
EXPERIMENTS: list[tuple[ExperimentPlan, ...]] = [
    (ExperimentPlan(" ", AB),),
    (ExperimentPlan("tier", AB, adjust=("tier",)),),
    (ExperimentPlan("checkout", ((1, 1), ("1", 1))),),
    (ExperimentPlan("checkout", (("A", 1), ("B", ODD["share"]))),),
    (ExperimentPlan("checkout", (("A", 1), ("B", float("inf")))),),
    (ExperimentPlan("checkout", AB, interactions=("x",)),),
    (ExperimentPlan("checkout", AB, interactions=("checkout",)),),
    (ExperimentPlan("a", AB, interactions=("b",), exclude_with=("b",)), ExperimentPlan("b", AB)),
    (ExperimentPlan("checkout", AB, quantiles={"spend": (0.5,)}),),
    (ExperimentPlan("checkout", AB, quantiles={"spent": (0.5,)}),),
    (ExperimentPlan("checkout", AB, quantiles={"bought": (0.5,)}),),
    (ExperimentPlan("checkout", AB, quantiles={"time": (1,)}),),
    (ExperimentPlan("checkout", AB, numbers=("time",), quantiles={"time": (0.5,)}),),
    (ExperimentPlan("checkout", AB, numbers=("gone",)),),
    (ExperimentPlan("checkout", AB, numbers=("aov",)),),
    (ExperimentPlan("checkout", AB, numbers=("late",)),),
    (ExperimentPlan("checkout", AB, numbers=("spend", "bought", "time", "late", "aov")),),
    (ExperimentPlan("checkout", AB, received="aov"),),
    (ExperimentPlan("checkout", AB, received="time", numbers=("time",)),),
    (ExperimentPlan("a", AB, adjust=("b/c",)), ExperimentPlan("a/b", AB, adjust=("c",))),
    (ExperimentPlan("checkout", AB, segments=("time",), quantiles={"time": (0.5,)}),),
]
MEASURED = (
    SPEND,
    BINARY,
    MetricPlan("time", bins=(0.0, 1.0)),
    MetricPlan("late", missing="exclude"),
    MetricPlan("aov", ratio=("spend", "bought")),
)


def test_every_mistake_is_found_with_its_path() -> None:
    plans = [plan_of(SHOP, k=k) for k in (1, ODD["half"], True)]
    plans += [plan_of(SHOP, metrics=metrics) for metrics in METRICS]
    plans += [plan_of(SHOP, covariates=(covariate,)) for covariate in COVARIATES]
    plans += [plan_of(*experiments, metrics=MEASURED) for experiments in EXPERIMENTS]
    found = [list(find_mistakes(plan)) for plan in plans]
    assert all(found)
    assert_approved("plan/mistaken_values.txt", "\n".join("\n  ".join(mistakes) for mistakes in found) + "\n")


def test_what_is_no_plan_is_refused() -> None:
    with pytest.raises(PlanError, match="a plan is needed"):
        check_plan({"k": 10})  # type: ignore[arg-type]


def test_paths_are_written_as_in_the_file() -> None:
    assert path_to("metrics", "größe", "bounds") == "metrics.größe.bounds"
    assert path_to("metrics", 'a "b"') == 'metrics."a \\"b\\""'
