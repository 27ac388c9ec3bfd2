"""Noisy releases: a release whose every number carries noise of a known scale, and nothing else of the data.

Nothing that is decided here looks at an exact number: arms, levels, bounds and scales come from the plan, the levels
that are merged from counts with noise. Releases without ε are made by `kanab.privacy.gate`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np

from kanab.counted import Counted, decided_plan
from kanab.errors import PrivacyError, flag
from kanab.plan.declared import declared_arms, declared_levels
from kanab.plan.model import MOST_CLASSES, Budget, Linkage, Plan, published_plan
from kanab.plan.paired_covariates import Pair, planned_pairs
from kanab.privacy.class_rules import smallest_share
from kanab.privacy.covariate_pairs import MOST_CELLS, Maps, PairTables, SingleTables, pair_left_out, same_levels
from kanab.privacy.epsilon.accountant import check_spending
from kanab.privacy.epsilon.mechanism import Scale, add_noise, check_installed, random_bits
from kanab.privacy.epsilon.rho import release_rho
from kanab.privacy.epsilon.split import (
    Statistic,
    TableScales,
    arm_tables,
    gaps,
    noise_of,
    noisy_tables,
    own_and_shared,
    receipt_scales,
    split_budget,
)
from kanab.privacy.ledger import Ledger
from kanab.privacy.merging import SAFETY_FACTOR, LevelMap, merge_levels, merge_smallest, without_means
from kanab.privacy.overlap import ReleasedTable, column
from kanab.privacy.recount import batch_of, check_batches
from kanab.privacy.release import NoiseReceipt, Receipt, Release
from kanab.stats.noise_variance import FEWEST_DEVIATIONS
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import OTHER, Factor, Level, label
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.noise import AddedNoise, twice_centre
from kanab.tally.tally import Tally


def release_with_noise(
    counted: Counted, budget: Budget, k: int, ledger: Ledger | None = None, *, deviations: Sequence[str] = ()
) -> Release:
    """Return a release after those of a ledger that costs what the budget says; nothing is written.

    Raises `PrivacyError` where something that has to be known without looking at the data is not declared, or where
    the ledger has spent too much already.
    """
    before = ledger or Ledger()
    plan = replace(published_plan(decided_plan(counted), k), budget=budget)
    spending = check_spending(plan, before, batch_of(counted))
    begun = check_batches(replace(counted, plan=plan), before.releases)
    factors = check_declared(plan, counted.choices)
    scales = split_budget(plan, release_rho(budget))
    exact = {linkage.name: with_factors(_exact(counted, linkage, plan), factors) for linkage in noisy_tables(plan)}
    crossed = exact_pairs(counted, factors)
    drawn = _Drawn(plan, scales, begun)
    planned = {linkage.name for old in before.releases for linkage in noisy_tables(old.plan)}
    gone = planned - {*begun} if counted.span is not None else set()
    for name in gone:
        drawn.left_out[name] = f"{name} is left out: an earlier batch is without it"
    # from here on noise is drawn, and nothing fails because of what is in the data
    drawn.measure_all([linkage for linkage in noisy_tables(plan) if linkage.name not in gone], exact)
    pairs = noisy_pairs(plan, drawn.tables, drawn.maps, crossed, scales)
    tables = {**drawn.tables, **pairs.tables}
    people = [count for table in tables.values() for count in table.people.ravel().tolist()]
    noise = NoiseReceipt(
        spending.epsilon, budget.delta, budget.epsilon, spending.spent, spending.left, receipt_scales(scales, plan)
    )
    if budget.delta * max(tables[name].total for name in plan.experiment_names) >= 1:  # of people with noise
        large_delta = f"delta = {budget.delta:g} is not below one divided by the number of people"
        deviations = (*deviations, large_delta)
    receipt = Receipt(
        k,
        min(people),
        len(people),
        left_out={**drawn.left_out, **pairs.left_out, **_products_left_out(plan)},
        deviations=tuple(deviations),
        where=counted.where,
        choices={name: text for name, text in counted.choices.items() if name != "where"},
        ledger=before.name,
        batch=batch_of(counted),
        noise=noise,
        maps={**drawn.maps, **pairs.maps},
    )
    return Release(plan, tables, receipt, previous=None if ledger is None else ledger.head)


def check_declared(plan: Plan, choices: Collection[str] = ()) -> dict[str, Factor]:
    """Return all arms and levels of a plan; nothing but it and choices decides, so that a refusal tells nothing.

    Raises `PrivacyError` where one person's influence is not known without data, `MissingExtraError` without opendp.
    """
    if "assigned_by" in choices:
        raise PrivacyError(
            "with ε one person more or less must not matter, and arms were assigned to clusters",
            "Release clusters without ε.",
        )
    factors = declared_factors(plan)
    for metric in plan.counted_metrics:
        if not metric.declared:
            raise PrivacyError(
                f"a release with ε needs the bounds of {metric.name!r}",
                f"Declare them: {flag('--bounds', f'{metric.name}=0:100')}, or in the plan; a 0/1 metric has 0:1.",
            )
    for pair in (*plan.ratios, *plan.receiving):
        if gaps(plan, pair):
            raise PrivacyError(
                f"with ε, products of {' and '.join(pair)} need a value of everybody",
                f'Count missing values as 0 ({flag("--missing", f"{pair[0]}=zero")}, missing = "zero" in a plan).',
            )
    check_installed()
    return factors


def _products_left_out(plan: Plan) -> dict[str, str]:
    """Say which products with numbers are not measured."""
    return {
        f"{linkage.name}: {' and '.join(sorted(pair))}": (
            f"products of {' and '.join(pair)} are left out: with ε they need a value of everybody"
        )
        for linkage in arm_tables(plan)
        for pair in plan.products_of(linkage)
        if gaps(plan, pair)
    }


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
                f'Declare them in the plan: {name} = {{ levels = ["…", "other"] }}, or edges of bins: '
                f"{flag('--bin', f'{name}=18:30:50')}.",
            )
        factors[name] = levels
    return factors


def _exact(counted: Counted, linkage: Linkage, plan: Plan) -> Tally:
    """Return the exact table of a linkage, counted or the arms alone of another one, with the plan's metrics."""
    if linkage.name in counted.tallies:
        tally = counted.tallies[linkage.name]
    else:
        first = next(link for link in counted.plan.linkages_of(linkage.experiments[0]) if not link.people_only)
        tally = counted.tallies[first.name].keep()
    moments = tuple(replace(part, metric=plan.metrics_by_name[part.metric.name].metric()) for part in tally.moments)
    return replace(tally, moments=moments)


