"""How often does the test of two rates ring without an effect? Every possible table, by its binomial chance: no noise.

Welch's t, the score test of Miettinen and Nurminen, and what a verdict needs: the score test and, where an arm
would have few events, Fisher's exact test (mid-p), too.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from kanab.stats.score import FEWEST_EXPECTED, Rates

ALPHA = 0.05
RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
Counts = NDArray[np.int64]
Rings = NDArray[np.bool_]


def likely(people: int, rate: float) -> Counts:
    """All numbers of events but the rarest billionth."""
    low, high = stats.binom.ppf([1e-9, 1 - 1e-9], people, rate)
    return np.arange(int(low), int(high) + 1)


def rings(x1: Counts, n1: int, x0: Counts, n0: int) -> tuple[Rings, Rings, Rings]:
    """Which tables ring by Welch's t, by the score test, and by a verdict's two tests."""
    total, events = n1 + n0, x1 + x0
    overall = events / total
    difference = x1 / n1 - x0 / n0
    with np.errstate(all="ignore"):
        z = difference / np.sqrt(overall * (1 - overall) * (1 / n1 + 1 / n0) * total / (total - 1))
        own = [x / n * (1 - x / n) / (n - 1) for x, n in ((x1, n1), (x0, n0))]
        variance = own[0] + own[1]
        df = variance**2 / (own[0] ** 2 / (n1 - 1) + own[1] ** 2 / (n0 - 1))
        welch = 2 * stats.t.sf(np.abs(difference) / np.sqrt(variance), df) < ALPHA
        score = 2 * stats.norm.sf(np.abs(z)) < ALPHA
    verdict = score.copy()
    thin = score & (np.minimum(events, total - events) * min(n1, n0) < FEWEST_EXPECTED * total)
    for place in zip(*np.nonzero(thin), strict=True):
        verdict[place] = Rates(int(x1[place]), n1, int(x0[place]), n0).p_exact() < ALPHA
    return welch, score, verdict


def sizes(people: int, share: float, rate: float) -> list[float]:
    """The size of all three, and how much of the last says that the arm's rate is lower."""
    n1 = round(people * share)
    n0 = people - n1
    first, second = likely(n1, rate), likely(n0, rate)
    x1, x0 = np.meshgrid(first, second, indexing="ij")
    chances = np.outer(stats.binom.pmf(first, n1, rate), stats.binom.pmf(second, n0, rate))
    welch, score, verdict = rings(x1, n1, x0, n0)
    lower = verdict & (x1 * n0 < x0 * n1)
    return [float(chances[which].sum()) for which in (welch, score, verdict, lower)]


def main() -> None:
    """Print a table of sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[200, 2_000, 50_000])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.5, 0.1])
    arguments = parser.parse_args()
    print("people, share of B | rate | Welch | score | verdict | of which lower")
    for people in arguments.people:
        for share in arguments.shares:
            for rate in RATES:
                if rate * people <= 5_000:
                    figures = " | ".join(f"{size:.4f}" for size in sizes(people, share, rate))
                    print(f"{people:,}, {share:g} | {rate:g} | {figures}", flush=True)


if __name__ == "__main__":
    main()
