"""Turns counters into tallies, one per linkage."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple, cast

import numpy as np

from kanab.collector.counting.counters import CONTRIBUTORS
from kanab.collector.counting.layout import RATIO_PARTS, RatioLayout, TableLayout, layouts
from kanab.collector.protocol.encoding import encode
from kanab.errors import TallyError
from kanab.plan.model import Plan
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor, Level
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.noise import AddedNoise, MetricNoise
from kanab.tally.tally import Tally

Levels = tuple[Level, ...]


@dataclass(frozen=True)
class PossibleTable:
    """A table with what some people could have sent, and the metrics and ratios (by their parts) that nobody could."""

    tally: Tally
    impossible: tuple[str | tuple[str, str], ...] = ()


def possible_tables(plan: Plan, counters: Mapping[str, int]) -> dict[str, PossibleTable]:
    """Return the tally of every linkage of a plan, without the metrics and ratios that no people could have sent.

    Anybody can post: what one metric says spoils no other. The missing level of a covariate is there only if somebody
    has it, as when rows are counted. Raises `TallyError` where not even the people of a table are possible.
    """
    possible: dict[str, PossibleTable] = {}
    arms: dict[str, list[int]] = {}
    for layout in layouts(plan):
        experiment = layout.linkage.experiments[0]
        if layout.linkage.people_only:
            made = _possible_bins(layout, arms[experiment], counters)
        else:
            made = _possible(plan, layout.factors, _sums(layout, counters))
            if not made.tally.people[..., -1].any():
                made = replace(made, tally=_without_last_level(made.tally))
            arms.setdefault(experiment, [*made.tally.people_by(experiment).values()])
        possible[layout.linkage.name] = made
    return possible


def possible_arms(plan: Plan, counters: Mapping[str, int]) -> dict[str, PossibleTable]:
    """Return the arms' totals of every experiment, without the metrics and ratios that no people could have sent."""
    possible: dict[str, PossibleTable] = {}
    for layout in layouts(plan):
        experiment = layout.linkage.experiments[0]
        if len(layout.linkage.experiments) == 1 and experiment not in possible:
            possible[experiment] = _possible(plan, layout.arms, _sums(layout, counters).by_arm(layout))
    return possible


def contributors_of(
    plan: Plan, tallies: Mapping[str, Tally], counters: Mapping[str, int]
) -> dict[str, dict[str, Cells]]:
    """Return how many people of every class of some tables have a value that is not 0, by table and metric."""
    contributors = {}
    for layout in layouts(plan):
        tally = tallies.get(layout.linkage.name)
        if tally is not None and layout.amounts and counters.get(layout.contributing_key) == tally.total:
            contributors[layout.linkage.name] = {
                name: _contributors(layout, name, tally.factors, counters) for name in layout.amounts
            }
    return contributors


def _contributors(layout: TableLayout, metric: str, factors: Sequence[Factor], counters: Mapping[str, int]) -> Cells:
    word = encode(metric)
    return _cells(counters, factors, lambda levels: layout.class_key(levels, word) + CONTRIBUTORS)


def unchecked_tables(plan: Plan, counters: Mapping[str, int]) -> dict[str, Tally]:
    """Return the tallies of a plan as they were counted: with ε nothing that leaves may depend on what they are."""
    tables = {}
    for layout in layouts(plan):
        people, moments, crosses, _ = _sums(layout, counters)
        noise = AddedNoise(
            0 * people,
            {
                name: MetricNoise(
                    0 * part.counts if part.metric.missing == "exclude" else None,
                    0 * part.sums,
                    {by: 0 * cells for by, cells in part.squares.items()},
                )
                for name, part in moments.items()
            },
            {(cross.pair, cross.by): 0 * cross.products for cross in crosses},
        )
        tables[layout.linkage.name] = Tally(layout.factors, people, tuple(moments.values()), tuple(crosses), noise)
    return tables


