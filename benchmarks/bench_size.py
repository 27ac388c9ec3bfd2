"""How often does a test for different effects ring although there are none? Nominal: .05.

Six classes, two arms by three levels. The people's values are not drawn one by one: a class of n
values with standard deviation σ has a normal sum and a χ² spread of its own, so those are drawn.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab import Metric, Tally
from kanab.stats import pooled_f, robust_f
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments

SHARES = np.array([0.6, 0.3, 0.1])
KINDS = ("pooled", "by_arm", "two_marginals", "by_class")
FACTORS = (Factor("arm", ("A", "B"), "arm"), Factor("level", ("1", "2", "3")))
STEPS = 2**16
SIMULATIONS = 10_000


@dataclass(frozen=True)
class Case:
    """A world without interaction: people per class, and their spread or rate."""

    name: str
    people: NDArray[np.int64]
    sd: NDArray[np.float64] | None = None
    rates: NDArray[np.float64] | None = None
    documented: tuple[float, ...] = ()
    """Sizes in statistics.md: pooled, by arm, by class."""


def split(total: int, first_arm: float, shares: NDArray[np.float64] = SHARES) -> NDArray[np.int64]:
    """People per class: the first arm's share, crossed with the levels' shares."""
    return np.rint(total * np.outer([first_arm, 1 - first_arm], shares)).astype(np.int64)


LEVEL_SD = np.array([[1.0, 1, 3], [1, 1, 3]])
ARM_SD = np.array([[3.0] * 3, [1.0] * 3])
RATES = np.array([[0.02, 0.05, 0.30]] * 2)

CASES = (
    Case("level sd 1, 1, 3; N = 20k", split(20_000, 0.5), sd=LEVEL_SD, documented=(0.28, 0.28, 0.05)),
    Case("0/1, rates .02/.05/.30, N = 60k", split(60_000, 0.5), rates=RATES, documented=(0.27, 0.27, 0.05)),
    Case("same, shares reversed", split(60_000, 0.5, SHARES[::-1]), rates=RATES, documented=(0.005, 0.005, 0.05)),
    Case("10/90, arm sd 3:1, N = 600", split(600, 0.1), sd=ARM_SD, documented=(0.53, 0.05, 0.05)),
    Case("10/90, arm sd 1:3, N = 600", split(600, 0.1), sd=ARM_SD[::-1], documented=(0.0, 0.047, 0.05)),
)


def draw(case: Case, rng: np.random.Generator) -> Tally:
    """One experiment of the case, with the same effect in every level."""
    people = case.people.astype(object)
    if case.rates is not None:
        sums = rng.binomial(case.people, case.rates).astype(object)
        return Tally(FACTORS, people, (Moments(Metric("y", 1, (0, 1)), people, sums, {}),))
    assert case.sd is not None
    sums = _whole(rng.normal(0, np.sqrt(case.people)) * case.sd * STEPS)
    spread = _whole(rng.chisquare(case.people - 1) * (case.sd * STEPS) ** 2)
    squares = spread + sums**2 // people + 1
    return Tally(FACTORS, people, (Moments(Metric("y", STEPS), people, sums, {("arm", "level"): squares}),))


def _whole(values: NDArray[np.float64]) -> NDArray[np.object_]:
    return np.vectorize(int, otypes=[object])(np.rint(values))


def p_value(tally: Tally, kind: str) -> float | None:
    """p of the interaction with one kind of variance."""
    return pooled_f(tally).p if kind == "pooled" else robust_f(tally, variance=kind).p  # type: ignore[arg-type]


def sizes(case: Case, simulations: int, seed: int = 1, kinds: tuple[str, ...] = KINDS) -> dict[str, float]:
    """The share of false alarms at .05, for every kind of variance."""
    rng = np.random.default_rng(seed)
    alarms = dict.fromkeys(kinds, 0)
    for _ in range(simulations):
        tally = draw(case, rng)
        for kind in kinds:
            p = p_value(tally, kind)
            alarms[kind] += p is not None and p < 0.05
    return {kind: count / simulations for kind, count in alarms.items()}


def _part(task: tuple[int, int, int]) -> dict[str, float]:
    number, simulations, seed = task
    return sizes(CASES[number], simulations, seed)


def main(simulations: int = SIMULATIONS) -> None:
    """Print the table of statistics.md §4, recomputed."""
    workers = os.cpu_count() or 1
    error = np.sqrt(0.05 * 0.95 / simulations)
    print(f"false alarms at nominal .05, {simulations:,} simulations each (s.e. of .05: {error:.4f})")
    header = ("case", *(kind.replace("_", " ") for kind in KINDS), "statistics.md: pooled / arm / class")
    print(f"{header[0]:<34}" + "".join(f"{name:>13}" for name in header[1:-1]) + f"   {header[-1]}")
    with ProcessPoolExecutor(workers) as pool:
        for number, case in enumerate(CASES):
            tasks = [(number, simulations // workers, 100 + seed) for seed in range(workers)]
            parts = list(pool.map(_part, tasks))
            mean = [float(np.mean([part[kind] for part in parts])) for kind in KINDS]
            documented = " / ".join(f"{size:g}" for size in case.documented)
            print(f"{case.name:<34}" + "".join(f"{size:>13.4f}" for size in mean) + f"   {documented}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIMULATIONS)
