"""How often does the gate withhold the products of a number that an experiment is adjusted for?

    python benchmarks/bench_numbers.py [--runs 20]

Two arms, one covariate with three levels, k = 10; what people spent before comes in the shapes that such numbers have.
Every run draws other people; seeds are fixed. The second number is with bounds at a round number near the 98th
percentile of the shape, which anybody can choose who knows the business.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

import kanab as kb

PEOPLE = (500, 2_000, 10_000, 50_000)
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
SHAPES: dict[str, tuple[Draw, float, float]] = {
    "gamma, shape 1.5": (lambda rng, n: rng.gamma(1.5, 20, n), 10_000, 120),
    "lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n), 100_000, 150),
    "lognormal, σ = 1.5": (lambda rng, n: rng.lognormal(3, 1.5, n), 1_000_000, 400),
    "70 % zeros, then lognormal, σ = 1": (lambda rng, n: rng.lognormal(3, 1, n) * (rng.random(n) < 0.3), 100_000, 80),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
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
    counted = kb.count(rows, arm="variant", metrics=["spend"], adjust=["tier", "before"], bounds=bounds)
    return not any(table.crosses for table in kb.release(counted).tables.values())


if __name__ == "__main__":
    main()
