"""Experiments subtracted from experiments: two whose people are the same but for a few tell about those few.

Where it is known who is in which experiment, the leverage rule decides. A collector does not know it: there counts
decide. Experiments whose totals, or people by any shared covariate, show that fewer than k people can be in one and
not in the other do not go into one release. Where one may lie inside the other, shared levels differ by nobody or by
at least k people. Equal counts of different people cannot be told from the same people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.plan.model import Plan
from kanab.privacy.class_rules import Draft, coarsen_draft
from kanab.privacy.joint_rules import first_linkages, published_totals
from kanab.privacy.leverage import holds, leverage
from kanab.privacy.overlap import Column, column
from kanab.tally.factor import Level

Shares = Mapping[str, Mapping[Level, int]]
"""People by covariate and level, summed over arms; under "" there is the total."""


def people_apart(first: Shares, second: Shares) -> tuple[int, int]:
    """Return how many people at least are in the first experiment only, and in the second only, by counts.

    >>> people_apart({"": {"": 100}, "tier": {1: 60, 2: 40}}, {"": {"": 99}, "tier": {1: 57, 2: 42}})
    (3, 2)
    """
    only_first = only_second = 0
    for covariate in first.keys() & second.keys():
        mine, theirs = first[covariate], second[covariate]
        more = [mine.get(level, 0) - theirs.get(level, 0) for level in {**mine, **theirs}]
        only_first = max(only_first, sum(n for n in more if n > 0))
        only_second = max(only_second, -sum(n for n in more if n < 0))
    return only_first, only_second


def few_apart(first: Shares, second: Shares, k: int) -> bool:
    """Return whether two experiments, by counts, may differ by fewer than k people, and by somebody."""
    return 0 < sum(people_apart(first, second)) < k


def may_be_inside(first: Shares, second: Shares, k: int) -> bool:
    """Return whether one experiment, by counts, may lie inside the other but for fewer than k people."""
    return min(people_apart(first, second)) < k


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


def leave_out_experiments(counted: Counted, earlier: Sequence[Column]) -> tuple[Counted, dict[str, str]]:
    """Leave out later experiments whose people differ from those of others by fewer than k; with the reasons.

    What was released before stays. Where nothing could be left, nothing is left out: the other rules refuse.
    """
    names = counted.plan.experiment_names
    apart = _apart_by_people(counted, earlier) if counted.spans_experiments else _apart_by_counts(counted)
    if not apart or len(apart) == len(names):
        return counted, {}
    sentences = {
        name: f"{name} is left out: its people and those of {other} differ by fewer than k, who would be told apart"
        for name, other in apart.items()
    }
    return without_people_of(counted, list(apart)), sentences


def without_people_of(counted: Counted, names: Sequence[str]) -> Counted:
    """Return what was counted without some experiments."""
    plan = without_experiments(counted.plan, names)
    tallies = {name: counted.tallies[name] for name in plan.linkage_names}
    signatures = counted.signatures
    if signatures is not None:
        kept = [name for name in signatures.tables if name in tallies]
        cells = signatures.cells[:, [signatures.tables.index(name) for name in kept]]
        signatures = replace(signatures, tables=tuple(kept), cells=cells)
    return replace(counted, plan=plan, tallies=tallies, signatures=signatures)


def _apart_by_people(counted: Counted, earlier: Sequence[Column]) -> dict[str, str]:
    """Return the experiments whose arms, beside those of others, would single people out, and beside whose."""
    signatures, k = counted.signatures, counted.plan.k
    assert signatures is not None, "it spans experiments"
    arms = {
        link.experiments[0]: column(counted, published_totals(link, counted)) for link in first_linkages(counted.plan)
    }
    if len(arms) == 1 or holds(leverage(_stacked([*earlier, *arms.values()]), signatures.people), k):
        return {}
    kept: dict[str, Column] = {}
    apart: dict[str, str] = {}
    for name, classes in arms.items():
        if holds(leverage(_stacked([*earlier, *kept.values(), classes]), signatures.people), k):
            kept[name] = classes
        else:
            apart[name] = " and ".join(kept) or "earlier releases"
    return apart


def _stacked(columns: Sequence[Column]) -> NDArray[np.int64]:
    return np.stack(columns, axis=1)


def _apart_by_counts(counted: Counted) -> dict[str, str]:
    shares = {name: _shares(counted, name) for name in counted.plan.experiment_names}
    kept: list[str] = []
    apart: dict[str, str] = {}
    for name, own in shares.items():
        near = [other for other in kept if few_apart(shares[other], own, counted.plan.k)]
        if near:
            apart[name] = near[0]
        else:
            kept.append(name)
    return apart


def _shares(counted: Counted, experiment: str) -> Shares:
    tallies = {link.covariate or "": counted.tallies[link.name] for link in counted.plan.linkages_of(experiment)}
    shares: dict[str, Mapping[Level, int]] = {"": {"": next(iter(tallies.values())).total}}
    return shares | {name: tally.people_by(name) for name, tally in tallies.items() if name}


def coarsen_shared_levels(counted: Counted, drafts: Mapping[str, Draft]) -> dict[str, Draft]:
    """Merge shared levels of later experiments until they differ from those of others by nobody or by k people.

    Only where counts decide, and one experiment may lie inside the other.
    """
    changed = dict(drafts)
    if counted.spans_experiments:
        return changed
    plan, k = counted.plan, counted.plan.k
    shares = {name: _shares(counted, name) for name in plan.experiment_names}
    for first, second in combinations(plan.experiment_names, 2):
        if not may_be_inside(shares[first], shares[second], k):
            continue
        for link in plan.linkages_of(second):
            if link.covariate is None or link.covariate not in shares[first]:
                continue
            while not changed[link.name].why and _small_step(changed[link.name], shares[first][link.covariate], k):
                changed[link.name] = _coarser(changed[link.name], first)
    return changed


def _small_step(draft: Draft, other: Mapping[Level, int], k: int) -> bool:
    """Return whether a published level differs by a few people from the same one of another experiment."""
    assert draft.levels is not None, "it has a covariate"
    sizes: dict[Level, int] = {}
    for level, people in other.items():
        target = draft.levels.target(level)
        sizes[target] = sizes.get(target, 0) + people
    own = draft.table.people_by(draft.levels.covariate)
    return any(0 < abs(own.get(level, 0) - sizes.get(level, 0)) < k for level in {**own, **sizes})


def _coarser(draft: Draft, other: str) -> Draft:
    coarse = coarsen_draft(draft)
    if not coarse.why:
        return coarse
    levels = "its levels and theirs differ by fewer than k people, whom a difference would tell"
    return replace(coarse, why=f"{draft.linkage.name} is left out beside {other}: {levels}")
