"""How what a release may spend is shared out: over experiments, their tables, and in a table over its statistics.

Everything here follows from the plan alone, so that whoever reads a release can work it out again.

Tables of an experiment have equal shares, unless the plan weighs them; its pairs of covariates share one. In a table
the interval of the plain effect is to be shortest. The noise of a mean has the variance (h² / ρ_S + (m − c)² / ρ_n)
/ 2n², with h half the width of the bounds, c their middle, and ρ what sums and people cost. Over M metrics that is
least where ρ_n : ρ_S = d √M, d = |m − c| / h. d is 0.98 to 0.6 for rates of 1 % to 20 %, and 0.8 for amounts whose mean
is at a tenth of their bounds: 0.85 is within 0.5 % of the shortest interval for all of them. Squares only say how wide
the interval is. Their noise costs degrees of freedom, and matters less the more people there are: an eighth of the
sums' share is within 2 % of the best for 1,000 to 25,000 people per arm, wherever intervals are at most twice as wide
as without noise (ε = 1, in one table or four). The same goes for products.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from kanab.errors import SourceError
from kanab.plan.budget import ROUNDING, account_names, epsilon_shares, exclusions
from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.model import Budget, Linkage, Plan
from kanab.plan.paired_covariates import planned_pairs
from kanab.privacy.epsilon.mechanism import MECHANISM, Scale, scale_for
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, release_rho, rho_of, rho_per_person
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import NoiseReceipt
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Factor, Level
from kanab.tally.metric import Metric
from kanab.tally.moments import By
from kanab.tally.noise import AddedNoise, MetricNoise

_PEOPLE, _SUMS, _SQUARES, _PRODUCTS = 0.85, 1.0, 0.125, 0.125
"""How much of a table's share goes to each kind of statistic, before they are made to add up.

That of people goes with the square root of the number of metrics whose means they make.
"""


@dataclass(frozen=True)
class Statistic:
    """One array of whole numbers that noise is added to: people, or counts, sums, squares or products of metrics.

    Values are measured about the middle of their bounds, in half steps: 2y − (low + high).
    """

    kind: str
    metrics: tuple[str, ...] = ()
    by: By = ()

    @property
    def label(self) -> str:
        """What it is called in receipts."""
        of = f" of {' and '.join(self.metrics)}" if self.metrics else ""
        return f"{self.kind}{of} by {' and '.join(self.by)}"


TableScales = Mapping[Statistic, Scale]


def arm_tables(plan: Plan) -> tuple[Linkage, ...]:
    """Return the tables of arms alone: every experiment has one, from which its plain effects are read."""
    return tuple(Linkage((experiment.name,)) for experiment in plan.experiments)


def noisy_tables(plan: Plan) -> tuple[Linkage, ...]:
    """Return all tables of a release with noise but pairs of covariates: arms alone, and what else the plan needs."""
    names = {*plan.experiment_names}
    return (*arm_tables(plan), *(linkage for linkage in plan.linkages if linkage.name not in names))


def split_budget(plan: Plan, rho: float) -> dict[str, TableScales]:
    """Return the scale of every statistic of every table, for ρ of what a person may be in at once."""
    owners, weights, shares = _owners(plan), _weights(plan), epsilon_shares(plan)
    whole = dict.fromkeys(shares, 0.0)
    for name, owner in owners.items():
        whole[owner] += weights[name]
    return _scales(plan, {name: rho * shares[owners[name]] * weights[name] / whole[owners[name]] for name in owners})


def split_by_tables(plan: Plan, rho: float) -> dict[str, TableScales]:
    """Return the scales of releases of before: all tables of all experiments shared ρ alike."""
    weights = _weights(plan)
    whole = math.fsum(weights.values())
    return _scales(plan, {name: rho * weight / whole for name, weight in weights.items()})


def spent_by(
    plan: Plan, scales: Mapping[str, TableScales], after: float = -math.inf, through: float = math.inf
) -> SpentRho:
    """Return what tables with noise of these scales cost, by experiment and table of two experiments."""
    costs: dict[str, list[float]] = {name: [] for name in account_names(plan)}
    for name, owner in _owners(plan).items():
        costs[owner] += [scale.rho for scale in scales[name].values()]
    return SpentRho({name: math.fsum(rhos) for name, rhos in costs.items()}, after, through, exclusions(plan))


def _owners(plan: Plan) -> dict[str, str]:
    """Return whose part of ε each table has: its experiment's, or its own where it is of two."""
    owners = {
        linkage.name: linkage.name if len(linkage.experiments) > 1 else linkage.experiments[0]
        for linkage in noisy_tables(plan)
    }
    return owners | {name: pair.experiment for name, pair in planned_pairs(plan).items()}


