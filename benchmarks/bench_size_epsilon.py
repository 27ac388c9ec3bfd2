"""How often do tests of a release with ε ring, where nothing differs (nominal: .05) and where something does?

Two arms by three levels, a rate and an amount from 0 to 100, ε and δ = 1e-6 shared out as a release does. Every test is
made as it is, and once more by somebody who takes the noisy numbers for exact ones. The noise is drawn as rounded
normals with the variances that the tables state; for readouts, people are counted, released and analyzed as users do.

    python benchmarks/bench_size_epsilon.py [tests] [quantiles] [readouts] [power] [--simulations 1000]
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special

import kanab as kb
from kanab import Tally
from kanab.errors import AnalysisError
from kanab.plan.file import parse_plan
from kanab.privacy.epsilon.rho import rho_of
from kanab.privacy.epsilon.split import noise_of, split_budget
from kanab.stats import check_balance, follow_ups, quantile_effect, robust_f, sample_ratio, segment_effects
from kanab.stats.quantile import BinnedPeople, without_noise
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments
from kanab.tally.noise import AddedNoise

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.unit.stats.noisy_tables import restated, with_noise

PLAN = parse_plan("""
[metrics.bought]
bounds = [0, 1]
resolution = 1
[metrics.spend]
bounds = [0, 100]
resolution = 1
[covariates]
tier = { levels = ["1", "2", "3"] }
[experiments.checkout]
arms = { A = 1, B = 1 }
segments = ["tier"]
""")
ARMS, TIERS = Factor("checkout", ("A", "B"), "arm"), Factor("tier", ("1", "2", "3"))
SHARES = np.array([0.5, 0.3, 0.2])
VALUES = np.arange(101)
SIMULATIONS = 1_000
ALPHA = 0.05
Shares = dict[str, tuple[float, float, float]]
"""By test: how often it rings, how often if noise is ignored, and how often it is made."""


@dataclass(frozen=True)
class Case:
    """People, ε, the rate of the events, the share of the first arm, and how much the effect differs by level."""

    people: int
    epsilon: float
    rate: float = 0.1
    first_arm: float = 0.5
    differs: float = 0.0

    @property
    def name(self) -> str:
        """The case in a row of the table."""
        return f"{self.people:>7,} people, ε = {self.epsilon:g}, rate {self.rate:g}, {self.first_arm:g} in A"


CASES = tuple(
    Case(people, epsilon, rate, first)
    for people in (2_000, 20_000, 100_000)
    for epsilon in (0.5, 1.0, 2.0)
    for rate, first in ((0.1, 0.5), (0.01, 0.5), (0.1, 0.1))
)


def noise_of_case(epsilon: float) -> AddedNoise:
    """The variances of the noise in a table of arms by tiers of this plan."""
    scales = split_budget(PLAN, rho_of(epsilon, 1e-6))
    return noise_of(PLAN, "checkout/tier", scales, (ARMS, TIERS), {})


def amounts(mean_of_buyers: float) -> NDArray[np.float64]:
    """The shares of values from 1 to 100 among those who buy: geometric, cut at 100."""
    shares = (1 - 1 / mean_of_buyers) ** VALUES[1:]
    return np.asarray(shares / shares.sum())


def draw(case: Case, rng: np.random.Generator) -> Tally:
    """One experiment: the same effect at every level, but for what differs at the third."""
    people = rng.multinomial(case.people, np.outer([case.first_arm, 1 - case.first_arm], SHARES).ravel()).reshape(2, 3)
    bought, spent, squares = (np.zeros((2, 3), dtype=object) for _ in range(3))
    for arm, level in np.ndindex(2, 3):
        more = case.differs if (arm, level) == (1, 2) else 0.0
        rate = case.rate * ((0.8, 1.0, 1.4)[level] * (1 + more) + 0.1 * arm)
        n = rng.binomial(people[arm, level], rate)
        at = rng.multinomial(rng.binomial(people[arm, level], 0.4), amounts((10.0, 14.0, 22.0)[level] * (1 + more / 2)))
        bought[arm, level], spent[arm, level] = int(n), int(at @ VALUES[1:])
        squares[arm, level] = int(at @ VALUES[1:] ** 2)
    by = {("checkout",): squares.sum(axis=1), ("tier",): squares.sum(axis=0)}
    metrics = {metric.name: metric.metric() for metric in PLAN.metrics}
    counted = people.astype(object)
    parts = Moments(metrics["bought"], counted, bought, {}), Moments(metrics["spend"], counted, spent, by)
    return Tally((ARMS, TIERS), counted, parts)


def tests(table: Tally, case: Case) -> Iterator[tuple[str, bool | None]]:
    """Every test and whether it rings; None where it cannot be made."""
    shares = {"A": case.first_arm, "B": 1 - case.first_arm}
    yield "sample ratio", sample_ratio(table, shares).p < ALPHA
    yield "balance", check_balance([table], "checkout")[0].p < ALPHA
    for metric in ("bought", "spend"):
        test = robust_f(table, "tier", metric)
        yield f"robust F {metric}", None if test.p is None else test.p < ALPHA
        try:
            rows = follow_ups(table, "tier", metric)
            yield f"follow-ups {metric}", any(row.p_adjusted < ALPHA for row in rows)
        except AnalysisError:
            yield f"follow-ups {metric}", None
        if metric == "bought":  # true effects at levels
            truths = [case.rate * (0.1 + more) for more in (0.0, 0.0, 1.4 * case.differs)]
            effects = segment_effects(table, "tier", metric)
            intervals = [effect.interval_adjusted for effect in effects]
            missed = [
                not low <= truth <= high
                for truth, (low, high) in zip(truths, [each for each in intervals if each], strict=False)
            ]
            yield f"levels {metric}", any(missed) if len(missed) == 3 else None


EDGES = (0.0, 10.0, 20.0, 30.0, 40.0, 60.0, 80.0, 120.0, 200.0, 400.0)


def quantiles(case: Case, simulations: int, seed: int) -> Shares:
    """How often intervals of differences of the median and the 90 % point miss 0, where both arms are alike.

    As in a readout, an arm with hardly more people than noise has no quantiles.
    """
    rng = np.random.default_rng(seed)
    variance = float(noise_of_case(case.epsilon).people[0, 0])
    shares = np.diff([0.0, *special.gammainc(2.0, np.array(EDGES) / 25), 1.0])
    missed: Counter[tuple[float, bool]] = Counter()
    made = 0
    for _ in range(simulations):
        sides = []
        for arm in (case.first_arm, 1 - case.first_arm):
            drawn = rng.multinomial(int(case.people * arm), shares) + np.rint(rng.normal(0, variance**0.5, len(shares)))
            if drawn.sum() > 5 * (variance * len(shares)) ** 0.5:
                told = without_noise([int(count) for count in drawn])
                sides.append(BinnedPeople(EDGES, told, 0.0, noise=(variance,) * len(told)))
        if len(sides) < 2:
            continue
        made += 1
        for share in (0.5, 0.9):
            for known in (True, False):
                pair = sides if known else [replace(side, noise=()) for side in sides]
                low, high = quantile_effect(pair[1], pair[0], share).interval or (-np.inf, np.inf)
                missed[share, known] += not low <= 0 <= high
    return {
        f"quantile {share:g}": (*(missed[share, known] / max(made, 1) for known in (True, False)), made / simulations)
        for share in (0.5, 0.9)
    }


LEVELS = 8
READOUT = parse_plan(
    f"""