def people_by_arm(plan: Plan, counters: Mapping[str, int]) -> dict[str, dict[Level, int]]:
    """Return how many people each arm of each experiment has; totals are not looked at."""
    people: dict[str, dict[Level, int]] = {}
    for layout in layouts(plan):
        arms = layout.factors[0]
        if len(layout.linkage.experiments) == 1 and arms.name not in people:
            counts = _people(layout, counters).reshape(len(arms.levels), -1).sum(axis=1)
            people[arms.name] = dict(zip(arms.levels, counts.tolist(), strict=True))
    return people


def _cells(counters: Mapping[str, int], factors: Sequence[Factor], name: Callable[[Levels], str]) -> Cells:
    """Return the numbers of all combinations of levels, each read by its name."""
    shape = tuple(len(factor.levels) for factor in factors)
    cells = np.empty(math.prod(shape), dtype=object)
    cells[:] = [counters.get(name(levels), 0) for levels in product(*(factor.levels for factor in factors))]
    return cells.reshape(shape)


class _Sums(NamedTuple):
    """What the counters say of a table, possible or not; contributors of amounts, where all people's are counted."""

    people: Cells
    moments: dict[str, Moments]
    crosses: list[Cross]
    contributors: dict[str, Cells]

    def by_arm(self, layout: TableLayout) -> _Sums:
        """Return the totals of the arms of a table of one experiment: products are per arm in any case."""
        if layout.arms == layout.factors:
            return self
        axes = tuple(factor.name for factor in layout.factors)
        return self._replace(
            people=self.people.sum(axis=-1),
            moments={name: part.collapse(axes, axes[-1]) for name, part in self.moments.items()},
            contributors={name: people.sum(axis=-1) for name, people in self.contributors.items()},
        )


def _sums(layout: TableLayout, counters: Mapping[str, int]) -> _Sums:
    people = _people(layout, counters)
    moments = {metric.name: _moments(layout, metric, people, counters) for metric in layout.metrics}
    crosses = [
        _cross(layout, ratio, arm, tuple(moments[name] for name in ratio.pair), counters)
        for ratio in layout.ratios
        for arm in layout.arms
    ]
    known = counters.get(layout.contributing_key) == people.sum()
    amounts = layout.amounts if known else ()
    return _Sums(
        people, moments, crosses, {name: _contributors(layout, name, layout.factors, counters) for name in amounts}
    )


def _possible(plan: Plan, factors: Sequence[Factor], sums: _Sums) -> PossibleTable:
    """Return a table without the metrics and ratios that nobody could have sent."""
    arms, moments = tuple(factors), sums.moments
    gone: list[str] = []
    for name, part in moments.items():
        people = sums.contributors.get(name)
        # fewer off 0 than nobody, or nobody where there is a sum; too many pass: the number is not published
        forged = people is not None and np.any((people < 0) | ((people == 0) & (part.sums != 0)))
        if forged or not _is_possible(arms, sums.people, (part,)):
            gone.append(name)
    asked = {metric.name: metric.of for metric in plan.counted_metrics if metric.events(plan.k) > 1}
    gone += [name for name in moments if asked.get(name) in gone and name not in gone]
    crosses: list[Cross] = []
    pairs: list[tuple[str, str]] = []
    for pair in dict.fromkeys(cross.pair for cross in sums.crosses):
        products = [cross for cross in sums.crosses if cross.pair == pair]
        parts = tuple(moments[name] for name in pair)
        if {*pair} & {*gone} or not _is_possible(arms, sums.people, parts, products):
            pairs.append(pair)
        else:
            crosses += products
    kept = tuple(part for name, part in moments.items() if name not in gone)
    return PossibleTable(Tally(arms, sums.people, kept, tuple(crosses)), (*gone, *pairs))


