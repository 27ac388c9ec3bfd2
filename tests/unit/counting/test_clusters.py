"""Clusters: which plan counts them, and what they cannot have."""

from dataclasses import replace

import pytest

from kanab.counting.clusters import bounds_of_people, by_clusters, cluster_columns
from kanab.description import Mean, Quantile, Ratio
from kanab.errors import PlanError
from kanab.plan import parse_plan
from kanab.plan.model import MetricPlan, Plan, make_plan


def test_a_plan_of_clusters_has_sums_people_and_every_metric_per_person() -> None:
    plan = by_clusters(make_plan("variant", [Mean("spend", bounds=(0, 500)), "orders", Ratio("spend", "orders")]))
    assert plan.metric_names == ("spend", "orders", "people", "spend/orders", "spend/people", "orders/people")
    assert plan.metrics_by_name["spend"].bounds is None  # how large a cluster is, nobody said
    assert by_clusters(plan) is plan
    assert bounds_of_people(plan) == {}


def test_bounds_of_a_cluster_follow_from_those_of_people_and_of_its_size() -> None:
    plan = parse_plan(
        """
        [metrics]
        spend = { bounds = [5, 500], resolution = 0.01 }
        bought = { kind = "binary" }
        people = { bounds = [1, 300] }
        [experiments.variant]
        arms = { A = 1, B = 1 }
        """
    )
    assert bounds_of_people(plan) == {"spend": (5, 500)}
    metrics = by_clusters(plan).metrics_by_name
    assert metrics["spend"] == MetricPlan("spend", (0, 150_000), 0.01)
    assert metrics["bought"] == MetricPlan("bought", (0, 300), 1)
    assert metrics["people"] == MetricPlan("people", (0, 300), 1)


def changed(plan: Plan, **choices: object) -> Plan:
    return replace(plan, experiments=(replace(plan.experiment(), **choices),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (make_plan("variant", ["spend"], segments=["tier"]), "segments are of people"),
        (
            make_plan("variant", ["spend", Quantile("spend", at=0.5, bins=[0, 5, 9])]),
            "quantiles are of people",
        ),
        (make_plan("variant", ["spend"], treatment_received="opened"), "received is of people"),
        (make_plan("variant", [Mean("spend", missing="exclude")]), "a missing value is 0"),
        (make_plan("variant", [Mean("spend", min_events=5)]), "rules about people with a value"),
        (changed(make_plan("variant", ["spend"]), interactions=("banner",)), "interactions are of people"),
        (changed(make_plan("variant", ["spend"]), numbers=("before",)), "names a number of people"),
        (make_plan("variant", ["people"]), "only the people of clusters are counted"),
    ],
)
def test_what_clusters_cannot_have_is_refused_with_the_place(plan: Plan, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        by_clusters(plan)


@pytest.mark.parametrize("by", [[], [""], ["shop", "shop"], ""])
def test_columns_that_make_no_cluster_are_refused(by: list[str] | str) -> None:
    with pytest.raises(PlanError, match="what arms were assigned by is not said"):
        cluster_columns(by)
