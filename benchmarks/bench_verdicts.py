"""How often is a verdict on amounts wrong in the hard cases: skewed values, small arms, arms that vary differently?

{50/50, 10/90, 1/99} × {400, 2,000, 20,000 people} × five kinds of amounts, read by three rules: Welch's t alone, the
rule where nobody counted the skewness (t with one variance for both arms has to agree), and the rule of a readout.

Size: verdicts without an effect, B's variance being half, once or twice A's. Power: the loss of power for normal values
where Welch's t has .8. Harm: "lowers" where B has 30 % less. Coverage: intervals that hold the truth where B's values
are twice as large.

Studies are drawn and read as arrays. ``--check`` compares the arrays' intervals with those of `kb.readout`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from scipy import special

import kanab as kb
from kanab.stats.effect import against_control, plain_means
from kanab.stats.skewness import Shape

Floats = NDArray[np.float64]
STEPS = 1_000_000
"""Grid steps to a unit; draws are multiples of 20 of them, so that .5, .7 and 2 times as much are whole, too."""

DRAWS: dict[str, tuple[float, Callable[[np.random.Generator, tuple[int, int]], Floats]]] = {
    "normal": (10.0, lambda rng, size: 10 + rng.standard_normal(size)),
    "log-normal": (math.exp(1.27**2 / 2), lambda rng, size: np.exp(1.27 * rng.standard_normal(size))),
    "gamma": (0.3, lambda rng, size: rng.gamma(0.3, 1.0, size)),
    "counts": (1.0, lambda rng, size: rng.poisson(rng.gamma(0.5, 2.0, size)).astype(float)),
    "spend": (0.1 * math.exp(0.5), lambda rng, size: (rng.random(size) < 0.1) * np.exp(rng.standard_normal(size))),
}  # fmt: skip
"""The mean, and how values are drawn: spend has 90 % zeros."""

RATIOS = (0.5, 0.7, 1.0, 1.4, 2.0)
"""B's sd over A's: of skewed amounts those in the middle, which are half, once and twice the variance."""

SHARES, PEOPLE, RULES = (0.5, 0.1, 0.01), (400, 2_000, 20_000), ("Welch", "before", "now")


@dataclass(frozen=True)
class Arm:
    """Studies of one arm: people, and of each study the mean, sums of squares and cubes about it, and zeros."""

    n: int
    mean: Floats
    squares: Floats
    cubes: Floats
    zeros: Floats

    @classmethod
    def of(cls, values: Floats) -> Arm:
        zeros, mean = np.count_nonzero(values == 0, axis=1), values.mean(axis=1)
        away = values - mean[:, None]
        squared = away * away
        cubes = np.einsum("ij,ij->i", squared, away)
        return cls(values.shape[1], mean, squared.sum(axis=1), cubes, zeros.astype(float))

    def changed(self, times: float, plus: float) -> Arm:
        """Return the same studies with values times this, plus that."""
        return replace(
            self, mean=times * self.mean + plus, squares=times**2 * self.squares, cubes=times**3 * self.cubes
        )


@dataclass(frozen=True)
class Case:
    """What becomes of B's values, the effect that is true then, and what is counted."""

    name: str
    times: float = 1.0
    plus: float = 0.0
    truth: float = 0.0

    def counted(self, low: Floats, high: Floats) -> Floats:
        if self.name == "harm":
            return high < 0
        if self.name == "coverage":
            return ~((low > self.truth) | (high < self.truth))
        return low > 0 if self.name == "power" else (low > 0) | (high < 0)


def cases(kind: str, small: int, large: int) -> Iterator[Case]:
    mean = 20 * round(DRAWS[kind][0] * STEPS / 20)
    for times in RATIOS if kind == "normal" else RATIOS[1:-1]:
        yield Case("size", times, (1 - times) * mean)
        if kind == "normal":
            effect = float(round((1.959964 + 0.841621) * math.sqrt(times**2 / small + 1 / large) * STEPS))
            yield Case("power", times, (1 - times) * mean + effect, effect)
    if kind != "normal":
        yield from (Case("harm", 0.7, 0.0, -0.3 * mean), Case("coverage", 2.0, 0.0, mean))


