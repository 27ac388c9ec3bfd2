"""How fast are the tests of 4,950 pairs, and how often do they ring where nothing interferes?

Experiments are independent coin flips over the same people; the metrics do not depend on them. With
Holm's correction at .05 one scan in twenty may ring at all, whatever the tails of the metric.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kanab import Metric
from kanab.scan.pair_tables import PairMoments, Pairs, Whole
from kanab.scan.stats.f_tests import run_f_tests
from kanab.scan.stats.scan_kinds import PairScan, scan_pairs
from kanab.scan.stats.table_blocks import blocks_of_pairs
from kanab.tally.factor import Factor

Codes = NDArray[np.int64]
EXACT = 2.0**53


def count_pairs(
    codes: Mapping[str, Codes],
    values: Mapping[Metric, Codes],
    levels: Mapping[str, Sequence[str | int]] | None = None,
    missing: Mapping[str, NDArray[np.bool_]] | None = None,
) -> Pairs:
    """All pairs by matrix products of the arms' indicators: slow, short and exact.

    ``codes`` number each person's arm, −1 for people who are not in the experiment; ``values`` are
    grid steps.
    """
    known = levels or {name: range(int(arms.max()) + 1) for name, arms in codes.items()}
    factors = tuple(Factor(name, tuple(known[name]), "arm") for name in codes)
    arms = np.concatenate([[codes[one.name] == at for at in range(len(one.levels))] for one in factors])
    enrolled = np.array([codes[one.name] >= 0 for one in factors])
    left, right, inside = (np.ascontiguousarray(one.astype(np.float64)) for one in (arms, arms.T, enrolled.T))
    everybody = np.ones(arms.shape[1], dtype=np.int64)
    moments = []
    for metric, steps in values.items():
        present = everybody if missing is None else ~missing.get(metric.name, everybody == 0) & everybody
        own = np.where(present, steps, 0)
        squares = own * own if np.abs(own).max() < 2**31 else own.astype(object) ** 2
        moments.append(
            PairMoments(
                metric, *(_product(left, *with_) for with_ in ((present, right), (own, right), (squares, inside)))
            )
        )
    return Pairs(factors, _product(left, everybody, right), tuple(moments), int(enrolled.any(axis=0).sum()))


def _product(left: NDArray[np.float64], weights: Whole, right: NDArray[np.float64]) -> Whole:
    """left · diag(weights) · right: in doubles where these are exact, else in limbs of 24 bits."""
    if float(np.abs(weights.astype(np.float64)).sum()) < EXACT:
        return np.rint((left * weights.astype(np.float64)) @ right).astype(np.int64)
    low, rest = weights.astype(object) % 2**24, weights.astype(object) >> 24
    return _product(left, low, right).astype(object) + _product(left, rest, right).astype(object) * 2**24


@dataclass(frozen=True)
class World:
    """Experiments that do not interfere: how many, with whom, how uneven, and what is measured."""

    name: str
    metric: str
    experiments: int = 100
    people: int = 20_000
    share: float = 0.5
    rate: float = 0.1

    def values(self, rng: np.random.Generator) -> dict[Metric, Codes]:
        """Everybody's values, in grid steps."""
        size = self.people
        if self.metric == "0/1":
            return {Metric("bought", 1, (0, 1)): (rng.random(size) < self.rate).astype(np.int64)}
        drawn = {
            "normal": lambda: rng.normal(20, 5, size),
            "skewed": lambda: rng.lognormal(0, 1.13, size),
            "Pareto": lambda: np.minimum(rng.pareto(2.1, size), 500),
            "revenue": lambda: np.minimum(rng.lognormal(2, 1, size), 500) * (rng.random(size) < 0.05),
        }[self.metric]()
        return {Metric("spend", 1000): np.rint(drawn * 1000).astype(np.int64)}

    def scan(self, seed: int) -> PairScan:
        """One scan of this world, another for every seed."""
        rng = np.random.default_rng(seed)
        arms = rng.random((self.experiments, self.people)) < self.share
        codes = {f"test_{at:03}": flips.astype(np.int64) for at, flips in enumerate(arms)}
        levels = dict.fromkeys(codes, ("off", "on"))
        return scan_pairs(count_pairs(codes, self.values(rng), levels))


WORLDS = (
    World("normal, 50/50", "normal"),
    World("0/1 at 10 %, 50/50", "0/1"),
    World("0/1 at 20 %, 10/90", "0/1", people=10_000, share=0.1, rate=0.2),
    World("skewness 9, 10/90", "skewed", people=10_000, share=0.1),
    World("Pareto, 10/90", "Pareto", people=10_000, share=0.1),
    World("5 % buy, 10/90", "revenue", people=10_000, share=0.1),
)


@dataclass(frozen=True)
class Rates:
    """Over many scans: raw p below .05, scans with any alarm, and with one that is not "watch"."""

    raw: float
    any_alarm: float
    interference: float
    broken: float


def rates(world: World, scans: int, seed: int = 1) -> Rates:
    """How often this world rings."""
    raw, alarm, sure, broken = [], 0, 0, 0
    for at in range(scans):
        scan = world.scan(seed + at)
        found = scan.verdicts()
        raw.append(scan.observed / scan.tested)
        alarm += bool({"interference", "watch"} & found.keys())
        sure += "interference" in found
        broken += "assignment broken" in found
    return Rates(float(np.mean(raw)), alarm / scans, sure / scans, broken / scans)


def speed(people: int = 20_000, rounds: int = 15) -> dict[str, float]:
    """Milliseconds of processor time for all pairs of 100 experiments: the F tests, and the whole scan."""
    rng = np.random.default_rng(1)
    arms = rng.random((100, people)) < 0.5
    codes = {f"test_{at:03}": flips.astype(np.int64) for at, flips in enumerate(arms)}
    spend = np.rint(rng.gamma(2, 10, people) * 2**22).astype(np.int64)  # squares beyond 64 bits
    bought = (rng.random(people) < 0.1).astype(np.int64)
    pairs = count_pairs(codes, {Metric("spend", 2**22): spend, Metric("bought", 1, (0, 1)): bought})
    names = [part.metric.name for part in pairs.moments]

    def tests() -> None:
        for block in blocks_of_pairs(pairs, names):
            for part in block.metrics:
                run_f_tests(part)

    return {
        "F tests": _best(tests, rounds),
        "scan": _best(lambda: scan_pairs(pairs), rounds),
        "scan with rows": _best(lambda: scan_pairs(pairs).rows, rounds),
    }


def _best(action: object, rounds: int) -> float:
    found = []
    for _ in range(rounds):
        start = time.process_time()
        action()  # type: ignore[operator]
        found.append(time.process_time() - start)
    return min(found) * 1000


def main(scans: int = 200) -> None:
    print("4,950 pairs × 2 metrics, milliseconds of processor time, best of 15:")
    for name, milliseconds in speed().items():
        print(f"  {name:<16} {milliseconds:6.1f}")
    print(f"\n4,950 pairs where nothing interferes, {scans} scans each, Holm at .05:")
    print(f"{'':<22}{'raw p < .05':>12}{'any alarm':>12}{'interference':>14}{'assignment':>12}")
    for world in WORLDS:
        found = rates(world, scans)
        print(
            f"{world.name:<22}{found.raw:>12.4f}{found.any_alarm:>12.3f}{found.interference:>14.3f}{found.broken:>12.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
