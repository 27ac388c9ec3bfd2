"""Do two plans mean the same by what they share? Only then their batches follow each other and may be added."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan


def continues(plan: Plan, old: Plan) -> bool:
    """Does a plan mean the same by everything that it shares with an older one? Shares of arms may change."""
    named = {one.name: one for one in old.experiments}
    return (
        plan.cohorts == old.cohorts
        and _shared(plan.metrics, old.metrics)
        and _shared(plan.covariates, old.covariates)
        and all(_meaning(one) == _meaning(named.get(one.name, one)) for one in plan.experiments)
    )


def united(plans: Sequence[Plan]) -> Plan:
    """Everything that some plans, which continue each other, have between them; the last one's words count."""
    experiments = {one.name: one for plan in plans for one in plan.experiments}
    pairs = {name: [one for plan in plans for one in plan.experiments if one.name == name] for name in experiments}
    return replace(
        plans[-1],
        metrics=tuple({one.name: one for plan in plans for one in plan.metrics}.values()),
        covariates=tuple({one.name: one for plan in plans for one in plan.covariates}.values()),
        experiments=tuple(
            replace(one, interactions=tuple(dict.fromkeys(other for own in pairs[name] for other in own.interactions)))
            for name, one in experiments.items()
        ),
    )


def _shared(new: Sequence[MetricPlan] | Sequence[CovariatePlan], old: Sequence[MetricPlan | CovariatePlan]) -> bool:
    known = {one.name: one for one in old}
    return all(known.get(one.name, one) == one for one in new)


def _meaning(one: ExperimentPlan) -> tuple[object, ...]:
    return one.arms, one.control, one.adjust, one.segments
