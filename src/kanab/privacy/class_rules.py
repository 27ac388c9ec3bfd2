"""The rules for one table: enough people in every class, levels merged with one map for all arms."""

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kanab.description import DEFAULT_K, LEAST_K_WITHOUT_OVERRIDE
from kanab.errors import PrivacyError, flag, listed
from kanab.plan.model import SMALLEST_K, ExperimentPlan, Linkage, Plan
from kanab.privacy.merging import (
    SAFETY_FACTOR,
    LevelMap,
    merge_levels,
    merge_smallest,
    regroup,
    without_means,
    without_rare_names,
)
from kanab.tally.cell_arrays import marginal
from kanab.tally.factor import Level, label
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import Tally

LEAST_DF = 10
"""Residual degrees of freedom that a fit of a published table has at least."""

TOO_SPARSE = "its levels are too sparse, merged they would be one"


@dataclass(frozen=True)
class Draft:
    """A table on its way through the gate: its map so far, or the sentence why it is left out."""

    linkage: Linkage
    tally: Tally
    levels: LevelMap | None
    why: str = ""

    @cached_property
    def table(self) -> Tally:
        """The table with its levels merged."""
        return self.tally if self.levels is None else self.levels.apply(self.tally)


def check_k(k: Any, override: str) -> int:
    """Return k. Raises `PrivacyError` where it is too small, or below the usual without a recorded reason."""
    if type(k) is not int or k < SMALLEST_K:
        raise PrivacyError(f"k must be a whole number, at least {SMALLEST_K}", f"The default is {DEFAULT_K}.")
    if k < LEAST_K_WITHOUT_OVERRIDE and not override:
        raise PrivacyError(
            f"k = {k} is below {LEAST_K_WITHOUT_OVERRIDE}",
            "Give a reason with override=… (--override); it is recorded in the receipt.",
        )
    return k


def check_arms(tally: Tally, experiment: ExperimentPlan, k: int, units: str = "people") -> None:
    """Check that every arm has enough people: no arms, no answer. Raises `PrivacyError` where one has not."""
    arms = tally.people_by(experiment.name)
    small = [arm for arm, people in arms.items() if people < k]
    if small and experiment.arms is not None:
        raise arm_too_small(experiment, k, small, units=units)
    if small:
        raise arm_too_small(experiment, k, large=[arm for arm in arms if arm not in small], units=units)
    if tally.total - len(arms) < LEAST_DF:
        raise PrivacyError(
            f"{experiment.name} has fewer than {LEAST_DF} residual degrees of freedom", "Wait for more people."
        )


def arm_too_small(
    experiment: ExperimentPlan,
    k: int,
    declared: Sequence[Level] = (),
    large: Sequence[Level] = (),
    *,
    units: str = "people",
) -> PrivacyError:
    """Return the error of arms below k, however far below: named if they were declared, else beside the large ones."""
    remedy = f"Wait for more {units}, or give the arm a larger share."
    if declared:
        names = listed(map(label, declared))
        remedy = f"Declared as {names}: wait for more {units}, or leave out what is no arm of it (--shares, --arms)."
    elif len(large) > 1:
        names = ",".join(map(label, large))
        remedy = (
            f"Its name was not declared and is not shown. Count only the arms that you mean: {flag('--arms', names)}."
        )
    return PrivacyError(f"an arm of {experiment.name} holds fewer than k = {k} {units}", remedy)


def draft_table(linkage: Linkage, tally: Tally, plan: Plan, earlier: LevelMap | None) -> Draft:
    """Merge levels, never finer than in an earlier batch, until every class has enough people, or leave it out."""
    if linkage.covariate is None:
        draft = Draft(linkage, tally, None)
        return draft if _holds(tally, plan.k) else leave_out(draft, "too few people share its classes")
    needed = SAFETY_FACTOR * plan.k / smallest_share(plan.experiment(linkage.experiments[0]), tally)
    if earlier is None:
        levels = merge_levels(tally, linkage.covariate, needed)
    else:
        levels = regroup(tally, earlier)
        while len(levels.groups) > 1 and min(levels.apply(tally).people_by(linkage.covariate).values()) < needed:
            levels = merge_smallest(tally, levels)
    draft = Draft(linkage, tally, levels)
    while not draft.why and (len(levels.groups) == 1 or not _holds(draft.table, plan.k)):
        draft = coarsen_draft(draft)
        levels = draft.levels or levels
    people = tally.people_by(linkage.covariate).values()
    if draft.why and sum(people) - max(people) < plan.k:  # nor is it told that there is anybody
        alike = "all but fewer than k people are alike in it, so that there is nothing to adjust for or to compare"
        return leave_out(draft, alike)
    return draft


