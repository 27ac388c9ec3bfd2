"""The arithmetic of ε: zero-concentrated differential privacy (ρ), which adds up, and the ε that it is at a δ."""

from __future__ import annotations

import math
from functools import lru_cache

from kanab.errors import PrivacyError

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-3, 100.0
"""Below, noise leaves nothing to read; above, it hides nobody."""

DEFAULT_DELTA = 1e-6
"""The δ of a budget that names none."""


def check_epsilon(epsilon: object, name: str = "epsilon") -> float:
    """Return ε as a float. Raises `PrivacyError` where it is not a number that promises something."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, (int, float)) or not math.isfinite(epsilon):
        raise PrivacyError(f"{name} must be a finite number", f"For example {name} = 1.")
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise PrivacyError(
            f"{name} must lie between {SMALLEST_EPSILON:g} and {LARGEST_EPSILON:g}",
            "Usual are 0.5 to 2: the smaller, the more noise and the stronger the promise.",
        )
    return float(epsilon)


def check_delta(delta: object) -> float:
    """Return δ as a float. Raises `PrivacyError` where it is no small probability."""
    if isinstance(delta, bool) or not isinstance(delta, (int, float)) or not 1e-15 <= delta <= 1e-2:
        raise PrivacyError(
            "delta must be a small probability", "For example 1e-6: well below one divided by the number of people."
        )
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
