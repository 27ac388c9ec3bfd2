"""How long does it take to know that nobody can be singled out by all tables together?

    python benchmarks/bench_leverage.py

Tables of independent covariates over the same people, so that all classes hang together: the worst
case. (The arms of one experiment fall apart into blocks, which is quicker.) Targets: 10,000
signatures × 200 classes in 2 s, 200,000 × 5,000 in 60 s on two cores, in 1.5 GB.
"""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from kanab.privacy.leverage import leverage, leverages


@dataclass(frozen=True)
class Case:
    """So many signatures over so many tables of so many levels, and the seconds that are allowed."""

    signatures: int
    tables: int
    levels: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.signatures:,} signatures × {self.tables * self.levels:,} classes ({self.tables} tables)"


CASES = (
    Case(10_000, 2, 100, 2),
    Case(10_000, 10, 20, 2),
    Case(10_000, 50, 4, 2),
    Case(200_000, 10, 500, 60),
    Case(200_000, 50, 100, 60),
)


def spread(case: Case, seed: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    chances = [rng.dirichlet(np.full(case.levels, 3.0)) for _ in range(case.tables)]
    cells = [rng.choice(case.levels, case.signatures, p=chance) for chance in chances]
    return np.column_stack(cells), rng.geometric(0.2, case.signatures)


def pairs(experiments: int, people: int, seed: int = 1) -> tuple[Any, Any]:
    """All pairs of many experiments, most of whose classes are combinations of others."""
    arms = np.random.default_rng(seed).integers(0, 3, (people, experiments))
    tables = [arms[:, a] * 3 + arms[:, b] for a, b in combinations(range(experiments), 2)]
    return np.column_stack(tables), np.ones(people, dtype=np.int64)


def formula(cells: Any, people: Any) -> Any:
    """The definition, word for word: the diagonal of X (XᵀWX)⁺ Xᵀ."""
    columns = [cells[:, table] == label for table in range(cells.shape[1]) for label in np.unique(cells[:, table])]
    x = np.array(columns, dtype=float).T
    return np.einsum("ij,ij->i", x @ np.linalg.pinv(x.T @ (x * people[:, None]), hermitian=True), x)


def check() -> None:
    for name, (cells, people) in {
        "10 tables of 20 levels": spread(Case(10_000, 10, 20, 0)),
        "4 tables of 60 levels": spread(Case(10_000, 4, 60, 0)),
        "all pairs of 8 experiments": pairs(8, 5_000),
    }.items():
        expected = formula(cells, people)
        off = float(np.max(np.abs(leverages(cells, people) / expected - 1)))
        print(f"{name}: as the dense formula, to {off:.0e} of each leverage")
        if off > 1e-9:
            sys.exit("the leverages differ from the dense formula")


def main() -> None:
    check()
    for case in CASES:
        cells, people = spread(case)
        start, worked = time.perf_counter(), time.process_time()
        found = leverage(cells, people)
        seconds, work = time.perf_counter() - start, time.process_time() - worked
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        verdict = "" if seconds <= case.seconds else f"; slower than {case.seconds:g} s"
        print(
            f"{case}: {seconds:.2f} s ({work:.2f} s of processor time), at most {peak:.1f} GB so far, "
            f"effective k {found.effective_k:.2f}{verdict}",
            flush=True,
        )


if __name__ == "__main__":
    main()
