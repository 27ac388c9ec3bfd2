"""Arms that were assigned to groups of people: the plan of an experiment whose unit is a shop, a city or an hour.

A cluster counts once, with its number of people and the sum of every metric over them. Effects are of
Σ metric / Σ people: a ratio of two sums over clusters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kanab.errors import PlanError
from kanab.plan.check import path_to, refuse
from kanab.plan.model import CLUSTER_PEOPLE, MetricPlan, Plan

PEOPLE = CLUSTER_PEOPLE
"""A column of that name says how many people a row stands for."""


def cluster_columns(by: Sequence[str] | str) -> tuple[str, ...]:
    """Return the columns that make a cluster; raises `PlanError` where none is named, or one twice."""
    names = (by,) if isinstance(by, str) else tuple(by)
    if not names or not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise PlanError("what arms were assigned by is not said", "Name each column once: --cluster city,hour.")
    return names


def by_clusters(plan: Plan) -> Plan:
    """Return a plan of people as one of clusters: sums of metrics, people, and every metric per person.

    Bounds of a metric are a person's, as they were declared; those of a cluster's sum follow where the
    bounds of ``people`` are declared, too. A plan of clusters stays as it is.
    """
    if any(PEOPLE in pair for pair in plan.ratios):
        return plan
    refuse(list(_mistakes(plan)), "a plan of clusters")
    people = plan.metrics_by_name.get(PEOPLE, MetricPlan(PEOPLE))
    most = None if people.bounds is None else people.bounds[1]
    outcomes = [metric for metric in plan.counted_metrics if metric.name != PEOPLE]
    if not outcomes:
        raise PlanError("only the people of clusters are counted", "Name a metric to compare (--metric).")
    return replace(
        plan,
        metrics=(
            *(_summed(metric, most) for metric in outcomes),
            MetricPlan(PEOPLE, None if most is None else (0, most), 1),
            *(metric for metric in plan.metrics if metric.ratio is not None),
            *(MetricPlan(f"{metric.name}/{PEOPLE}", ratio=(metric.name, PEOPLE)) for metric in outcomes),
        ),
    )


def bounds_of_people(plan: Plan) -> dict[str, tuple[float, float]]:
    """Return the bounds of a person's values; none of a plan of clusters, whose bounds are those of their sums."""
    if any(PEOPLE in pair for pair in plan.ratios):
        return {}
    return {m.name: m.bounds for m in plan.counted_metrics if m.bounds is not None and m.name != PEOPLE}


def _summed(metric: MetricPlan, most: float | None) -> MetricPlan:
    """Return a metric as its sum over a cluster of at most so many people."""
    bounds = (0.0, 1.0) if metric.binary else metric.bounds
    reach = None if bounds is None or most is None else (min(0, most * bounds[0]), max(0, most * bounds[1]))
    return MetricPlan(metric.name, reach, 1 if metric.binary else metric.resolution)


def _mistakes(plan: Plan) -> Iterator[str]:
    """Yield what people have and clusters have not."""
    for experiment in plan.experiments:
        path = path_to("experiments", experiment.name)
        if experiment.segments:
            yield f"{path}.segments are of people, and clusters were assigned; adjust for what a cluster has instead"
        if experiment.numbers:
            yield f"{path}.adjust names a number of people, and clusters were assigned; use a covariate of clusters"
        if experiment.interactions:
            yield f"{path}.interactions are of people who were assigned twice, and clusters were assigned"
        if experiment.received is not None:
            yield f"{path}.received is of people, and clusters were assigned; leave it out"
        if experiment.quantiles:
            yield f"{path}.quantiles are of people, and clusters were assigned; leave them out"
    for metric in plan.metrics:
        path = path_to("metrics", metric.name)
        if metric.missing == "exclude":
            yield f"{path}.missing: in the sum of a cluster a missing value is 0; or count only people who have one"
        if metric.min_events is not None or metric.of is not None or metric.sensitive != "no":
            yield f"{path} has rules about people with a value, which the sum of a cluster does not know"
