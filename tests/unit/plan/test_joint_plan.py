from dataclasses import replace
from typing import Any

import pytest
from tests.described import as_values

from kanab.description import Covariate, Mean
from kanab.errors import PlanError, SourceError
from kanab.plan.check import check_plan
from kanab.plan.joint_plan import (
    column_of,
    counting_terms,
    covariates_about,
    join_plans,
    own_names,
    people_of,
    populations,
    tables_about,
)
from kanab.plan.model import CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan, make_plan

AB = (("A", 1), ("B", 1))
SPEND = MetricPlan("spend", (0, 500), 0.01, missing="zero")
BOUGHT = MetricPlan("bought", binary=True, missing="zero")
PLAN = Plan(
    (SPEND, BOUGHT),
    (ExperimentPlan("checkout", AB, adjust=("tier",)), ExperimentPlan("banner", AB, interactions=("checkout",))),
    (CovariatePlan("tier", (1, 2, 3)),),
)


def tables(plan: Plan) -> list[str]:
    return [one.name for one in plan.linkages]


def test_a_plan_joined_with_itself_is_itself() -> None:
    joint = join_plans([PLAN, replace(PLAN, k=99)])
    assert joint.linkages == PLAN.linkages
    assert joint.metrics == PLAN.metrics
    assert (joint.copies, joint.about) == ({}, {})
    assert [view.plan.k for view in joint.views] == [10, 99]


def test_tables_of_one_experiment_are_united_each_once() -> None:
    other = make_plan("checkout", ["spend"], adjust=["device"], segments=["tier"], arms={"A": 3, "B": 1})
    first = make_plan("checkout", ["spend"], adjust=["tier"], arms={"A": 1, "B": 1})
    joint = join_plans([first, other, make_plan("checkout", ["spend"], arms={"A": 1, "B": 1})])
    assert joint.linkages == (
        Linkage(("checkout",), "tier", "marginals"),
        Linkage(("checkout",), "device"),
        Linkage(("checkout",)),
    )
    assert [one.name for one in joint.experiments] == ["checkout"]
    assert (joint.experiments[0].adjust, joint.experiments[0].segments) == (("device",), ("tier",))
    assert [one.name for one in joint.metrics] == ["spend"]


def test_the_same_name_with_another_meaning_gets_an_alias_of_the_same_column() -> None:
    other = replace(PLAN, metrics=(replace(SPEND, bounds=(0, 90)), BOUGHT), covariates=(CovariatePlan("tier", bins=2),))
    joint = join_plans([PLAN, other, replace(other, covariates=(CovariatePlan("tier", bins=3),))])
    assert tables(joint) == ["checkout/tier", "banner", "banner/checkout", "checkout/tier#2", "checkout/tier#3"]
    assert [one.name for one in joint.metrics] == ["spend", "bought", "spend#2"]
    assert joint.copies == {"tier#2": "tier", "spend#2": "spend", "tier#3": "tier"}
    assert [column_of(joint, name) for name in ("tier#3", "tier", "spend#2")] == ["tier", "tier", "spend"]
    assert joint.covariate("tier#3") == CovariatePlan("tier#3", bins=3)
    assert joint.about == {}


def test_what_another_plan_says_about_privacy_makes_no_alias() -> None:
    other = replace(PLAN, metrics=(replace(SPEND, of="bought", sensitive="both"), PLAN.metrics[1]))
    assert join_plans([PLAN, other]).copies == {}
    assert counting_terms(PLAN) == counting_terms(other) == counting_terms(replace(PLAN, k=20))
    assert counting_terms(PLAN) != counting_terms(replace(PLAN, metrics=(SPEND,)))


def test_true_is_not_the_number_one() -> None:
    numbers = replace(PLAN, experiments=(ExperimentPlan("checkout", ((0, 1), (1, 1))),))
    truths = replace(PLAN, experiments=(ExperimentPlan("checkout", ((False, 1), (True, 1))),))
    assert [one.name for one in join_plans([numbers, truths]).experiments] == ["checkout", "checkout#2"]
    assert counting_terms(numbers) != counting_terms(truths)


ONE = replace(PLAN, experiments=(PLAN.experiments[0],))


def test_what_is_declared_is_shared_also_by_plans_about_other_people() -> None:
    joint = join_plans([ONE, PLAN])
    assert (joint.copies, joint.about) == ({}, {})
    assert populations(joint) == (("checkout",), ("checkout", "banner"))
    assert covariates_about(joint, ("checkout",)) == {"tier"}
    assert tables_about(joint, ("checkout",)) == {"checkout/tier": {"spend", "bought"}}
    assert list(tables_about(joint)) == ["checkout/tier", "banner", "banner/checkout"]


