"""Is planned power the simulated one?

Seeded studies (``simulate``) with the effect that should be found in 80 of 100: plain and adjusted, equal and
90/10 shares, a rate of 1 %, skewed amounts that the effect multiplies. For amounts also what happens if the plan
takes such an effect for a shift. (Size and coverage of every method: bench_calibration.py. Times: bench_methods.py.)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kanab.planning import Population, noise_of_means, simulate, solve_power
from kanab.stats import adjusted_effect, adjusted_means, difference_in_means, plain_means

EVEN, UNEVEN = {"A": 1, "B": 1}, {"A": 9, "B": 1}
WORLDS = {
    "number": Population(2_000, "number", 5.0, 2.0, levels=5, correlation=0.6),
    "rate 5 %": Population(4_000, "rate", 0.05, levels=5, correlation=0.5),
    "rate 1 %": Population(20_000, "rate", 0.01),
    "amount": Population(10_000, "amount", 4.0, 1.5, 0.2, levels=5, correlation=0.5),
    "count": Population(2_000, "count", 1.0, 1.0, levels=5, correlation=0.5),
}
PILOT = 400_000
"""People whose variances are planned with: enough that the plan does not rest on one rich customer."""


def planned(runs: int) -> Iterator[tuple[str, ...]]:
    for name, world in WORLDS.items():
        for shares in (EVEN, UNEVEN):
            ab = replace(world, shares=shares)
            pilot = replace(ab, people=PILOT).draw(np.random.default_rng(9))
            for how, means in ((difference_in_means, plain_means), (adjusted_effect, adjusted_means)):
                if how is adjusted_effect and world.levels == 1:
                    continue
                for grows in (False, True) if world.kind in ("amount", "count") else (False,):
                    noise = noise_of_means(means(pilot), shares=shares, rate=world.kind == "rate", grows=grows)
                    effect = solve_power(noise, people=world.people, power=0.8).effect
                    found = simulate(replace(ab, effects={"B": effect}), how, runs=runs, seed=2)
                    yield (
                        name, "50/50" if shares is EVEN else "90/10",
                        "adjusted" if how is adjusted_effect else "plain",
                        "multiplies" if grows else "shifts", f"{effect / world.mean:+.1%}", f"{found.rejected:.3f}",
                        f"{found.covered:.3f}",
                    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    runs = parser.parse_args().runs
    print(f"{runs:,} studies a case; power planned at 0.8, coverage at 0.95")
    layout = "{:<10}{:<8}{:<10}{:<12}{:>9}{:>8}{:>10}"
    print(layout.format("metric", "shares", "analysis", "planned as", "effect", "power", "coverage"))
    for line in planned(runs):
        print(layout.format(*line), flush=True)


if __name__ == "__main__":
    main()
