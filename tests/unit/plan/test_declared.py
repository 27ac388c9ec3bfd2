"""What a plan declares of arms and levels."""

import pytest

from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan


def test_arms_are_declared_with_shares_or_alone_or_not_at_all() -> None:
    assert declared_arms(ExperimentPlan("x", (("A", 1), ("B", 2)))).levels == ("A", "B")
    assert declared_arms(ExperimentPlan("x", only=("A", "B"))).levels == ("A", "B")
    assert declared_arms(ExperimentPlan("x")) is None


def plan(covariate: CovariatePlan | None = None, **choices: object) -> Plan:
    shop = ExperimentPlan("x", (("A", 1), ("B", 1)), adjust=("age",), **choices)  # type: ignore[arg-type]
    metrics = (MetricPlan("latency", (0, 30), bins=3), MetricPlan("gone", binary=True))
    return Plan(metrics, (shop,), () if covariate is None else (covariate,))


@pytest.mark.parametrize(
    "covariate", [None, CovariatePlan("age"), CovariatePlan("age", bins=4), CovariatePlan("age", ("a",), top=2)]
)
def test_levels_that_the_data_decide_are_not_declared(covariate: CovariatePlan | None) -> None:
    assert declared_levels(plan(covariate), "age") is None


def test_levels_and_bins_have_the_missing_one_and_no_score_of_the_data() -> None:
    texts = declared_levels(plan(CovariatePlan("age", ("old", "young"))), "age")
    assert (texts.levels, texts.scores) == (("old", "young", None), None)
    numbers = declared_levels(plan(CovariatePlan("age", (3, 5))), "age")
    assert (numbers.levels, numbers.scores) == ((3, 5, None), (3.0, 5.0, None))
    bins = declared_levels(plan(CovariatePlan("age", bins=(30.0, 50.0))), "age")
    assert (bins.levels, bins.scores) == (("< 30", "30 – 50", "≥ 50", None), (0.0, 1.0, 2.0, None))


def test_bins_of_a_metric_have_a_missing_level_only_where_it_may_be_missing() -> None:
    for rule, gone in (("zero", ()), ("exclude", (None,)), (None, (None,))):
        metrics = (MetricPlan("latency", (0, 30), bins=3, missing=rule),)
        binned = Plan(metrics, (ExperimentPlan("x", quantiles={"latency": (0.5,)}),))
        assert declared_levels(binned, "latency").levels == ("< 0", "0 – 10", "10 – 20", "20 – 30", "≥ 30", *gone)
