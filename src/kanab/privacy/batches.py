"""Several releases as one: batches of disjoint people, added under the coarsest level map."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, pairwise

from kanab.arguments import check_arguments
from kanab.errors import PrivacyError
from kanab.plan.model import Plan
from kanab.privacy.merging import OTHER, LevelMap
from kanab.privacy.release import Batch, Receipt, Release
from kanab.privacy.release_json import release_to_dict
from kanab.privacy.same_plan import continues, united
from kanab.tally.factor import Level
from kanab.tally.tally import Tally


@check_arguments(skip=("releases",))
def add_releases(releases: Sequence[Release]) -> Release:
    """The sum of batches that were released by the same plan, about different people.

    Levels that any batch merged are merged in all of them; a table that any batch left out is
    left out of the sum. Experiments may have joined later, and shares of arms may have changed: the
    sum's shares are then those that all batches together should have.
    """
    if not isinstance(releases, Sequence) or isinstance(releases, str):
        raise PrivacyError("only releases can be added", "Give a list of them: add_releases([monday, tuesday]).")
    if not releases:
        raise PrivacyError("there is no release to add", "Name at least one file.")
    if not all(isinstance(one, Release) for one in releases):
        raise PrivacyError("only releases can be added", "Call release() on what count() returned.")
    if not all(continues(later.plan, one.plan) for one, later in combinations(releases, 2)):
        raise PrivacyError(
            "these releases were made by different plans",
            "Analyze them one by one, or release all batches with one plan.",
        )
    if len(releases) == 1:
        return releases[0]
    _check_disjoint(releases)
    tables, maps = {}, {}
    for name in dict.fromkeys(name for one in releases for name in one.tables):
        planned = [one for one in releases if name in {*one.plan.linkage_names, *one.plan.experiment_names}]
        if all(name in one.tables for one in planned):
            tables[name], levels = _added(name, planned)
            if levels is not None:
                maps[name] = levels
    plan = united([one.plan for one in releases])
    for experiment in plan.experiments:
        own = [one for one in releases if experiment.name in one.plan.experiment_names]
        published = {m for name in tables if name.split("/")[0] == experiment.name for m in tables[name].metric_names}
        totals = _sum(_alike([one.totals(experiment.name) for one in own]))
        if not published >= set(totals.metric_names):
            tables[experiment.name] = totals
    declared = all(one.bounds_declared for one in releases)
    previous = releases[-1].previous if all(one.chained for one in releases) else None
    parts = tuple(part for one in releases for part in one.parts or (one,))
    return Release(_with_shares(plan, releases), tables, _receipt(releases, tables, maps), declared, previous, parts)


def _with_shares(plan: Plan, releases: Sequence[Release]) -> Plan:
    """The shares that all batches together should have: each batch's own, weighted by its people."""
    experiments = []
    for one in plan.experiments:
        own = [
            (part.plan.experiment(one.name).shares, part) for part in releases if one.name in part.plan.experiment_names
        ]
        if len({shares for shares, _ in own}) > 1 and all(shares for shares, _ in own):
            sums: dict[Level, float] = {}
            for shares, part in own:
                whole = math.fsum(share for _, share in shares or ())
                people = part.totals(one.name).total
                for arm, share in shares or ():
                    sums[arm] = sums.get(arm, 0.0) + people * share / whole
            experiments.append(replace(one, shares=tuple(sums.items())))
        else:
            experiments.append(one)
    return replace(plan, experiments=tuple(experiments))


def _check_disjoint(releases: Sequence[Release]) -> None:
    """Releases that say themselves that they are about the same people are not added."""
    hashes = [release_to_dict(one)["hash"] for one in releases]
    same = len(set(hashes)) < len(hashes)
    batches = [one.receipt.batch for one in releases]
    if not same and None not in batches:
        ordered = sorted((one for one in batches if one is not None), key=lambda one: one.through)
        same = any(after.after is None or after.after < before.through for before, after in pairwise(ordered))
    elif not same:
        same = any(one.previous in hashes for one in releases)
    if same:
        raise PrivacyError("these releases are about the same people", "Analyze them one by one.")


def _added(name: str, releases: Sequence[Release]) -> tuple[Tally, LevelMap | None]:
    tallies = _alike([one.tables[name] for one in releases])
    if not tallies[0].covariates:
        return _sum(tallies), None
    covariate = tallies[0].covariates[0].name
    own_maps = [one.receipt.maps.get(name) for one in releases]
    _check_cuts(own_maps, covariate)
    groups = [_groups(levels, tally) for levels, tally in zip(own_maps, tallies, strict=True)]
    groups = [_with_rare(levels, own, groups) for levels, own in zip(own_maps, groups, strict=True)]
    common = _joined([olds for own in groups for olds in own.values()])
    names = _names(common, groups)
    scores = _scores(covariate, tallies, [{new: names[olds[0]] for new, olds in own.items()} for own in groups])
    coarse = [
        tally.coarsen(covariate, {new: names[olds[0]] for new, olds in own.items()}, scores)
        for tally, own in zip(tallies, groups, strict=True)
    ]
    real = {old for levels, own in zip(own_maps, groups, strict=True) for old in _originals(levels, own)}
    merged = tuple((names[olds[0]], tuple(old for old in olds if old in real)) for olds in common)
    cuts = own_maps[0].cuts if own_maps[0] is not None else None
    return _sum(coarse), LevelMap(
        covariate, merged, scores, cuts, any(one is not None and one.rest for one in own_maps)
    )


