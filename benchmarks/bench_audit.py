"""How long does the audit of 50 tables × 1,000 classes take? Counting them is not timed."""

from __future__ import annotations

import time

import numpy as np

from kanab import Metric, Tally, count_columns
from kanab.plan.model import MetricPlan
from kanab.privacy.audit import Audit, audit_table

TABLES, LEVELS, PEOPLE = 50, 500, 100_000
METRICS = {
    "amount": Metric.declare("y", bounds=(0, 500), resolution=0.01),
    "count": Metric("y"),
}


def table(kind: str, squares: str, seed: int) -> Tally:
    """Two arms × 500 levels: a metric, and a 0/1 metric that says whose value is not zero."""
    rng = np.random.default_rng(seed)
    level, arm = rng.integers(0, LEVELS, PEOPLE), rng.integers(0, 2, PEOPLE)
    bought = rng.random(PEOPLE) < 0.3
    y = bought * (np.rint(rng.gamma(2, 2_000, PEOPLE)) / 100 if kind == "amount" else 1 + rng.poisson(0.3, PEOPLE))
    people = {"arm": arm, "level": level, "y": y, "bought": bought.astype(int)}
    metrics = {"y": METRICS[kind], "bought": Metric("bought", 1, (0, 1))}
    return count_columns(people, arm="arm", covariates=["level"], metrics=metrics, squares=squares)  # type: ignore[arg-type]


def measure(kind: str, squares: str, of: str | None) -> tuple[float, Audit]:
    """Seconds for all tables, of which eight different ones are made."""
    tallies = [table(kind, squares, seed) for seed in range(8)]
    plans = {"y": MetricPlan("y", of=of), "bought": MetricPlan("bought", binary=True)}
    found, start = Audit(), time.perf_counter()
    for number in range(TABLES):
        found += audit_table(f"arm/level {number}", tallies[number % len(tallies)], plans)
    return time.perf_counter() - start, found


def main() -> None:
    print(f"audit of {TABLES} tables of 2 × {LEVELS} classes, a metric and a 0/1 metric each")
    header = ("squares by", "contributors", "seconds", "rules broken", "not enumerated")
    print("{:<8} {:<10} {:<13} {:>8} {:>13} {:>15}".format("metric", *header))
    for kind in METRICS:
        for squares in ("arm", "marginals", "class"):
            for of in (None, "bought"):
                seconds, found = measure(kind, squares, of)
                known = "known" if of else "not known"
                print(
                    f"{kind:<8} {squares:<10} {known:<13} {seconds:8.2f} {len(found.broken):13} "
                    f"{found.not_enumerated:15,}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
