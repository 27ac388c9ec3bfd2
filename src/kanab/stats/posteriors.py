"""Bayesian readings: the same estimates, read with a declared normal prior.

Off unless asked for: the prior has to be declared, and before the data are seen. The error of the
estimate is taken as known, which tallies of more than a few dozen people allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Any, get_args

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.distributions import box_probability, check_sides, correlations_of, lattice
from kanab.stats.effect import ArmMeans, Effect, differences_from
from kanab.stats.gram import Floats
from kanab.stats.margins import Better
from kanab.stats.noise_variance import TOO_NOISY
from kanab.tabular import number
from kanab.tally.factor import Level, label

_ROOT = math.sqrt(2 * math.pi)


@check_arguments(skip=("mean", "sd"))
@dataclass(frozen=True)
class Prior:
    """What was believed before the data: the effect is normal about ``mean``, with this ``sd``, in units of the metric.

    An infinite sd says that nothing was believed. With ``relative`` both are shares of the control's mean.

    >>> Prior(0, 0.5)
    Prior(mean=0, sd=0.5, relative=False)
    """

    mean: float = 0.0
    sd: float = math.inf
    relative: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.mean, Real) and math.isfinite(self.mean)):
            raise AnalysisError("the prior's mean must be a finite number", "0 if neither direction is expected.")
        if not (isinstance(self.sd, Real) and self.sd > 0):
            raise AnalysisError("the prior's sd must be positive", "How large are effects of such changes, usually?")

    @property
    def precision(self) -> float:
        """One over the variance."""
        return 1 / self.sd**2

    def in_units(self, mean: float | None) -> Prior:
        """Return the prior in units of the metric, given the control's mean; raises `AnalysisError` where it is 0."""
        if not self.relative:
            return self
        if not mean:
            raise AnalysisError("a relative prior needs a control mean other than 0", "Give a prior in units.")
        return Prior(self.mean * abs(mean), self.sd * abs(mean))


@dataclass(frozen=True)
class Posterior:
    """What to believe now: the effect is normal about ``mean``, with this ``sd``.

    ``interval`` holds it with probability ``confidence`` (credible, equal tails). ``positive`` is the
    probability that it is above 0.
    """

    metric: str
    arm: Level
    control: Level
    prior: Prior
    mean: float
    sd: float
    interval: tuple[float, float]
    confidence: float

    def above(self, limit: float = 0.0) -> float:
        """Return the probability that the effect is above a limit."""
        return float(scipy.special.ndtr((self.mean - limit) / self.sd))

    @property
    def positive(self) -> float:
        """The probability that the effect is above 0."""
        return self.above(0.0)

    def __str__(self) -> str:
        low, high = (number(end) for end in self.interval)
        pair = "the contrast" if self.arm is None else f"{label(self.arm)} − {label(self.control)}"
        return (
            f"{self.metric}: {pair} is {number(self.mean)} ± {number(self.sd)}, with "
            f"probability {self.confidence:.0%} in {low} … {high}; above 0 with probability {100 * self.positive:.4g} %"
        )


@check_arguments()
def posterior(effect: Effect, prior: Prior, *, confidence: float | None = None) -> Posterior:
    """Weigh prior and estimate by their precisions; raises `AnalysisError` where nothing varies.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import difference_in_means
    >>> print(posterior(difference_in_means(eighteen()), Prior(0, 0.2)))
    minutes: B − A is -0.02454 ± 0.1782, with probability 95% in -0.3737 … 0.3247; above 0 with probability 44.52 %
    """
    level, prior = effect.confidence if confidence is None else confidence, prior.in_units(None)
    check_sides(level, "two-sided")
    if effect.too_noisy:
        raise _too_noisy()
    if not effect.se_population > 0:
        raise AnalysisError("nothing varies, so there is nothing to weigh the prior against", "Wait for more people.")
    precision = prior.precision + 1 / effect.se_population**2
    mean = (prior.mean * prior.precision + effect.estimate / effect.se_population**2) / precision
    sd = 1 / math.sqrt(precision)
    half = float(scipy.special.ndtri((1 + level) / 2)) * sd
    return Posterior(
        effect.metric, effect.arm, effect.control, prior, mean, sd, (mean - half, mean + half), level
    )  # fmt: skip


