"""Bounds at a point of all arms together: ``Mean("spend", clip="99%")`` counts larger amounts as that point.

People are counted by the numbers of two digits that their values lie between, however rows become people. So the
bound is the point rounded up to two digits, the same in every engine.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from kanab.counted import Counted
from kanab.errors import PlanError, PrivacyError, flag
from kanab.plan.model import CLUSTER_PEOPLE, ExperimentPlan, Plan

CLIPPED = "clip of {}"
"""What was clipped, among the choices that a receipt records."""

_EDGES = tuple(float(f"{digits}e{power}") for power in range(-3, 7) for digits in range(10, 100))
_BOUNDS = flag("--bounds", "spend=0:500")
_EXAMPLE = f"For example clip={{'spend': '99%'}} ({flag('--clip', 'spend=99%')})."


def read_shares(clip: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of people by metric; raise `PlanError` where one is not between a half and all."""
    shares = {}
    for name, point in clip.items():
        try:
            share = float(point.removesuffix("%")) / 100 if isinstance(point, str) else float(point)
        except (TypeError, ValueError):
            share = 0.0
        if not 0.5 < share < 1:
            raise PlanError("clip needs a point of all people, above 50 % and below 100 %", _EXAMPLE)
        shares[name] = round(share, 12)
    return shares


def clipped_plan(
    plan: Plan, clip: Mapping[str, Any], count: Callable[[Plan], Counted], fixed: Mapping[str, float], least: int
) -> Plan:
    """Return the plan with bounds from 0 to these points of its metrics, or to those that were fixed before."""
    shares = read_shares(clip)
    if not shares:
        return plan
    for name in shares:
        metric = plan.metrics_by_name.get(name)
        if metric is None or metric.ratio is not None or name in plan.numbers or name == CLUSTER_PEOPLE:
            raise PlanError(f"clip names something that is not counted as an amount: {name!r}", _EXAMPLE)
        if metric.declared:
            raise PlanError(f"{name!r} has bounds and is clipped at a point of the data", "Leave out one of the two.")
    if plan.budget is not None:
        raise PlanError(
            "clip takes a bound from the data, which a release with ε has no noise for",
            f"Declare bounds ({_BOUNDS}).",
        )
    bounds = {name: fixed.get(name) or _point(plan, name, share, count, least) for name, share in shares.items()}
    return replace(
        plan,
        metrics=tuple(
            replace(metric, bounds=(0.0, bounds[metric.name])) if metric.name in bounds else metric
            for metric in plan.metrics
        ),
    )


def clipped_metrics(choices: Mapping[str, str] | None, plan: Plan) -> dict[str, tuple[str, float]]:
    """Return the point and the bound of every metric that was clipped, by the choices that a receipt records."""
    asked = {name: (choices or {}).get(CLIPPED.format(name)) for name in plan.metric_names}
    bounds = {name: plan.metrics_by_name[name].bounds for name, point in asked.items() if point}
    return {name: (str(asked[name]), ends[1]) for name, ends in bounds.items() if ends}


def fixed_bounds(before: Mapping[str, tuple[str, float]], clip: Mapping[str, Any]) -> dict[str, float]:
    """Return the bounds that were fixed for the same points before."""
    asked = {name: point_text(share) for name, share in read_shares(clip).items()}
    return {name: bound for name, (point, bound) in before.items() if asked.get(name) == point}


def point_text(share: float) -> str:
    """Return a share of people as a percentage."""
    return f"{100 * share:.6g}%"


def _point(plan: Plan, name: str, share: float, count: Callable[[Plan], Counted], least: int) -> float:
    """Count people by what they have of a metric, and return the point below which this share of them lies."""
    experiment = plan.experiments[0]
    alone = ExperimentPlan(experiment.name, experiment.shares, only=experiment.only, quantiles={name: (share,)})
    metric = replace(plan.metrics_by_name[name], bins=(0.0, *_EDGES))
    tallies = count(replace(plan, metrics=(metric,), experiments=(alone,), covariates=())).tallies
    table = tallies[f"{experiment.name}/{name}"]
    bins, people = table.factors[1].scores or (), table.people.sum(axis=0)
    counts = {int(place): int(there) for place, there in zip(bins, people, strict=True) if place is not None and there}
    if 0 in counts:
        raise PlanError(f"{name!r} has values below 0, and clip is for amounts", f"Declare bounds ({_BOUNDS}).")
    if (1 - share) * sum(counts.values()) < least:
        raise PrivacyError(
            f"fewer than k = {plan.k} people are above the {point_text(share)} point of {name}",
            f"Clip at a lower point, or declare bounds ({_BOUNDS}).",
        )
    wanted, below = share * sum(counts.values()), 0
    for place, there in sorted(counts.items()):
        below += there
        if below >= wanted:
            if place == 1:
                raise PlanError(
                    f"{point_text(share)} of all people have less than {_EDGES[0]} of {name}", "Clip at a higher point."
                )
            if place == max(counts):
                raise PlanError(f"nobody has more than the {point_text(share)} point of {name}", "Leave out its clip.")
            return _EDGES[place - 1]
    raise AssertionError("some share of people lies below every point")
