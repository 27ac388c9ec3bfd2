"""The one door: ``release`` turns what was counted into what may leave, or refuses."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from kanab.counted import Counted
from kanab.errors import PrivacyError
from kanab.moments import Moments
from kanab.plan import LEAST_K, ExperimentPlan, Linkage, Plan
from kanab.privacy.levels import MARGIN, LevelMap, merge_levels, merge_sparsest
from kanab.privacy.released import Receipt, Release
from kanab.tally import Tally


def release(counted: Counted, k: int | None = None, *, override: str = "") -> Release:
    """Merge sparse levels, check every class against k, and say what was done; or refuse.

    ``override`` is the recorded reason for a k below 5.
    """
    if not isinstance(counted, Counted):
        raise PrivacyError("only what count() returns can be released", "Call count() on the source first.")
    rule = _checked(counted.plan.k if k is None else k, override)
    plan = replace(counted.plan, k=rule)
    tables: dict[str, Tally] = {}
    maps: dict[str, LevelMap] = {}
    left_out: dict[str, str] = {}
    for linkage in plan.linkages:
        tally = counted.tallies[linkage.name]
        _check_arms(tally, linkage, rule)
        merged, levels = _merged(tally, linkage, plan, rule)
        if levels is not None and levels.merged:
            maps[linkage.name] = levels
        if merged is None:
            left_out[linkage.name] = _why(linkage)
        else:
            tables[linkage.name] = _without_gaps(merged, rule, linkage.name, left_out)
    _keep_effects(plan, counted, tables, rule)
    classes = [int(n) for tally in tables.values() for n in tally.people.ravel() if n]
    return Release(
        plan,
        tables,
        Receipt(
            rule, min(classes), len(classes), maps, left_out, (f"k = {rule}: {override}",) if rule < LEAST_K else (),
            {name: n // rule * rule for name, n in counted.clamped.items()},
            {name: n // rule * rule for name, n in counted.missing.items()},
            counted.excluded // rule * rule, counted.outside // rule * rule, counted.where,
        ),
        counted.bounds_declared,
    )  # fmt: skip


def _checked(k: Any, override: str) -> int:
    if type(k) is not int or k < 2:
        raise PrivacyError("k must be a whole number, at least 2", "The default is 10.")
    if k < LEAST_K and not override:
        raise PrivacyError(
            f"k = {k} is below {LEAST_K}", "Give a reason with override=… (--override); it is recorded in the receipt."
        )
    return k


def _check_arms(tally: Tally, linkage: Linkage, k: int) -> None:
    if len(linkage.experiments) > 1:
        return
    people = tally.people_by(linkage.experiments[0]).values()
    if any(n < k for n in people):
        raise PrivacyError(
            f"an arm of {linkage.experiments[0]} holds fewer than k = {k} people",
            "Wait for more people, or give the arm a larger share.",
        )


def _merged(tally: Tally, linkage: Linkage, plan: Plan, k: int) -> tuple[Tally | None, LevelMap | None]:
    """The table with enough people in every class, and its map; no table if none can be had."""
    if linkage.covariate is None:
        return (tally if _holds(tally, k) else None), None
    needed = MARGIN * k / smallest_share(plan.experiment(linkage.experiments[0]), tally)
    levels = merge_levels(tally, linkage.covariate, needed)
    while len(levels.groups) > 1:
        merged = levels.apply(tally)
        if _holds(merged, k):
            return merged, levels
        levels = merge_sparsest(tally, levels)
    return None, levels


def smallest_share(experiment: ExperimentPlan, tally: Tally) -> float:
    """The smallest planned share of an arm; equal shares if none were planned."""
    if experiment.shares is None:
        return 1 / len(tally.factor(experiment.name).levels)
    shares = [share for _, share in experiment.shares]
    return min(shares) / math.fsum(shares)


def _holds(tally: Tally, k: int) -> bool:
    """Does every class hold nobody or at least k people?"""
    return bool(np.all((tally.people == 0) | (tally.people >= k)))


def _without_gaps(tally: Tally, k: int, name: str, left_out: dict[str, str]) -> Tally:
    """Withhold metrics whose missing values would single out fewer than k people of a class."""
    kept = []
    for part in tally.moments:
        if _gapless(part, tally, k):
            kept.append(part)
        else:
            left_out[f"{name}: {part.metric.name}"] = (
                f"{part.metric.name} is withheld: in a class of {name} fewer than k people have, or lack, a value"
            )
    return tally.select_metrics(part.metric.name for part in kept)


def _gapless(part: Moments, tally: Tally, k: int) -> bool:
    absent = tally.people - part.counts
    return all(bool(np.all((cells == 0) | (cells >= k))) for cells in (part.counts, absent))


def _keep_effects(plan: Plan, counted: Counted, tables: dict[str, Tally], k: int) -> None:
    """Where no table of an experiment carries a metric any more, its arm totals still go out."""
    for experiment in plan.experiments:
        own = [link for link in plan.linkages if link.experiments == (experiment.name,)]
        published = {m.name for link in own if link.name in tables for m in tables[link.name].metrics}
        totals = counted.tallies[own[0].name].keep()
        lost = [part for part in totals.moments if part.metric.name not in published and _gapless(part, totals, k)]
        if lost or not any(link.name in tables for link in own):
            tables[experiment.name] = totals.select_metrics(part.metric.name for part in lost)


def _why(linkage: Linkage) -> str:
    if linkage.covariate is None:
        return f"{linkage.name} is left out: too few people share its classes"
    return f"{linkage.covariate} is left out: its levels are too sparse, merged they would be one"
