"""Experiments subtracted from experiments: two whose people are the same but for a few tell about those few.

Where it is known who is in which experiment, the leverage rule decides. A collector does not know it: there counts
decide. Experiments whose totals, or people by any shared covariate, show that fewer than k people can be in one and
not in the other do not go into one release. Where one may lie inside the other, shared levels differ by nobody or by
at least k people. Equal counts of different people cannot be told from the same people.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

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
    names, counts = counted.plan.experiment_names, _PeopleByLevel(counted)
    kept = np.zeros(len(names), dtype=bool)
    apart: dict[str, str] = {}
    for place, name in enumerate(names):
        only_this, only_other = counts.people_apart(place)
        both = only_this + only_other
        near = np.flatnonzero(kept & (both > 0) & (both < counted.plan.k))
        if near.size:
            apart[name] = names[near[0]]
        else:
            kept[place] = True
    return apart


class _PeopleByLevel:
    """People of all experiments by the levels of their covariates, as arrays: one is compared with all at a time."""

    def __init__(self, counted: Counted) -> None:
        shares = [_shares(counted, name) for name in counted.plan.experiment_names]
        self._experiments = len(shares)
        self._covariates: dict[str, _CovariateCounts] = {}
        for covariate in dict.fromkeys(name for own in shares for name in own):
            holding = {place: own[covariate] for place, own in enumerate(shares) if covariate in own}
            self._covariates[covariate] = _CovariateCounts(holding)

    def people_apart(self, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many people at least are in one experiment only, and in each other one only: `people_apart`."""
        only_this, only_other = (np.zeros(self._experiments, dtype=np.int64) for _ in range(2))
        for covariate in self._covariates.values():
            if place in covariate.rows:
                more = covariate.people[covariate.rows[place]] - covariate.people
                others = covariate.places
                only_this[others] = np.maximum(only_this[others], np.maximum(more, 0).sum(axis=1))
                only_other[others] = np.maximum(only_other[others], np.maximum(-more, 0).sum(axis=1))
        return only_this, only_other

    def small_steps(self, draft: Draft, among: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
        """Return which of some experiments have a few people more or fewer in a level that a table publishes."""
        assert draft.levels is not None, "it has a covariate"
        covariate = self._covariates[draft.levels.covariate]
        own = draft.table.people_by(draft.levels.covariate)
        targets = [draft.levels.target(level) for level in covariate.levels]
        into = {level: place for place, level in enumerate(dict.fromkeys((*own, *targets)))}
        others = covariate.places[among[covariate.places]]
        sizes = np.zeros((len(others), len(into)), dtype=np.int64)
        np.add.at(sizes.T, [into[target] for target in targets], covariate.people[among[covariate.places]].T)
        more = abs(sizes - np.array([own.get(level, 0) for level in into], dtype=np.int64))
        return np.asarray(others[((more > 0) & (more < k)).any(axis=1)])


class _CovariateCounts:
    """People by the levels of one covariate, a row for every experiment that has it."""

    def __init__(self, holding: Mapping[int, Mapping[Level, int]]) -> None:
        self.places = np.array([*holding], dtype=np.int64)
        self.rows = {place: row for row, place in enumerate(holding)}
        self.levels = list(dict.fromkeys(level for people in holding.values() for level in people))
        self.people = np.array(
            [[own.get(level, 0) for level in self.levels] for own in holding.values()], dtype=np.int64
        )


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
    plan, k, counts = counted.plan, counted.plan.k, _PeopleByLevel(counted)
    for place, name in enumerate(plan.experiment_names):
        inside = np.minimum(*counts.people_apart(place)) < k
        inside[place:] = False
        for link in plan.linkages_of(name) if inside.any() else ():
            while link.covariate is not None and not changed[link.name].why:
                near = counts.small_steps(changed[link.name], inside, k)
                if not near.size:
                    break
                changed[link.name] = _coarser(changed[link.name], plan.experiment_names[near[0]])
    return changed


def _coarser(draft: Draft, other: str) -> Draft:
    coarse = coarsen_draft(draft)
    if not coarse.why:
        return coarse
    levels = "its levels and theirs differ by fewer than k people, whom a difference would tell"
    return replace(coarse, why=f"{draft.linkage.name} is left out beside {other}: {levels}")
