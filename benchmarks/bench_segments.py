"""How often does the test of segments say "differs" where effects are alike, and where they are not?

Levels × splits × kinds of metrics, people drawn with NumPy and tested by `kanab.stats.effect_differs`, as a readout
does. Beside it the pooled F of the paper and the F with variances by class. Size at a nominal .05, then power.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.counting.columns import MetricSteps
from kanab.counting.shapes import shapes_of_rows
from kanab.stats import effect_differs, pooled_f, robust_f
from kanab.stats.skewness import Shape, skewness_class, unusual_class
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]
ARMS = Factor("arm", ("A", "B"), "arm")
ALPHA, SCALE, K = 0.05, 100, 10


@dataclass(frozen=True)
class World:
    """People, the share of the second arm, shares of the levels, and values given arm and level."""

    name: str
    people: int
    share: float
    levels: Floats
    values: Callable[[np.random.Generator, NDArray[np.intp], NDArray[np.intp]], Floats]
    binary: bool = False


Values = Callable[..., Floats]


def by_level(values: Any) -> Floats:
    """Return one value for every level that a world may have."""
    return np.broadcast_to(np.asarray(values, dtype=np.float64), 64)


def rate(base: Any, effect: Any = 0.0) -> Values:
    """Rates by level, and what the second arm has more."""

    def draw(rng: np.random.Generator, arm: NDArray[np.intp], level: NDArray[np.intp]) -> Floats:
        rates = (
            np.broadcast_to(np.asarray(base, float), 64)[level] + arm * np.broadcast_to(np.asarray(effect), 64)[level]
        )
        return (rng.random(len(arm)) < rates).astype(float)

    return draw


def amount(draw: Callable[[np.random.Generator, int], Floats], scale: Any = 1.0, effect: Any = 0.0) -> Values:
    """Amounts with a spread by level, and what the second arm has more."""

    def values(rng: np.random.Generator, arm: NDArray[np.intp], level: NDArray[np.intp]) -> Floats:
        return draw(rng, len(arm)) * by_level(scale)[level] + arm * by_level(effect)[level]

    return values


def padded(values: list[float]) -> Floats:
    """Values by level, for as many levels as any world has."""
    return np.array(values + [0.0] * (64 - len(values)))


def normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_normal(n)


def lognormal(rng: np.random.Generator, n: int) -> Floats:
    return np.exp(1.27 * rng.standard_normal(n))


def gamma(rng: np.random.Generator, n: int) -> Floats:
    return rng.gamma(0.3, 1.0, n)


def spend(rng: np.random.Generator, n: int) -> Floats:
    return (rng.random(n) < 0.1) * np.exp(rng.standard_normal(n))


THREE, THIRTY = np.array([0.6, 0.3, 0.1]), np.full(30, 1 / 30)
SKEWED = np.array([0.8, 0.15, 0.04, 0.01])


def worlds() -> tuple[list[World], list[World]]:
    """Worlds where effects are alike, and where they differ."""
    null, apart = [], []
    for share in (0.5, 0.1):
        for levels in (THREE, SKEWED, THIRTY):
            for people in (2_000, 20_000):
                for base in (0.01, 0.1, padded([0.02, 0.05, 0.3] + [0.1] * 27)):
                    name = "rate mixed" if isinstance(base, np.ndarray) else f"rate {base:.0%}"
                    null.append(World(name, people, share, levels, rate(base), binary=True))
                kinds: list[tuple[str, Values]] = [
                    ("normal", amount(normal)), ("sd 1, 1, 3", amount(normal, padded([1, 1, 3] + [1.0] * 27))),
                    ("log-normal", amount(lognormal)), ("gamma", amount(gamma)), ("spend", amount(spend)),
                ]  # fmt: skip
                null += [World(name, people, share, levels, values) for name, values in kinds]
        more = padded([0.04, -0.04] * 15)
        apart.append(World("30 levels, rate 10 %, ± 40 %", 20_000, share, THIRTY, rate(0.1, more), binary=True))
        level = padded([0.0, 0.0, 0.03])
        apart.append(World("rate 10 %, one level + 3 points", 20_000, share, THREE, rate(0.1, level), binary=True))
        apart.append(
            World("normal, one level + .3 sd", 2_000, share, THREE, amount(normal, 1.0, padded([0.0, 0.0, 0.3])))
        )
    apart.append(
        World("30 levels, normal, ± .2 sd", 20_000, 0.5, THIRTY, amount(normal, 1.0, padded([0.2, -0.2] * 15)))
    )
    return null, apart


def p_values(world: World, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return p of the pooled F, of the F by class or margin, and of the test that decides; 1 where there is none."""
    arm = (rng.random(world.people) < world.share).astype(np.intp)
    level = rng.choice(len(world.levels), world.people, p=world.levels)
    values = world.values(rng, arm, level)
    table, shape = counted(world, arm, level, values)
    tests = pooled_f(table), robust_f(table), effect_differs(table, shape=shape)
    pooled, robust, decides = (1.0 if test.p is None else test.p for test in tests)
    return pooled, robust, decides


def counted(world: World, arm: NDArray[np.intp], level: NDArray[np.intp], values: Floats) -> tuple[Tally, Shape]:
    """Return arm × level with squares by arm and by level, and the shape that a receipt would hold."""
    levels = Factor("level", tuple(f"l{place}" for place in range(len(world.levels))), "covariate")
    steps = np.rint(values * (1 if world.binary else SCALE)).astype(np.int64)
    cell, size = arm * len(world.levels) + level, 2 * len(world.levels)
    n, s, q = (
        np.array([int(value) for value in np.bincount(cell, weights, size)], dtype=object).reshape(2, -1)
        for weights in (None, steps.astype(float), steps.astype(float) ** 2)
    )
    metric = Metric("y", 1, (0.0, 1.0)) if world.binary else Metric("y", SCALE)
    squares = {} if world.binary else {("arm",): q.sum(axis=1), ("level",): q.sum(axis=0)}
    table = Tally((ARMS, levels), n, (Moments(metric, n, s, squares),))
    if world.binary:
        return table, Shape(0.0, 1.0)
    seen = shapes_of_rows({"y": MetricSteps(metric, steps, np.ones(len(steps), dtype=bool))}, [], arm)["y"]
    return table, Shape(skewness_class(seen.skewness), unusual_class(seen.unusual, seen.people, K))


def main() -> None:
    """Print a row per world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    null, apart = worlds()
    for title, some in (("Size", null), ("Power", apart)):
        print(f"\n{title:<34}{'people':>8}{'split':>7}{'levels':>8}{'pooled':>8}{'robust':>8}{'decides':>9}")
        for world in some:
            p = np.array([p_values(world, rng) for _ in range(arguments.runs)])
            pooled, robust, decides = np.mean(p < ALPHA, axis=0)
            split = f"{world.share:.0%}"
            print(
                f"{world.name:<34}{world.people:>8,}{split:>7}{len(world.levels):>8}"
                f"{pooled:>8.3f}{robust:>8.3f}{decides:>9.3f}", flush=True
            )  # fmt: skip


if __name__ == "__main__":
    main()
