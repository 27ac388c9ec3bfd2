"""The noise of a release's tables, worked out again from its plan: written into receipts, checked when read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kanab.errors import SourceError
from kanab.plan.model import Linkage, Plan
from kanab.privacy.epsilon.account import rho_of
from kanab.privacy.epsilon.mechanism import Scale
from kanab.privacy.epsilon.noise_receipt import NoiseReceipt
from kanab.privacy.epsilon.split import Statistic, TableScales, noisy_tables, split_budget
from kanab.privacy.merging import LevelMap
from kanab.tally.cells import Cells
from kanab.tally.factor import Factor
from kanab.tally.moments import By
from kanab.tally.noise import AddedNoise, MetricNoise

_ROUNDING = 0.125
"""The variance of rounding half steps to steps at random."""


def receipt_scales(scales: Mapping[str, TableScales]) -> dict[str, dict[str, float]]:
    """Return the standard deviation of the noise in every statistic, in grid steps, as receipts say it."""
    return {
        name: {
            statistic.label: float(f"{_variance(statistic, scale) ** 0.5:.6g}") for statistic, scale in table.items()
        }
        for name, table in scales.items()
    }


def stated_noise(plan: Plan, receipt: NoiseReceipt) -> dict[str, TableScales]:
    """Return the scales of a release. Raises `SourceError` where its receipt states others than its plan implies."""
    scales = split_budget(plan, rho_of(receipt.epsilon, receipt.delta))
    if receipt_scales(scales) != {name: dict(table) for name, table in receipt.scales.items()}:
        raise SourceError("the noise that this release states is not that of its plan", "Release it again.")
    return scales


def linkage_named(plan: Plan, name: str) -> Linkage:
    """Return the linkage of a table of a release with noise. Raises `SourceError` where the plan has none."""
    for linkage in noisy_tables(plan):
        if linkage.name == name:
            return linkage
    raise SourceError("a table of this release is not in its plan", "Release it again.")


def noise_of(
    linkage: Linkage, scales: Mapping[str, TableScales], factors: tuple[Factor, ...], levels: LevelMap | None
) -> AddedNoise:
    """Return the noise of one table, with the levels that were merged."""
    own, alone = scales[linkage.name], scales[linkage.experiments[0]]
    shape = {factor.name: len(factor.levels) for factor in factors}
    metrics = [statistic.metrics[0] for statistic in own if statistic.kind == "sums"]
    by_arm = {} if len(linkage.experiments) > 1 or linkage.after else alone
    shared = {each: scale for each, scale in by_arm.items() if each.kind in ("squares", "products")}
    measured = {**shared, **own}

    def filled(statistic: Statistic) -> Cells:
        size = tuple(shape[name] for name in statistic.by)
        return np.full(size, _variance(statistic, measured[statistic]), dtype=object)

    people = filled(Statistic("people", by=linkage.axes))
    if levels is not None:
        merged = {new: len(olds) for new, olds in levels.groups}
        axis = [factor.name for factor in factors].index(str(linkage.covariate))
        sizes = np.array([merged.get(level, 1) for level in factors[axis].levels], dtype=object)
        people = people * sizes.reshape([-1 if place == axis else 1 for place in range(len(factors))])
    noise = {}
    for name in metrics:
        counts, sums = (Statistic(kind, (name,), linkage.axes) for kind in ("counts", "sums"))
        squares = {each.by: filled(each) for each in measured if each.kind == "squares" and each.metrics == (name,)}
        noise[name] = MetricNoise(filled(counts) if counts in own else None, filled(sums), squares)
    products: dict[tuple[tuple[str, str], By], Cells] = {
        ((each.metrics[0], each.metrics[1]), each.by): filled(each) for each in measured if each.kind == "products"
    }
    return AddedNoise(people, noise, products)


def _variance(statistic: Statistic, scale: Scale) -> float:
    """Return the variance of the noise in grid steps; half steps are what is measured."""
    if statistic.kind in ("people", "counts"):
        return scale.variance
    return scale.variance / 4 + _ROUNDING if statistic.kind == "sums" else scale.variance / 16 + 1
