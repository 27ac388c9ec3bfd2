"""Rule 3 at a seal: nobody or at least three people of every class have some of an amount.

A collector keeps no values, but it counts who is off 0. A level of which one or two people have some of an amount is
merged further; where that would cost a table more than half of its levels, the amount leaves the table instead, a
primary one only where two levels are left. An amount that one or two people of an arm have is withheld altogether.
Forged messages may make numbers below 0, which are too few. Where nobody counted contributors nothing is asked, and the
receipt says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.plan.model import Plan
from kanab.privacy.class_rules import Draft
from kanab.privacy.exposure import LEAST_CONTRIBUTORS, MOST_STEPS
from kanab.privacy.merging import LevelMap, merge_level
from kanab.privacy.overlap import Place
from kanab.tally.cells import Cells
from kanab.tally.metric import Metric

TOO_FEW = "too few people of {} have some of it"

Contributors = Mapping[str, Cells]
"""People whose value is not 0 in the classes of one table, by metric."""


@dataclass(frozen=True)
class EnoughContributors:
    """Tables whose levels are merged far enough, and the metrics that leave a table or an experiment, with reasons."""

    drafts: Mapping[str, Draft]
    withheld: Mapping[Place, str]


def merge_to_contributors(counted: Counted, drafts: Mapping[str, Draft]) -> EnoughContributors:
    """Merge levels until nobody or enough people of every class have some of each amount; withhold what is left."""
    merged = dict(drafts)
    withheld: dict[Place, str] = {}
    for draft in drafts.values():
        if len(draft.linkage.experiments) == 1:
            withheld |= _from_arms(draft, _asked(counted, draft))
    for name, draft in drafts.items():
        barred = {metric for experiment, metric in withheld if experiment in draft.linkage.experiments}
        cells = {metric: people for metric, people in _asked(counted, draft).items() if metric not in barred}
        if draft.why or not cells or len(draft.tally.axes) == 1:
            continue
        merged[name], gone = _merged(draft, cells, counted.plan)
        why = TOO_FEW.format("a class")
        withheld |= {(name, metric): f"{metric} is withheld in {name}: {why}" for metric in gone}
    return EnoughContributors(merged, withheld)


def _asked(counted: Counted, draft: Draft) -> Contributors:
    """Return the contributors of the metrics of a table that the rule is about."""
    known, plans = counted.contributors.get(draft.linkage.name, {}), counted.plan.metrics_by_name
    return {
        metric.name: known[metric.name]
        for metric in draft.tally.metrics
        if metric.name in known and (plans[metric.name].sensitive != "no" or not _harmless(metric))
    }


def _harmless(metric: Metric) -> bool:
    """Return whether a metric is a whole number of a few steps: that somebody ordered twice identifies nobody."""
    low, high = metric.grid_bounds or (-1, 0)
    return metric.scale == 1 and low >= 0 and high <= MOST_STEPS


def _from_arms(draft: Draft, cells: Contributors) -> dict[Place, str]:
    """Return the metrics of which too few people of an arm have some: every table adds up to them."""
    withheld = {}
    for metric, people in cells.items():
        by_arm = people.reshape(len(people), -1).sum(axis=1)
        if _too_few(by_arm).any():
            why = TOO_FEW.format("an arm")
            withheld[draft.linkage.experiments[0], metric] = f"{metric} is withheld altogether: {why}"
    return withheld


def _merged(draft: Draft, cells: Contributors, plan: Plan) -> tuple[Draft, list[str]]:
    """Return a table with its levels merged, and the metrics that leave it: for each, merging starts again."""
    gone: list[str] = []
    primary = plan.experiment(draft.linkage.experiments[0]).primary
    half = 0 if draft.levels is None else (len(draft.levels.groups) + 1) // 2
    levels = draft.levels
    while (failing := _first_failing(draft, levels, cells, gone)) is not None:
        metric, place = failing
        least = 2 if metric in primary else max(2, half)
        if levels is None or len(levels.groups) <= least:
            gone.append(metric)
            levels = draft.levels
        else:
            levels = merge_level(draft.tally, levels, place, _sizes(_by_group(draft, levels, cells[metric])))
    return replace(draft, levels=levels), gone


def _first_failing(
    draft: Draft, levels: LevelMap | None, cells: Contributors, gone: list[str]
) -> tuple[str, int] | None:
    """Return a metric and the place of a level of which too few people have some; None where there is none."""
    for metric, people in cells.items():
        if metric not in gone:
            columns = people if levels is None else _by_group(draft, levels, people)
            failing = np.argwhere(_too_few(columns))
            if len(failing):
                return metric, int(failing[0][-1])
    return None


def _by_group(draft: Draft, levels: LevelMap, people: Cells) -> Cells:
    """Return contributors by the groups of a map, in its order."""
    places = {level: place for place, level in enumerate(draft.tally.factor(levels.covariate).levels)}
    return np.stack([people[..., [places[old] for old in olds]].sum(axis=-1) for _, olds in levels.groups], axis=-1)


def _sizes(people: Cells) -> list[int]:
    """Return contributors by group over all arms; joining a group without any would bring nothing."""
    pooled = [int(number) for number in people.sum(axis=0)]
    return [number if number > 0 else max(pooled) + 1 for number in pooled]


def _too_few(people: Cells) -> NDArray[np.bool_]:
    return np.asarray((people != 0) & (people < LEAST_CONTRIBUTORS), dtype=bool)