def _alike(tallies: Sequence[Tally]) -> list[Tally]:
    """The metrics that all of them have, in one order: what a batch withholds changes its own."""
    shared = set.intersection(*(set(tally.metric_names) for tally in tallies))
    names = [name for name in tallies[0].metric_names if name in shared]
    return [
        replace(tally.select_metrics(names), moments=tuple(tally.moments_of(name) for name in names))
        for tally in tallies
    ]


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = tallies[0]
    for tally in tallies[1:]:
        total = total + tally
    return total


Groups = dict[Level, tuple[Level, ...]]


def _groups(levels: LevelMap | None, tally: Tally) -> Groups:
    """Which original levels stand behind each level of a batch's table; "other" stands behind itself."""
    if levels is None:
        return {level: (level,) for level in tally.covariates[0].levels}
    return {new: olds if olds and new != OTHER else tuple(dict.fromkeys((*olds, new))) for new, olds in levels.groups}


def _originals(levels: LevelMap | None, own: Groups) -> set[Level]:
    """The levels that the data had, as far as they are named."""
    return set(own) if levels is None else {old for _, olds in levels.groups for old in olds}


def _with_rare(levels: LevelMap | None, own: Groups, all_of_them: Sequence[Groups]) -> Groups:
    """Levels that other batches name, and that this one may have been too small to name, are in its "other"."""
    if levels is None or not levels.rest:
        return own
    known = {old for olds in own.values() for old in olds}
    named = dict.fromkeys(old for groups in all_of_them for olds in groups.values() for old in olds)
    return own | {OTHER: (*own.get(OTHER, (OTHER,)), *(old for old in named if old not in known))}


def _check_cuts(maps: Sequence[LevelMap | None], covariate: str) -> None:
    """Numbers that are too rare to be named lie between cuts, which then must be the same in all batches."""
    cuts = {None if levels is None else (levels.cuts, levels.groups) for levels in maps}
    if len(cuts) > 1 and any(levels is not None and levels.cuts is not None for levels in maps):
        raise PrivacyError(
            f"the batches cut {covariate} differently",
            "Declare its levels or the edges of its bins, and release again.",
        )


def _joined(groups: Sequence[Sequence[Level]]) -> list[list[Level]]:
    """Levels that share a group anywhere, together, in order of first appearance."""
    joined: list[list[Level]] = []
    for group in groups:
        touching = [own for own in joined if set(own) & set(group)]
        merged = list(dict.fromkeys([level for own in touching for level in own] + list(group)))
        joined = [own for own in joined if own not in touching] + [merged]
    return joined


def _names(common: Sequence[Sequence[Level]], groups: Sequence[Mapping[Level, Sequence[Level]]]) -> dict[Level, Level]:
    """A name for every original level: the one that a batch already used, else "other"."""
    used = {frozenset(olds): new for own in groups for new, olds in own.items()}
    found: dict[Level, Level] = {}
    for olds in common:
        name = used.get(frozenset(olds))
        if name is None:
            name = olds[0] if len(olds) == 1 else " or ".join(map(str, olds)) if len(olds) < 4 else OTHER
        found |= dict.fromkeys(olds, name)
    return found


def _scores(covariate: str, tallies: Sequence[Tally], targets: Sequence[Mapping[Level, Level]]) -> dict[Level, float]:
    """Scores of a numeric covariate's levels, pooled over the batches."""
    weighed: dict[Level, list[tuple[float, int]]] = {}
    for tally, target in zip(tallies, targets, strict=True):
        factor = tally.factor(covariate)
        people = tally.people_by(covariate)
        for level, score in zip(factor.levels, factor.scores or (), strict=False):
            if score is not None:
                weighed.setdefault(target[level], []).append((score, people[level]))
    return {
        level: parts[0][0]
        if len({x for x, _ in parts}) == 1
        else sum(x * n for x, n in parts) / sum(n for _, n in parts)
        for level, parts in weighed.items()
    }


def _receipt(releases: Sequence[Release], tables: Mapping[str, Tally], maps: Mapping[str, LevelMap]) -> Receipt:
    receipts = [one.receipt for one in releases]
    classes = [int(n) for tally in tables.values() for n in tally.people.ravel() if n]
    lost = {name: sentence for one in receipts for name, sentence in one.left_out.items()}
    gone = {name for one in releases for name in one.tables if name not in tables}
    lost |= {name: f"{name} is left out: not every batch has it" for name in gone}
    metrics = list(dict.fromkeys(name for one in releases for name in one.plan.metric_names))
    effective = [one.effective_k for one in receipts]
    narrowest = [one.narrowest for one in receipts if one.narrowest is not None]
    return Receipt(
        min(one.k for one in receipts), min(classes), len(classes), maps, lost,
        tuple(dict.fromkeys(text for one in receipts for text in one.deviations)),
        {name: sum(one.clamped.get(name, 0) for one in receipts) for name in metrics},
        {name: sum(one.missing.get(name, 0) for one in receipts) for name in metrics},
        sum(one.excluded for one in receipts), sum(one.outside for one in receipts), receipts[0].where,
        None if None in effective else min(one for one in effective if one is not None),
        sum(one.homogeneous for one in receipts), sum(one.not_enumerated for one in receipts),
        min(narrowest) if narrowest else None, _batch(releases),
    )  # fmt: skip


def _batch(releases: Sequence[Release]) -> Batch | None:
    """The cohorts of all batches together; none if they do not follow each other."""
    batches = [one.receipt.batch for one in releases]
    found = batches[0]
    for one in batches[1:]:
        if found is None or one is None or one.after != found.through:
            return None
        found = Batch(found.every, found.after, one.through, found.column)
    return found
