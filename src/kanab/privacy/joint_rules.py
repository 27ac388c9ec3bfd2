"""The rules for all tables at once: merge and withhold until nobody can be singled out of all of them.

The leverage rule is about everything published: new tables, and those of earlier releases, which
can no longer change. New tables give way first by merging levels, and are left out only where no
table with more than two levels takes part in singling people out; metrics that some people lack
give way by being withheld. Experiments whose people are the same but for a few do not leave together, where it is known
who is in which; a collector does not know it, and its promise holds within an experiment.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from kanab.counted import Counted, Signatures, floor_to_k
from kanab.errors import PrivacyError
from kanab.plan.model import Linkage, Plan
from kanab.privacy.class_rules import Draft, coarsen_draft, missing_values_are_safe
from kanab.privacy.leverage import Leverage, holds, leverage, telling_weights
from kanab.privacy.numbers.design import Weights
from kanab.privacy.overlap import Column, Place, ReleasedTable, column, signatures_of, value_columns

Key = TypeVar("Key")

TOGETHER = "together with the other tables it would single people out"

TAKES_PART = 0.2
"""The share of the largest weight in the most telling combination of sums from which on a table takes part in it."""


@dataclass(frozen=True)
class JointDrafts:
    """Tables that can be published together, what is withheld from them, and the effective k.

    ``effective_k`` is a multiple of k; None where it is unknown how the tables overlap. ``columns``
    are the classes of everything that is published, with what was released before. ``parts`` are the experiments with
    their classes, where each is known by itself.
    """

    drafts: Mapping[str, Draft]
    effective_k: int | None = None
    withheld: frozenset[Place] = field(default_factory=frozenset)
    columns: tuple[Column, ...] = ()
    parts: tuple[tuple[Counted, tuple[Column, ...]], ...] | None = None


def merge_jointly(
    counted: Counted, drafts: Mapping[str, Draft], earlier: Sequence[Column], weights: Weights | None = None
) -> JointDrafts:
    """Merge and withhold until no combination of sums singles anybody out.

    ``earlier`` are the classes of old releases, ``weights`` their products. Raises `PrivacyError` where none is left.
    """
    weights = weights or Weights()
    if not counted.spans_experiments:
        drafts = _within_pair_budget(drafts, counted.plan.k)
    if counted.signatures is None:
        return JointDrafts(drafts)
    if counted.signatures.within:
        return _merge_within(counted, drafts)
    people, k = counted.signatures.people, counted.plan.k
    arms = arm_columns(counted).values()
    while True:
        new = {name: column(counted, as_published(draft)) for name, draft in drafts.items() if not draft.why}
        result = weights.leverage(np.stack([*earlier, *arms, *new.values()], axis=1), people)
        if holds(result, k):
            break
        name = _next_to_coarsen(drafts, new, [*earlier, *arms], result.worst, people)
        if name is None:
            raise PrivacyError(
                "together with what was released before, fewer than k people could be singled out",
                "Nothing more can be released about these people; use the earlier releases.",
            )
        drafts = dict(drafts) | {name: coarsen_draft(drafts[name], TOGETHER)}
    return _withhold_values(counted, drafts, [*earlier, *arms, *new.values()], result, weights)


def _merge_within(counted: Counted, drafts: Mapping[str, Draft]) -> JointDrafts:
    """Merge the tables of each experiment by themselves; those of two experiments keep to k, each by itself."""
    merged, parts = dict(drafts), []
    sizes = [
        int(n)
        for draft in drafts.values()
        if len(draft.linkage.experiments) > 1 and not draft.why
        for n in draft.table.people.ravel()
        if n
    ]
    withheld: set[Place] = set()
    for part in _by_experiment(counted):
        joint = merge_jointly(part, {name: drafts[name] for name in part.tallies}, ())
        merged |= joint.drafts
        withheld |= joint.withheld
        parts.append((part, joint.columns))
        sizes.append(joint.effective_k or 0)
    effective = floor_to_k(min(sizes), counted.plan.k) if sizes else None
    return JointDrafts(merged, effective, frozenset(withheld), parts=tuple(parts))


def _within_pair_budget(drafts: Mapping[str, Draft], k: int) -> dict[str, Draft]:
    """Leave out pairs of experiments without enough people for all their numbers, where the overlap is unknown."""
    pairs = {
        name: draft.tally for name, draft in drafts.items() if len(draft.linkage.experiments) > 1 and not draft.why
    }
    arms = {factor.name: len(factor.levels) for tally in pairs.values() for factor in tally.arms}
    steps = [math.prod(arms[name] - 1 for name in tally.experiment_names) for tally in pairs.values()]
    numbers = 1 + sum(count - 1 for count in arms.values()) + sum(steps)  # sums of one metric that are independent
    fewest = min((tally.total for tally in pairs.values()), default=0)
    # Independent assignments put at most about 1.2 × numbers / people of leverage on one person: well below 1/k.
    if not pairs or fewest >= 2 * (k - 1) * numbers:
        return dict(drafts)
    why = "the pairs of experiments hold too many numbers for so many people"
    return dict(drafts) | {name: replace(drafts[name], why=f"{name} is left out: {why}") for name in pairs}


def _withhold_values(
    counted: Counted, drafts: Mapping[str, Draft], base: Sequence[Column], result: Leverage, weights: Weights
) -> JointDrafts:
    """Add who has a value of which metric; withhold by class, then altogether, what that would give away."""
    people, k = signatures_of(counted).people, counted.plan.k
    by_class, by_arm = _values(counted, drafts)
    withheld: set[Place] = set()
    while by_class or by_arm:
        more = weights.leverage(np.stack([*base, *by_arm.values(), *by_class.values()], axis=1), people)
        if holds(more, k):
            result = more
            break
        place = smallest_class(by_class, more.worst, people) or smallest_class(by_arm, more.worst, people)
        place = place or next(iter(by_class or by_arm))
        withheld.add(place)
        by_class.pop(place, None)
        by_arm.pop(place, None)
    return JointDrafts(
        drafts, result.floored(k), frozenset(withheld),
        (*base, *by_arm.values(), *by_class.values()),
    )  # fmt: skip


def _values(counted: Counted, drafts: Mapping[str, Draft]) -> tuple[dict[Place, Column], dict[Place, Column]]:
    """Return who has a value, by class of every table and by arm of every experiment, for metrics that may be shown."""
    k = counted.plan.k
    by_class, by_arm = {}, {}
    for name, draft in drafts.items():
        if not draft.why:
            table = draft.table
            for metric, classes in value_columns(counted, as_published(draft)).items():
                if missing_values_are_safe(table.moments_of(metric), table, k):
                    by_class[name, metric] = classes
    for linkage in first_linkages(counted.plan):
        arms = counted.tallies[linkage.name].keep()
        for metric, classes in value_columns(counted, published_totals(linkage, counted)).items():
            if missing_values_are_safe(arms.moments_of(metric), arms, k):
                by_arm[linkage.experiments[0], metric] = classes
    return by_class, by_arm


def _next_to_coarsen(
    drafts: Mapping[str, Draft], new: dict[str, Column], fixed: Sequence[Column], worst: int, people: Column
) -> str | None:
    """Return the table to coarsen next for the most exposed people: one that takes part in singling them out.

    First come those with more than two levels, then those merged before, then what weighs most, then later ones.
    """
    gives_way = [name for name, draft in drafts.items() if draft.levels or len(draft.linkage.experiments) > 1]
    names = [name for name in reversed(new) if new[name][worst] >= 0 and name in gives_way]
    if not names:
        return None
    weights = telling_weights(np.stack([*fixed, *new.values()], axis=1), people, worst)[len(fixed) :]
    by_name = dict(zip(new, weights, strict=True))
    top = max(by_name[name] for name in names)
    shares = {name: round(by_name[name] / top, 3) for name in names}  # what differs by rounding is alike
    telling = [name for name in names if shares[name] >= TAKES_PART]
    return min(telling, key=lambda name: (*_cost(drafts[name]), -shares[name]))


def _cost(draft: Draft) -> tuple[bool, bool]:
    """Return whether a table can only be left out, and whether all of it would be lost by that."""
    last = draft.levels is None or len(draft.levels.groups) <= 2
    return last, last and not (draft.levels and draft.levels.merged)


def smallest_class(columns: Mapping[Key, Column], worst: int, people: Column) -> Key | None:
    """Return where the most exposed people are in the smallest class."""
    sizes = {
        key: int(people[classes == classes[worst]].sum()) for key, classes in columns.items() if classes[worst] >= 0
    }
    return min(sizes, key=lambda key: sizes[key]) if sizes else None


def as_published(draft: Draft) -> ReleasedTable:
    """Return a draft as it would be published."""
    return ReleasedTable(draft.linkage.name, draft.levels, draft.tally.metric_names)


def published_totals(linkage: Linkage, counted: Counted) -> ReleasedTable:
    """Return the arm totals of an experiment, out of one of its tables."""
    return ReleasedTable(linkage.name, metrics=counted.tallies[linkage.name].metric_names, totals=True)


def first_linkages(plan: Plan) -> list[Linkage]:
    """Return one table of every experiment: its arms are always published."""
    return [plan.linkages_of(name)[0] for name in plan.experiment_names]


def arm_columns(counted: Counted) -> dict[str, Column]:
    """Return the arms of every signature by experiment: arm totals are always published."""
    linkages = first_linkages(counted.plan)
    return {linkage.experiments[0]: column(counted, published_totals(linkage, counted)) for linkage in linkages}


# ── experiments subtracted from experiments ────────────────────────────────────────────────────


def without_experiments(plan: Plan, names: Sequence[str]) -> Plan:
    """Return the plan without some experiments, and without the pairs that they are in."""
    experiments = [
        replace(
            experiment,
            interactions=tuple(other for other in experiment.interactions if other not in names),
            exclude_with=tuple(other for other in experiment.exclude_with if other not in names),
            joint_shares={other: shares for other, shares in experiment.joint_shares.items() if other not in names},
        )
        for experiment in plan.experiments
        if experiment.name not in names
    ]
    return replace(plan, experiments=tuple(experiments))


def without_people_of(counted: Counted, names: Sequence[str]) -> Counted:
    """Return what was counted without some experiments."""
    plan = without_experiments(counted.plan, names)
    tallies = {name: counted.tallies[name] for name in plan.linkage_names}
    contributors = {name: cells for name, cells in counted.contributors.items() if name in tallies}
    signatures = counted.signatures
    if signatures is not None:
        kept = [name for name in signatures.tables if name in tallies]
        cells = signatures.cells[:, [signatures.tables.index(name) for name in kept]]
        signatures = replace(signatures, tables=tuple(kept), cells=cells)
    return replace(counted, plan=plan, tallies=tallies, signatures=signatures, contributors=contributors)


def _by_experiment(counted: Counted) -> Iterator[Counted]:
    """Yield what is known within each experiment, as if it had been counted alone; not those that are unknown."""
    names = counted.plan.experiment_names
    for name in (name for name in names if name not in signatures_of(counted).unknown):
        alone = without_people_of(counted, [other for other in names if other != name])
        known = signatures_of(alone)
        inside = (known.cells >= 0).any(axis=1)
        present = None if known.present is None else known.present[inside]
        own = Signatures(known.tables, known.cells[inside], known.people[inside], known.metrics, present)
        yield replace(alone, signatures=own)


def leave_out_experiments(counted: Counted, earlier: Sequence[Column]) -> tuple[Counted, dict[str, str]]:
    """Leave out later experiments whose arms, beside those of others, would single people out; with the reasons."""
    names = counted.plan.experiment_names
    apart = _apart(counted, earlier) if counted.spans_experiments else {}
    if not apart or len(apart) == len(names):
        return counted, {}
    sentences = {
        name: f"{name} is left out: its people and those of {other} differ by fewer than k, who would be told apart"
        for name, other in apart.items()
    }
    return without_people_of(counted, list(apart)), sentences


def _apart(counted: Counted, earlier: Sequence[Column]) -> dict[str, str]:
    """Return the experiments whose arms would single people out, and beside whose."""
    signatures, k, arms = signatures_of(counted), counted.plan.k, arm_columns(counted)
    if len(arms) == 1 or holds(leverage(np.stack([*earlier, *arms.values()], axis=1), signatures.people), k):
        return {}
    kept: dict[str, Column] = {}
    apart: dict[str, str] = {}
    for name, classes in arms.items():
        if holds(leverage(np.stack([*earlier, *kept.values(), classes], axis=1), signatures.people), k):
            kept[name] = classes
        else:
            apart[name] = " and ".join(kept) or "earlier releases"
    return apart
