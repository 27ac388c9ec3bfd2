"""The gate for scans: what may be shown of all pairs of many experiments.

The joint of a hundred experiments is everybody, so the leverage rule cannot be evaluated; a budget
on independent numbers stands in for it. Within it every pair's table may be shown. Over it only F
and p, to three digits, and the tables of a few flagged pairs; the rest stays with the curator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kanab.errors import PrivacyError
from kanab.plan.model import DEFAULT_K, LEAST_K_WITHOUT_OVERRIDE, MetricPlan
from kanab.privacy.audit import audit_table
from kanab.privacy.budget import numbers_of_pairs, pair_numbers, within_budget
from kanab.privacy.class_rules import LEAST_DF, check_k, missing_values_hide
from kanab.scan.pairs import PairMoments, Pairs


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
    if len(places) < 2:
        raise PrivacyError(
            f"fewer than two experiments have k = {rule} people in every arm", "Wait for more people, or scan others."
        )
    left_out = tuple(
        f"{factor.name} is left out: an arm holds fewer than k = {rule} people"
        for i, factor in enumerate(pairs.experiments)
        if i not in places
    )
    some = select_experiments(pairs, places)
    numbers = pair_numbers([len(factor.levels) for factor in some.experiments])
    open_metrics = frozenset(
        part.metric.name
        for part in some.moments
        if within_budget(some.total, some.unusual.get(part.metric.name, 0), numbers, rule)
    )
    deviations = (f"k = {rule}: {override}",) if rule < LEAST_K_WITHOUT_OVERRIDE else ()
    return ReleasedPairs(some, rule, _testable(some, rule), open_metrics, left_out, deviations)


def shown_pairs(released: ReleasedPairs, flagged: Sequence[tuple[int, int]], metric: str) -> list[tuple[int, int]]:
    """Return the flagged pairs, most urgent first, whose table of a metric may be shown."""
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
    """Tell whether the tables of these few pairs may be shown together."""
    arms = {place: len(factor.levels) for place, factor in enumerate(released.pairs.experiments)}
    unusual = released.pairs.unusual.get(metric, 0)
    return within_budget(released.pairs.total, unusual, numbers_of_pairs(arms, pairs), released.k)


def _testable(pairs: Pairs, k: int) -> np.ndarray:
    """Tell which pairs have nobody or at least k people in every class."""
    fine = (pairs.people == 0) | (pairs.people >= k)
    for part in pairs.moments:
        absent = pairs.people - part.counts
        fine &= ((part.counts == 0) | (part.counts >= k)) & ((absent == 0) | (absent >= k))
    size = len(pairs.experiments)
    testable = np.zeros((size, size), dtype=bool)
    for i, j in pairs.pairs:
        testable[i, j] = testable[j, i] = bool(fine[pairs.slice_of(i), pairs.slice_of(j)].all())
    return testable


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
