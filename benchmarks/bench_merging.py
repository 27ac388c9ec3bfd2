"""Does merging sparse levels bias the effect? Ways to choose the map, with a true effect of 0.

    python benchmarks/bench_merging.py [--runs 4000]

First by people (k alone), then for an amount that few people have, as rule 3 asks.

An 85/15 split of 800 people, a covariate of 14 levels of falling frequency on which the metric
depends, k = 10. A map per arm keeps a level in the arm where it is frequent enough: "other" then
means different people in the two arms. One map from the realised counts of the smaller arm looks
at what the assignment did. Ours looks at pooled counts and the planned share.

For an amount, levels are merged further where few people are behind it. Every run is paired with the same people under
the map of k alone: printed is by how much the adjusted effect moves, in its own standard errors, and how often a test
at 5 % rejects. The control has a map per arm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kanab as kb
from kanab.counted import Counted
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.class_rules import draft_table
from kanab.privacy.merging import SAFETY_FACTOR, merge_levels
from kanab.privacy.recoding import ENOUGH_CONTRIBUTORS, recode
from kanab.tally.tally import Tally

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


# ── an amount that few people have ─────────────────────────────────────────────────────────────

SPLITS = (0.5, 0.2, 0.1)
BUYING = 0.08


def buyers(rng: np.random.Generator, share: float) -> tuple[dict[str, NDArray[Any]], Plan]:
    """People of whom few buy something, more of them in some levels than in others, and their plan."""
    size = int(2_000 / min(share, 0.4))
    level = rng.choice(LEVELS, size, p=_WEIGHTS / _WEIGHTS.sum())
    bought = rng.random(size) < BUYING * (0.5 + level / LEVELS)
    rows = {
        "arm": np.where(rng.random(size) < share, "B", "A"),
        "x": np.array([f"{place:02d}" for place in range(LEVELS)])[level],
        "y": np.where(bought, np.round(rng.lognormal(3 + level / 20, 0.6, size), 2), 0),
    }
    experiment = ExperimentPlan("arm", (("A", 1 - share), ("B", share)), adjust=("x",), primary=("y",))
    plan = Plan((MetricPlan("y", bounds=(0, 1_000), resolution=0.01),), (experiment,), (CovariatePlan("x"),))
    return rows, plan


def by_people(counted: Counted) -> Tally:
    """The table with levels merged to k people."""
    linkage = counted.plan.linkages[0]
    return draft_table(linkage, counted.tallies[linkage.name], counted.plan, None).table


def by_contributors(counted: Counted) -> Tally:
    """Ours: the table with levels merged further, until rule 3 holds."""
    linkage = counted.plan.linkages[0]
    draft = draft_table(linkage, counted.tallies[linkage.name], counted.plan, None)
    return recode(counted, {linkage.name: draft}, ()).drafts[linkage.name].table


def by_arm(rows: dict[str, NDArray[Any]]) -> Tally:
    """The control: a level is "other" in the arm where few people bought something."""
    merged = rows["x"].copy()
    for arm in ("A", "B"):
        there = rows["arm"] == arm
        names, bought = np.unique(rows["x"][there & (rows["y"] > 0)], return_counts=True)
        kept = names[bought >= ENOUGH_CONTRIBUTORS]
        merged[there & ~np.isin(rows["x"], kept)] = "other"
    return kb.count_columns({**rows, "x": merged}, arm="arm", covariates=["x"], metrics=["y"], bounds={"y": (0, 1_000)},
                            resolution={"y": 0.01})  # fmt: skip


def compare(share: float, runs: int, seed: int = 1) -> dict[str, Paired]:
    """How each map moves the effect against that of k alone, and the size of the test under it."""
    rng = np.random.default_rng([seed, int(100 * share)])
    results: dict[str, list[tuple[float, float]]] = {"k alone": [], "ours": [], "by arm": []}
    for _ in range(runs):
        rows, plan = buyers(rng, share)
        counted = kb.count(rows, plan)
        tables = {"k alone": by_people(counted), "ours": by_contributors(counted), "by arm": by_arm(rows)}
        fits = {name: kb.stats.fit(table, "arm + x") for name, table in tables.items()}
        plain = fits["k alone"]
        for name, fit in fits.items():
            results[name].append(((fit.b[1] - plain.b[1]) / plain.se[1], float(fit.p[1] < 0.05)))
    return {
        name: Paired(*np.mean(moves, axis=0), float(np.std([move for move, _ in moves]) / runs**0.5))
        for name, moves in results.items()
    }


class Paired(NamedTuple):
    """The mean shift of an effect in standard errors, how often a test rejects, and the error of the shift."""

    shift: float
    size: float
    error: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4000)
    runs = parser.parse_args().runs
    print(f"{runs:,} runs of {PEOPLE} people, true effect 0\n")
    for name, (bias, se) in simulate([per_arm, realised, pooled], runs).items():
        print(f"{name:10} bias {bias:+.4f}   standard error {se:.4f}   {bias / se:+6.1f} s.e.")
    print("\nan amount that few people have, paired with the map of k alone")
    for share in SPLITS:
        for name, paired in compare(share, runs).items():
            print(
                f"{1 - share:.0%}/{share:.0%} {name:8} shift {paired.shift:+.4f} ± {paired.error:.4f} s.e.   "
                f"size {paired.size:.4f}"
            )


if __name__ == "__main__":
    main()