@dataclass
class _Drawn:
    """Tables as they are drawn, those of arms alone first; maps that batches have ``begun`` only become coarser."""

    plan: Plan
    scales: Mapping[str, TableScales]
    begun: Mapping[str, LevelMap | None]
    tables: dict[str, Tally] = field(default_factory=dict)
    maps: dict[str, LevelMap] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    by_arm: dict[str, Mapping[Statistic, Cells]] = field(default_factory=dict)

    def measure_all(self, linkages: Sequence[Linkage], exact: Mapping[str, Tally]) -> None:
        """Measure tables, two at a time: while noise of one is drawn, the other is worked on."""
        for linkage in (each for each in linkages if len(each.axes) == 1):
            self.measure(linkage, exact[linkage.name])
        with ThreadPoolExecutor(2) as pool:
            others = [each for each in linkages if len(each.axes) > 1]
            list(pool.map(self.measure, others, [exact[each.name] for each in others]))
        self.tables = {each.name: self.tables[each.name] for each in linkages if each.name in self.tables}
        self.maps = {each.name: self.maps[each.name] for each in linkages if each.name in self.maps}

    def measure(self, linkage: Linkage, exact: Tally) -> None:
        """Add noise to people, merge levels by what comes out, then add noise to the sums of what is left."""
        everybody, scales = Statistic("people", by=linkage.axes), self.scales[linkage.name]
        noisy = people_with_noise(exact, scales[everybody])
        if linkage.covariate is not None:
            levels, merged = merge_to_k(noisy, linkage, self.plan, self.begun.get(linkage.name))
            if len(levels.groups) == 1:
                self.left_out[linkage.name] = f"{linkage.covariate} is left out: {TOO_SPARSE}"
                return
            if levels.merged:
                self.maps[linkage.name] = levels
            noisy, exact = merged, merged_alike(exact, levels, merged)
        elif len(linkage.experiments) > 1 and not holds(noisy, self.plan.k):
            self.left_out[linkage.name] = f"{linkage.name} is left out: {TOO_FEW}"
            return
        values = {each: add_noise(_about(each, exact), scales[each]) for each in scales if each != everybody}
        if len(linkage.axes) == 1:
            self.by_arm[linkage.name] = {s: c for s, c in values.items() if s.kind in ("squares", "products")}
        shared = {} if len(linkage.experiments) > 1 or linkage.people_only else self.by_arm[linkage.experiments[0]]
        self.tables[linkage.name] = self._in_steps(linkage.name, noisy, exact.metrics, own_and_shared(values, shared))

    def _in_steps(self, name: str, noisy: Tally, metrics: Sequence[Metric], values: Mapping[Statistic, Cells]) -> Tally:
        """Return a table in grid steps, from what was measured in half steps about the middle of bounds."""
        axes = noisy.axes
        moments: dict[str, Moments] = {}
        for metric in metrics:
            middle = twice_centre(metric)
            counts = values.get(Statistic("counts", (metric.name,), axes), noisy.people)
            sums = _rounded(values[Statistic("sums", (metric.name,), axes)] + middle * counts, 1)
            squares = {}
            for statistic, about in values.items():
                if statistic.kind == "squares" and statistic.metrics == (metric.name,):
                    n, s = (marginal(cells, axes, statistic.by) for cells in (counts, sums))
                    squares[statistic.by] = _rounded(about + 4 * middle * s - middle**2 * n, 2)
            moments[metric.name] = Moments(metric, counts, sums, squares)
        crosses = [
            _cross(statistic, about, moments, axes)
            for statistic, about in values.items()
            if statistic.kind == "products"
        ]
        noise = noise_of(self.plan, name, self.scales, noisy.factors, self.maps)
        return Tally(noisy.factors, noisy.people, tuple(moments.values()), tuple(crosses), noise)


