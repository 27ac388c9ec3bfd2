"""The gate for scans: what may be shown of all pairs of many experiments.

The joint of a hundred experiments is everybody, so the leverage rule cannot be evaluated; a budget
on independent numbers stands in for it. Within it every pair's table may be shown. Over it no statistic
of a pair leaves, for F and p solve for people like tables do; but those of the most urgent flagged pairs, tables and
all, as many as the budget allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kanab.choices import DEFAULT_K, LEAST_K_WITHOUT_OVERRIDE
from kanab.counted import floor_to_k
from kanab.errors import PrivacyError
from kanab.plan.model import MetricPlan
from kanab.privacy.audit import audit_table
from kanab.privacy.budget import numbers_of_pairs, pair_numbers, within_budget
from kanab.privacy.class_rules import LEAST_DF, check_k, missing_values_hide
from kanab.scan.pairs import PairMoments, Pairs

ALMOST_SAME = "fewer than k = {k} people of an arm are in it and not in another experiment, or the other way round"
"""Why an experiment is left out that an earlier one could be subtracted from."""


@dataclass(frozen=True)
class Spent:
    """How much of the budget of one metric is used up: independent numbers per person they are about.

    ``per_unusual`` is per person off the commonest value. Of tables about different groups of the same people the
    shares add up; alone, they are the rule of ``within_budget``.

    >>> [Spent().plus(50, people, unusual).within(10) for people, unusual in [(900, 100), (899, 100), (900, 99)]]
    [True, False, False]
    """

    per_person: float = 0.0
    per_unusual: float = 0.0

    def plus(self, numbers: int, people: int, unusual: int) -> Spent:
        """Return what is used up with so many numbers about so many people, so many of them off the commonest value."""
        if not numbers:
            return self
        shares = (numbers / count if count else math.inf for count in (people, unusual))
        return Spent(*(mine + more for mine, more in zip((self.per_person, self.per_unusual), shares, strict=True)))

    def __add__(self, other: Spent) -> Spent:
        """Return what both take together."""
        return Spent(self.per_person + other.per_person, self.per_unusual + other.per_unusual)

    def within(self, k: int) -> bool:
        """Return whether it may all leave together."""
        return 2 * (k - 1) * self.per_person <= 1 + _ROUNDING and 2 * self.per_unusual <= 1 + _ROUNDING


_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class ReleasedPairs:
    """Pairs that may be tested. ``open_metrics`` are those whose tables may all be shown.

    ``testable[i, j]`` says that every class of a pair holds nobody or at least k people.
    """

    pairs: Pairs
    k: int
    testable: np.ndarray
    open_metrics: frozenset[str]
    left_out: tuple[str, ...] = ()
    deviations: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Pairs of {len(self.pairs.experiments)} experiments: k-anonymous at k = {self.k}"


def release_pairs(pairs: Pairs, k: int = DEFAULT_K, *, override: str = "") -> ReleasedPairs:
    """Leave out experiments with an arm below k, and decide by the budget what may be shown of the rest.

    Raises `PrivacyError` where fewer than two experiments are left, or k may not be used.
    """
    if not isinstance(pairs, Pairs):
        raise PrivacyError("only what count_pairs() returns can be scanned", "Call count_pairs() on the source first.")
    rule = check_k(k, override)
    slices = [pairs.slice_of(i) for i in range(len(pairs.experiments))]
    people = [np.diag(pairs.people[arms, arms]) for arms in slices]
    places = [i for i, arms in enumerate(people) if all(n >= rule for n in arms) and sum(arms) - len(arms) >= LEAST_DF]
    kept = told_apart(pairs, places, rule)
    if len(kept) < 2:
        raise PrivacyError(
            f"fewer than two experiments have k = {rule} people in every arm"
            + (" and apart from each other" if len(places) > 1 else ""),
            "Wait for more people, or scan others.",
        )
    left_out = tuple(
        f"{factor.name} is left out: {ALMOST_SAME if i in places else 'an arm holds fewer than k = {k} people'}".format(
            k=rule
        )
        for i, factor in enumerate(pairs.experiments)
        if i not in kept
    )
    some = select_experiments(pairs, kept)
    numbers = pair_numbers([len(factor.levels) for factor in some.experiments])
    open_metrics = frozenset(
        part.metric.name
        for part in some.moments
        if within_budget(some.total, some.unusual.get(part.metric.name, 0), numbers, rule)
    )
    deviations = (f"k = {rule}: {override}",) if rule < LEAST_K_WITHOUT_OVERRIDE else ()
    return ReleasedPairs(some, rule, _testable(some, rule), open_metrics, left_out, deviations)


def shown_pairs(released: ReleasedPairs, flagged: Sequence[tuple[int, int]], metric: str) -> list[tuple[int, int]]:
    """Return the flagged pairs, most urgent first, of which a metric's table and tests may be shown."""
    shown: list[tuple[int, int]] = []
    for pair in flagged:
        if not released.testable[pair]:
            continue
        if metric not in released.open_metrics and not _within(released, [*shown, pair], metric):
            break
        table = released.pairs.tally(*pair, [metric])
        audit = audit_table("pair", table, {metric: MetricPlan(metric)})
        if audit.passed and missing_values_hide(table.moments_of(metric), table, released.k):
            shown.append(pair)
    return shown


