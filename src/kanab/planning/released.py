"""How metrics vary, as a release found it: the noise of the next experiment, from the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kanab.analysis.compare import AnalyzedTables
from kanab.analysis.options import named_arm
from kanab.analysis.shapes import shapes_of
from kanab.errors import AnalysisError, LevelError, PlanError, flag, listed
from kanab.plan.declared import ControlChoice, control_of
from kanab.plan.model import ExperimentPlan
from kanab.planning.noise import Noise, noise_of_means
from kanab.privacy.release import Release, refuse_own_rows
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import ArmMeans, plain_means
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, ratio_means
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally


def noise_of_release(
    released: Release,
    plan: ExperimentPlan,
    metric: str | None = None,
    *,
    adjust: Sequence[str] = (),
    shares: Mapping[Any, float] | None = None,
    control: Level = None,
    grows: bool = False,
) -> tuple[Noise, str]:
    """Return the noise of each arm of an experiment, and the metric's name.

    ``adjust`` are covariates and numbers from before; ``shares`` and ``control`` are those of the plan unless others
    are given; a control that nothing tells has to be named. Raises `PlanError`, `AnalysisError` or `LevelError` for
    what the release does not hold.
    """
    refuse_own_rows(released)
    control, _ = released_control(released, plan, control)
    means, name = _means(released, plan, metric, adjust)
    planned = None if plan.shares is None else dict(plan.shares)
    binary = is_binary(released, name)
    if binary and grows:
        raise PlanError("--multiplies is for amounts", "The spread of a 0/1 metric follows from its rate.")
    shape = shapes_of(released, plan.name, released.tables_of(plan.name)).get(name)
    noise = noise_of_means(
        replace(means, shape=shape), shares=planned if shares is None else shares, control=control, rate=binary,
        grows=grows,
    )  # fmt: skip
    return noise, name


def released_control(released: Release, plan: ExperimentPlan, named: Level = None) -> tuple[Level, ControlChoice]:
    """Return the control of an experiment, and how it is known; raise `AnalysisError` where nothing tells."""
    arms = released.totals(plan.name).experiment
    control, chosen = control_of(plan, arms, None if named is None else named_arm(arms, named))
    if chosen == "unknown":
        example = f'{flag("--control", label(control))} (control="{label(control)}")'
        raise AnalysisError("which arm is the control?", f"Name it: {example}. Arms: {listed(arms.labels)}.")
    return control, chosen


def _means(released: Release, plan: ExperimentPlan, metric: str | None, adjust: Sequence[str]) -> tuple[ArmMeans, str]:
    """Return plain, adjusted or ratio means, and the metric's name."""
    ratio, metric = ratio_parts(released, metric), outcome_of(released, plan, metric)
    tables = released.tables_of(plan.name)
    asked = sorted(set(adjust))
    numbers = [name for name in asked if name in plan.numbers]
    categories = [name for name in asked if name not in numbers]
    single = {name: table_with(list(tables.values()), name, plan) for name in categories}
    if len(asked) > 1 or numbers:
        analyzed = AnalyzedTables(plan, tables, released.receipt.maps, released.plan.categories)
        held = {analyzed.of(name): table for name, table in single.items()}
        used = analyzed.crossed(categories, held) if categories else [_first(list(tables.values()), plan.name)]
        if ratio is not None:
            return additive_ratio_means(used, *ratio, categories, numbers=numbers), "/".join(ratio)
        means = additive_means(used, metric, categories, numbers=numbers)
    elif asked:
        table = single[asked[0]].as_categories(released.plan.categories)
        if ratio is not None:
            return adjusted_ratio_means(table, *ratio), "/".join(ratio)
        means = adjusted_means(table, metric)
    elif ratio is not None:
        return ratio_means(_first(list(tables.values()), plan.name), *ratio), "/".join(ratio)
    else:
        means = plain_means(released.totals(plan.name), metric)
    return means, means.metric


def outcome_of(released: Release, plan: ExperimentPlan, metric: str | None) -> str | None:
    """Return the metric, or the only one that is no number from before the experiment."""
    outcomes = [name for name in released.totals(plan.name).metric_names if name not in released.plan.numbers]
    if metric in released.plan.numbers:
        raise PlanError(
            f"{metric} was measured before the experiment, so that there is no effect on it",
            f"Name a metric ({', '.join(outcomes)}), and adjust for it: {flag('--adjust', metric)}.",
        )
    if metric is None and len(outcomes) > 1:
        raise AnalysisError("several metrics, and none named", f"Name one of: {', '.join(outcomes)}.")
    return outcomes[0] if metric is None and outcomes else metric


def ratio_parts(released: Release, metric: str | None) -> tuple[str, str] | None:
    """Return the two parts of a ratio metric: named in the plan, or written revenue/orders."""
    if metric in released.plan.metrics_by_name:
        return released.plan.metrics_by_name[metric].ratio
    first, slash, second = (metric or "").partition("/")
    return (first, second) if slash else None


def _first(tables: list[Tally], experiment: str) -> Tally:
    if not tables:
        raise PlanError(f"the release holds no table of {experiment}", "Name another experiment, or give numbers.")
    return max(tables, key=lambda tally: len(tally.crosses))


def table_with(tables: list[Tally], name: str, plan: ExperimentPlan) -> Tally:
    """Return the table of an experiment that holds metrics by a covariate, or by another experiment."""
    measured = [tally for tally in tables if tally.moments]
    for tally in measured:
        if name in [factor.name for factor in tally.factors if factor.name != plan.name]:
            return tally
    others = {factor.name for tally in measured for factor in tally.factors} - {plan.name}
    numbers = f"; numbers: {listed(plan.numbers)}" if plan.numbers else ""
    raise LevelError(
        f"the release holds no table of {plan.name} by {name!r}",
        f"It has: {listed(sorted(others)) or 'none'}{numbers}.",
    )


def is_binary(released: Release, metric: str) -> bool:
    """Return whether a metric of a release is 0 or 1."""
    return any(held.name == metric and held.binary for tally in released.tables.values() for held in tally.metrics)