[metrics.bought]
bounds = [0, 1]
resolution = 1
missing = "zero"
[metrics.spend]
bounds = [0, 100]
resolution = 1
missing = "zero"
[covariates]
tier = {{ levels = {[str(level) for level in range(LEVELS)]} }}
[experiments.checkout]
arms = {{ A = 1, B = 1 }}
adjust = ["tier"]
""".replace("'", '"')
)


def readouts(case: Case, simulations: int, seed: int) -> Shares:
    """How often p of the row that carries the verdict, of the plain and of the adjusted one are clear without effects.

    The whole path: people are counted, released with ε by OpenDP's noise, and analyzed. In place of the noise that is
    ignored stands whoever takes the smaller p of both rows; the share is that of readouts in which both have one.
    """
    rng, rings, made = np.random.default_rng(seed), Counter[tuple[str, str]](), Counter[str]()
    for _ in range(simulations):
        people = {
            "checkout": np.where(rng.random(case.people) < case.first_arm, "A", "B"),
            "tier": rng.integers(0, LEVELS, case.people).astype(str),
            "bought": rng.random(case.people) < case.rate,
            "spend": np.minimum(100, rng.exponential(20, case.people) * (rng.random(case.people) < 0.3)).astype(int),
        }
        shares = replace(READOUT.experiments[0], shares=(("A", case.first_arm), ("B", 1 - case.first_arm)))
        plan = replace(READOUT, experiments=(shares,))
        answer = kb.analyze(kb.release(kb.count(people, plan), epsilon=case.epsilon))
        for metric in ("bought", "spend"):
            rows = {row.effect.method: row for row in answer.effects if row.effect.metric == metric}
            p = {method: row.p for method, row in rows.items() if row.p is not None}
            if len(p) < 2:
                continue
            made[metric] += 1
            carrying = next(row for row in rows.values() if row.carries_verdict)
            rings[metric, "plain carries"] += carrying.effect.method == "difference"
            for name, value in (*p.items(), ("verdict", carrying.p), ("smaller p", min(p.values()))):
                rings[metric, name] += value is not None and value < ALPHA
    return {
        f"{metric}, {name}": (
            rings[metric, name] / made[metric], rings[metric, "smaller p"] / made[metric], made[metric] / simulations,
        )
        for metric in made
        for name in ("verdict", "difference", "adjusted", "plain carries")
    }  # fmt: skip


def run(case: Case, simulations: int, seed: int) -> Shares:
    """By test: how often it rings, how often if noise is ignored, and how often it is made."""
    rng, noise = np.random.default_rng(seed), noise_of_case(case.epsilon)
    rings: Counter[str] = Counter()
    made: Counter[str] = Counter()
    for _ in range(simulations):
        noisy = with_noise(draw(case, rng), noise, rng)
        for kind, table in (("", noisy), ("control ", restated(noisy, 1e-9))):
            for name, rang in tests(table, case):
                if rang is not None:
                    made[kind + name] += 1
                    rings[kind + name] += bool(rang)
    share = {name: rings[name] / made[name] for name in made}
    return {
        name: (value, share.get(f"control {name}", float("nan")), made[name] / simulations)
        for name, value in share.items()
        if not name.startswith("control ")
    }


PARTS: dict[str, tuple[str, Callable[[Case, int, int], Shares], tuple[Case, ...]]] = {
    "tests": ("size of tests", run, CASES),
    "quantiles": ("size of quantiles", quantiles, tuple(case for case in CASES if case.rate == 0.1)),
    "readouts": (
        "size of readouts, 8 levels (second column: the smaller p of both rows)",
        readouts,
        (Case(2_000, 2.0), Case(20_000, 0.5), Case(8_000, 1.5, first_arm=0.9), Case(8_000, 2.0, first_arm=0.9)),
    ),
    "power": (
        "power, 30 % more at one level",
        run,
        tuple(replace(case, differs=0.3) for case in CASES if case.rate == 0.1 and case.first_arm == 0.5),
    ),
}


def main() -> None:
    """Print one line per case and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[*PARTS], help=", ".join(PARTS))
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    options = parser.parse_args()
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for title, function, cases in (PARTS[part] for part in options.parts):
            print(f"{title} at {ALPHA:g}: knowing the noise, ignoring it, share of releases that can be tested")
            results = pool.map(function, cases, [options.simulations] * len(cases), range(len(cases)))
            for case, by_test in zip(cases, results, strict=True):
                print(case.name, flush=True)
                for name, (known, ignored, made) in by_test.items():
                    print(f"    {name:<24} {known:.3f}  {ignored:.3f}  {made:.0%}", flush=True)


if __name__ == "__main__":
    main()
