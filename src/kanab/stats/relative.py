"""By how many percent? The relative effect, with an interval that agrees with the test (Fieller)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kanab.stats.distributions import t_quantile
from kanab.stats.effect import ArmMeans, Effect


@dataclass(frozen=True)
class Relative:
    """The effect as a share of the control's mean; None where that mean cannot be told from 0."""

    estimate: float | None
    interval: tuple[float, float] | None


def relative_effect(means: ArmMeans, effect: Effect) -> Relative:
    """The arm's mean over the control's, minus one.

    The interval holds every ratio ρ for which a test of mean(arm) = ρ · mean(control) does not
    reject, with the effect's own degrees of freedom: it excludes 0 exactly when p is below α.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import against_control, plain_means
    >>> means = plain_means(eighteen())
    >>> round(relative_effect(means, against_control(means)).estimate, 4)
    -0.0935
    """
    covariance = means.covariance
    control, arm = means.arms.index(effect.control), means.arms.index(effect.arm)
    base, other = float(means.means[control]), float(means.means[arm])
    if base == 0:
        return Relative(None, None)
    estimate = effect.estimate / base
    if effect.df is None:
        return Relative(estimate, None)
    tail = (1 + effect.confidence) / 2 if effect.alternative == "two-sided" else effect.confidence
    t2 = t_quantile(tail, effect.df) ** 2
    v_a, v_b, v_ab = covariance[control, control], covariance[arm, arm], covariance[control, arm]
    a = base**2 - t2 * v_a
    if a <= 0:
        return Relative(estimate, None)
    half_b, c = base * other - t2 * v_ab, other**2 - t2 * v_b
    root = math.sqrt(max(0.0, half_b**2 - a * c))
    low, high = (half_b - root) / a - 1, (half_b + root) / a - 1
    if effect.alternative == "greater":
        high = math.inf if base > 0 else high
        low = low if base > 0 else -math.inf
    elif effect.alternative == "less":
        low = -math.inf if base > 0 else low
        high = high if base > 0 else math.inf
    return Relative(estimate, (low, high))
