"""How long does a readout of rows take, on the screen of whoever holds them, and what would the gate take?

    python benchmarks/bench_readout.py [--people 2000 100000] [--covariates 10]

One amount and one 0/1 metric, adjusted for covariates of two to five levels and for a number centred near 0, in memory.
Printed are seconds of processor time and how many covariates effects are adjusted for; "gated" is the same by
KANAB_OWN_ROWS=gated, for up to so many people as it takes a minute at most.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import numpy as np

import kanab as kb

MOST_GATED = 5_000


def shop(people: int, covariates: int) -> dict[str, Any]:
    """People with covariates that have nothing to do with each other."""
    rng = np.random.default_rng(5)
    before = rng.standard_normal(people)
    rows: dict[str, Any] = {"variant": rng.choice(["A", "B"], people), "before": before}
    rows |= {f"c{i}": rng.choice(list("abcde")[: 2 + i % 4], people) for i in range(covariates)}
    rows["spend"] = np.round(rng.gamma(2, 10, people) + 5 * before, 2)
    return rows | {"bought": (rng.random(people) < 0.2).astype(int)}


def timed(rows: dict[str, Any], covariates: int) -> tuple[float, int]:
    """Return seconds of processor time, and how many covariates the amount is adjusted for."""
    names = ["before", *(f"c{i}" for i in range(covariates))]
    began = time.process_time()
    effects = kb.readout(rows, arm="variant", metrics=["spend", "bought"], adjust=names).effects
    seconds = time.process_time() - began
    return seconds, max(len(row.effect.covariates) for row in effects if row.effect.metric == "spend")


def main() -> None:
    """Print a line per number of people."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, nargs="+", default=[2_000, 100_000])
    parser.add_argument("--covariates", type=int, default=10)
    asked = parser.parse_args()
    timed(shop(500, 1), 1)  # imports
    for people in asked.people:
        rows = shop(people, asked.covariates)
        seconds, used = timed(rows, asked.covariates)
        print(f"{people:>9,} people, own rows: {seconds:6.2f} s, adjusted for {used} of {asked.covariates + 1}")
        if people <= MOST_GATED:
            os.environ["KANAB_OWN_ROWS"] = "gated"
            seconds, used = timed(rows, asked.covariates)
            del os.environ["KANAB_OWN_ROWS"]
            print(f"{people:>9,} people, gated:    {seconds:6.2f} s, adjusted for {used} of {asked.covariates + 1}")


if __name__ == "__main__":
    main()
