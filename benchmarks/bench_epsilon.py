"""Releases with ε: how much processor time they take, whether the sampler is right, and what a distinguisher learns.

    python benchmarks/bench_epsilon.py [speed] [sampler] [distinguisher]

Speed: 50 tables of 1,000 classes with one 0/1 metric, without ε and with ε = 1, which merges nothing of classes so
large; processor time, and by the clock where two cores are free. Sampler: a million
draws against the exact probabilities. Distinguisher: releases of two neighbouring sets of people, 20,000 of each; the
least ε that they allow, by the divergence (through ρ) and directly, as promised and with noise that is too small by a
factor of 2.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
from scipy.stats import chi2

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.unit.privacy.epsilon.distinguisher import evidence_of, halfway, least_epsilon, least_rho, neighbours

import kanab as kb
from kanab.plan.model import Budget, CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.mechanism import Scale, draw
from kanab.privacy.epsilon.rho import epsilon_of, rho_of
from kanab.tally.factor import Factor
from kanab.tally.moments import Moments

TABLES, LEVELS = 50, 500


def many_tables(seed: int = 1) -> kb.Counted:
    """50 experiments with one covariate each, whose classes hold 2,000 to 4,000 people."""
    rng = np.random.default_rng(seed)
    names = [f"test{place:02d}" for place in range(TABLES)]
    levels = tuple(f"level {place:03d}" for place in range(LEVELS))
    plan = Plan(
        (MetricPlan("bought", binary=True, missing="zero"),),
        tuple(ExperimentPlan(name, (("A", 1.0), ("B", 1.0)), adjust=(f"x{name}",)) for name in names),
        tuple(CovariatePlan(f"x{name}", levels) for name in names),
    )
    tallies = {}
    for name in names:
        people = rng.integers(2_000, 4_000, (2, LEVELS))
        factors = (Factor(name, ("A", "B"), "arm"), Factor(f"x{name}", levels))
        bought = Moments(plan.metrics[0].metric(), people, rng.binomial(people, 0.2), {})
        tallies[f"{name}/x{name}"] = kb.Tally(factors, people, (bought,))
    return kb.Counted(plan, tallies, None)


def best(*actions: Callable[[], object], runs: int = 5) -> list[tuple[float, float]]:
    """The processor time of the quickest of a few runs of each action, which take turns, and the time by the clock."""
    seconds: list[list[tuple[float, float]]] = [[] for _ in actions]
    for _ in range(runs):
        for action, times in zip(actions, seconds, strict=True):
            start, clock = time.process_time(), time.perf_counter()
            action()
            times.append((time.process_time() - start, time.perf_counter() - clock))
    return [(min(cpu for cpu, _ in times), min(clock for _, clock in times)) for times in seconds]


def speed() -> None:
    """Time releases of many tables."""
    counted = many_tables()
    made = kb.release(counted, epsilon=1.0)
    classes = sum(table.people.size for table in made.tables.values())
    assert made.receipt.noise is not None
    deviation = made.receipt.noise.scales["test00/xtest00"]["people by test00 and xtest00"]
    times = best(
        lambda: kb.release(counted),
        lambda: kb.release(counted, epsilon=1.0),
        lambda: draw(2 * TABLES * 2 * LEVELS, Scale(1, 1, deviation)),
    )
    (without, clock_without), (noisy, clock_noisy), (draws, _) = times
    print(f"{TABLES} tables × {2 * LEVELS:,} classes, processor time: {without:.2f} s without ε")
    print(f"with ε, {classes:,} classes: {noisy:.2f} s, {noisy - without:.2f} s more")
    print(f"of which {2 * TABLES * 2 * LEVELS:,} draws of noise, by OpenDP: {draws:.2f} s")
    print(f"by the clock: {clock_without:.2f} s without ε, {clock_noisy:.2f} s with")


def sampler(size: int = 1_000_000) -> None:
    """Compare draws with exact probabilities."""
    for deviation in (0.5, 1.0, 3.3, 20.0):
        places = np.arange(-400, 401)
        weights = np.exp(-(places**2) / (2 * deviation**2))
        expected = size * weights / weights.sum()
        observed = np.bincount(np.array(draw(size, Scale(1, 1, deviation))) + 400, minlength=801)
        often = expected >= 10
        parts = [*((observed - expected)[often] ** 2 / expected[often])]
        rest = expected[~often].sum()
        parts += [float((observed[~often].sum() - rest) ** 2 / rest)] if rest > 1 else []
        p = chi2.sf(sum(parts), len(parts) - 1)
        print(f"deviation {deviation:g}: χ²({len(parts) - 1}) = {sum(parts):.1f}, p = {p:.3f}")


def distinguisher(runs: int = 20_000) -> None:
    """Say what can be learned of one person, as promised and with too little noise."""
    for epsilon in (1.0, 3.0, 10.0):
        budget = Budget(epsilon)
        for factor in (1.0, 2.0):

            def less(size: int, scale: Scale, factor: float = factor) -> list[int]:
                return draw(size, replace(scale, deviation=scale.deviation / factor)) if size else []

            both = neighbours()
            with patch.object(mechanism, "draw", less):
                without, with_person = (evidence_of(counted, budget, runs) for counted in both)
            rho = least_rho(without, with_person, halfway(both, budget))
            words = "as promised" if factor == 1 else f"noise too small by {factor:g}"
            directly = least_epsilon(without, with_person, budget.delta)
            print(
                f"ε = {epsilon:g} ({words}): ρ ≥ {rho:.4f} of {rho_of(epsilon, budget.delta):.4f}, "
                f"ε ≥ {epsilon_of(rho, budget.delta):.2f} through ρ, ε ≥ {directly:.2f} directly"
            )


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["speed", "sampler", "distinguisher"]
    for part in (speed, sampler, distinguisher):
        if part.__name__ in chosen:
            part()
