"""The arithmetic of ε: zero-concentrated differential privacy (ρ), which adds up, and the ε that it is at a δ.

What one person loses is added up as ρ over everything that tells about that person, and said as ε at a δ by the
conversion of Canonne, Kamath and Steinke (2020).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from kanab.errors import PrivacyError
from kanab.plan.budget import Exclusions, delta_problem, epsilon_problem, exclusive_groups
from kanab.plan.model import Budget

DEFAULT_DELTA = 1e-6
"""The δ of a budget that names none."""


def check_epsilon(epsilon: object) -> float:
    """Return ε as a float. Raises `PrivacyError` where it is not a number that promises something."""
    if problem := epsilon_problem(epsilon):
        remedy = "Usual are 0.5 to 2: the smaller, the more noise and the stronger the promise."
        raise PrivacyError(f"epsilon {problem}", remedy)
    assert isinstance(epsilon, (int, float))
    return float(epsilon)


def check_delta(delta: object) -> float:
    """Return δ as a float. Raises `PrivacyError` where it is no small probability."""
    if problem := delta_problem(delta):
        raise PrivacyError(f"delta {problem}", "For example 1e-6: well below one divided by the number of people.")
    assert isinstance(delta, (int, float))
    return float(delta)


@lru_cache(maxsize=4096)
def epsilon_of(rho: float, delta: float) -> float:
    """Return the ε that ρ is at a δ: the best over all orders α (Canonne, Kamath and Steinke, 2020, proposition 12)."""
    if rho <= 0:
        return 0.0

    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return order * rho + (math.log(1 / delta) - math.log(order)) / (order - 1) + math.log1p(-1 / order)

    low, high = -20.0, 40.0
    for _ in range(110):  # thirds: the bound has one minimum
        third = (high - low) / 3
        if at(low + third) < at(high - third):
            high -= third
        else:
            low += third
    return max(0.0, at((low + high) / 2))


@lru_cache(maxsize=256)
def rho_of(epsilon: float, delta: float) -> float:
    """Return the largest ρ that keeps to ε at a δ."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def release_rho(budget: Budget) -> float:
    """Return the ρ that one release has to share out among its experiments."""
    return rho_of(budget.per_release or budget.epsilon, budget.delta) / budget.stores


@dataclass(frozen=True)
class SpentRho:
    """What one release costs its people: ρ by experiment and table of two experiments.

    It is about the cohorts ``after`` one and ``through`` another, by their numbers; about everybody unless it says so.
    ``apart`` are experiments that nobody is in both of.
    """

    costs: Mapping[str, float]
    after: float = -math.inf
    through: float = math.inf
    apart: Exclusions = frozenset()


def rho_per_person(releases: Sequence[SpentRho]) -> float:
    """Return the ρ that releases, in their order, cost one person at most.

    A person is in one cohort of an experiment, and in another one of the next experiment. So experiments add up, each
    with the cohort that costs most; of those that exclude each other the largest counts.
    """
    costs = {name: 0.0 for release in releases for name in release.costs}
    for name in costs:
        # An experiment that ended and began again takes the same people once more.
        runs = [[*run] for there, run in groupby(releases, key=lambda release: name in release.costs) if there]
        costs[name] = math.fsum(_rho_of_run(name, run) for run in runs)
    apart = frozenset(pair for release in releases for pair in release.apart)
    return math.fsum(max(costs[name] for name in group) for group in exclusive_groups(costs, apart))


def _rho_of_run(name: str, run: Sequence[SpentRho]) -> float:
    """Return what the cohort costs that costs most: all releases that it is in."""
    return max(
        math.fsum(release.costs[name] for release in run if release.after < cohort <= release.through)
        for cohort in {release.through for release in run}
    )
