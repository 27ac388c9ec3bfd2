"""Empirical Bayes over many experiments: effects that were chosen because they are large are too large.

The true effects of a team's experiments are taken for draws of a normal distribution, whose mean and spread are
fitted to all estimates together by their marginal likelihood. Each estimate is then drawn towards that mean, the more
so the noisier it is, and an effect that was selected for being large is no longer too large on average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.portfolio.meta import checked_estimates, restricted_tau2
from kanab.stats.distributions import check_sides

FEWEST = 3
"""With fewer experiments nothing is known about how their effects differ."""

FEW = 10
"""With fewer experiments the fitted spread is itself a guess, and a sentence says so."""


@dataclass(frozen=True)
class ShrunkEffect:
    """One effect before and after: ``kept`` is the share of its distance from the prior mean that is left."""

    estimate: float
    se: float
    shrunk: float
    shrunk_se: float
    interval: tuple[float, float]
    kept: float


@dataclass(frozen=True)
class Shrinkage:
    """Effects drawn towards each other; the prior is normal. ``mean_se`` is how well its mean is known."""

    mean: float
    mean_se: float
    sd: float
    confidence: float
    effects: tuple[ShrunkEffect, ...]


@check_arguments()
def shrink(estimates: Sequence[float], errors: Sequence[float], *, confidence: float = 0.95) -> Shrinkage:
    """Return effects drawn towards their common mean by a normal prior, fitted by marginal likelihood.

    Intervals hold the true effect with this confidence on average over experiments; that the spread of the prior was
    estimated is not in them. Raises `AnalysisError` for fewer than three estimates.

    >>> drawn = shrink([0.9, 0.1, -0.2, 0.3, 0.0], [0.3, 0.1, 0.2, 0.2, 0.1])
    >>> round(drawn.mean, 3), round(drawn.sd, 3), [round(effect.shrunk, 2) for effect in drawn.effects]
    (0.156, 0.257, [0.47, 0.11, -0.07, 0.25, 0.02])
    """
    check_sides(confidence, "two-sided")
    y, v = checked_estimates(estimates, errors, least=FEWEST)
    tau2 = restricted_tau2(y, v)
    weights = 1 / (v + tau2)
    mean, mean_var = float(weights @ y / weights.sum()), 1 / float(weights.sum())
    kept = tau2 * weights
    shrunk = mean + kept * (y - mean)
    sd = np.sqrt(kept * v + (1 - kept) ** 2 * mean_var)
    reach = float(scipy.special.ndtri((1 + confidence) / 2))
    rows = zip(y.tolist(), np.sqrt(v).tolist(), shrunk.tolist(), sd.tolist(), kept.tolist(), strict=True)
    effects = tuple(ShrunkEffect(raw, se, m, s, (m - reach * s, m + reach * s), share) for raw, se, m, s, share in rows)
    return Shrinkage(mean, math.sqrt(mean_var), math.sqrt(tau2), confidence, effects)