def _rounded(cells: Cells, bits: int) -> Cells:
    """Return numbers divided by a power of two, rounded at random so that they are right on average."""
    return np.asarray((cells + random_bits(cells.shape, bits)) >> bits)


def _cross(statistic: Statistic, about: Cells, moments: Mapping[str, Moments], axes: By) -> Cross:
    """Return products in grid steps, from those about the middles of both metrics' bounds."""
    first, second = (moments[name] for name in statistic.metrics)
    g, h = (twice_centre(part.metric) for part in (first, second))
    n, s, t = (marginal(cells, axes, statistic.by) for cells in (first.counts, first.sums, second.sums))
    squares = [part.squares_by(statistic.by, axes) for part in (first, second)]
    assert squares[0] is not None
    assert squares[1] is not None
    products = _rounded(about + 2 * h * s + 2 * g * t - g * h * n, 2)
    pair = (statistic.metrics[0], statistic.metrics[1])
    return Cross(pair, statistic.by, n, (s, t), (squares[0], squares[1]), products)


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


# ── counts with noise decide which levels stay ───────────────────────────────────────────────────
#
# A class stays if its people, noise and all, are k and a few deviations more. Pairs of covariates are measured at the
# levels that the tables of both have; what is merged further for them has one map per covariate for all its pairs.

TOO_SPARSE = "its levels are too sparse for this noise, merged they would be one"
TOO_FEW = "too few people share its classes for this noise"


def people_with_noise(exact: Tally, scale: Scale) -> Tally:
    """Return the people of a table with noise, and nothing else of it."""
    variance = np.full(exact.shape, scale.variance, dtype=object)
    return Tally(exact.factors, add_noise(exact.people, scale), noise=AddedNoise(variance))


def _deviations(noisy: Tally) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the standard deviation of the noise in the people of every class."""
    assert noisy.noise is not None
    return np.asarray(np.sqrt(noisy.noise.people.astype(np.float64)))


def enough(noisy: Tally, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which classes have k people and `FEWEST_DEVIATIONS` of their noise."""
    return np.asarray(noisy.people.astype(np.float64) >= k + FEWEST_DEVIATIONS * _deviations(noisy))


def holds(noisy: Tally, k: int) -> bool:
    """Return whether every class has enough people."""
    return bool(np.all(enough(noisy, k)))


def merge_to_k(noisy: Tally, linkage: Linkage, plan: Plan, begun: LevelMap | None = None) -> tuple[LevelMap, Tally]:
    """Return the map of levels whose classes have enough people, or that leaves a single level, and what it makes.

    What decides, and the scores of merged levels, are counts with noise. A map that earlier batches have ``begun`` is
    kept, or becomes coarser.
    """
    covariate = str(linkage.covariate)
    possible = Tally(noisy.factors, np.maximum(noisy.people, 1))
    share = smallest_share(plan.experiment(linkage.experiments[0]), possible)
    least = plan.k + FEWEST_DEVIATIONS * float(_deviations(noisy).flat[0])
    levels = begun or merge_levels(possible, covariate, SAFETY_FACTOR * least / share)
    while True:
        named = levels
        if begun != levels:  # scores and names as they are read
            named = without_means(levels, possible) if linkage.people_only else _with_names(levels)
        merged = named.apply(noisy) if named.merged or named.scores else noisy
        if len(levels.groups) == 1 or holds(merged, plan.k):
            return named, merged
        levels = merge_smallest(possible, levels)


