"""The noise of a release's tables, worked out again from its plan: written into receipts, checked when read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from kanab.errors import SourceError
from kanab.plan.budget import ROUNDING
from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.model import Budget, Plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.epsilon.mechanism import MECHANISM, Scale
from kanab.privacy.epsilon.noise_receipt import NoiseReceipt
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, release_rho, rho_of, rho_per_person
from kanab.privacy.epsilon.split import Statistic, TableScales, noisy_tables, spent_by, split_budget, split_by_tables
from kanab.privacy.merging import LevelMap
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Factor, Level
from kanab.tally.moments import By
from kanab.tally.noise import AddedNoise, MetricNoise

_HALVES, _QUARTERS = 1 / 8, 5 / 32
"""The variance of rounding half steps to steps at random, and quarters."""

_T = TypeVar("_T")


def receipt_scales(scales: Mapping[str, TableScales], plan: Plan) -> dict[str, dict[str, float]]:
    """Return the standard deviation of the noise in every statistic, in units of the metrics, as receipts say it."""
    grids = {metric.name: metric.metric().scale for metric in plan.counted_metrics}

    def deviation(statistic: Statistic, scale: Scale) -> float:
        steps = math.prod(grids[name] for name in statistic.metrics) if statistic.kind != "counts" else 1
        steps = steps**2 if statistic.kind == "squares" else steps
        return float(f"{_variance(statistic, scale) ** 0.5 / steps:.6g}")

    return {
        name: {statistic.label: deviation(statistic, scale) for statistic, scale in table.items()}
        for name, table in scales.items()
    }


def own_and_shared(own: Mapping[Statistic, _T], shared: Mapping[Statistic, _T]) -> dict[Statistic, _T]:
    """Return what a table holds: what was measured in it, and squares and products by arm of the arms alone.

    Where squares were measured in its own classes, those are finer.
    """
    finer = {(each.kind, each.metrics) for each in own if len(each.by) > 1}
    return {**{each: value for each, value in shared.items() if (each.kind, each.metrics) not in finer}, **own}


def stated_noise(plan: Plan, receipt: NoiseReceipt) -> dict[str, TableScales]:
    """Return the scales of a release. Raises `SourceError` where its receipt states others than its plan implies."""
    budget = plan.budget
    if budget is None or (budget.epsilon, budget.delta, MECHANISM) != (receipt.total, receipt.delta, receipt.mechanism):
        raise SourceError("the ε that this release states is not that of its plan", "Release it again.")
    rho = release_rho(budget)
    stated = {name: dict(table) for name, table in receipt.scales.items()}
    scales = split_budget(plan, rho)
    epsilon = promised_epsilon(budget, spent_by(plan, scales))
    if receipt_scales(scales, plan) != stated:
        scales, epsilon = split_by_tables(plan, rho), budget.per_release or budget.epsilon
    if receipt_scales(scales, plan) != stated:
        raise SourceError("the noise that this release states is not that of its plan", "Release it again.")
    if epsilon != receipt.epsilon:
        raise SourceError("the ε that this release states is not that of its plan", "Release it again.")
    return scales


def promised_epsilon(budget: Budget, spent: SpentRho) -> float:
    """Return the ε that one release costs one person, as receipts say it: its budget's, if all of it is shared out.

    Of less than all of it, six digits.
    """
    named, rho = budget.per_release or budget.epsilon, rho_per_person([spent])
    if rho >= rho_of(named, budget.delta) * (1 - ROUNDING):
        return named
    return float(f"{epsilon_of(rho, budget.delta):.6g}")


def check_levels(plan: Plan, tables: Mapping[str, tuple[Factor, ...]], maps: Mapping[str, LevelMap]) -> None:
    """Raise `SourceError` where levels of a release are others than its plan declares and its maps merge.

    How many counts were added up decides how much noise there is in a class.
    """
    pairs = planned_pairs(plan)
    for name, factors in tables.items():
        for factor in factors:
            if factor.role == "arm":
                full, levels = declared_arms(plan.experiment(factor.name)), None
            elif name in pairs:
                single = tables.get(pairs[name].single(factor.name), ())
                full = next((other for other in single if other.name == factor.name), None)
                levels = maps.get(pairs[name].map_name(factor.name))
            else:
                full, levels = declared_levels(plan, factor.name), maps.get(name)
            groups: list[tuple[Level, tuple[Level, ...]]] = []
            if full is not None:
                groups = [(level, (level,)) for level in full.levels]
            if levels is not None and levels.covariate == factor.name and full is not None:
                olds = [old for _, group in levels.groups for old in group]
                groups = list(levels.groups) if sorted(map(repr, olds)) == sorted(map(repr, full.levels)) else []
            if {new for new, _ in groups} != {*factor.levels} or len(groups) != len(factor.levels):
                raise SourceError("the levels of this release are not those of its plan", "Release it again.")


def noise_of(
    plan: Plan,
    name: str,
    scales: Mapping[str, TableScales],
    factors: tuple[Factor, ...],
    maps: Mapping[str, LevelMap],
) -> AddedNoise:
    """Return the noise of one table, with the levels that were merged in it."""
    pair = planned_pairs(plan).get(name)
    if pair is not None:
        further = {covariate: maps.get(pair.map_name(covariate)) for covariate in pair.covariates}
        return AddedNoise(_people_noise((pair.experiment, *pair.covariates), scales[name], factors, further))
    linkage = next((each for each in noisy_tables(plan) if each.name == name), None)
    if linkage is None:
        raise SourceError("a table of this release is not in its plan", "Release it again.")
    own, alone = scales[linkage.name], scales[linkage.experiments[0]]
    shape = {factor.name: len(factor.levels) for factor in factors}
    metrics = [statistic.metrics[0] for statistic in own if statistic.kind == "sums"]
    by_arm = {} if len(linkage.experiments) > 1 or linkage.people_only else alone
    shared = {each: scale for each, scale in by_arm.items() if each.kind in ("squares", "products")}
    measured = own_and_shared(own, shared)

    def filled(statistic: Statistic) -> Cells:
        size = tuple(shape[name] for name in statistic.by)
        return np.full(size, _variance(statistic, measured[statistic]), dtype=object)

    people = _people_noise(linkage.axes, own, factors, {str(linkage.covariate): maps.get(name)})
    noise = {}
    for metric in metrics:
        counts, sums = (Statistic(kind, (metric,), linkage.axes) for kind in ("counts", "sums"))
        squares = {each.by: filled(each) for each in measured if each.kind == "squares" and each.metrics == (metric,)}
        noise[metric] = MetricNoise(filled(counts) if counts in own else None, filled(sums), squares)
    products: dict[tuple[tuple[str, str], By], Cells] = {
        ((each.metrics[0], each.metrics[1]), each.by): filled(each) for each in measured if each.kind == "products"
    }
    return AddedNoise(people, noise, products)


def _people_noise(
    axes: By, scales: TableScales, factors: tuple[Factor, ...], maps: Mapping[str, LevelMap | None]
) -> Cells:
    """Return the variance of the noise in people: that of every count that was merged into a class."""
    variance = scales[Statistic("people", by=axes)].variance
    people = np.full(tuple(len(factor.levels) for factor in factors), variance, dtype=object)
    for place, factor in enumerate(factors):
        levels = maps.get(factor.name)
        if levels is not None:
            merged = {(new, isinstance(new, bool)): len(olds) for new, olds in levels.groups}
            sizes = np.array([merged[level, isinstance(level, bool)] for level in factor.levels], dtype=object)
            people = people * sizes.reshape([-1 if place == axis else 1 for axis in range(len(factors))])
    return people


def _variance(statistic: Statistic, scale: Scale) -> float:
    """Return the variance of the noise in grid steps; half steps are what is measured."""
    if statistic.kind in ("people", "counts"):
        return scale.variance
    return scale.variance / 4 + _HALVES if statistic.kind == "sums" else scale.variance / 16 + _QUARTERS