def _possible_bins(layout: TableLayout, arms: Sequence[int], counters: Mapping[str, int]) -> PossibleTable:
    """Return the people in the bins of a metric; without bins where they are not the people of the arms."""
    people = _people(layout, counters)
    if people.min() >= 0 and people.sum(axis=1).tolist() == [*arms]:
        return PossibleTable(_filled_bins(layout, people))
    arms_only = np.array(arms, dtype=object)[:, None]
    bins = Factor(layout.factors[-1].name, (None,), "covariate")
    return PossibleTable(Tally((layout.factors[0], bins), arms_only), (bins.name,))


def _filled_bins(layout: TableLayout, people: Cells) -> Tally:
    """Return the table of the bins that hold people, as when rows are counted."""
    arms, bins = layout.factors
    kept = [place for place in range(len(bins.levels)) if people[:, place].any()] or [0]
    scores = [bins.scores[place] for place in kept] if bins.scores else []
    levels = tuple(bins.levels[place] for place in kept)
    known = any(score is not None for score in scores)
    return Tally((arms, Factor(bins.name, levels, "covariate", tuple(scores) if known else None)), people[:, kept])


def _is_possible(
    factors: tuple[Factor, ...], people: Cells, moments: Sequence[Moments], crosses: Sequence[Cross] = ()
) -> bool:
    try:
        Tally(factors, people, tuple(moments), tuple(crosses))
    except TallyError:
        return False
    return True


def _people(layout: TableLayout, counters: Mapping[str, int]) -> Cells:
    return _cells(counters, layout.factors, lambda levels: layout.class_key(levels, "n"))


def _without_last_level(tally: Tally) -> Tally:
    """Return a table without the missing level of its covariate, which nobody has; if it has one."""
    *arms, last = tally.factors
    if last.role == "arm":
        return tally
    scores = last.scores and last.scores[:-1]
    factors = (*arms, Factor(last.name, last.levels[:-1], last.role, scores))
    moments = tuple(
        Moments(
            part.metric,
            part.counts[..., :-1],
            part.sums[..., :-1],
            {by: cells[..., :-1] if by[-1] == last.name else cells for by, cells in part.squares.items()},
        )
        for part in tally.moments
    )
    return Tally(factors, tally.people[..., :-1], moments, tally.crosses)


def _moments(layout: TableLayout, metric: Metric, people: Cells, counters: Mapping[str, int]) -> Moments:
    word = encode(metric.name)
    counts = people
    if metric.missing == "exclude":
        counts = _cells(counters, layout.factors, lambda levels: layout.class_key(levels, word, "n"))
    sums = _cells(counters, layout.factors, lambda levels: layout.class_key(levels, word, "s"))
    squares = {}
    for by in layout.marginals[metric.name]:
        named = [factor for factor in layout.factors if factor.name in by]
        squares[by] = _cells(counters, named, lambda levels, by=by: layout.marginal_key(by, levels, word, "q"))  # type: ignore[misc]
    return Moments(metric, counts, sums, squares)


def _cross(
    layout: TableLayout, ratio: RatioLayout, arm: Factor, moments: Sequence[Moments], counters: Mapping[str, int]
) -> Cross:
    by, axes = (arm.name,), tuple(factor.name for factor in layout.factors)

    def sums(name: str) -> Cells:
        return _cells(counters, [arm], lambda levels: layout.marginal_key(by, levels, ratio.name, name))

    if not ratio.has_no_gaps:
        n, s, t, q, r, p = (sums(name) for name in RATIO_PARTS)
        return Cross(ratio.pair, by, n, (s, t), (q, r), p)
    first, second = (next(part for part in moments if part.metric.name == name) for name in ratio.pair)
    return Cross(
        ratio.pair,
        by,
        marginal(first.counts, axes, by),
        (marginal(first.sums, axes, by), marginal(second.sums, axes, by)),
        (_squares(first, by, axes), _squares(second, by, axes)),
        sums("p"),
    )


def _squares(part: Moments, by: By, axes: By) -> Cells:
    """Return squares per arm, which every layout has."""
    return cast(Cells, part.squares_by(by, axes))