def _too_noisy() -> AnalysisError:
    return AnalysisError(f"it is {TOO_NOISY} whether anything varies", "Wait for more people, or spend more ε.")


@dataclass(frozen=True)
class Candidate:
    """One arm: how probably it is the best of all, and what choosing it is expected to lose.

    ``loss`` is how much better the best arm is on average, in units of the metric; ``mean`` the arm's
    believed effect against the control (0 for the control itself).
    """

    arm: Level
    mean: float
    best: float
    loss: float

    def __str__(self) -> str:
        return f"{label(self.arm)}: best with probability {100 * self.best:.3g} %, expected loss {number(self.loss)}"


@check_arguments()
def best_arm(means: ArmMeans, prior: Prior, *, control: Any = None, better: Better = "higher") -> tuple[Candidate, ...]:
    """Return how probably each arm is the best and what choosing it would lose, the likeliest first.

    The prior holds for the effect of every arm against the control. All arms are judged together:
    they share the control's people. Deterministic to about four digits with three arms or more,
    exact with two. Raises `LevelError` for an unknown control, `AnalysisError` where nothing varies.
    """
    base = means.base(control)
    prior = prior.in_units(float(means.means[means.arms.index(base)]))
    if better not in get_args(Better):
        raise AnalysisError("unknown direction", "Say better='higher' or better='lower'.")
    if means.too_noisy.any():
        raise _too_noisy()
    if np.any(means.sample <= 0):
        raise AnalysisError("nothing varies in an arm, so there is nothing to weigh", "Wait for more people.")
    sign = 1.0 if better == "higher" else -1.0
    mean, covariance = _believed(means, base, prior)
    all_arms = (base, *(arm for arm in means.arms if arm != base))  # the control joins as an effect of exactly 0
    full = np.zeros((len(all_arms), len(all_arms)))
    full[1:, 1:] = covariance
    centre = sign * np.concatenate([[0.0], mean])
    top = _expected_best(centre[1:], covariance)
    candidates = [
        Candidate(arm, float(sign * centre[i]), _best(i, centre, full), max(0.0, top - float(centre[i])))
        for i, arm in enumerate(all_arms)
    ]
    return tuple(sorted(candidates, key=lambda candidate: -candidate.best))


def _believed(means: ArmMeans, base: Level, prior: Prior) -> tuple[Floats, Floats]:
    """Return mean and covariance of every arm's effect against the control, prior and data together."""
    c = differences_from(means.arms.index(base), len(means.arms))
    estimates = np.array([means.combined(row)[0] for row in c])
    data = np.linalg.inv(c @ means.covariance @ c.T)
    covariance = np.linalg.inv(data + np.eye(len(c)) * prior.precision)
    mean = covariance @ (data @ estimates + np.full(len(c), prior.mean * prior.precision))
    return mean, (covariance + covariance.T) / 2


def _best(place: int, mean: Floats, covariance: Floats) -> float:
    """Return how often the effect at a place is larger than all others."""
    d = -differences_from(place, len(mean))
    of_differences = d @ covariance @ d.T
    away = d @ mean / np.sqrt(np.diag(of_differences))
    if len(d) == 1:
        return float(scipy.special.ndtr(away[0]))
    return box_probability(-away, np.full(len(d), np.inf), correlations_of(of_differences))


def _expected_best(mean: Floats, covariance: Floats) -> float:
    """Return the mean of the largest of 0 and all effects."""
    if len(mean) == 1:
        m, s = float(mean[0]), math.sqrt(float(covariance[0, 0]))
        return m * float(scipy.special.ndtr(m / s)) + s * math.exp(-((m / s) ** 2) / 2) / _ROOT
    points = scipy.special.ndtri(lattice(len(mean))[:, 1:])
    drawn = mean + points @ np.linalg.cholesky(covariance).T
    return float(np.mean(np.maximum(0.0, drawn.max(axis=1))))
