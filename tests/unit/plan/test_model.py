from typing import Any

import pytest

from kanab.description import Covariate, Mean, Number
from kanab.errors import PlanError
from kanab.plan.check import check_plan
from kanab.plan.model import CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan, make_plan
from kanab.tally.metric import Metric


def plan_of(*experiments: ExperimentPlan, **parts: Any) -> Plan:
    return Plan(parts.pop("metrics", (MetricPlan("spend"),)), experiments, **parts)


def test_the_tables_that_plans_need_are_of_one_covariate_each_and_every_pair_is_one() -> None:
    checkout = ExperimentPlan("checkout", adjust=("tier", "age"), segments=("tier", "device"))
    banner = ExperimentPlan("banner", interactions=("checkout", "font"))
    plan = plan_of(checkout, banner, ExperimentPlan("font", interactions=("banner",)))
    assert plan.linkages == (
        Linkage(("checkout",), "tier", "marginals"), Linkage(("checkout",), "age", "arm"),
        Linkage(("checkout",), "device", "marginals"), Linkage(("banner",)), Linkage(("banner", "checkout")),
        Linkage(("banner", "font")), Linkage(("font",)),
    )  # fmt: skip
    assert plan.covariates_in_use == ("tier", "age", "device")


def test_the_only_experiment_needs_no_name_and_one_of_several_does() -> None:
    one, two = ExperimentPlan("one"), ExperimentPlan("two")
    assert plan_of(one).experiment() is one
    assert plan_of(one, two).experiment("two") is two
    with pytest.raises(PlanError, match=r"several experiments, and none named\. The plan has: one, two\."):
        plan_of(one, two).experiment()
    with pytest.raises(PlanError, match="unknown experiment"):
        plan_of(one, two).experiment("three")


def test_a_covariate_that_was_not_declared_takes_its_levels_from_the_data() -> None:
    plan = plan_of(ExperimentPlan("checkout"), covariates=(CovariatePlan("tier", (1, 2)),))
    assert plan.covariate("tier").levels == (1, 2)
    assert plan.covariate("device") == CovariatePlan("device")


def test_a_metric_is_declared_when_its_bounds_are_known() -> None:
    assert MetricPlan("bought", binary=True).metric() == Metric("bought", 1, (0, 1))
    assert MetricPlan("spend", (0, 500), 0.01, missing="exclude").metric() == Metric("spend", 100, (0, 500), "exclude")
    assert [MetricPlan("a", binary=True).declared, MetricPlan("a", (0, 5)).declared, MetricPlan("a").declared] == [
        True, True, False,
    ]  # fmt: skip


def test_flags_build_the_whole_plan() -> None:
    plan = make_plan(
        "variant",
        [Mean("spend", bounds=[0, 500], resolution=0.01, missing="exclude"), "bought"],
        adjust=[Covariate("tier", bins=[10, 20])],
        segments=[Covariate("country", top=20)],
        arms={"A": 9, "B": 1},
        control="B",
        k=20,
    )
    assert plan == Plan(
        (MetricPlan("spend", (0, 500), 0.01, missing="exclude"), MetricPlan("bought")),
        (ExperimentPlan("variant", (("A", 9), ("B", 1)), "B", ("tier",), ("country",)),),
        (CovariatePlan("tier", bins=(10, 20)), CovariatePlan("country", top=20)),
        20,
    )
    assert check_plan(plan) is plan


def test_flags_spell_arms_as_levels() -> None:
    plan = make_plan("variant", ["spend"], arms={0.0: 1, True: 1}, control=0.0)
    assert plan.experiment().arms == (0, True)
    assert plan.experiment().control == 0


def test_values_that_contradict_each_other_are_refused() -> None:
    for metrics, adjust, segments, fact in (
        (["spend", Mean("spend", bounds=(0, 5))], [], [], "'spend' is named twice"),
        ([Mean("spend", clip="99%")], [], [], "the clip of 'spend' is a point of the rows"),
        (["spend"], [Number("spend")], [], "'spend' is a metric to compare, and adjusted for as a number"),
        (["spend"], [Number("age")], ["age"], "'age' is adjusted for as a number, and a number has no segments"),
        (["spend"], [Covariate("age", bins=5)], [Covariate("age", bins=3)], "'age' is said to be two things"),
    ):
        with pytest.raises(PlanError, match=fact):
            make_plan("variant", metrics, adjust, segments)


def test_what_is_said_of_a_covariate_once_holds_in_both_of_its_roles() -> None:
    plans = [make_plan("variant", ["spend"], *sides) for sides in (([BINS], ["age"]), (["age"], [BINS]))]
    assert plans[0] == plans[1] == make_plan("variant", ["spend"], [BINS], [BINS])


BINS = Covariate("age", bins=5)
SHOP = plan_of(
    ExperimentPlan("checkout", adjust=("tier", "age"), segments=("device", "tier")),
    ExperimentPlan("banner", segments=("device",), interactions=("checkout",)),
    ExperimentPlan("font"),
    metrics=(MetricPlan("spend", squares="class"), MetricPlan("orders"), MetricPlan("each", ratio=("spend", "orders"))),
    covariates=(CovariatePlan("age", bins=3), CovariatePlan("country", top=5)),
)


def test_a_ratio_is_no_metric_that_is_counted() -> None:
    assert SHOP.metric_names == tuple(SHOP.metrics_by_name) == ("spend", "orders", "each")
    assert [metric.name for metric in SHOP.counted_metrics] == ["spend", "orders"]
    assert SHOP.ratios == (("spend", "orders"),)
    assert SHOP.metrics_squared_by_class == {"spend"}


def test_the_tables_of_an_experiment_are_those_without_another_one() -> None:
    assert SHOP.experiment_names == ("checkout", "banner", "font")
    assert [link.name for link in SHOP.linkages_of("banner")] == ["banner/device"]
    assert [link.axes for link in SHOP.linkages_of("font")] == [("font",)]
    assert SHOP.linkages[-2].axes == ("banner", "checkout")