def merged_alike(exact: Tally, levels: LevelMap, merged: Tally) -> Tally:
    """Return an exact table with the levels of a table with noise that were merged by a map."""
    new, old = merged.factor(levels.covariate), exact.factor(levels.covariate)
    return exact._fold(new, new.positions([levels.target(level) for level in old.levels]))


def _with_names(levels: LevelMap) -> LevelMap:
    """Name a level after itself where it was merged with the missing one alone, which nobody may have.

    >>> _with_names(LevelMap("device", (("tv", ("tv",)), ("other", ("phone", None))), {})).groups
    (('tv', ('tv',)), ('phone or missing', ('phone', None)))
    """
    names: dict[Level, Level] = {
        new: f"{label(olds[0])} or missing" for new, olds in levels.groups if new == OTHER and olds[1:] == (None,)
    }
    return replace(levels, groups=tuple((names.get(new, new), olds) for new, olds in levels.groups))


# ── tables of people by two covariates ───────────────────────────────────────────────────────────

_NOT_COUNTED = "a collector counts people by one covariate at a time"


def with_factors(tally: Tally, factors: Mapping[str, Factor]) -> Tally:
    """Return a table with all declared arms and levels, whether or not anybody has them."""
    for factor in tally.factors:
        tally = tally._fold(factors[factor.name], factors[factor.name].positions(factor.levels))
    return tally


def exact_pairs(counted: Counted, factors: Mapping[str, Factor]) -> dict[str, Tally]:
    """Return people by arm and two covariates with all declared levels; a collector does not know them of everybody."""
    signatures = counted.signatures
    if signatures is None or signatures.within:
        return {}
    pairs = planned_pairs(counted.plan)
    names = {pair.single(covariate) for pair in pairs.values() for covariate in pair.covariates}
    tables = {name: counted.tallies[name] for name in names}
    columns = {name: column(counted, ReleasedTable(name)) for name in names}
    singles = SingleTables(tables, columns, signatures.people)
    unmerged = singles.unmerged()
    return {name: with_factors(singles.table(pair, unmerged), factors) for name, pair in pairs.items()}


def noisy_pairs(
    plan: Plan,
    tables: Mapping[str, Tally],
    merged: Mapping[str, LevelMap],
    exact: Mapping[str, Tally],
    scales: Mapping[str, TableScales],
) -> PairTables:
    """Measure pairs both of whose covariates have a table, and merge levels until their classes have enough people."""
    left_out: dict[str, str] = {}
    drawn: dict[str, Tally] = {}
    pairs = {n: p for n, p in planned_pairs(plan).items() if all(p.single(name) in tables for name in p.covariates)}
    for name, pair in pairs.items():
        sizes = [len(tables[pair.single(covariate)].covariates[0].levels) for covariate in pair.covariates]
        if name not in exact:
            left_out[name] = pair_left_out(pair, _NOT_COUNTED)
        elif math.prod(sizes) * len(exact[name].factors[0].levels) > MOST_CLASSES:
            left_out[name] = pair_left_out(pair, TOO_FEW)
        else:
            whole = exact[name]
            for levels in (merged.get(pair.single(covariate)) for covariate in pair.covariates):
                whole = whole if levels is None else levels.apply(whole)
            by = (pair.experiment, *pair.covariates)
            drawn[name] = people_with_noise(whole, scales[name][Statistic("people", by=by)])
    singles = SingleTables(tables, {}, np.zeros(0, dtype=np.int64))
    maps = {name: same_levels(tables[name]) for pair in pairs.values() for name in map(pair.single, pair.covariates)}
    while sparse := [name for name in drawn if not _dense(_coarse(drawn[name], pairs[name], maps), plan.k)]:
        coarser = singles.coarser(pairs[sparse[0]], maps)
        if coarser is None:
            left_out[sparse[0]] = pair_left_out(pairs[sparse[0]], TOO_FEW)
            del drawn[sparse[0]]
        else:
            maps = dict(coarser)
    further = {pairs[name].map_name(c): maps[pairs[name].single(c)] for name in drawn for c in pairs[name].covariates}
    return PairTables(
        {name: _coarse(table, pairs[name], maps) for name, table in drawn.items()},
        {name: levels for name, levels in further.items() if levels.merged},
        left_out,
    )


def _coarse(table: Tally, pair: Pair, maps: Maps) -> Tally:
    for covariate in pair.covariates:
        table = maps[pair.single(covariate)].apply(table)
    return table


def _dense(table: Tally, k: int) -> bool:
    empty = np.abs(table.people.astype(np.float64)) <= FEWEST_DEVIATIONS * _deviations(table)
    return table.people.size <= MOST_CELLS and bool(np.all(enough(table, k) | empty))
