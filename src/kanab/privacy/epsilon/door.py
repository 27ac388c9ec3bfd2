"""The second door: a release whose every number carries noise of a known scale, and nothing else of the data.

Nothing that is decided here looks at an exact number: arms, levels, bounds and scales come from the plan, the levels
that are merged from counts with noise. The first door, `kanab.privacy.gate`, is for releases without ε.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.model import Budget, Linkage, Plan, settle_missing
from kanab.privacy.class_rules import smallest_share
from kanab.privacy.epsilon.accountant import check_spending
from kanab.privacy.epsilon.mechanism import add_noise, random_bits
from kanab.privacy.epsilon.noise_receipt import NoiseReceipt
from kanab.privacy.epsilon.split import Statistic, TableScales, noisy_tables, split_budget
from kanab.privacy.epsilon.tables import noise_of, receipt_scales
from kanab.privacy.ledger import Ledger
from kanab.privacy.merging import SAFETY_FACTOR, LevelMap, merge_levels, merge_smallest
from kanab.privacy.release import Receipt, Release
from kanab.tally.cells import Cells, marginal
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.noise import AddedNoise, twice_centre
from kanab.tally.tally import Tally

SAFE_DEVIATIONS = 3
"""A class stays if its people, noise and all, are k and so many standard deviations of the noise."""


def release_with_noise(counted: Counted, budget: Budget, k: int, ledger: Ledger | None = None) -> Release:
    """Return a release after those of a ledger that costs what the budget says; nothing is written.

    Raises `PrivacyError` where something that has to be known without looking at the data is not declared, or where
    the ledger has spent too much already.
    """
    spending = check_spending(budget, ledger or Ledger())
    plan = replace(settle_missing(counted.plan), k=k, budget=budget, origins=())
    factors = declared_factors(plan)
    _check_declared(counted, plan)
    scales = split_budget(plan, spending.rho)
    measured = {}
    for linkage in noisy_tables(plan):
        exact = _in_full(_exact(counted, linkage), factors)
        measured[linkage.name] = _measure(linkage, exact, scales[linkage.name], plan)
    tables, maps, left_out = {}, {}, {}
    for linkage in noisy_tables(plan):
        table = measured[linkage.name]
        if table.why:
            left_out[linkage.name] = table.why
            continue
        single = len(linkage.experiments) == 1 and not linkage.after
        alone = measured[linkage.experiments[0]] if single else None
        tables[linkage.name] = table.tally(scales, alone)
        if table.levels is not None and table.levels.merged:
            maps[linkage.name] = table.levels
    people = [count for table in tables.values() for count in table.people.ravel().tolist()]
    noise = NoiseReceipt(
        spending.epsilon, spending.delta, spending.total, spending.spent, spending.left, receipt_scales(scales)
    )
    receipt = Receipt(
        k, min(people), len(people), maps, left_out, where=counted.where, choices=counted.choices, noise=noise
    )
    return Release(plan, tables, receipt, previous=None if ledger is None else ledger.head)


def _check_declared(counted: Counted, plan: Plan) -> None:
    """Raise `PrivacyError` where the influence of one person is not known."""
    if "assigned_by" in counted.choices:
        raise PrivacyError(
            "with ε one person more or less must not matter, and arms were assigned to clusters",
            "Release clusters without ε.",
        )
    for metric in plan.counted_metrics:
        if not metric.declared:
            raise PrivacyError(
                f"a release with ε needs the bounds of {metric.name!r}",
                f"Declare them: --bounds {metric.name}=0:100, or in the plan; a 0/1 metric has 0:1.",
            )
    for linkage in noisy_tables(plan):
        missing = {metric.name: metric.metric().missing for metric in plan.metrics_of(linkage)}
        for pair in plan.products_of(linkage):
            if any(missing.get(name) == "exclude" for name in pair):
                raise PrivacyError(
                    f"with ε, products of {' and '.join(pair)} need a value of everybody",
                    'Count missing values as 0 (--missing NAME=zero, missing = "zero" in a plan).',
                )


def declared_factors(plan: Plan) -> dict[str, Factor]:
    """Return all arms and levels of a plan. Raises `PrivacyError` where the data would decide them."""
    factors: dict[str, Factor] = {}
    for experiment in plan.experiments:
        arms = declared_arms(experiment)
        if arms is None:
            raise PrivacyError(
                f"a release with ε needs the arms of {experiment.name!r}", "Declare them: --arms A,B, or in the plan."
            )
        factors[experiment.name] = arms
    for name in plan.factors_in_use:
        levels = declared_levels(plan, name)
        if levels is None:
            raise PrivacyError(
                f"a release with ε needs the levels of {name!r}",
                f'Declare them in the plan: {name} = {{ levels = ["…", "other"] }}, or edges: --bin {name}=18,30,50.',
            )
        factors[name] = levels
    return factors


def _exact(counted: Counted, linkage: Linkage) -> Tally:
    """Return the exact table of a linkage: counted, or the arms alone of a table of the experiment."""
    if linkage.name in counted.tallies:
        return counted.tallies[linkage.name]
    first = next(link for link in counted.plan.linkages_of(linkage.experiments[0]) if not link.after)
    return counted.tallies[first.name].keep()


def _in_full(tally: Tally, factors: Mapping[str, Factor]) -> Tally:
    """Return a table with all declared arms and levels, whether or not anybody has them."""
    for factor in tally.factors:
        full = factors[factor.name]
        tally = tally._fold(full, [full.index(level) for level in factor.levels])
    return tally


@dataclass(frozen=True, eq=False)
class _NoisyTable:
    """A table as it was measured: whole numbers with noise, in half steps about the middle of bounds."""

    linkage: Linkage
    metrics: tuple[Metric, ...]
    factors: tuple[Factor, ...]
    people: Cells
    values: Mapping[Statistic, Cells]
    levels: LevelMap | None
    why: str = ""

    def tally(self, scales: Mapping[str, TableScales], alone: _NoisyTable | None) -> Tally:
        """Return the table in grid steps, with the squares and products by arm of the arms ``alone``."""
        axes = self.linkage.axes
        by_arm = {} if alone is None else {s: c for s, c in alone.values.items() if s.kind in ("squares", "products")}
        values = {**by_arm, **self.values}
        moments: dict[str, Moments] = {}
        for metric in self.metrics:
            name, middle = metric.name, twice_centre(metric)
            counts = self.values.get(Statistic("counts", (name,), axes), self.people)
            half = self.values[Statistic("sums", (name,), axes)] + middle * counts
            sums = (half + random_bits(half.shape)) // 2
            squares = {}
            for statistic, about in values.items():
                if statistic.kind == "squares" and statistic.metrics == (name,):
                    n, s = (marginal(cells, axes, statistic.by) for cells in (counts, sums))
                    squares[statistic.by] = (about + 4 * middle * s - middle**2 * n) // 4
            moments[name] = Moments(metric, counts, sums, squares)
        crosses = [
            _cross(statistic, about, moments, axes)
            for statistic, about in values.items()
            if statistic.kind == "products"
        ]
        noise = noise_of(self.linkage, scales, self.factors, self.levels)
        return Tally(self.factors, self.people, tuple(moments.values()), tuple(crosses), noise)


def _cross(statistic: Statistic, about: Cells, moments: Mapping[str, Moments], axes: By) -> Cross:
    """Return products in grid steps, from those about the middles of both metrics' bounds."""
    first, second = (moments[name] for name in statistic.metrics)
    g, h = (twice_centre(part.metric) for part in (first, second))
    n, s, t = (marginal(cells, axes, statistic.by) for cells in (first.counts, first.sums, second.sums))
    squares = [part.squares_by(statistic.by, axes) for part in (first, second)]
    assert squares[0] is not None
    assert squares[1] is not None
    products = (about + 2 * h * s + 2 * g * t - g * h * n) // 4
    pair = (statistic.metrics[0], statistic.metrics[1])
    return Cross(pair, statistic.by, n, (s, t), (squares[0], squares[1]), products)


