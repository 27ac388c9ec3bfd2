"""Skewed amounts: what is known of a metric's shape, and a t test that reckons with it.

Where a few large values make both an arm's mean and its variance, Welch's t misleads on one side: a small arm that
lacks them has a low mean and a small error. Hall's transformation of t corrects that for the skewness of the
difference, and does so here on the side at risk alone, so that the interval is never narrower than Welch's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from kanab.stats.gram import Floats

FEWEST_UNUSUAL = 15
"""Where fewer people off the commonest value are expected in an arm, arms have to differ with one variance, too."""

LEAST_SKEWNESS = 0.5
"""Below this a metric counts as symmetric."""


@dataclass(frozen=True)
class Shape:
    """How the values of a metric are spread, over all arms, in classes that say nothing about anybody.

    ``skewness`` is None where nobody counted it: effects then have to pass a second test, with one variance for all
    arms. ``unusual`` is the share of people off the commonest value, at least; ``nonnegative``: no value is below 0.
    """

    skewness: float | None = None
    unusual: float = 0.0
    nonnegative: bool = False

    def needs_alike(self, people: float) -> bool:
        """Return whether arms of which the smallest has so many people have to differ with one variance, too."""
        return self.skewness is None or people * self.unusual < FEWEST_UNUSUAL


Shapes = Mapping[str, Mapping[str, tuple[float, float]]]
"""Classes of skewness and of the share of unusual people, by experiment and metric (or ratio)."""


def skewness_class(skewness: float) -> float:
    """Return a skewness as it may be told: 0, or the next half octave away from 0, with its sign."""
    if not abs(skewness) >= LEAST_SKEWNESS:
        return 0.0
    octaves = max(-1, math.ceil(2 * math.log2(abs(skewness)) - 1e-9))
    return math.copysign(2 ** (octaves / 2), skewness)


def unusual_class(unusual: int, people: int, k: int) -> float:
    """Return the share of people off the commonest value as it may be told: a half octave, at most what it is.

    So few of them that the second test is needed in any case are none: a number below k is never told.
    """
    if unusual < max(FEWEST_UNUSUAL, k):
        return 0.0
    return float(2 ** (math.floor(2 * math.log2(unusual / people) + 1e-9) / 2))


Tilt = tuple[float, float]
"""The skewness of a difference that misleads t below 0, and the one that misleads t above 0: neither is negative."""

LEVEL: Tilt = (0.0, 0.0)


def tilt(skewness: float, weights: Floats, people: Floats, sample: Floats) -> Tilt:
    """Return how skewed a weighted sum of arm means is: with one variance for all arms, or each with its own.

    Of both, the one that matters more is taken on each side. ``sample`` are the variances of the arms' means.
    """
    alike, own = weights**2 / people, weights**2 * sample
    cubed = skewness * float(np.sum(weights**3 / people**2)) / float(alike.sum()) ** 1.5
    cubed_own = skewness * float(np.sum(weights**3 * sample**1.5 / np.sqrt(people))) / float(own.sum()) ** 1.5
    return max(cubed, cubed_own, 0.0), max(-cubed, -cubed_own, 0.0)


def corrected_t(t: float, tilted: Tilt) -> float:
    """Return the t of a symmetric metric that is as surprising as this one."""
    kappa = tilted[0] if t < 0 else tilted[1]
    if not kappa:
        return t
    away = max(0.0, abs(t) - kappa / 6)
    root = math.cbrt(1 + kappa * away)
    # 3/κ (∛(1 + κ away) − 1), written so that nothing is lost where κ is near 0
    return math.copysign(3 * away / (root * root + root + 1), t)


def critical_t(quantile: float, kappa: float) -> float:
    """Return how far t has to be on a side of this skewness, where it would be ``quantile`` on a symmetric one."""
    if not kappa or quantile <= 0 or math.isinf(quantile):
        return quantile
    third = kappa * quantile / 3
    # ((1 + κ q/3)³ − 1)/κ + κ/6, multiplied out for the same reason
    return quantile * (1 + third + third * third / 3) + kappa / 6
