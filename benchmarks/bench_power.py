"""Is planned power the simulated one, does every interval cover, and how long does an answer take?

Calibration by seeded studies (``kanab.simulation``): size, power and coverage, equal and 10/90 shares,
rates of 1 %, skewed amounts; families of arms by Dunnett's limit. Then the time of every question.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from kanab import adjusted_effect, adjusted_means, difference_in_means, plain_means
from kanab.simulation import Population, simulate
from kanab.stats.arms import many_to_one, omnibus
from kanab.stats.bayes import Prior, best_arm
from kanab.stats.hc import robust_fit
from kanab.stats.interactionpower import crossed_noise, interaction_power
from kanab.stats.margins import Margin, against_margin
from kanab.stats.noise import noise_of_amounts, noise_of_means, noise_of_rate
from kanab.stats.power import Question, solve_power
from kanab.stats.simultaneous import simultaneous_intervals

EVEN, UNEVEN = {"A": 1, "B": 1}, {"A": 9, "B": 1}
WORLDS = {
    "number": Population(2_000, "number", 5.0, 2.0, levels=5, correlation=0.6),
    "rate 5 %": Population(4_000, "rate", 0.05, levels=5, correlation=0.5),
    "rate 1 %": Population(20_000, "rate", 0.01),
    "amount": Population(10_000, "amount", 4.0, 1.5, 0.2, levels=5, correlation=0.5),
    "count": Population(2_000, "count", 1.0, 1.0, levels=5, correlation=0.5),
}


def calibration(runs: int) -> Iterator[tuple[str, ...]]:
    for name, world in WORLDS.items():
        for shares in (EVEN, UNEVEN):
            aa = replace(world, shares=shares)
            tables = aa.draw(np.random.default_rng(9))
            for how, means in ((difference_in_means, plain_means), (adjusted_effect, adjusted_means)):
                if how is adjusted_effect and world.levels == 1:
                    continue
                still = simulate(aa, how, runs=runs, seed=1)
                noise = noise_of_rate(world.mean, shares=shares) if world.kind == "rate" else None
                if noise is None or how is adjusted_effect:
                    noise = noise_of_means(means(tables), shares=shares)
                effect = solve_power(noise, people=world.people, power=0.8).effect
                moved = simulate(replace(aa, effects={"B": effect}), how, runs=runs, seed=2)
                yield (
                    name, "50/50" if shares is EVEN else "90/10", "adjusted" if how is adjusted_effect else "plain",
                    f"{still.found:.3f}", f"{moved.found:.3f}", f"{moved.covered:.3f}", f"{still.error_ratio:.3f}",
                )  # fmt: skip


def family(runs: int) -> tuple[float, float]:
    """How often any of four arms rings falsely, and how often all intervals hold together."""
    world = Population(600, "number", 5.0, 2.0, shares={"A": 3, "B": 1, "C": 1, "D": 1})
    rng = np.random.default_rng(3)
    rung, held = 0, 0
    for _ in range(runs):
        found = many_to_one(plain_means(world.draw(rng)))
        rung += any(one.p_adjusted < 0.05 for one in found if one.p_adjusted is not None)
        held += all(one.interval[0] < 0 < one.interval[1] for one in found if one.interval)
    return rung / runs, held / runs


def questions() -> dict[str, Callable[[], Any]]:
    arms = Population(4_000, "number", 5.0, 2.0, shares=dict.fromkeys("ABCD", 1), levels=5, correlation=0.5)
    table = arms.draw(np.random.default_rng(4))
    plain, adjusted = plain_means(table), adjusted_means(table)
    effect = difference_in_means(table, arm="B")
    binary = replace(arms, kind="rate", mean=0.2).draw(np.random.default_rng(5))
    noise, three = noise_of_rate(0.05), noise_of_amounts(20, shares={"A": 1, "B": 1, "C": 1})
    cells = crossed_noise(EVEN, {"x": 3, "y": 2, "z": 1}, sd=10)
    return {
        "people for an effect": lambda: solve_power(noise, effect=0.005, power=0.8),
        "effect for people": lambda: solve_power(noise, people=20_000, power=0.8),
        "people, three arms, Dunnett": lambda: solve_power(
            three, effect=1, power=0.8, question=Question(correction="dunnett")
        ),
        "people for an interaction": lambda: interaction_power(cells, effect=1, power=0.8),
        "margin": lambda: against_margin(effect, Margin("equivalence", 0.5)),
        "omnibus of four arms": lambda: omnibus(plain),
        "four arms, Dunnett (quadrature)": lambda: many_to_one(plain),
        "four arms adjusted, Dunnett (lattice)": lambda: many_to_one(adjusted),
        "corrected intervals of ten": lambda: simultaneous_intervals([effect] * 10, "bh"),
        "best of four arms": lambda: best_arm(plain, Prior(0, 0.1)),
        "HC3 of arm + level": lambda: robust_fit(binary, "arm + level"),
    }


def milliseconds(question: Callable[[], Any]) -> float:
    question()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        question()
        times.append(time.perf_counter() - start)
    return 1e3 * sorted(times)[3]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    runs = parser.parse_args().runs
    print(
        f"{runs:,} studies a case; size at nominal 0.05, power planned at 0.8, coverage at 0.95, mean error / true one"
    )
    layout = "{:<10}{:<8}{:<10}{:>8}{:>8}{:>10}{:>8}"
    print(layout.format("metric", "shares", "analysis", "size", "power", "coverage", "error"))
    for line in calibration(runs):
        print(layout.format(*line), flush=True)
    rung, held = family(min(runs, 500))
    print(f"\nfour arms by Dunnett: any false alarm {rung:.3f}, all intervals hold {held:.3f}\n")
    for what, question in questions().items():
        print(f"{what:<40}{milliseconds(question):>9.2f} ms", flush=True)


if __name__ == "__main__":
    main()