def class_of(skewness: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        octaves = np.maximum(-1, np.ceil(2 * np.log2(np.abs(skewness)) - 1e-9))
    return np.where(np.abs(skewness) < 0.5, 0.0, np.copysign(2 ** (octaves / 2), skewness))


def intervals(a: Arm, b: Arm, shifted: bool) -> Floats:
    """Return both ends of the three rules' intervals; ``shifted``: zeros of the two arms are different values."""
    people, difference = a.n + b.n, b.mean - a.mean
    own, other = b.squares / (b.n - 1) / b.n, a.squares / (a.n - 1) / a.n
    with np.errstate(all="ignore"):
        se, alike = np.sqrt(own + other), np.sqrt((a.squares + b.squares) / (people - 2) * (1 / a.n + 1 / b.n))
        df = (own + other) ** 2 / (own**2 / (b.n - 1) + other**2 / (a.n - 1))
        skewness = class_of((a.cubes + b.cubes) / people / ((a.squares + b.squares) / people) ** 1.5)
        pooled = skewness * (1 / b.n**2 - 1 / a.n**2) / (1 / a.n + 1 / b.n) ** 1.5
        each = skewness * (own**1.5 / math.sqrt(b.n) - other**1.5 / math.sqrt(a.n)) / se**3
    commonest = np.where(np.maximum(a.zeros, b.zeros) >= 0.1 * people, np.maximum(a.zeros, b.zeros), a.zeros)
    unusual = people - (commonest if shifted else a.zeros + b.zeros)
    with np.errstate(divide="ignore"):
        share = np.where(unusual < 15, 0.0, 2 ** (np.floor(2 * np.log2(unusual / people) + 1e-9) / 2))
    q, wide = -special.stdtrit(df, 0.025), -special.stdtrit(people - 2, 0.025) * alike

    def reach(kappa: Floats) -> Floats:
        kappa = np.maximum(kappa, 0.0)
        third = kappa * q / 3
        return np.asarray((q * (1 + third + third * third / 3) + kappa / 6) * se)

    down, up = reach(np.maximum(-pooled, -each)), reach(np.maximum(pooled, each))
    few = min(a.n, b.n) * share < 15
    now = (np.where(few, np.maximum(end, wide), end) for end in (down, up))
    reaches = ((q * se, q * se), (np.maximum(q * se, wide),) * 2, tuple(now))
    return np.array([(difference - low, difference + high) for low, high in reaches])


def drawn(kind: str, share: float, people: int, runs: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Return the values of both arms in grid steps, by study."""
    small = round(people * share)
    values = 20 * np.rint(DRAWS[kind][1](rng, (runs, people)) * (STEPS / 20))
    return values[:, small:], values[:, :small]


def furthest(kind: str, draws: int) -> float:
    """Return how far an end here is from a readout's at most, in interval widths; so many draws, of every case."""
    rng, far = np.random.default_rng([7, list(DRAWS).index(kind)]), 0.0
    for share in SHARES:
        a, b = drawn(kind, share, PEOPLE[0], math.ceil(draws / len(SHARES)), rng)
        for case in cases(kind, b.shape[1], a.shape[1]):
            here = intervals(Arm.of(a), Arm.of(b).changed(case.times, case.plus), bool(case.plus))
            values = np.rint(np.concatenate([a, case.times * b + case.plus], axis=1)).astype(np.int64)
            for study, y in enumerate(values):
                rows = {"arm": ["A"] * a.shape[1] + ["B"] * b.shape[1], "y": y}
                effect = kb.readout(rows, arm="arm", metrics=["y"], control="A").effects[0].effect
                means = plain_means(kb.count_columns(rows, arm="arm", metrics=["y"]))
                unknown = against_control(replace(means, shape=Shape()), control="A")
                ends = np.array([effect.interval_welch, unknown.interval, effect.interval])
                far = max(far, float(np.max(np.abs(here[:, :, study] - ends)) / (ends[0, 1] - ends[0, 0])))
    return far


def shares(place: tuple[str, float, int], runs: int) -> dict[str, list[list[float]]]:
    """Return the share of studies that count, by rule, of every case of one kind, split and size."""
    kind, share, people = place
    rng = np.random.default_rng([31, list(DRAWS).index(kind), round(100 * share), people])
    chunk = max(1, 4_000_000 // people)
    sums: dict[Case, Floats] = {}
    for start in range(0, runs, chunk):
        large, small = drawn(kind, share, people, min(chunk, runs - start), rng)
        a, b = Arm.of(large), Arm.of(small)
        for case in cases(kind, b.n, a.n):
            ends = intervals(a, b.changed(case.times, case.plus), bool(case.plus))
            sums[case] = sums.get(case, 0.0) + np.array([np.sum(case.counted(*rule)) for rule in ends])
    found: dict[str, list[list[float]]] = {}
    for case, counts in sums.items():
        found.setdefault(case.name, []).append((counts / runs).tolist())
    return found


def shown(name: str, rows: list[list[float]]) -> str:
    """Return the worst of several ratios of variances, by rule: the largest size, the largest loss of power."""
    worst = [max(row[0] - row[rule] if name == "power" else row[rule] for row in rows) for rule in range(3)]
    return " ".join(f"{share:.3f}".replace("0.", ".", 1) for share in worst)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="studies a cell")
    parser.add_argument("--check", type=int, default=0, metavar="DRAWS", help="compare with kb.readout, and stop")
    options = parser.parse_args()
    if options.check:
        for kind in DRAWS:
            print(f"{kind}: {furthest(kind, options.check):.0e} interval widths apart at most")
        return
    start = perf_counter()
    places = list(product(DRAWS, SHARES, PEOPLE))
    with ProcessPoolExecutor() as pool:
        found = dict(zip(places, pool.map(shares, places, [options.runs] * len(places)), strict=True))
    for name in ("size", "power", "harm", "coverage"):
        kinds = [kind for kind in DRAWS if name in found[kind, 0.5, 400]]
        print(f"\n| {name}: {', '.join(RULES)} | people | {' | '.join(kinds)} |\n{'|---' * (2 + len(kinds))}|")
        for share, people in product(SHARES, PEOPLE):
            cells = " | ".join(shown(name, found[kind, share, people][name]) for kind in kinds)
            print(f"| {100 * share:.0f}/{100 - 100 * share:.0f} | {people:,} | {cells} |")
    print(f"\n{options.runs:,} studies a cell, {perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
