"""What is adjusting for a number worth, do its intervals hold, and how often does the gate withhold it?

    python benchmarks/bench_numbers.py [--runs 20] [--experiments 2000]

First, the variance of an effect that is left of the plain one's: adjusted for 5 and for 20 bins of equally many people,
for the number as it is, and for the number clamped at its 99 % point, as `readout` clamps one without bounds that would
otherwise be withheld. Second, how often 95 % intervals of the adjusted effect hold the truth. What people spend is a
share of what they spent before, and noise.

Third, withholding.
Two arms, one covariate with three levels, k = 10; what people spent before comes in the shapes that such numbers have.
Every run draws other people; seeds are fixed. The second number is with bounds at a round number near the 98th
percentile of the shape, which anybody can choose who knows the business.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.described import as_values

import kanab as kb
from kanab.stats.additive import additive_means

PEOPLE = (500, 2_000, 10_000, 50_000)
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
SHAPES: dict[str, tuple[Draw, float, float]] = {
    "gamma, shape 1.5": (lambda rng, n: rng.gamma(1.5, 20, n), 10_000, 120),
    "lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n), 100_000, 150),
    "lognormal, σ = 1.5": (lambda rng, n: rng.lognormal(3, 1.5, n), 1_000_000, 400),
    "70 % zeros, then lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n) * (rng.random(n) < 0.3), 100_000, 80),
}


WORTH: dict[str, tuple[Draw, float]] = {
    # the shape of the number before, and the share of the metric's variance that it explains
    "lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n), 0.81),
    "70 % zeros, then lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n) * (rng.random(n) < 0.3), 0.46),
}
EFFECT = 1.0


@cache
def spread(draw: Draw) -> float:
    return float(np.std(draw(np.random.default_rng(0), 1_000_000)))


def drawn(draw: Draw, explained: float, people: int, share: float, seed: int) -> dict[str, NDArray[Any]]:
    """One experiment: arms, spend before, and spend, which one arm raises by 1."""
    rng = np.random.default_rng([seed, people])
    before = draw(rng, people)
    noise = spread(draw) * np.sqrt(1 / explained - 1)
    treated = rng.random(people) < share
    spend = before + noise * (rng.gamma(4, 0.5, people) - 2) + EFFECT * treated
    return {"variant": np.where(treated, "B", "A"), "before": np.round(before, 2), "spend": np.round(spend, 2)}


def adjusted(rows: dict[str, NDArray[Any]]) -> kb.stats.Effect:
    """The effect, adjusted for the number as it is."""
    table = kb.count_columns(rows, arm="variant", metrics=["before", "spend"], products=[("before", "spend")])
    return kb.stats.against_control(additive_means([table], "spend", numbers=["before"]))


def variance_left(rows: dict[str, NDArray[Any]]) -> list[float]:
    """The variance of the effect as a share of the plain one's: 5 bins, 20 bins, the number, the number clamped."""
    plain = kb.stats.difference_in_means(kb.count_columns(rows, arm="variant", metrics=["spend"]), "spend")
    left = []
    for bins in (5, 20):
        edges = np.unique(np.quantile(rows["before"], np.arange(1, bins) / bins))
        binned = rows | {"bin": np.searchsorted(edges, rows["before"], side="right").astype(str)}
        table = kb.count_columns(binned, arm="variant", covariates=["bin"], metrics=["spend"])
        left.append(kb.stats.adjusted_effect(table, "spend"))
    clamped = rows | {"before": np.minimum(rows["before"], np.round(np.quantile(rows["before"], 0.99), 2))}
    left += [adjusted(rows), adjusted(clamped)]
    return [(effect.se_population / plain.se_population) ** 2 for effect in left]


def holds(draw: Draw, explained: float, people: int, share: float, seed: int) -> bool:
    low, high = adjusted(drawn(draw, explained, people, share, seed)).interval
    return bool(low <= EFFECT <= high)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--experiments", type=int, default=2_000)
    options = parser.parse_args()
    print(f"{'variance left, 200,000 people':<36}{'5 bins':>10}{'20 bins':>10}{'number':>10}{'clamped':>10}")
    for name, (draw, explained) in WORTH.items():
        left = np.mean([variance_left(drawn(draw, explained, 200_000, 0.5, seed)) for seed in range(5)], axis=0)
        print(f"{name:<36}" + "".join(f"{share:10.2f}" for share in left), flush=True)
    experiments = options.experiments
    print(f"\n{f'coverage, {experiments:,} experiments':<36}{'people':>10}{'50/50':>10}{'10/90':>10}")
    for name, (draw, explained) in WORTH.items():
        for people in (2_000, 20_000):
            hits = [
                np.mean([holds(draw, explained, people, share, seed) for seed in range(experiments)])
                for share in (0.5, 0.1)
            ]
            print(f"{name:<36}{people:>10,}" + "".join(f"{hit:10.3f}" for hit in hits), flush=True)
    print()
    withholding(options.runs)


def withholding(runs: int) -> None:
    print(f"{f'withheld / clamped, of {runs} runs':<36}" + "".join(f"{n:>12,}" for n in PEOPLE))
    for name, (draw, open_end, clamp) in SHAPES.items():
        counts = []
        for people in PEOPLE:
            lost = [sum(withheld(draw, people, seed, end) for seed in range(runs)) for end in (open_end, clamp)]
            counts.append(f"{lost[0]} / {lost[1]}")
        print(f"{name:<36}" + "".join(f"{text:>12}" for text in counts))


def withheld(draw: Draw, people: int, seed: int, end: float) -> bool:
    rng = np.random.default_rng([seed, people])
    before = np.round(draw(rng, people), 2)
    rows = {
        "variant": rng.choice(["A", "B"], people),
        "tier": rng.choice([1, 2, 3], people),
        "before": before,
        "spend": np.round(rng.gamma(1, 30, people), 2),
    }
    bounds = {"before": (0.0, end), "spend": (0.0, 1_000.0)}
    counted = kb.count(
        rows, **as_values("count", arm="variant", metrics=["spend"], adjust=["tier", "before"], bounds=bounds)
    )
    return not any(table.crosses for table in kb.release(counted).tables.values())


if __name__ == "__main__":
    main()
