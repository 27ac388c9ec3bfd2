"""What can be wrong with a plan: every mistake, with its path, whoever wrote the plan.

A plan from a file, from flags and from Python passes the same checks. That everything is declared
(arms, bounds, covariates) is asked of files only: see ``planfile``.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from numbers import Real
from typing import Any, get_args

from kanab.errors import GridError, PlanError, listed
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.tally.factor import Level
from kanab.tally.metric import Missing

LONGEST_NAME = 64


def check_plan(plan: Plan) -> Plan:
    """The plan itself, or a ``PlanError`` with all its mistakes."""
    if not isinstance(plan, Plan):
        raise PlanError("a plan is needed", "Read one with read_plan(path), or make one with make_plan(…).")
    refuse(list(mistakes(plan)))
    return plan


def mistakes(plan: Plan) -> Iterator[str]:
    """What contradicts itself in a plan: one sentence per mistake, which begins with its path.

    >>> shop = ExperimentPlan("checkout", (("A", 1), ("B", 0)), interactions=("baner",))
    >>> for mistake in mistakes(Plan((MetricPlan("spend"),), (shop, ExperimentPlan("banner")))):
    ...     print(mistake)
    experiments.checkout.arms.B must have a positive share
    experiments.checkout.interactions names an unknown experiment, 'baner'; nearest: banner
    """
    if type(plan.k) is not int or plan.k < 2:
        yield "k must be a whole number, at least 2"
    yield from _name_mistakes(plan)
    for metric in plan.metrics:
        yield from _metric_mistakes(metric, {one.name: one for one in plan.metrics})
    for covariate in plan.covariates:
        yield from _covariate_mistakes(covariate)
    for experiment in plan.experiments:
        yield from _arm_mistakes(experiment)
        yield from _reference_mistakes(experiment, plan)
    tables = [linkage.name for linkage in plan.linkages]
    for name in sorted({name for name in tables if tables.count(name) > 1}):
        yield f"experiments needs two tables called {name!r}; rename an experiment or a covariate"


def refuse(found: Sequence[str], where: str = "the plan") -> None:
    """Raise all mistakes at once, one to a line; nothing happens if there are none."""
    if len(found) == 1:
        raise PlanError(f"1 mistake in {where}: {found[0]}")
    if found:
        raise PlanError("\n  ".join([f"{len(found)} mistakes in {where}:", *found]))


def path_to(*keys: object) -> str:
    """The path of a key as TOML writes it.

    >>> path_to("metrics", "time on app", "bounds")
    'metrics."time on app".bounds'
    """
    texts = [str(key) if len(str(key)) <= LONGEST_NAME else f"{str(key)[:20]}…" for key in keys]
    return ".".join(text if re.fullmatch(r"[\w-]+", text) else json.dumps(text, ensure_ascii=False) for text in texts)


def nearest(name: object, known: Iterable[object], word: str = "declared") -> str:
    """The names that were perhaps meant, or all there are."""
    names = [str(one) for one in known]
    near = difflib.get_close_matches(str(name), names, n=2, cutoff=0.6)
    return f"nearest: {listed(near)}" if near else f"{word}: {listed(names) or 'none'}"


def unfit_name(name: object) -> str:
    """Why a name or a text level would break messages and files; empty if it would not."""
    if not isinstance(name, str):
        return "must be a text"
    if not name.strip():
        return "must not be empty"
    if len(name) > LONGEST_NAME:
        return f"must not be longer than {LONGEST_NAME} characters"
    return "" if name.isprintable() else "must not hold control characters"


def _name_mistakes(plan: Plan) -> Iterator[str]:
    used = [name for one in plan.experiments for name in (*one.adjust, *one.segments)]
    groups = {
        "metrics": [one.name for one in plan.metrics],
        "covariates": list(dict.fromkeys([*(one.name for one in plan.covariates), *used])),
        "experiments": [one.name for one in plan.experiments],
    }
    taken: dict[str, str] = {}
    for group, names in groups.items():
        for name in names:
            if problem := unfit_name(name):
                yield f"{path_to(group, name)}: a name {problem}"
            elif name in taken:
                yield f"{path_to(group, name)} has a name that is taken by {path_to(taken[name], name)}"
            elif group == "covariates" and name == "arm":
                yield "covariates.arm has a name that is kept for experiments; rename it"
            taken.setdefault(name, group)


def _metric_mistakes(one: MetricPlan, metrics: Mapping[str, MetricPlan]) -> Iterator[str]:
    path = path_to("metrics", one.name)
    if one.ratio is not None:
        yield from _ratio_mistakes(one, metrics)
    elif one.binary and (one.bounds is not None or one.resolution is not None):
        yield f"{path} is binary: it has bounds 0 and 1, and takes no bounds or resolution"
    elif one.missing not in get_args(Missing):
        yield f"{path}.missing must be 'zero' or 'exclude'; a missing covariate is always a level of its own"
    elif not unfit_name(one.name):
        yield from _grid_mistakes(one)
    if one.of is not None:
        target = metrics.get(one.of)
        if target is None:
            yield f"{path}.of names an unknown metric, {one.of!r}; {nearest(one.of, metrics)}"
        elif target is one or not target.binary:
            yield f"{path}.of must name another metric, of kind 'binary': the one that says who has a value"


def _ratio_mistakes(one: MetricPlan, metrics: Mapping[str, MetricPlan]) -> Iterator[str]:
    path = path_to("metrics", one.name)
    if one != MetricPlan(one.name, ratio=one.ratio):
        yield f"{path} is a ratio and takes no other key; its two parts do"
    parts = one.ratio or ()
    if len(parts) != 2 or parts[0] == parts[1]:
        yield f"{path}.ratio must name two metrics"
    for part in parts:
        if part not in metrics:
            yield f"{path}.ratio names an unknown metric, {part!r}; {nearest(part, metrics)}"
        elif metrics[part].ratio is not None:
            yield f"{path}.ratio must name metrics that are not ratios themselves"


def _grid_mistakes(one: MetricPlan) -> Iterator[str]:
    path = path_to("metrics", one.name)
    for key, alone in (
        ("bounds", MetricPlan(one.name, one.bounds, 1)),
        ("resolution", MetricPlan(one.name, None, one.resolution)),
        ("bounds", one),
    ):
        try:
            grid = alone.metric().grid_bounds
        except GridError as problem:
            yield f"{path}.{key}: {problem.fact}"
            return
    if grid is not None and grid[0] == grid[1]:
        yield f"{path}.bounds: the bounds are closer together than one step of the resolution"


def _covariate_mistakes(one: CovariatePlan) -> Iterator[str]:
    path = path_to("covariates", one.name)
    if sum(choice is not None for choice in (one.levels, one.bins, one.top)) > 1:
        yield f"{path} takes one of levels, bins and top"
    if one.levels is not None:
        yield from _level_mistakes(one.levels, path)
    if isinstance(one.bins, tuple):
        if not one.bins or not _ascending(one.bins):
            yield f"{path}.bins must be finite numbers in increasing order"
    elif one.bins is not None and (type(one.bins) is not int or one.bins < 2):
        yield f"{path}.bins must be a whole number of bins, at least 2, or a list of edges"
    if one.top is not None and (type(one.top) is not int or one.top < 1):
        yield f"{path}.top must be a whole number, at least 1"


def _level_mistakes(levels: Sequence[Level], path: str) -> Iterator[str]:
    kinds = {bool if isinstance(one, bool) else str if isinstance(one, str) else float for one in levels}
    if None in levels or len(kinds) > 1:
        yield f"{path} must have levels of one kind: all numbers, all texts or all true/false"
    elif len(levels) < 2:
        yield f"{path} must have at least two levels"
    elif len(set(levels)) < len(levels):
        yield f"{path} names a level twice"
    elif kinds == {float} and not _ascending(levels):
        yield f"{path} must have its numbers in increasing order"
    elif kinds == {str}:
        problems = (unfit_name(one) for one in levels)
        yield from (f"{path}: a level {problem}" for problem in dict.fromkeys(problems) if problem)


def _ascending(values: Sequence[Any]) -> bool:
    try:
        finite = all(math.isfinite(value) for value in values)
        return finite and all(low < high for low, high in pairwise(values))
    except TypeError:
        return False


def _arm_mistakes(one: ExperimentPlan) -> Iterator[str]:
    path = path_to("experiments", one.name)
    if one.shares is None:
        return
    arms = [arm for arm, _ in one.shares]
    if len(arms) < 2:
        yield f"{path}.arms must name at least two arms"
    if len({str(arm) for arm in arms}) < len(arms):
        yield f"{path}.arms names an arm twice"
    for arm, share in one.shares:
        here = f"{path}.arms.{path_to(arm)}"
        if isinstance(arm, str) and (problem := unfit_name(arm)):
            yield f"{here}: an arm's name {problem}"
        if isinstance(share, bool) or not isinstance(share, Real) or not 0 < share < 1e300:
            yield f"{here} must have a positive share"
    if one.control is not None and one.control not in arms:
        yield f"{path}.control is not one of its arms; declared: {listed(arms)}"


def _reference_mistakes(one: ExperimentPlan, plan: Plan) -> Iterator[str]:
    path = path_to("experiments", one.name)
    others = [other.name for other in plan.experiments if other.name != one.name]
    for key, word, names, known in (
        ("adjust", "covariate", one.adjust, one.adjust),
        ("segments", "covariate", one.segments, one.segments),
        ("interactions", "experiment", one.interactions, others),
        ("exclude_with", "experiment", one.exclude_with, others),
        ("tolerance", "metric", tuple(one.tolerance), [metric.name for metric in plan.metrics]),
    ):
        for name in names:
            if name == one.name and word == "experiment":
                yield f"{path}.{key} names the experiment itself"
            elif name not in known:
                yield f"{path}.{key} names an unknown {word}, {name!r}; {nearest(name, known)}"
        if len(set(names)) < len(names):
            yield f"{path}.{key} names a {word} twice"
    for name in sorted({*one.interactions} & {*one.exclude_with}):
        yield f"{path} excludes {name!r} and asks for its interaction: nobody would be in both"
