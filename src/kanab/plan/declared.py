"""What a plan declares of levels and arms, whether or not anybody has them: known without looking at the data."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from kanab.plan.model import ExperimentPlan, Plan
from kanab.tally.factor import Factor, Level, as_level, label, numeric_scores

ControlChoice = Literal["named", "declared", "word", "unknown"]
"""How a control is known: somebody named it; it is the first arm that a plan declares; it is the only arm whose name is
a control's, such as "old"; or it is not known, and merely the first one, against which nothing can be decided."""


def control_of(plan: ExperimentPlan | None, arms: Factor, named: Level = None) -> tuple[Level, ControlChoice]:
    """Return the control among the arms that an experiment has, and how it is known."""
    plan = plan or ExperimentPlan(arms.name)
    first = plan.arms[0] if plan.arms else None
    control = plan.control if named is None else named
    if control is not None:
        return control, "declared" if named is None and control == first else "named"
    if first in arms.levels:
        return first, "declared"
    return arms.control, "unknown" if arms.control_by_name is None else "word"


def bin_labels(edges: Sequence[float]) -> tuple[str, ...]:
    """Return one text per bin of a number that is cut at its edges, in order."""
    texts = [label(as_level(edge, "edge")) for edge in edges]
    if not texts:
        return ("any",)
    return (f"< {texts[0]}", *(f"{low} – {high}" for low, high in pairwise(texts)), f"≥ {texts[-1]}")


def declared_arms(experiment: ExperimentPlan) -> Factor | None:
    """Return the arms of an experiment as they are declared; None where the data decide."""
    return None if experiment.arms is None else Factor(experiment.name, experiment.arms, "arm")


def declared_levels(plan: Plan, name: str) -> Factor | None:
    """Return the levels of a covariate, or the bins of a metric, as they are declared; None where the data decide.

    The missing level is one of them wherever somebody may be without. Bins are scored by their number, for their order.
    """
    planned = plan.covariate(name)
    everybody_has_one = name in plan.binned_metrics and plan.metrics_by_name[name].missing == "zero"
    gone: tuple[Level, ...] = () if everybody_has_one else (None,)
    if isinstance(planned.bins, tuple):
        labels: tuple[Level, ...] = bin_labels(planned.bins)
        scores = (*map(float, range(len(labels))), *(None for _ in gone))
        return Factor(name, (*labels, *gone), "covariate", scores)
    if planned.levels is None or planned.top is not None:
        return None
    levels = (*planned.levels, *gone)
    return Factor(name, levels, "covariate", numeric_scores(levels))
