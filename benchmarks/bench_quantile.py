"""How often intervals of quantile differences hold the truth, and how often they alarm for nothing.

Lognormal latencies of 20,000 people in two arms, 40 bins; the arm is 0, 5 or 30 % faster.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import numpy as np

from kanab.stats.quantile import BinnedPeople, quantile_effect

SHARES = (0.5, 0.9, 0.99)
SPREAD = 0.6
BINS = {
    "40 equal bins": tuple(np.linspace(0, 1000, 40).tolist()),
    "40 bins on a logarithmic scale": tuple(np.geomspace(20, 1500, 40).round(3).tolist()),
}


def binned(values: np.ndarray, edges: tuple[float, ...]) -> BinnedPeople:
    """Count people in bins."""
    places = np.searchsorted(edges, values, side="right")
    return BinnedPeople(edges, tuple(np.bincount(places, minlength=len(edges) + 1).tolist()))


def main() -> None:
    """Print a table of coverage and alarms."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=2000)
    times = parser.parse_args().times
    print(f"{times} experiments of 20,000 people each; standard error of a share of 0.95: "
          f"{math.sqrt(0.95 * 0.05 / times):.3f}")  # fmt: skip
    for name, edges in BINS.items():
        for faster in (0.0, 0.05, 0.3):
            rng = np.random.default_rng(20)
            hits = dict.fromkeys(SHARES, 0)
            alarms = dict.fromkeys(SHARES, 0)
            began = time.perf_counter()
            for _ in range(times):
                control = binned(np.exp(rng.normal(5, SPREAD, 10_000)), edges)
                arm = binned(np.exp(rng.normal(5, SPREAD, 10_000)) * (1 - faster), edges)
                for share in SHARES:
                    effect = quantile_effect(arm, control, share)
                    truth = -faster * math.exp(5 + SPREAD * statistics.NormalDist().inv_cdf(share))
                    if effect.interval is not None and effect.p is not None:
                        hits[share] += effect.interval[0] <= truth <= effect.interval[1]
                        alarms[share] += effect.p < 0.05
            each = (time.perf_counter() - began) / times / len(SHARES) * 1000
            shown = ", ".join(f"p{100 * s:g} {hits[s] / times:.3f} (alarms {alarms[s] / times:.3f})" for s in SHARES)
            print(f"{name}, {100 * faster:g} % faster: {shown}; {each:.1f} ms each", flush=True)


if __name__ == "__main__":
    main()
