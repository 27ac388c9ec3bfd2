"""Several releases as one: batches of disjoint people, added under the coarsest level map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kanab.errors import PrivacyError
from kanab.factor import Level
from kanab.privacy.gate import Receipt, Release
from kanab.privacy.levels import OTHER, LevelMap
from kanab.tally import Tally


def add_releases(releases: Sequence[Release]) -> Release:
    """The sum of batches that were released by the same plan, about different people.

    Levels that any batch merged are merged in all of them; a table that any batch left out is
    left out of the sum.
    """
    if not releases:
        raise PrivacyError("there is no release to add", "Name at least one file.")
    first = releases[0]
    if any(_terms(one) != _terms(first) for one in releases[1:]):
        raise PrivacyError(
            "these releases were made by different plans",
            "Analyze them one by one, or release all batches with one plan.",
        )
    if len(releases) == 1:
        return first
    shared = [name for name in first.tables if all(name in one.tables for one in releases)]
    tables, maps = {}, {}
    for name in shared:
        tables[name], levels = _added(name, releases)
        if levels is not None:
            maps[name] = levels
    for experiment in first.plan.experiments:
        published = {m.name for name in tables if name.split("/")[0] == experiment.name for m in tables[name].metrics}
        totals = _sum(_alike([one.totals(experiment.name) for one in releases]))
        if not published >= {metric.name for metric in totals.metrics}:
            tables[experiment.name] = totals
    return Release(first.plan, tables, _receipt(releases, tables, maps), all(one.bounds_declared for one in releases))


def _terms(one: Release) -> object:
    """What must agree: arms, metrics and covariates; batches may differ in k."""
    return replace(one.plan, k=0)


def _added(name: str, releases: Sequence[Release]) -> tuple[Tally, LevelMap | None]:
    tallies = _alike([one.tables[name] for one in releases])
    if not tallies[0].covariates:
        return _sum(tallies), None
    covariate = tallies[0].covariates[0].name
    groups = [_groups(one, name, tally) for one, tally in zip(releases, tallies, strict=True)]
    common = _joined([olds for own in groups for olds in own.values()])
    names = _names(common, groups)
    scores = _scores(covariate, tallies, [{new: names[olds[0]] for new, olds in own.items()} for own in groups])
    coarse = [
        tally.coarsen(covariate, {new: names[olds[0]] for new, olds in own.items()}, scores)
        for tally, own in zip(tallies, groups, strict=True)
    ]
    merged = tuple((names[olds[0]], tuple(olds)) for olds in common)
    return _sum(coarse), LevelMap(covariate, merged, scores)


def _alike(tallies: Sequence[Tally]) -> list[Tally]:
    """The metrics that all of them have."""
    names = set.intersection(*({metric.name for metric in tally.metrics} for tally in tallies))
    return [tally.select_metrics(names) for tally in tallies]


def _sum(tallies: Sequence[Tally]) -> Tally:
    total = tallies[0]
    for tally in tallies[1:]:
        total = total + tally
    return total


def _groups(one: Release, name: str, tally: Tally) -> dict[Level, tuple[Level, ...]]:
    """Which original levels stand behind each level of a batch's table."""
    if name in one.receipt.maps:
        return dict(one.receipt.maps[name].groups)
    return {level: (level,) for level in tally.covariates[0].levels}


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
    metrics = [metric.name for metric in releases[0].plan.metrics]
    return Receipt(
        min(one.k for one in receipts), min(classes), len(classes), maps, lost,
        tuple(dict.fromkeys(text for one in receipts for text in one.deviations)),
        {name: sum(one.clamped.get(name, 0) for one in receipts) for name in metrics},
        {name: sum(one.missing.get(name, 0) for one in receipts) for name in metrics},
        sum(one.excluded for one in receipts), sum(one.outside for one in receipts), receipts[0].where,
    )  # fmt: skip