def _measure(linkage: Linkage, exact: Tally, scales: TableScales, plan: Plan) -> _NoisyTable:
    """Add noise to people, merge levels by what comes out, then add noise to the sums of what is left."""
    everybody = Statistic("people", by=linkage.axes)
    scale = scales[everybody]
    variance = np.full(exact.shape, scale.variance, dtype=object)
    noisy = Tally(exact.factors, add_noise(exact.people, scale), noise=AddedNoise(variance))
    levels, why = None, ""
    if linkage.covariate is not None:
        levels, why = _merge(noisy, linkage, plan)
        if why:
            return _NoisyTable(linkage, (), exact.factors, noisy.people, {}, levels, why)
        noisy, exact = levels.apply(noisy), levels.apply(exact)
    values = {each: add_noise(_about(each, exact), scales[each]) for each in scales if each != everybody}
    return _NoisyTable(linkage, exact.metrics, exact.factors, noisy.people, values, levels)


def _about(statistic: Statistic, exact: Tally) -> Cells:
    """Return an exact statistic in half steps about the middle of its bounds."""
    parts = [exact.moments_of(name) for name in statistic.metrics]
    middles = [twice_centre(part.metric) for part in parts]
    counts, sums = (marginal(cells, exact.axes, statistic.by) for cells in (parts[0].counts, parts[0].sums))
    if statistic.kind == "counts":
        return counts
    if statistic.kind == "sums":
        return np.asarray(2 * sums - middles[0] * counts)
    if statistic.kind == "squares":
        squares = exact.squares(statistic.metrics[0], statistic.by)
        assert squares is not None
        return np.asarray(4 * squares - 4 * middles[0] * sums + middles[0] ** 2 * counts)
    cross = exact.cross(statistic.metrics[0], statistic.metrics[1], statistic.by)
    g, h = middles
    return np.asarray(4 * cross.products - 2 * h * cross.sums[0] - 2 * g * cross.sums[1] + g * h * cross.counts)


def _merge(noisy: Tally, linkage: Linkage, plan: Plan) -> tuple[LevelMap, str]:
    """Return the map of levels whose classes have enough people, noise and all; or why there is none."""
    covariate = str(linkage.covariate)
    possible = Tally(noisy.factors, np.maximum(noisy.people, 1))
    share = smallest_share(plan.experiment(linkage.experiments[0]), possible)
    least = plan.k + SAFE_DEVIATIONS * math.sqrt(float(noisy.noise.people.flat[0]))  # type: ignore[union-attr]
    levels = merge_levels(possible, covariate, SAFETY_FACTOR * least / share)
    while len(levels.groups) > 1 and not _holds(levels.apply(noisy), plan.k):
        levels = merge_smallest(possible, levels)
    why = "its levels are too sparse for this noise, merged they would be one"
    return levels, f"{covariate} is left out: {why}" if len(levels.groups) == 1 else ""


def _holds(noisy: Tally, k: int) -> bool:
    assert noisy.noise is not None
    deviations = np.sqrt(noisy.noise.people.astype(np.float64))
    return bool(np.all(noisy.people.astype(np.float64) >= k + SAFE_DEVIATIONS * deviations))
