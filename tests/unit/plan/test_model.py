from typing import Any

import pytest

from kanab.description import Covariate, Mean, Number
from kanab.errors import PlanError
from kanab.plan.check import check_plan
from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.metric_windows import MetricWindow, metric_window, windows_by_column
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
    bins = Covariate("age", bins=5)
    plans = [make_plan("variant", ["spend"], *sides) for sides in (([bins], ["age"]), (["age"], [bins]))]
    assert plans[0] == plans[1] == make_plan("variant", ["spend"], [bins], [bins])


def test_arms_are_declared_with_shares_or_alone_or_not_at_all() -> None:
    assert declared_arms(ExperimentPlan("x", (("A", 1), ("B", 2)))).levels == ("A", "B")
    assert declared_arms(ExperimentPlan("x", only=("A", "B"))).levels == ("A", "B")
    assert declared_arms(ExperimentPlan("x")) is None


def plan_with(covariate: CovariatePlan | None = None, **choices: object) -> Plan:
    shop = ExperimentPlan("x", (("A", 1), ("B", 1)), adjust=("age",), **choices)  # type: ignore[arg-type]
    metrics = (MetricPlan("latency", (0, 30), bins=3), MetricPlan("gone", binary=True))
    return Plan(metrics, (shop,), () if covariate is None else (covariate,))


@pytest.mark.parametrize(
    "covariate", [None, CovariatePlan("age"), CovariatePlan("age", bins=4), CovariatePlan("age", ("a",), top=2)]
)
def test_levels_that_the_data_decide_are_not_declared(covariate: CovariatePlan | None) -> None:
    assert declared_levels(plan_with(covariate), "age") is None


def test_levels_and_bins_have_the_missing_one_and_no_score_of_the_data() -> None:
    texts = declared_levels(plan_with(CovariatePlan("age", ("old", "young"))), "age")
    assert (texts.levels, texts.scores) == (("old", "young", None), None)
    numbers = declared_levels(plan_with(CovariatePlan("age", (3, 5))), "age")
    assert (numbers.levels, numbers.scores) == ((3, 5, None), (3.0, 5.0, None))
    bins = declared_levels(plan_with(CovariatePlan("age", bins=(30.0, 50.0))), "age")
    assert (bins.levels, bins.scores) == (("< 30", "30 – 50", "≥ 50", None), (0.0, 1.0, 2.0, None))


def test_bins_of_a_metric_have_a_missing_level_only_where_it_may_be_missing() -> None:
    for rule, gone in (("zero", ()), ("exclude", (None,)), (None, (None,))):
        metrics = (MetricPlan("latency", (0, 30), bins=3, missing=rule),)
        binned = Plan(metrics, (ExperimentPlan("x", quantiles={"latency": (0.5,)}),))
        assert declared_levels(binned, "latency").levels == ("< 0", "0 – 10", "10 – 20", "20 – 30", "≥ 30", *gone)


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("spend@7d..14d", MetricWindow("spend", 7 * 86_400, 14 * 86_400)),
        ("visit@0m..36h", MetricWindow("visit", 0, 36 * 3_600)),
        ("a@b@1w..2w", MetricWindow("a@b", 604_800, 2 * 604_800)),
    ],
)
def test_a_name_says_which_part_of_the_time_counts(name: str, window: MetricWindow) -> None:
    assert metric_window(name) == window


@pytest.mark.parametrize("name", ["spend", "spend@7", "spend@7d", "@7d..14d", "spend@7d..14", "spend@7d...14d"])
def test_other_names_are_names(name: str) -> None:
    assert metric_window(name) is None


@pytest.mark.parametrize("name", ["spend@7d..7d", "spend@2w..7d"])
def test_a_window_without_length_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=f"the window of '{name}' is empty. Write the earlier time first"):
        metric_window(name)


def test_several_windows_of_a_column_stand_in_the_order_of_time() -> None:
    names = ["spend@10d..14d", "spend@9d..14d", "spend", "visit@1d..2d", "spend@9d..10d"]
    assert windows_by_column(names) == {"spend": ["spend@9d..10d", "spend@9d..14d", "spend@10d..14d"]}
    assert metric_window("spend@12h..36h").days == (0.5, 1.5)  # type: ignore[union-attr]
