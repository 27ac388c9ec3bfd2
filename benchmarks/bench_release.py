"""How long the gate takes: 50 tables of 1,000 classes with audit, receipt and ledger.

    python benchmarks/bench_release.py

Two arms × 500 levels, an amount with squares by arm and a 0/1 metric. How the tables overlap is not
known (as in local mode): a joint of 50 such tables would be everybody. The leverage rule has a
benchmark of its own, bench_leverage.py. A second case is what the gate does for one plan of five
covariates over rows, leverage and all; a third one is adjusted for two covariates of 200 and 500 levels.
Printed is processor time, with NumPy on one thread.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when NumPy is imported

import numpy as np
from tests.described import as_values

import kanab as kb
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments

TABLES, LEVELS = 50, 500


def many_tables(seed: int = 1) -> kb.Counted:
    """50 experiments with one covariate each, whose classes hold 20 to 400 people."""
    rng = np.random.default_rng(seed)
    names = [f"test{place:02d}" for place in range(TABLES)]
    levels = tuple(f"level {place:03d}" for place in range(LEVELS))
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01), MetricPlan("bought", binary=True)),
        tuple(ExperimentPlan(name, (("A", 1.0), ("B", 1.0)), adjust=(f"x{name}",)) for name in names),
        tuple(CovariatePlan(f"x{name}", levels) for name in names),
    )
    tallies = {}
    for name in names:
        people = rng.integers(20, 400, (2, LEVELS))
        bought = rng.binomial(people, 0.2)
        spend = bought * rng.integers(2_000, 6_000, (2, LEVELS))
        squares = (spend**2 // np.maximum(bought, 1) * 3 // 2).sum(axis=1)
        tallies[f"{name}/x{name}"] = kb.Tally(
            (Factor(name, ("A", "B"), "arm"), Factor(f"x{name}", levels)),
            people,
            (
                Moments(plan.metrics[0].metric(), people, spend, {(name,): squares}),
                Moments(plan.metrics[1].metric(), people, bought, {}),
            ),
        )
    return kb.Counted(plan, tallies, None)


def five_covariates(people: int = 200_000, seed: int = 1) -> kb.Counted:
    """A shop of five covariates, counted from rows."""
    rng = np.random.default_rng(seed)
    rows = {f"x{place}": rng.integers(0, size, people) for place, size in enumerate((3, 5, 8, 12, 20))}
    rows |= {"arm": rng.choice(["A", "B"], people), "spend": np.round(rng.gamma(2, 10, people), 2)}
    return kb.count(
        rows,
        **as_values(
            "count",
            arm="arm",
            metrics=["spend"],
            covariates=[f"x{place}" for place in range(5)],
            bounds={"spend": (0, 500)},
            resolution={"spend": 0.01},
        ),
    )


def two_large_covariates(people: int = 200_000, seed: int = 1) -> kb.Counted:
    """Two covariates of 200 and 500 levels, which a joint adjustment would have to cross."""
    rng = np.random.default_rng(seed)
    rows = {"town": rng.integers(0, 200, people), "product": rng.integers(0, 500, people)}
    rows |= {"arm": rng.choice(["A", "B"], people), "spend": np.round(rng.gamma(2, 10, people), 2)}
    return kb.count(
        rows,
        arm="arm",
        metrics=[kb.Mean("spend", bounds=(0, 500), resolution=0.01)],
        adjust=[kb.Covariate("town", top=200), kb.Covariate("product", top=500)],
    )


def best(action: Callable[[], object], runs: int = 3) -> float:
    """The shortest of a few runs."""
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)


def _levels(counted: kb.Counted) -> list[str]:
    return [str(len(tally.covariates[0].levels)) for tally in counted.tallies.values()]


def main() -> None:
    counted = many_tables()
    print(f"{TABLES} tables × {2 * LEVELS:,} classes, audit and receipt: {best(lambda: kb.release(counted)):.2f} s")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        start = time.process_time()
        found = kb.release(counted, ledger=path / "kanab.ledger", new_ledger=True)
        kb.write_release(found, path / "release.json")
        print(f"the same with ledger and file ({(path / 'release.json').stat().st_size / 1e6:.1f} MB):", end=" ")
        print(f"{time.process_time() - start:.2f} s")
    small = five_covariates()
    signatures = small.signatures
    assert signatures is not None
    seconds = best(lambda: kb.release(small))
    print(f"5 tables, {len(signatures.people):,} signatures, with the leverage rule: {seconds:.2f} s")
    large = two_large_covariates()
    seconds = best(lambda: kb.release(large))
    print(f"adjusted for two covariates of {' and '.join(_levels(large))} levels: {seconds:.2f} s")


if __name__ == "__main__":
    main()
