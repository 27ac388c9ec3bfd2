"""How often do intervals of releases with ε hold the truth, and how wide are they?

Tables are drawn directly: people of every class by arm and tier, their values from one distribution, and noise with
the variances that a plan with a table of arms and one of tiers gets; arm totals are combined from both, as readouts
do. The control ignores the noise and must fail.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError, DesignError
from kanab.plan.file import parse_plan
from kanab.privacy.epsilon.combined import combine_arms
from kanab.privacy.epsilon.rho import rho_of
from kanab.privacy.epsilon.split import noise_of, split_budget
from kanab.stats.adjust import adjusted_means
from kanab.stats.effect import ArmMeans, contrast, plain_means
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.stats.relative import relative_effect
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
from kanab.tally.tally import Tally

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.unit.stats.noisy_tables import with_noise

DELTA = 1e-6
ARMS, TIERS = Factor("checkout", ("A", "B"), "arm"), Factor("tier", ("x", "y", "z"))
SHARES_OF_TIERS = np.array([0.5, 0.3, 0.2])
LIFT = 1.1
"""B has so many times the events, or orders, of A."""

RATE = Metric("bought", 1, (0, 1))
SPEND, ORDERS = Metric("spend", 1, (0, 100)), Metric("orders", 1, (0, 3))
EFFECT = {"B": 1.0, "A": -1.0}
RATIOS = ("ratio", "adjusted ratio")
Floats = NDArray[np.float64]
Interval = tuple[float, float]


def plan_of(metrics: str, share: float, epsilon: float) -> str:
    """A plan with a table of arms and one of tiers."""
    arms = f"{{ A = {round(100 * (1 - share))}, B = {round(100 * share)} }}"
    return f"""
    [metrics]
    {metrics}
    [privacy]
    epsilon = {epsilon}
    [covariates]
    tier = {{ levels = ["x", "y", "z"] }}
    [experiments.checkout]
    arms = {arms}
    adjust = ["tier"]
    """


@dataclass(frozen=True)
class Population:
    """What people of each arm and tier are like: chances of values, which are columns of metrics."""

    name: str
    plan: str
    metrics: tuple[Metric, ...]
    values: NDArray[np.int64]
    chances: Floats
    """By arm, tier and value."""

    def truth(self, method: str) -> float:
        """What the effect is for everybody."""
        means = np.einsum("t,atv,vm->am", SHARES_OF_TIERS, self.chances, self.values)
        if method in RATIOS:
            return float(means[1, 0] / means[1, 1] - means[0, 0] / means[0, 1])
        return float(means[1, 0] - means[0, 0]) / (float(means[0, 0]) if method == "relative" else 1.0)

    def draw(self, people: int, share: float, rng: np.random.Generator) -> Tally:
        """One table of arms and tiers, exact."""
        arms = np.array([people - round(people * share), round(people * share)])
        tiers = np.array([rng.multinomial(n, SHARES_OF_TIERS) for n in arms])
        seen = np.array(
            [
                [rng.multinomial(n, p) for n, p in zip(*arm, strict=True)]
                for arm in zip(tiers, self.chances, strict=True)
            ]
        )
        counts = whole(seen.sum(axis=2))
        by_arm = seen.sum(axis=1)
        moments = tuple(
            Moments(metric, counts, whole(seen @ column), {("checkout",): whole(by_arm @ column**2)})
            for metric, column in zip(self.metrics, self.values.T, strict=True)
        )
        table = Tally((ARMS, TIERS), counts, moments)
        if len(self.metrics) == 1:
            return table
        y, z = self.metrics[0].name, self.metrics[1].name
        n, s, t = (marginal(cells, table.axes, ("checkout",)) for cells in (counts, moments[0].sums, moments[1].sums))
        squares = tuple(part.squares["checkout",] for part in moments)
        product = whole(by_arm @ (self.values[:, 0] * self.values[:, 1]))
        return replace(table, crosses=(Cross((y, z), ("checkout",), n, (s, t), (squares[0], squares[1]), product),))


def whole(values: NDArray[np.int64]) -> Cells:
    """Whole numbers of Python."""
    return values.astype(object)


def rates(rate: float) -> Population:
    """A 0/1 metric that differs by tier."""
    of_tiers = np.array([0.6, 1.0, 2.0]) * rate / (SHARES_OF_TIERS @ [0.6, 1.0, 2.0])
    chances = np.array([[[1 - p, p] for p in of_tiers * lift] for lift in (1.0, LIFT)])
    plan = 'bought = { kind = "binary", missing = "zero" }'
    return Population(f"rate of {100 * rate:g} %", plan, (RATE,), np.array([[0], [1]]), chances)


def amounts() -> Population:
    """Amounts from 0 to 100 in up to three orders; most people buy nothing."""
    values = np.array([(0, 0), *((spend, orders) for orders in (1, 2, 3) for spend in range(1, 101))])
    chances = np.zeros((2, 3, len(values)))
    grid = np.arange(1, 101)
    for arm, lift in enumerate((1.0, LIFT)):
        for tier, buys in enumerate((0.2, 0.3, 0.5)):
            for orders, share in enumerate((0.6, 0.3, 0.1), 1):
                shape = grid ** (2 * orders - 1) * np.exp(-grid / 9)
                chances[arm, tier, values[:, 1] == orders] = lift * buys * share * shape / shape.sum()
            chances[arm, tier, 0] = 1 - chances[arm, tier].sum()
    plan = """spend = { bounds = [0, 100], resolution = 1, missing = "zero" }
    orders = { bounds = [0, 3], resolution = 1, missing = "zero" }
    each = { ratio = ["spend", "orders"] }"""
    return Population("amounts to 100", plan, (SPEND, ORDERS), values, chances)


def means_of(arms: Tally, tiers: Tally, population: Population) -> Iterator[tuple[str, ArmMeans]]:
    """The arm means of every method that has any."""
    metric = population.metrics[0].name
    makers: dict[str, Callable[[], ArmMeans]] = {
        "plain": lambda: plain_means(arms, metric),
        "adjusted": lambda: adjusted_means(tiers, metric, totals=None if arms.noise is None else arms),
    }
    if len(population.metrics) > 1:
        y, z = (part.name for part in population.metrics)
        makers["ratio"] = lambda: ratio_means(arms, y, z)
        makers["adjusted ratio"] = lambda: adjusted_ratio_means(
            tiers, y, z, totals=None if arms.noise is None else arms
        )
    for method, make in makers.items():
        with suppress(AnalysisError, DesignError):
            yield method, make()


def intervals(method: str, means: ArmMeans) -> Iterator[tuple[str, Interval]]:
    """The interval of the difference of two arms, and for plain means of its share of the control's mean."""
    effect = contrast(means, EFFECT)
    if effect.interval is not None:
        yield method, effect.interval
    if method == "plain":
        share = relative_effect(means, effect).interval
        if share is not None:
            yield "relative", share