@pytest.mark.parametrize(
    ("change", "copies"),
    [
        ({"metrics": (MetricPlan("spend"),)}, {"spend#2": "spend"}),
        ({"metrics": (MetricPlan("spend", resolution=0.5),)}, {"spend#2": "spend"}),
        ({"metrics": (MetricPlan("spend", (0, 500), 0.01),)}, {"spend#2": "spend"}),
        ({"covariates": (CovariatePlan("tier", bins=2),)}, {"tier#2": "tier"}),
        ({"covariates": (CovariatePlan("tier", bins=(1.5,)),)}, {"tier#2": "tier"}),
        ({"covariates": (CovariatePlan("tier", top=2),)}, {"tier#2": "tier"}),
        ({"covariates": ()}, {}),
    ],
)
def test_what_is_chosen_on_the_people_of_a_plan_is_its_own(change: dict[str, Any], copies: dict[str, str]) -> None:
    joint = join_plans([replace(ONE, **change), replace(PLAN, **change)])
    assert joint.copies == copies
    for alias, name in copies.items():
        assert joint.about == {name: ("checkout",)}
        assert people_of(joint, name) == ("checkout",)
        assert people_of(joint, alias) == ("checkout", "banner")
        assert joint == join_plans([replace(ONE, **change), replace(PLAN, **change)])
    same = join_plans([replace(PLAN, **change), replace(PLAN, k=20, **change)])
    assert (same.copies, same.about) == ({}, {})


def test_plans_about_other_people_share_nothing_if_they_are_kept_apart() -> None:
    joint = join_plans([ONE, PLAN], apart=True)
    assert joint.copies == {"tier#2": "tier", "spend#2": "spend", "bought#2": "bought"}
    assert joint.about == {"tier": ("checkout",), "spend": ("checkout",), "bought": ("checkout",)}
    assert tables_about(joint, ("checkout",)) == {"checkout/tier": {"spend", "bought"}}
    assert tables_about(joint)["checkout/tier#2"] == {"spend#2", "bought#2"}


def test_a_metric_is_about_the_people_of_the_plans_that_have_it() -> None:
    others = [make_plan(name, [Mean("spend", bounds=(0, 9), missing="zero")]) for name in ("a", "b")]
    joint = join_plans([*others, make_plan("c", [])])
    assert joint.about == {"spend": ("a", "b")}


def test_the_order_of_experiments_makes_no_other_people() -> None:
    turned = replace(PLAN, experiments=(ExperimentPlan("banner", AB), ExperimentPlan("checkout", AB, adjust=("tier",))))
    joint = join_plans([PLAN, turned])
    assert populations(joint) == (("checkout", "banner"),)
    assert joint.copies == {}
    assert tables(joint) == ["checkout/tier", "banner", "banner/checkout"]


def test_a_name_in_two_roles_is_two_names() -> None:
    first = make_plan("checkout", ["tier"])
    second = make_plan("checkout", [], adjust=["tier"])
    third = make_plan("tier", [])
    joint = join_plans([first, second, third])
    assert [one.name for one in joint.experiments] == ["checkout", "tier"]
    assert {name: joint.copies.get(name) for name in ("tier#2", "tier#3")} == {"tier#2": "tier", "tier#3": "tier"}
    check_plan(Plan(joint.metrics, joint.experiments, joint.covariates))


def test_an_alias_is_no_name_that_anything_has() -> None:
    one = make_plan("v", ["y"], adjust=["x"])
    other = make_plan("v", ["y"], adjust=[Covariate("x", bins=2), "x#2"])
    assert join_plans([one, other], taken=["x#3"]).copies == {"x#4": "x"}


def test_an_alias_of_a_long_name_is_short_enough_for_every_engine() -> None:
    name = "ö" * 60
    one, other = (
        make_plan("v", **as_values("make_plan", metrics=["y"], adjust=[name], bins={name: bins})) for bins in (2, 3)
    )
    assert join_plans([one, other]).copies == {f"{'ö' * 25}#2": name}


def test_a_product_is_kept_once_for_both_directions() -> None:
    visits = MetricPlan("visits", (0, 9), 1)
    there = replace(PLAN, metrics=(SPEND, visits, MetricPlan("r", ratio=("spend", "visits"))))
    back = replace(PLAN, metrics=(SPEND, visits, MetricPlan("r", ratio=("visits", "spend"))))
    assert join_plans([there, back]).products == (("spend", "visits"),)


def test_both_directions_of_a_pair_are_tables_of_their_own() -> None:
    turned = replace(
        PLAN, experiments=(replace(PLAN.experiments[0], interactions=("banner",)), ExperimentPlan("banner", AB))
    )
    assert tables(join_plans([PLAN, turned])) == ["checkout/tier", "banner", "banner/checkout", "checkout/banner"]


def test_two_tables_of_one_name_are_refused() -> None:
    with pytest.raises(PlanError, match="two plans need different tables called 'a/b'"):
        join_plans([make_plan("a", [], adjust=["b"]), make_plan("a/b", [])])


def test_problems_name_columns_and_not_aliases() -> None:
    joint = join_plans([PLAN, replace(PLAN, covariates=(CovariatePlan("tier", bins=2),))])
    with pytest.raises(SourceError) as found, own_names(joint):
        raise SourceError("covariate 'tier#2' has too many levels", "Keep fewer (--top tier#2=20).")
    assert str(found.value) == "covariate 'tier' has too many levels. Keep fewer (--top tier=20)."
    assert (found.value.fact, found.value.remedy) == (
        "covariate 'tier' has too many levels",
        "Keep fewer (--top tier=20).",
    )
    with pytest.raises(SourceError, match="'tier#2'"), own_names(PLAN):
        raise SourceError("covariate 'tier#2' is unknown")
