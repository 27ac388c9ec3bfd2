"""How often does the test of segments say "differs" where effects are alike, and where they are not?

Levels × splits × kinds of metrics, drawn class by class and tested by `kanab.stats.effect_differs`, as a readout does.
Size at a nominal .05, then power, with that of the paper's pooled F and of the F with variances by class. Worlds whose
size is above .056 are drawn anew, five times as often, and only that is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from kanab.counting.in_memory import skewness_of
from kanab.stats import effect_differs, pooled_f, robust_f
from kanab.stats.skewness import Shape, skewness_class, unusual_class
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats]
ARMS = Factor("arm", ("A", "B"), "arm")
ALPHA, SCALE, K, SURE = 0.05, 100, 10, 0.056


@dataclass(frozen=True)
class World:
    """People, the share of the second arm and those of levels; a rate by level, or amounts and their sd by level.

    ``effect`` is what the second arm has more at every level.
    """

    name: str
    people: int
    share: float
    levels: tuple[float, ...]
    draw: Draw | None
    base: tuple[float, ...]
    effect: tuple[float, ...] = (0.0,)

    def by_level(self, values: tuple[float, ...]) -> Floats:
        return np.array([values[min(place, len(values) - 1)] for place in range(len(self.levels))])


def drawn(world: World, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return people by arm and level, and everybody's grid steps in this order; of rates the events of each class."""
    shares = np.outer([1 - world.share, world.share], world.levels)
    n = rng.multinomial(world.people, shares.ravel() / shares.sum()).reshape(shares.shape)
    more = np.outer([0.0, 1.0], world.by_level(world.effect))
    base = np.tile(world.by_level(world.base), (2, 1))
    if world.draw is None:
        return n, rng.binomial(n, base + more)
    values = world.draw(rng, world.people) * np.repeat(base, n.ravel()) + np.repeat(more, n.ravel())
    return n, np.rint(SCALE * values).astype(np.int64)


def counted(world: World, n: NDArray[np.int64], steps: NDArray[np.int64]) -> tuple[Tally, Shape]:
    """Return arm × level with squares by arm and by level, and the shape that a receipt would hold."""
    levels = Factor("level", tuple(f"l{place}" for place in range(len(world.levels))), "covariate")
    if world.draw is None:
        moments = Moments(Metric("y", 1, (0.0, 1.0)), n.astype(object), steps.astype(object), {})
        return Tally((ARMS, levels), n.astype(object), (moments,)), Shape(0.0, 1.0)
    ends = np.concatenate([[0], np.cumsum(n)])
    s, q = (np.diff(np.concatenate([[0], np.cumsum(part)])[ends]).reshape(n.shape) for part in (steps, steps * steps))
    s, q = s.astype(object), q.astype(object)
    away = steps - np.repeat((s.sum(axis=1) / n.sum(axis=1)).astype(float), n.sum(axis=1))
    unusual = int(np.count_nonzero(steps)) if np.count_nonzero(steps == 0) else len(steps)
    shape = Shape(skewness_class(skewness_of(away)), unusual_class(unusual, len(steps), K))
    squares = {("arm",): q.sum(axis=1), ("level",): q.sum(axis=0)}
    return Tally((ARMS, levels), n.astype(object), (Moments(Metric("y", SCALE), n.astype(object), s, squares),)), shape


KINDS: dict[str, tuple[Draw | None, tuple[float, ...]]] = {
    "rate 1%": (None, (0.01,)),
    "rate 10%": (None, (0.1,)),
    "rate mixed": (None, (0.02, 0.05, 0.3, 0.1)),
    "normal": (lambda rng, n: rng.standard_normal(n), (1.0,)),
    "sd 1, 1, 3": (lambda rng, n: rng.standard_normal(n), (1.0, 1.0, 3.0, 1.0)),
    "log-normal": (lambda rng, n: np.exp(1.27 * rng.standard_normal(n)), (1.0,)),
    "gamma": (lambda rng, n: rng.gamma(0.3, 1.0, n), (1.0,)),
    "spend": (lambda rng, n: (rng.random(n) < 0.1) * np.exp(rng.standard_normal(n)), (1.0,)),
}
THREE, SKEWED, THIRTY = (0.6, 0.3, 0.1), (0.8, 0.15, 0.04, 0.01), (1 / 30,) * 30


def worlds() -> tuple[list[World], list[World]]:
    """Worlds where effects are alike, and where they differ."""
    null = [
        World(kind, people, share, levels, *KINDS[kind])
        for share, levels, people, kind in product((0.5, 0.1), (THREE, SKEWED, THIRTY), (2_000, 20_000), KINDS)
    ]
    apart = []
    for share in (0.5, 0.1):
        apart += [
            World("30 levels, rate 10 %, ± 40 %", 20_000, share, THIRTY, None, (0.1,), (0.04, -0.04) * 15),
            World("rate 10 %, one level + 3 points", 20_000, share, THREE, None, (0.1,), (0.0, 0.0, 0.03)),
            World("normal, one level + .3 sd", 2_000, share, THREE, *KINDS["normal"], (0.0, 0.0, 0.3)),
        ]
    return null, [*apart, World("30 levels, normal, ± .2 sd", 20_000, 0.5, THIRTY, *KINDS["normal"], (0.2, -0.2) * 15)]


def found(place: int, runs: int, *, apart: bool, seed: int) -> list[float]:
    """Return how often the test that decides says "differs" in a world; where effects do, the two F as well."""
    world = worlds()[apart][place]
    rng = np.random.default_rng([seed, apart, place])
    ps = []
    for _ in range(runs):
        table, shape = counted(world, *drawn(world, rng))
        tests = [effect_differs(table, shape=shape), *((pooled_f(table), robust_f(table)) if apart else ())]
        ps.append([1.0 if test.p is None else test.p for test in tests])
    shares: list[float] = np.mean(np.array(ps) < ALPHA, axis=0).tolist()
    return shares


def main() -> None:
    """Print a row per world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with ProcessPoolExecutor() as pool:
        for apart, some in enumerate(worlds()):
            study = partial(found, runs=options.runs, apart=bool(apart), seed=options.seed)
            rows = dict(zip(range(len(some)), pool.map(study, range(len(some))), strict=True))
            again = [] if apart else [place for place, row in rows.items() if row[0] > SURE]
            more = partial(found, runs=5 * options.runs, apart=False, seed=options.seed + 1)
            rows |= dict(zip(again, pool.map(more, again), strict=True))
            columns = ("decides", "pooled", "robust")[: 1 + 2 * apart]
            print(f"\n{('Size', 'Power')[apart]:<34}  people  split  levels  {'  '.join(columns)}")
            for place, world in enumerate(some):
                shares = "".join(f"{share:>9.3f}" for share in rows[place])
                print(f"{world.name:<34}{world.people:>8,}{world.share:>7.0%}{len(world.levels):>8}{shares}")


if __name__ == "__main__":
    main()
