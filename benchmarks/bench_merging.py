"""Does merging sparse levels bias the effect? Three ways to choose the map, with a true effect of 0.

    python benchmarks/bench_merging.py [--runs 4000]

An 85/15 split of 800 people, a covariate of 14 levels of falling frequency on which the metric
depends, k = 10. A map per arm keeps a level in the arm where it is frequent enough: "other" then
means different people in the two arms. One map from the realised counts of the smaller arm looks
at what the assignment did. Ours looks at pooled counts and the planned share.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

import kanab as kb
from kanab.privacy.merging import SAFETY_FACTOR, merge_levels

K = 10
SHARE = 0.15
PEOPLE = 800
LEVELS = 14
_WEIGHTS = 0.75 ** np.arange(LEVELS)

Codes = NDArray[np.int64]
Chooser = Callable[[Codes, NDArray[np.bool_]], Codes]


def people(rng: np.random.Generator) -> tuple[NDArray[np.bool_], Codes, NDArray[np.float64]]:
    """Who is treated, everybody's level, and a metric that depends on the level alone."""
    treated = rng.random(PEOPLE) < SHARE
    level = rng.choice(LEVELS, PEOPLE, p=_WEIGHTS / _WEIGHTS.sum())
    return treated, level, np.round(level + rng.normal(0, 1, PEOPLE), 2)


def per_arm(level: Codes, treated: NDArray[np.bool_]) -> Codes:
    """A map per arm: what is sparse in an arm is "other" in that arm."""
    found = level.copy()
    for arm in (treated, ~treated):
        sparse = np.bincount(level[arm], minlength=LEVELS) < K
        found[arm & sparse[level]] = LEVELS
    return found


def realised(level: Codes, treated: NDArray[np.bool_]) -> Codes:
    """One map for both arms, from the realised counts of the sparser arm."""
    fewest = np.minimum(*(np.bincount(level[arm], minlength=LEVELS) for arm in (treated, ~treated)))
    return np.where(fewest[level] < K, LEVELS, level)


def pooled(level: Codes, treated: NDArray[np.bool_]) -> Codes:
    """Ours: one map, from pooled counts × planned share."""
    texts = [f"{one:02d}" for one in level]
    tally = kb.count_columns({"arm": treated, "x": texts}, arm="arm", covariates=["x"])
    groups = merge_levels(tally, "x", SAFETY_FACTOR * K / SHARE).groups
    into = {old: place for place, (_, olds) in enumerate(groups) for old in olds}
    return np.array([into[text] for text in texts])


def effect(treated: NDArray[np.bool_], level: Codes, y: NDArray[np.float64]) -> float:
    """The effect adjusted for the merged levels, from the tally."""
    tally = kb.count_columns({"arm": treated, "x": [f"{one:02d}" for one in level], "y": y}, arm="arm",
                             covariates=["x"], metrics=["y"])  # fmt: skip
    fit = kb.stats.fit(tally, "arm + x")
    return float(fit.b[1])


def simulate(rules: Sequence[Chooser], runs: int, seed: int = 1) -> dict[str, tuple[float, float]]:
    """The mean effect under each rule, and its standard error over the runs."""
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {rule.__name__: [] for rule in rules}
    for _ in range(runs):
        treated, level, y = people(rng)
        for rule in rules:
            found[rule.__name__].append(effect(treated, rule(level, treated), y))
    return {name: (float(np.mean(ones)), float(np.std(ones) / len(ones) ** 0.5)) for name, ones in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000)
    runs = parser.parse_args().runs
    print(f"{runs:,} runs of {PEOPLE} people, true effect 0\n")
    for name, (bias, se) in simulate([per_arm, realised, pooled], runs).items():
        print(f"{name:10} bias {bias:+.4f}   standard error {se:.4f}   {bias / se:+6.1f} s.e.")


if __name__ == "__main__":
    main()
