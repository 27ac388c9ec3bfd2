"""Merging levels by counts with noise: a class stays if its people, noise and all, are k and a few deviations more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kanab.plan.model import Linkage, Plan
from kanab.privacy.class_rules import smallest_share
from kanab.privacy.epsilon.mechanism import Scale, add_noise
from kanab.privacy.merging import SAFETY_FACTOR, LevelMap, merge_levels, merge_smallest, without_means
from kanab.stats.noise import FEWEST_DEVIATIONS
from kanab.tally.factor import OTHER, Level, label
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally

TOO_SPARSE = "its levels are too sparse for this noise, merged they would be one"
TOO_FEW = "too few people share its classes for this noise"


def people_with_noise(exact: Tally, scale: Scale) -> Tally:
    """Return the people of a table with noise, and nothing else of it."""
    variance = np.full(exact.shape, scale.variance, dtype=object)
    return Tally(exact.factors, add_noise(exact.people, scale), noise=AddedNoise(variance))


def deviations(noisy: Tally) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the standard deviation of the noise in the people of every class."""
    assert noisy.noise is not None
    return np.asarray(np.sqrt(noisy.noise.people.astype(np.float64)))


def enough(noisy: Tally, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which classes have k people and `FEWEST_DEVIATIONS` of their noise."""
    return np.asarray(noisy.people.astype(np.float64) >= k + FEWEST_DEVIATIONS * deviations(noisy))


def holds(noisy: Tally, k: int) -> bool:
    """Return whether every class has enough people."""
    return bool(np.all(enough(noisy, k)))


def merge_to_k(noisy: Tally, linkage: Linkage, plan: Plan, begun: LevelMap | None = None) -> tuple[LevelMap, Tally]:
    """Return the map of levels whose classes have enough people, or that leaves a single level, and what it makes.

    What decides, and the scores of merged levels, are counts with noise. A map that earlier batches have ``begun`` is
    kept, or becomes coarser.
    """
    covariate = str(linkage.covariate)
    possible = Tally(noisy.factors, np.maximum(noisy.people, 1))
    share = smallest_share(plan.experiment(linkage.experiments[0]), possible)
    least = plan.k + FEWEST_DEVIATIONS * float(deviations(noisy).flat[0])
    levels = begun or merge_levels(possible, covariate, SAFETY_FACTOR * least / share)
    while True:
        named = levels
        if begun != levels:  # scores and names as they are read
            named = without_means(levels, possible) if linkage.people_only else _with_names(levels)
        merged = named.apply(noisy) if named.merged or named.scores else noisy
        if len(levels.groups) == 1 or holds(merged, plan.k):
            return named, merged
        levels = merge_smallest(possible, levels)


def merged_alike(exact: Tally, levels: LevelMap, merged: Tally) -> Tally:
    """Return an exact table with the levels of a table with noise that were merged by a map."""
    new, old = merged.factor(levels.covariate), exact.factor(levels.covariate)
    return exact._fold(new, new.positions([levels.target(level) for level in old.levels]))


def _with_names(levels: LevelMap) -> LevelMap:
    """Name a level after itself where it was merged with the missing one alone, which nobody may have.

    >>> _with_names(LevelMap("device", (("tv", ("tv",)), ("other", ("phone", None))), {})).groups
    (('tv', ('tv',)), ('phone or missing', ('phone', None)))
    """
    names: dict[Level, Level] = {
        new: f"{label(olds[0])} or missing" for new, olds in levels.groups if new == OTHER and olds[1:] == (None,)
    }
    return replace(levels, groups=tuple((names.get(new, new), olds) for new, olds in levels.groups))