def coarsen_draft(draft: Draft, why: str = TOO_SPARSE) -> Draft:
    """Merge the next smallest level; leave the table out where nothing would be left to compare."""
    levels = draft.levels
    if levels is None or len(levels.groups) <= 2:
        return leave_out(draft, why)
    return replace(draft, levels=merge_smallest(draft.tally, levels))


def leave_out(draft: Draft, why: str) -> Draft:
    """Leave a table out of the release, with the reason."""
    return replace(draft, why=f"{draft.linkage.covariate or draft.linkage.name} is left out: {why}")


def published_map(draft: Draft, plan: Plan) -> LevelMap | None:
    """Return the map as it may be read: levels that nobody declared are named only if k people have them."""
    if draft.levels is None:
        return None
    if draft.linkage.people_only:
        return without_means(draft.levels, draft.tally)
    covariate = plan.covariate(draft.levels.covariate)
    declared = covariate.levels is not None or covariate.bins is not None
    return draft.levels if declared else without_rare_names(draft.levels, draft.tally, plan.k)


def smallest_share(experiment: ExperimentPlan, tally: Tally) -> float:
    """Return the smallest planned share of an arm; equal shares if none were planned."""
    if experiment.shares is None:
        return 1 / len(tally.factor(experiment.name).levels)
    shares = [share for _, share in experiment.shares]
    return min(shares) / math.fsum(shares)


def _holds(tally: Tally, k: int) -> bool:
    """Return whether every class holds nobody or at least k people, and a fit has degrees of freedom left."""
    classes = int(np.count_nonzero(tally.people))
    return bool(np.all((tally.people == 0) | (tally.people >= k))) and tally.total - classes >= LEAST_DF


def missing_values_are_safe(part: Moments, tally: Tally, k: int) -> bool:
    """Return whether nobody, or at least k people, of every class have a value, and lack one."""
    absent = tally.people - part.counts
    return all(bool(np.all((cells == 0) | (cells >= k))) for cells in (part.counts, absent))


def ways_out(metric: str) -> str:
    """Say what to do where k forbids to leave out the people who have no value of a metric.

    >>> print(ways_out("spend €").split(", or ")[1])
    only people who have one (--where '"spend €" is not null')
    """
    column = metric if re.fullmatch("[a-z_][a-z0-9_]*", metric) else '"' + metric.replace('"', '""') + '"'
    return (
        f'count missing values as 0 ({flag("--missing", f"{metric}=zero")}, missing = "zero" in a plan), '
        f"or only people who have one ({flag('--where', f'{column} is not null')})"
    )


def products_are_safe(cross: Cross, tally: Tally, k: int, cut: Collection[str]) -> bool:
    """Return whether products of two metrics are about nobody or at least k people, arm by arm.

    The people who have both values must be all of an arm, or all who have one of them: otherwise who has both would be
    a table that no rule has checked. Products with a metric that is 0 or 1 for everybody (``cut``) are sums over those
    who have 1; those of two such metrics are cells of a table of two by two.
    """
    parts = [tally.moments_of(name) for name in cross.pair]
    alike = [marginal(cells, tally.axes, cross.by) for cells in (tally.people, *(part.counts for part in parts))]
    if not np.all(np.any([cross.counts == cells for cells in alike], axis=0)):
        return False
    n = cross.counts
    y, z = (added // part.metric.scale for added, part in zip(cross.sums, parts, strict=True))
    having = {name: added for name, added in zip(cross.pair, (y, z), strict=True) if name in cut}
    if len(having) == 2:
        both = cross.products // (parts[0].metric.scale * parts[1].metric.scale)
        cells = (both, y - both, z - both, n - y - z + both)
        return all(bool(np.all((people == 0) | (people >= k))) for people in cells)
    known = [cross.products == added * parts[1 - place].metric.scale for place, added in enumerate(cross.sums)]
    nothing_new = np.any(known, axis=0) | (cross.products == 0)
    return all(
        bool(np.all(nothing_new | ((people >= k) | (people == 0)) & ((n - people >= k) | (n == people))))
        for people in having.values()
    )
