"""The gate for scans: what may be shown of all pairs of many experiments.

The joint of a hundred experiments is everybody, so the leverage rule cannot be evaluated; a budget
on independent numbers stands in for it. Within it every pair's table may be shown. Over it only F
and p, to three digits, and the tables of a few flagged pairs; the rest stays with the curator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from kanab.errors import PrivacyError
from kanab.plan.model import LEAST_K_WITHOUT_OVERRIDE, MetricPlan
from kanab.privacy.audit import audit_table
from kanab.privacy.budget import pair_numbers, within_budget
from kanab.privacy.class_rules import LEAST_DF, checked_k, gapless
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
    chained: bool = field(default=False)

    def __repr__(self) -> str:
        return f"Pairs of {len(self.pairs.experiments)} experiments: k-anonymous at k = {self.k}"


def release_pairs(pairs: Pairs, k: int = 10, *, override: str = "") -> ReleasedPairs:
    """Leave out experiments with an arm below k, and decide by the budget what may be shown of the rest."""
    if not isinstance(pairs, Pairs):
        raise PrivacyError("only what count_pairs() returns can be scanned", "Call count_pairs() on the source first.")
    rule = checked_k(k, override)
    own = [np.diag(pairs.people[pairs.slice_of(i), pairs.slice_of(i)]) for i in range(len(pairs.experiments))]
    kept = [i for i, arms in enumerate(own) if all(n >= rule for n in arms) and sum(arms) - len(arms) >= LEAST_DF]
    if len(kept) < 2:
        raise PrivacyError(
            f"fewer than two experiments have k = {rule} people in every arm", "Wait for more people, or scan others."
        )
    gone = tuple(
        f"{factor.name} is left out: an arm holds fewer than k = {rule} people"
        for i, factor in enumerate(pairs.experiments)
        if i not in kept
    )
    some = selected(pairs, kept)
    numbers = pair_numbers([len(factor.levels) for factor in some.experiments])
    open_metrics = frozenset(
        part.metric.name
        for part in some.moments
        if within_budget(some.total, some.unusual.get(part.metric.name, 0), numbers, rule)
    )
    deviations = (f"k = {rule}: {override}",) if rule < LEAST_K_WITHOUT_OVERRIDE else ()
    return ReleasedPairs(some, rule, _testable(some, rule), open_metrics, gone, deviations)


def shown_pairs(released: ReleasedPairs, flagged: Sequence[tuple[int, int]], metric: str) -> list[tuple[int, int]]:
    """The flagged pairs, most urgent first, whose table of a metric may be shown."""
    found: list[tuple[int, int]] = []
    for pair in flagged:
        if not released.testable[pair]:
            continue
        if metric not in released.open_metrics and not _within(released, [*found, pair], metric):
            break
        table = released.pairs.tally(*pair, [metric])
        audit = audit_table("pair", table, {metric: MetricPlan(metric)})
        if audit.passed and gapless(table.moments_of(metric), table, released.k):
            found.append(pair)
    return found


def _within(released: ReleasedPairs, pairs: Sequence[tuple[int, int]], metric: str) -> bool:
    """May the tables of these few pairs be shown together?"""
    arms = [len(factor.levels) for factor in released.pairs.experiments]
    single = sum(arms[i] - 1 for i in {place for pair in pairs for place in pair})
    crossed = sum((arms[i] - 1) * (arms[j] - 1) for i, j in pairs)
    unusual = released.pairs.unusual.get(metric, 0)
    return within_budget(released.pairs.total, unusual, 1 + single + crossed, released.k)


def _testable(pairs: Pairs, k: int) -> np.ndarray:
    """Which pairs have nobody or at least k people in every class?"""
    fine = (pairs.people == 0) | (pairs.people >= k)
    for part in pairs.moments:
        absent = pairs.people - part.counts
        fine &= ((part.counts == 0) | (part.counts >= k)) & ((absent == 0) | (absent >= k))
    size = len(pairs.experiments)
    found = np.zeros((size, size), dtype=bool)
    for i, j in pairs.pairs:
        found[i, j] = found[j, i] = bool(fine[pairs.slice_of(i), pairs.slice_of(j)].all())
    return found


def selected(pairs: Pairs, places: Sequence[int]) -> Pairs:
    """Only some of the experiments. The people of the others still count as people."""
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
