"""The arithmetic of ε: zero-concentrated differential privacy (ρ), which adds up, and the ε that it is at a δ."""

from __future__ import annotations

import math
from functools import lru_cache

from kanab.errors import PrivacyError
from kanab.plan.budget import delta_problem, epsilon_problem

DEFAULT_DELTA = 1e-6
"""The δ of a budget that names none."""


def check_epsilon(epsilon: object, name: str = "epsilon") -> float:
    """Return ε as a float. Raises `PrivacyError` where it is not a number that promises something."""
    if problem := epsilon_problem(epsilon):
        remedy = "Usual are 0.5 to 2: the smaller, the more noise and the stronger the promise."
        raise PrivacyError(f"{name} {problem}", remedy)
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
    """Return the ε that ρ is at a δ: the best over all orders α (Canonne, Kamath and Steinke, 2020, proposition 12).

    >>> round(epsilon_of(0.0223, 1e-6), 2)
    0.95
    """
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
    """Return the largest ρ that keeps to ε at a δ.

    >>> round(rho_of(1, 1e-6), 4)
    0.0244
    """
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low
