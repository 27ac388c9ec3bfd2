"""Many tables together: merge and withhold until nobody can be singled out of all of them.

The leverage rule is about everything published: new tables, and those of earlier releases, which
can no longer change. New tables give way first by merging levels; metrics that some people lack
give way by being withheld.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from kanab.counted import Counted, floor_to_k
from kanab.errors import PrivacyError
from kanab.plan.model import Linkage, Plan
from kanab.privacy.class_rules import Draft, coarser, gapless
from kanab.privacy.leverage import Leverage, holds, leverage
from kanab.privacy.overlap import Column, Shown, column, value_columns

Key = TypeVar("Key")
Place = tuple[str, str]
"""A table (or an experiment, for its arm totals) and a metric."""


@dataclass(frozen=True)
class Together:
    """Tables that can be published together, what is withheld from them, and the effective k.

    ``effective_k`` is a multiple of k; None where nobody knows how the tables overlap.
    """

    drafts: Mapping[str, Draft]
    effective_k: int | None = None
    withheld: frozenset[Place] = field(default_factory=frozenset)


def settled(counted: Counted, drafts: Mapping[str, Draft], known: Sequence[Column]) -> Together:
    """Tables that no combination of sums can take apart; ``known`` are the classes of earlier releases."""
    if counted.signatures is None:
        return Together(_within_pair_budget(drafts, counted.plan.k))
    people, k = counted.signatures.people, counted.plan.k
    arms = [column(counted, totals(one, counted)) for one in first_linkages(counted.plan)]
    own: dict[str, Column] = {}
    while True:
        own = {name: column(counted, shown(draft)) for name, draft in drafts.items() if not draft.why}
        found = _leverage([*known, *arms, *own.values()], people)
        if holds(found, k):
            break
        name = _smallest({name: one for name, one in own.items() if _mergeable(drafts[name])}, found.worst, people)
        if name is None:
            raise PrivacyError(
                "together with what was released before, fewer than k people could be singled out",
                "Nothing more can be released about these people; use the earlier releases.",
            )
        drafts = dict(drafts) | {name: coarser(drafts[name])}
    return _with_values(counted, drafts, [*known, *arms, *own.values()], found)


def _within_pair_budget(drafts: Mapping[str, Draft], k: int) -> dict[str, Draft]:
    """Where nobody knows how tables overlap: pairs of experiments only with enough people for all their numbers."""
    pairs = {name: one.tally for name, one in drafts.items() if len(one.linkage.experiments) > 1 and not one.why}
    steps = {factor.name: len(factor.levels) - 1 for tally in pairs.values() for factor in tally.arms}
    crossed = sum(math.prod(steps[factor.name] for factor in tally.arms) for tally in pairs.values())
    fewest = min((tally.total for tally in pairs.values()), default=0)
    if not pairs or fewest >= 2 * (k - 1) * (1 + sum(steps.values()) + crossed):
        return dict(drafts)
    why = "the pairs of experiments hold too many numbers for so many people"
    return dict(drafts) | {name: replace(drafts[name], why=f"{name} is left out: {why}") for name in pairs}


def _with_values(counted: Counted, drafts: Mapping[str, Draft], base: Sequence[Column], found: Leverage) -> Together:
    """Add who has a value of which metric; withhold by class, then altogether, what that would give away."""
    assert counted.signatures is not None
    people, k = counted.signatures.people, counted.plan.k
    by_class, by_arm = _values(counted, drafts)
    withheld: set[Place] = set()
    while by_class or by_arm:
        more = _leverage([*base, *by_arm.values(), *by_class.values()], people)
        if holds(more, k):
            found = more
            break
        place = _smallest(by_class, more.worst, people) or _smallest(by_arm, more.worst, people)
        place = place or next(iter(by_class or by_arm))
        withheld.add(place)
        by_class.pop(place, None)
        by_arm.pop(place, None)
    return Together(drafts, floor_to_k(int(found.effective_k * (1 + 1e-6)), k), frozenset(withheld))


def _values(counted: Counted, drafts: Mapping[str, Draft]) -> tuple[dict[Place, Column], dict[Place, Column]]:
    """Who has a value, by class of every table and by arm of every experiment, for metrics that may be shown."""
    k = counted.plan.k
    by_class, by_arm = {}, {}
    for name, draft in drafts.items():
        if not draft.why:
            table = draft.table
            for metric, one in value_columns(counted, shown(draft)).items():
                if gapless(table.moments_of(metric), table, k):
                    by_class[name, metric] = one
    for linkage in first_linkages(counted.plan):
        arms = counted.tallies[linkage.name].keep()
        for metric, one in value_columns(counted, totals(linkage, counted)).items():
            if gapless(arms.moments_of(metric), arms, k):
                by_arm[linkage.experiments[0], metric] = one
    return by_class, by_arm


def _leverage(columns: Sequence[Column], people: Column) -> Leverage:
    return leverage(np.stack(columns, axis=1), people)


def _mergeable(draft: Draft) -> bool:
    return draft.levels is not None or len(draft.linkage.experiments) > 1


def _smallest(own: Mapping[Key, Column], worst: int, people: Column) -> Key | None:
    """Where the most exposed people are in the smallest class."""
    sizes = {key: int(people[one == one[worst]].sum()) for key, one in own.items() if one[worst] >= 0}
    return min(sizes, key=lambda key: sizes[key]) if sizes else None


def shown(draft: Draft) -> Shown:
    """A draft as it would be published."""
    return Shown(draft.linkage.name, draft.levels, draft.tally.metric_names)


def totals(linkage: Linkage, counted: Counted) -> Shown:
    """The arm totals of an experiment, out of one of its tables."""
    return Shown(linkage.name, metrics=counted.tallies[linkage.name].metric_names, totals=True)


def first_linkages(plan: Plan) -> list[Linkage]:
    """One table of every experiment: its arms are always published."""
    return [plan.linkages_of(name)[0] for name in plan.experiment_names]
