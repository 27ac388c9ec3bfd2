"""How metrics vary, as a release or own rows have it: the noise of the next experiment, from before."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kanab.analysis.compare import AnalyzedTables
from kanab.analysis.metric_shapes import shapes_of
from kanab.analysis.options import named_arm
from kanab.analysis.own_rows import read_rows
from kanab.arguments import check_arguments
from kanab.counting.dispatch import count_source, source_options
from kanab.counting.frames import load_frame
from kanab.description import AnyCovariate, Mean, Ratio, Rows, covariate_values
from kanab.errors import AnalysisError, LevelError, PlanError, flag, listed
from kanab.plan.declared import ControlChoice, control_of
from kanab.plan.model import ExperimentPlan, make_plan
from kanab.planning.noise import EVEN, Noise, noise_of_amounts, noise_of_means, noise_of_rate
from kanab.privacy.release import OwnRows, Release, Tables, refuse_own_rows
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import ArmMeans, plain_means
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, ratio_means
from kanab.tally.factor import EVERYBODY, Level, label
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
        raise _no_factor()
    shape = shapes_of(released, plan.name, released.tables_of(plan.name)).get(name)
    noise = noise_of_means(
        replace(means, shape=shape), shares=planned if shares is None else shares, control=control, rate=binary,
        grows=grows,
    )  # fmt: skip
    return noise, name


@check_arguments()
def noise_of_rows(
    source: Any,
    metric: str | Mean | Ratio,
    *,
    arm: str | None = None,
    control: Level = None,
    adjust: Sequence[AnyCovariate] = (),
    shares: Mapping[Any, float] = EVEN,
    grows: bool = False,
    rows: Rows | None = None,
) -> Noise:
    """Return how a metric or a ratio varies in rows: everybody's, or with ``arm`` the control's.

    It is the noise of all arms of the next experiment, at ``shares``. ``adjust`` and ``rows`` are as for `count`. It is
    internal, unless own rows are gated. Raises what `count` raises, and `AnalysisError` where nothing varies.

    >>> from kanab.datasets import shop_rows
    >>> from kanab.planning.power import solve_power
    >>> print(solve_power(noise_of_rows(shop_rows(4_000), "bought"), effect=0.1, relative=True, power=0.8))
    27,706 people (A 13,853, B 13,853) see an effect of 0.01058 (+10 %) with power 80 %; 95% confidence, two-sided
    """
    if control is not None and arm is None:
        raise PlanError("a control is named, and no column of arms", "Name the column, too: arm=… (--arm).")
    before = covariate_values(adjust, "adjust")
    wanted = make_plan(arm or EVERYBODY, [metric], before, arms=None if arm else [EVERYBODY], control=control)
    options, source = source_options(rows), load_frame(source)
    tables = read_rows(wanted, lambda for_release: count_source(source, wanted, options, for_release=for_release))
    plan = tables.plan.experiment()
    base, _ = released_control(tables, plan)
    called = metric if isinstance(metric, str) else metric.column
    means, name = _means(tables, plan, called, [each.column for each in before])
    place = means.arms.index(base)
    people, mean = means.people[place], float(means.means[place])
    variance = float(means.sample[place]) * people
    if variance <= 0:
        remedy = "Take other rows, or give numbers: --sd 20 (noise_of_amounts), --rate 0.1 (noise_of_rate)."
        raise AnalysisError(f"nothing varies in {name}, so there is nothing to plan with", remedy)
    slopes = round(people - float(means.df[place])) - 1
    if is_binary(tables, name):
        if grows:
            raise _no_factor()
        r2 = max(0.0, 1 - variance / (mean * (1 - mean))) if adjust else 0.0
        noise = noise_of_rate(mean, shares=shares, r2=r2, slopes=slopes)
    else:
        noise = noise_of_amounts(math.sqrt(variance), mean=mean, shares=shares, slopes=slopes, grows=grows)
    shape = shapes_of(tables, plan.name, tables.tables_of(plan.name)).get(name)
    return replace(noise, shape=shape, own_rows=isinstance(tables, OwnRows))


def _no_factor() -> PlanError:
    return PlanError("--multiplies is for amounts", "The spread of a 0/1 metric follows from its rate.")


def released_control(released: Tables, plan: ExperimentPlan, named: Level = None) -> tuple[Level, ControlChoice]:
    """Return the control of an experiment, and how it is known; raise `AnalysisError` where nothing tells."""
    totals = released.totals(plan.name)
    arms = totals.experiment
    control, chosen = control_of(plan, arms, None if named is None else named_arm(arms, named))
    if chosen == "unknown":
        shown = [label(arm) for arm, people in totals.people_by(plan.name).items() if people >= released.receipt.k]
        first = shown[0] if shown else "NAME"
        example = f'{flag("--control", first)} (control="{first}"). Arms: {listed(shown)}'
        raise AnalysisError("which arm is the control?", f"Name it: {example}.")
    return control, chosen


def _means(released: Tables, plan: ExperimentPlan, metric: str | None, adjust: Sequence[str]) -> tuple[ArmMeans, str]:
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


def outcome_of(released: Tables, plan: ExperimentPlan, metric: str | None) -> str | None:
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


def ratio_parts(released: Tables, metric: str | None) -> tuple[str, str] | None:
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


def is_binary(released: Tables, metric: str) -> bool:
    """Return whether a metric of a release is 0 or 1."""
    return any(held.name == metric and held.binary for tally in released.tables.values() for held in tally.metrics)