def _within(released: ReleasedPairs, pairs: Sequence[tuple[int, int]], metric: str) -> bool:
    """Tell whether these few pairs may be shown together: their tables, and a corrected p each."""
    arms = {place: len(factor.levels) for place, factor in enumerate(released.pairs.experiments)}
    unusual = released.pairs.unusual.get(metric, 0)
    return within_budget(released.pairs.total, unusual, numbers_of_pairs(arms, pairs) + len(pairs), released.k)


def spent_on_pairs(released: ReleasedPairs, shown: Sequence[tuple[int, int]], metric: str) -> Spent:
    """Return what a scan of pairs leaves to others: all tables of an open metric count, else the shown ones."""
    arms = {place: len(factor.levels) for place, factor in enumerate(released.pairs.experiments)}
    whole = metric in released.open_metrics
    numbers = pair_numbers(list(arms.values())) if whole else numbers_of_pairs(arms, shown) + len(shown)
    people, unusual = released.pairs.total, released.pairs.unusual.get(metric, 0)
    return Spent().plus(numbers if whole or shown else 0, *(floor_to_k(n, released.k) for n in (people, unusual)))


def told_apart(pairs: Pairs, places: Sequence[int], k: int) -> list[int]:
    """Return the experiments without the later one of any two that differ in fewer than k people of an arm."""
    alone = np.diagonal(pairs.people)
    experiments = np.add.reduceat(pairs.people, pairs.starts[:-1], axis=1)  # arms by experiment
    outside = alone[:, None] - experiments
    close = np.add.reduceat((outside > 0) & (outside < k), pairs.starts[:-1], axis=0) > 0
    close |= close.T
    kept: list[int] = []
    for place in places:
        if not close[place, kept].any():
            kept.append(place)
    return kept


def _testable(pairs: Pairs, k: int) -> np.ndarray:
    """Tell which pairs have nobody or at least k people in every class."""
    fine = (pairs.people == 0) | (pairs.people >= k)
    for part in pairs.moments:
        absent = pairs.people - part.counts
        fine &= ((part.counts == 0) | (part.counts >= k)) & ((absent == 0) | (absent >= k))
    firsts = list(pairs.starts[:-1])
    testable = np.logical_and.reduceat(np.logical_and.reduceat(fine, firsts, axis=0), firsts, axis=1)
    np.fill_diagonal(testable, val=False)
    return np.asarray(testable)


def select_experiments(pairs: Pairs, places: Sequence[int]) -> Pairs:
    """Return only some of the experiments. The people of the others still count as people."""
    if list(places) == list(range(len(pairs.experiments))):
        return pairs
    arms = np.concatenate([np.arange(pairs.starts[i], pairs.starts[i + 1]) for i in places])
    block = np.ix_(arms, arms)
    moments = tuple(
        PairMoments(part.metric, part.counts[block], part.sums[block], part.squares[np.ix_(arms, np.array(places))])
        for part in pairs.moments
    )
    return replace(
        pairs, experiments=tuple(pairs.experiments[i] for i in places), people=pairs.people[block], moments=moments
    )