@dataclass(frozen=True)
class Row:
    """One method at one size: coverage with the noise known and ignored, width against exact tables, what has none."""

    method: str
    covered: float
    ignored: float
    wider: float
    none: float


def measure(population: Population, people: int, share: float, epsilon: float, runs: int) -> list[Row]:
    """Draw tables and their noise many times, and read them; every fifth exact table is read, too."""
    rng = np.random.default_rng(1)
    plan = parse_plan(plan_of(population.plan, share, epsilon))
    scales = split_budget(plan, rho_of(epsilon, DELTA))
    noise = {
        name: noise_of(plan, name, scales, factors, {})
        for name, factors in (("checkout", (ARMS,)), ("checkout/tier", (ARMS, TIERS)))
    }
    methods = ["plain", "relative", "adjusted", *(RATIOS if len(population.metrics) > 1 else [])]
    truth = {method: population.truth(method) for method in methods}
    seen: dict[str, dict[str, list[float]]] = {method: {"known": [], "ignored": [], "width": []} for method in methods}
    for run in range(runs):
        exact = population.draw(people, share, rng)
        arms, tiers = (
            with_noise(exact.keep(), noise["checkout"], rng), with_noise(exact, noise["checkout/tier"], rng),
        )  # fmt: skip
        widths = {}
        for method, means in means_of(combine_arms(arms, [tiers]), tiers, population):
            for name, (low, high) in intervals(method, means):
                seen[name]["known"].append(low <= truth[name] <= high)
                widths[name] = high - low
            assert means.noise is not None
            for name, (low, high) in intervals(method, replace(means, noise=means.noise * 1e-12)):
                seen[name]["ignored"].append(low <= truth[name] <= high)
        if run % 5 == 0:
            for method, means in means_of(exact.keep(), exact, population):
                for name, (low, high) in intervals(method, means):
                    if name in widths:
                        seen[name]["width"].append(widths[name] / (high - low))
    return [
        Row(
            method, mean(results["known"]), mean(results["ignored"]),
            float(np.median(results["width"] or [math.nan])), 1 - len(results["known"]) / runs,
        )
        for method, results in seen.items()
    ]  # fmt: skip


def mean(values: list[float]) -> float:
    """The mean, if there is any value."""
    return float(np.mean(values)) if values else math.nan


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--people", type=int, nargs="*", default=[2_000, 20_000, 100_000])
    parser.add_argument("--only", default="", help="populations whose name begins so")
    options = parser.parse_args()
    print(f"{options.runs} runs each; δ = {DELTA:g}")
    print(f"{'':14}  {'people':>7}  {'B':>4}  {'ε':>3}  method          covered  ignoring  width  none")
    start = time.perf_counter()
    for population in (rates(0.01), rates(0.1), amounts()):
        if not population.name.startswith(options.only):
            continue
        for people in options.people:
            for share in (0.5, 0.1):
                for epsilon in (0.5, 1.0, 2.0):
                    for row in measure(population, people, share, epsilon, options.runs):
                        print(
                            f"{population.name:14}  {people:7,}  {share:4.0%}  {epsilon:3g}  {row.method:14}  "
                            f"{row.covered:7.3f}  {row.ignored:8.3f}  {row.wider:5.2f}  {row.none:4.0%}",
                            flush=True,
                        )
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
