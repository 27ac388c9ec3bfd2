"""Checks of a plan, from a file, flags or Python: every mistake in it, with its path."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, pairwise
from typing import Any, get_args

from kanab.errors import GridError, PlanError, closest, listed
from kanab.fields import is_finite
from kanab.plan.budget import budget_mistakes
from kanab.plan.joint_shares import joint_share_mistakes
from kanab.plan.model import MOST_LEVELS, SMALLEST_K, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.plan.values import LONGEST_NAME, unfit_name
from kanab.tally.factor import EVERYBODY, Level
from kanab.tally.metric import Missing


def check_plan(plan: Plan) -> Plan:
    """Return the plan as it is. Raises `PlanError` with all its mistakes where it has any."""
    if not isinstance(plan, Plan):
        raise PlanError("a plan is needed", "Read one with read_plan(path), or make one with make_plan(…).")
    refuse(list(find_mistakes(plan)))
    return plan


def find_mistakes(plan: Plan) -> Iterator[str]:
    """Yield what contradicts itself in a plan: one sentence per mistake, which begins with its path."""
    if type(plan.k) is not int or plan.k < SMALLEST_K:
        yield f"k must be a whole number, at least {SMALLEST_K}"
    yield from _name_mistakes(plan)
    for metric in plan.metrics:
        yield from _metric_mistakes(metric, plan.metrics_by_name)
    for covariate in plan.covariates:
        yield from _covariate_mistakes(covariate)
    for experiment in plan.experiments:
        yield from _arm_mistakes(experiment)
        yield from _reference_mistakes(experiment, plan)
    for name in sorted(name for name, tables in Counter(plan.linkage_names).items() if tables > 1):
        yield f"experiments needs two tables called {name!r}; rename an experiment or a covariate"
    yield from budget_mistakes(plan)


SAME_AUDIENCE = (
    "Experiments of this plan are open to the same people. In a collector k holds within each of them: whoever "
    "subtracts experiments that nearly the same people took part in may see what the few differing people did. "
    "An ε prevents it."
)


def find_warnings(plan: Plan) -> list[str]:
    """Return what is no mistake in the plan of a collector, and should be known before it collects."""
    same_people = any(
        first.name not in second.exclude_with and second.name not in first.exclude_with
        for first, second in combinations(plan.experiments, 2)
    )
    return [SAME_AUDIENCE] if same_people and plan.budget is None else []


def refuse(mistakes: Sequence[str], where: str = "the plan") -> None:
    """Raise `PlanError` with all mistakes at once, one to a line, where there are any."""
    if len(mistakes) == 1:
        raise PlanError(f"1 mistake in {where}: {mistakes[0]}")
    if mistakes:
        raise PlanError("\n  ".join([f"{len(mistakes)} mistakes in {where}:", *mistakes]))


def path_to(*keys: object) -> str:
    """Return the path of a key as TOML writes it."""
    texts = [str(key) if len(str(key)) <= LONGEST_NAME else f"{str(key)[:20]}…" for key in keys]
    return ".".join(text if re.fullmatch(r"[\w-]+", text) else json.dumps(text, ensure_ascii=False) for text in texts)


def nearest(name: object, known: Iterable[object], word: str = "declared") -> str:
    """Name what was perhaps meant, or all there is."""
    names = [*known]
    near = closest(name, names, 2)
    return f"nearest: {listed(near)}" if near else f"{word}: {listed(names) or 'none'}"


def _name_mistakes(plan: Plan) -> Iterator[str]:
    declared = [covariate.name for covariate in plan.covariates]
    groups = {
        "metrics": plan.metric_names,
        "covariates": tuple(dict.fromkeys([*declared, *plan.covariates_in_use])),
        "experiments": plan.experiment_names,
    }
    taken: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if problem := unfit_name(name):
                yield f"{path_to(group, name)}: a name {problem}"
            elif name in taken:
                other = path_to(taken[name], name)
                role = "a column has one role; leave one out"
                yield f"{path_to(group, name)} has a name that is taken by {other}: {role}"
            elif group == "covariates" and name == "arm":
                yield "covariates.arm has a name that is kept for experiments; rename it"
            taken.setdefault(name, group)


def _metric_mistakes(metric: MetricPlan, metrics: Mapping[str, MetricPlan]) -> Iterator[str]:
    path = path_to("metrics", metric.name)
    if metric.ratio is not None:
        yield from _ratio_mistakes(metric, metrics)
    elif metric.binary and (metric.bounds is not None or metric.resolution is not None):
        yield f"{path} is binary: it has bounds 0 and 1, and takes no bounds or resolution"
    elif metric.missing not in (None, *get_args(Missing)):
        yield f"{path}.missing must be 'zero' or 'exclude'; a missing covariate is always a level of its own"
    elif not unfit_name(metric.name):
        yield from _grid_mistakes(metric)
    if metric.of is not None:
        target = metrics.get(metric.of)
        if target is None:
            yield f"{path}.of names an unknown metric, {metric.of!r}; {nearest(metric.of, metrics)}"
        elif target is metric or not target.binary:
            yield f"{path}.of must name another metric, of kind 'binary': the one that says who has a value"
    if metric.min_events is not None:
        yield from _event_mistakes(metric)
    if metric.bins is not None:
        yield from _bin_mistakes(metric)


def _bin_mistakes(metric: MetricPlan) -> Iterator[str]:
    path = path_to("metrics", metric.name)
    if metric.binary:
        yield f"{path}.bins: a 0/1 metric has no bins; its mean says everything"
    elif isinstance(metric.bins, tuple):
        if len(metric.bins) < 2 or not _ascending(metric.bins):
            yield f"{path}.bins must be at least two edges: finite numbers in increasing order"
        elif len(metric.bins) > MOST_LEVELS:
            yield f"{path}.bins must be at most {MOST_LEVELS:,} edges"
    elif type(metric.bins) is not int or not 2 <= metric.bins < MOST_LEVELS:
        yield f"{path}.bins must be a list of edges, or a whole number of bins, at least 2 and below {MOST_LEVELS:,}"
    elif metric.bounds is None:
        yield f"{path}.bins is a number of bins, and nothing says where they lie: give bounds, or the edges"


def _event_mistakes(metric: MetricPlan) -> Iterator[str]:
    path = path_to("metrics", metric.name)
    if type(metric.min_events) is not int or metric.min_events < 1:
        yield f"{path}.least_events must be a whole number, at least 1"
    if metric.of is None and metric.bounds is not None and not metric.binary and metric.bounds != (0, 1):
        yield f"{path}.least_events is for metrics of kind 'binary', or of one (of = 'bought'): people have it or not"


def _ratio_mistakes(metric: MetricPlan, metrics: Mapping[str, MetricPlan]) -> Iterator[str]:
    path = path_to("metrics", metric.name)
    if metric != MetricPlan(metric.name, ratio=metric.ratio):
        yield f"{path} is a ratio and takes no other key; its two parts do"
    parts = metric.ratio or ()
    if len(parts) != 2 or parts[0] == parts[1]:
        yield f"{path}.ratio must name two metrics"
    called = "/".join(map(str, parts))
    if any(
        called == ("/".join(other.ratio) if other.ratio else other.name)
        for other in metrics.values()
        if other.ratio != parts
    ):
        yield f"{path}.ratio is called {called!r} in results, and so is another metric; rename one"
    for part in parts:
        if part not in metrics:
            yield f"{path}.ratio names an unknown metric, {part!r}; {nearest(part, metrics)}"
        elif metrics[part].ratio is not None:
            yield f"{path}.ratio must name metrics that are not ratios themselves"


def _grid_mistakes(metric: MetricPlan) -> Iterator[str]:
    path = path_to("metrics", metric.name)
    for key, alone in (
        ("bounds", MetricPlan(metric.name, metric.bounds, 1)),
        ("resolution", MetricPlan(metric.name, None, metric.resolution)),
        ("bounds", metric),
    ):
        try:
            grid = alone.metric().grid_bounds
        except GridError as problem:
            yield f"{path}.{key}: {problem.fact}"
            return
    if grid is not None and grid[0] == grid[1]:
        yield f"{path}.bounds: the bounds are closer together than one step of the resolution"


def _covariate_mistakes(covariate: CovariatePlan) -> Iterator[str]:
    path = path_to("covariates", covariate.name)
    if sum(choice is not None for choice in (covariate.levels, covariate.bins, covariate.top)) > 1:
        yield f"{path} takes one of levels, bins and top"
    if covariate.levels is not None:
        yield from _level_mistakes(covariate.levels, path)
    if isinstance(covariate.bins, tuple):
        if not covariate.bins or not _ascending(covariate.bins):
            yield f"{path}.bins must be finite numbers in increasing order"
    elif covariate.bins is not None and (type(covariate.bins) is not int or covariate.bins < 2):
        yield f"{path}.bins must be a whole number of bins, at least 2, or a list of edges"
    numbers = covariate.levels is None or not any(isinstance(level, (str, bool)) for level in covariate.levels)
    if covariate.score and (covariate.top is not None or not numbers):
        yield f"{path}.score is for numbers: bins, or levels that are numbers; without it they are categories"
    if covariate.top is not None and (type(covariate.top) is not int or not 1 <= covariate.top <= MOST_LEVELS):
        yield f"{path}.top must be a whole number from 1 to {MOST_LEVELS:,}"


def _level_mistakes(levels: Sequence[Level], path: str) -> Iterator[str]:
    kinds = {bool if isinstance(level, bool) else str if isinstance(level, str) else float for level in levels}
    if None in levels or len(kinds) > 1:
        yield f"{path} must have levels of one kind: all numbers, all texts or all true/false"
    elif len(levels) < 2:
        yield f"{path} must have at least two levels"
    elif len(set(levels)) < len(levels):
        yield f"{path} names a level twice"
    elif kinds == {float} and not _ascending(levels):
        yield f"{path} must have its numbers in increasing order"
    elif kinds == {str}:
        problems = (unfit_name(level) for level in levels)
        yield from (f"{path}: a level {problem}" for problem in dict.fromkeys(problems) if problem)


def _ascending(values: Sequence[Any]) -> bool:
    try:
        finite = all(math.isfinite(value) for value in values)
        return finite and all(low < high for low, high in pairwise(values))
    except TypeError:
        return False


def _arm_mistakes(experiment: ExperimentPlan) -> Iterator[str]:
    path = path_to("experiments", experiment.name)
    arms = experiment.arms
    if arms is None:
        return
    if len(arms) < 2 and experiment.name != EVERYBODY:
        yield f"{path}.arms must name at least two arms"
    if len({str(arm) for arm in arms}) < len(arms):
        yield f"{path}.arms names an arm twice"
    for arm, share in experiment.shares or ((arm, 1.0) for arm in arms):
        here = f"{path}.arms.{path_to(arm)}"
        if isinstance(arm, str) and (problem := unfit_name(arm)):
            yield f"{here}: an arm's name {problem}"
        if not is_finite(share) or share <= 0:
            yield f"{here} must have a positive share"
    if experiment.control is not None and experiment.control not in arms:
        yield f"{path}.control is not one of its arms; declared: {listed(arms)}"


def _reference_mistakes(experiment: ExperimentPlan, plan: Plan) -> Iterator[str]:
    path = path_to("experiments", experiment.name)
    named = experiment.interactions or experiment.exclude_with or experiment.joint_shares
    others = [name for name in plan.experiment_names if name != experiment.name] if named else []
    for key, word, names, known in (
        ("adjust", "covariate", experiment.adjust, experiment.adjust),
        ("adjust", "metric", experiment.numbers, plan.metric_names),
        ("segments", "covariate", experiment.segments, experiment.segments),
        ("interactions", "experiment", experiment.interactions, others),
        ("exclude_with", "experiment", experiment.exclude_with, others),
        ("joint_shares", "experiment", tuple(experiment.joint_shares), others),
        ("tolerance", "metric", tuple(experiment.tolerance), plan.metric_names),
        ("primary", "metric", experiment.primary, plan.metric_names),
        ("guardrails", "metric", experiment.guardrails, plan.metric_names),
        ("lower_is_better", "metric", experiment.lower_is_better, plan.metric_names),
        ("non_inferiority", "metric", tuple(experiment.non_inferiority), plan.metric_names),
        ("received", "metric", (experiment.received,) if experiment.received else (), plan.metric_names),
        ("quantiles", "metric", tuple(experiment.quantiles), plan.metric_names),
    ):
        for name in names:
            if name == experiment.name and word == "experiment":
                yield f"{path}.{key} names the experiment itself"
            elif name not in known:
                yield f"{path}.{key} names an unknown {word}, {name!r}; {nearest(name, known)}"
        if len(set(names)) < len(names):
            yield f"{path}.{key} names a {word} twice"
    yield from _joint_mistakes(experiment, plan)
    yield from _number_mistakes(experiment, plan)
    roles = ("primary", "guardrails", "lower_is_better", "non_inferiority", "tolerance")
    for key in roles:
        for name in (name for name in getattr(experiment, key) if name in plan.numbers):
            yield f"{path}.{key} names {name!r}, which is adjusted for: that was measured before the experiment"
    yield from _received_mistakes(experiment, plan)
    yield from _quantile_mistakes(experiment, plan)
    for name in sorted({*experiment.primary} & {*experiment.guardrails}):
        yield f"{path}: {name!r} is primary and a guardrail; it has one role"
    if experiment.decision.guardrails == "non-inferior":
        for name in experiment.guardrails:
            if name not in experiment.non_inferiority:
                yield f"{path}.non_inferiority misses the guardrail {name!r}: decision.guardrails is 'non-inferior'"
    for name in sorted({*experiment.interactions} & {*experiment.exclude_with}):
        yield f"{path} excludes {name!r} and asks for its interaction: nobody would be in both"


def _received_mistakes(experiment: ExperimentPlan, plan: Plan) -> Iterator[str]:
    path = path_to("experiments", experiment.name, "received")
    received = plan.metrics_by_name.get(experiment.received or "")
    if received is not None and received.ratio is not None:
        yield f"{path} must name a metric that is no ratio: who got it, or how much"
    if received is not None and received.name in plan.numbers:
        yield f"{path} names {received.name!r}, which is adjusted for: that was measured before the experiment"
    if received is not None and {*plan.metric_names} <= {received.name, *plan.numbers}:
        yield f"{path} is the only metric; name another one, which receiving may have changed"


def _number_mistakes(experiment: ExperimentPlan, plan: Plan) -> Iterator[str]:
    path = path_to("experiments", experiment.name, "adjust")
    parts = {*chain.from_iterable(plan.ratios)}
    for name in experiment.numbers:
        metric = plan.metrics_by_name.get(name)
        if metric is None:
            continue
        if metric.ratio is not None or name in parts:
            yield f"{path} names {name!r}, of a ratio; a number to adjust for is a metric by itself"
        if metric.missing == "exclude":
            yield f"{path} names {name!r}, whose missing values are excluded; as a number to adjust for they count as 0"
    if experiment.numbers and not plan.outcomes:
        yield f"{path} leaves no metric to compare: all are numbers to adjust for"


def _quantile_mistakes(experiment: ExperimentPlan, plan: Plan) -> Iterator[str]:
    for name, shares in experiment.quantiles.items():
        path = path_to("experiments", experiment.name, "quantiles", name)
        metric = plan.metrics_by_name.get(name)
        if metric is None:
            continue
        if metric.ratio is not None or metric.binary:
            yield f"{path}: quantiles are of a metric with many values, not of a ratio or a 0/1 metric"
        elif name in plan.numbers:
            yield f"{path}: it is adjusted for, so it is no outcome; take it out of adjust or of quantiles"
        elif metric.bins is None:
            yield f"{path} needs bins to count people in: edges, or a number of bins between bounds (bins, --bin)"
        if not shares or not all(is_finite(share) and 0 < share < 1 for share in shares):
            yield f"{path} must be shares of people between 0 and 1, such as 0.5 for the median"


def _joint_mistakes(experiment: ExperimentPlan, plan: Plan) -> Iterator[str]:
    experiments = {other.name: other for other in plan.experiments} if experiment.joint_shares else {}
    for name, shares in experiment.joint_shares.items():
        other = experiments.get(name)
        if other is None or other is experiment:
            continue
        path = path_to("experiments", experiment.name, "joint_shares", name)
        yield from (f"{path} {problem}" for problem in joint_share_mistakes(shares, (experiment.arms, other.arms)))
        if name in experiment.exclude_with or experiment.name in other.exclude_with:
            yield f"{path} divides people who are in both, but the two exclude each other"
        if experiment.name in other.joint_shares and experiment.name < name:
            yield f"{path} is declared twice, also under {path_to('experiments', name)}; keep one of them"
