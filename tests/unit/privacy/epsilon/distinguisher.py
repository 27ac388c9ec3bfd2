"""A distinguisher: how sure somebody who knows everybody else can be that one person was counted."""

import math
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from kanab.counted import Counted
from kanab.counting.dispatch import count
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget
from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.noisy_release import release_with_noise
from kanab.privacy.release import Release
from kanab.tally.noise import twice_centre

PLAN = """
[metrics.spend]
bounds = [0, 7]
resolution = 1
missing = "zero"
[experiments.variant]
arms = { A = 1, B = 1 }
"""
ROWS = {"variant": ["A", "B"] * 40, "spend": [0, 7, 3, 1, 1] * 16}


def neighbours(rows: dict[str, list[Any]] = ROWS) -> tuple[Counted, Counted]:
    """Two sets of people, one of which has one person more, in the first arm and with the largest value."""
    more = {name: [*values, extra] for (name, values), extra in zip(rows.items(), ("A", 7), strict=True)}
    plan = parse_plan(PLAN)
    return count(rows, plan), count(more, plan)


def evidence(release: Release) -> float:
    """The likelihood ratio's logarithm, but for a constant: every number of the arm by how far the person moves it."""
    table = release.tables["variant"]
    part, noise = table.moments_of("spend"), table.noise
    assert noise is not None
    own, c = noise.metrics["spend"], twice_centre(part.metric) / 2
    half = (part.metric.grid_bounds[1] - part.metric.grid_bounds[0]) / 2  # type: ignore[index]
    n, s, q = (int(cells[0]) for cells in (table.people, part.sums, part.squares["variant",]))
    about, squares = s - c * n, q - 2 * c * s + c**2 * n
    return float(n / noise.people[0] + half * about / own.sums[0] + half**2 * squares / own.squares["variant",][0])


def evidence_of(counted: Counted, budget: Budget, runs: int) -> NDArray[np.float64]:
    """The evidence of many releases of the same people."""
    return np.array([evidence(release_with_noise(counted, budget, 2)) for _ in range(runs)])


def halfway(counted: tuple[Counted, Counted], budget: Budget) -> float:
    """The evidence halfway between both sets of people, without noise: whoever knows them all knows it."""
    with patch.object(mechanism, "draw", lambda size, _: [0] * size):
        return sum(evidence(release_with_noise(each, budget, 2)) for each in counted) / 2


def least_rho(
    without: NDArray[np.float64], with_person: NDArray[np.float64], threshold: float, alpha: float = 0.01
) -> float:
    """Return the least ρ that two samples of evidence allow, by a threshold and Clopper and Pearson's limits.

    ρ-zCDP bounds the divergence of both distributions by ρ, hence that of what any threshold makes of them.
    """
    low = _limit(int(np.sum(with_person > threshold)), len(with_person), alpha, upper=False)
    high = _limit(int(np.sum(without > threshold)), len(without), alpha, upper=True)
    return 0.0 if low <= high else low * math.log(low / high) + (1 - low) * math.log((1 - low) / (1 - high))


def least_epsilon(without: NDArray[np.float64], with_person: NDArray[np.float64], delta: float) -> float:
    """Return the least ε at a δ that the samples allow: log((p − δ) / q) over thresholds, by the limits of p and q."""
    half, best = len(without) // 2, 0.0
    chosen, tried = 0.0, -math.inf
    for share in (0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002):
        threshold = float(np.quantile(without[:half], 1 - share))
        p, q = np.mean(with_person[:half] > threshold), max(np.mean(without[:half] > threshold), 1 / half)
        if p > delta and math.log((p - delta) / q) - 2 / math.sqrt(q * half) > tried:
            chosen, tried = threshold, math.log((p - delta) / q) - 2 / math.sqrt(q * half)
    low = _limit(int(np.sum(with_person[half:] > chosen)), len(with_person) - half, 0.025, upper=False)
    high = _limit(int(np.sum(without[half:] > chosen)), len(without) - half, 0.025, upper=True)
    return max(best, math.log((low - delta) / high)) if low > delta else best


def _limit(events: int, runs: int, alpha: float, *, upper: bool) -> float:
    if upper:
        return 1.0 if events == runs else float(beta.ppf(1 - alpha, events + 1, runs - events))
    return 0.0 if events == 0 else float(beta.ppf(alpha, events, runs - events + 1))