def _weights(plan: Plan) -> dict[str, float]:
    """Return the weight of every table; pairs of covariates of one experiment share that of one table."""
    declared = {} if plan.budget is None else plan.budget.weights
    pairs = planned_pairs(plan)
    siblings = [pair.experiment for pair in pairs.values()]
    default = {linkage.name: 1.0 for linkage in noisy_tables(plan)}
    default |= {name: 1 / siblings.count(pair.experiment) for name, pair in pairs.items()}
    return {name: declared.get(name, weight) for name, weight in default.items()}


def _scales(plan: Plan, rhos: Mapping[str, float]) -> dict[str, TableScales]:
    scales = {linkage.name: _table_scales(plan, linkage, rhos[linkage.name]) for linkage in noisy_tables(plan)}
    for name, pair in planned_pairs(plan).items():
        people = Statistic("people", by=(pair.experiment, *pair.covariates))
        scales[name] = {people: scale_for(1, rhos[name])}
    return scales


def _table_scales(plan: Plan, linkage: Linkage, rho: float) -> TableScales:
    metrics = {metric.name: metric.metric() for metric in plan.metrics_of(linkage)}
    weights = dict(_statistics(plan, linkage, metrics))
    whole = math.fsum(weights.values())
    return {
        statistic: scale_for(_influence(statistic, metrics), rho * weight / whole)
        for statistic, weight in weights.items()
    }


def _statistics(plan: Plan, linkage: Linkage, metrics: Mapping[str, Metric]) -> Iterator[tuple[Statistic, float]]:
    """Yield what is measured in a table, with its weight; squares and products by arm in that of arms alone."""
    of_everybody = sum(metric.missing == "zero" for metric in metrics.values())
    yield Statistic("people", by=linkage.axes), _PEOPLE * math.sqrt(max(1, of_everybody))
    alone = linkage.axes == linkage.experiments and len(linkage.experiments) == 1
    for name, metric in metrics.items():
        if metric.missing == "exclude":
            yield Statistic("counts", (name,), linkage.axes), _PEOPLE
        yield Statistic("sums", (name,), linkage.axes), _SUMS
        if not metric.binary:
            for by in _marginals(linkage, plan.squares_of(linkage, name)):
                yield Statistic("squares", (name,), by), _SQUARES
    if alone:
        for pair in plan.products_of(linkage):
            if not gaps(plan, pair):
                yield Statistic("products", pair, linkage.axes), _PRODUCTS


def gaps(plan: Plan, pair: tuple[str, str]) -> bool:
    """Return whether somebody may be without a value of two metrics: who has both is counted nowhere."""
    return any(plan.metrics_by_name[name].missing == "exclude" for name in pair)


def _marginals(linkage: Linkage, kept: str) -> list[By]:
    """Return the marginals of squares that a table measures itself."""
    if linkage.people_only:
        return []
    if len(linkage.axes) == 1 or kept == "class":
        return [linkage.axes]
    if len(linkage.experiments) > 1:
        return [(name,) for name in linkage.experiments]
    return [(str(linkage.covariate),)] if kept == "marginals" else []


def _influence(statistic: Statistic, metrics: Mapping[str, Metric]) -> int:
    """Return by how much one person can move a statistic, at most, in half steps."""
    widths = []
    for name in statistic.metrics:
        bounds = metrics[name].grid_bounds
        assert bounds is not None
        widths.append(bounds[1] - bounds[0])
    if statistic.kind in ("people", "counts"):
        return 1
    if statistic.kind == "squares":
        widths *= 2
    return max(1, math.prod(widths))  # on a grid that is coarser than its bounds nobody moves anything


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
    """Return what was measured in a table, and squares and products by arm that it does not measure finer."""
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
    """Return the ε that one release costs one person, as receipts say it: its budget's, if all of it is shared out."""
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
