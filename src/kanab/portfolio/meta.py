"""Meta-analysis: one effect from several estimates of it, by batch, region or release, and how much they differ.

Estimates that measure the same effect differ by their errors alone (fixed), and are weighted by 1/se². Where effects
differ themselves by a standard deviation τ (random effects), weights are 1/(se² + τ²). Knapp and Hartung's error is
taken from how estimates scatter about their mean, with a t of as many degrees of freedom as there are others.

Empirical Bayes over many experiments: effects that were chosen because they are large are too large. The true effects
are taken for draws of a normal distribution, fitted to all estimates by their marginal likelihood. Each estimate is
drawn towards its mean, the more so the noisier it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import get_args

import numpy as np
import scipy

from kanab.arguments import check_arguments
from kanab.choices import MetaMethod
from kanab.errors import AnalysisError
from kanab.stats.distributions import check_sides, chi2_tail, find_root, t_interval, t_tail
from kanab.stats.gram import Floats


@dataclass(frozen=True)
class MetaAnalysis:
    """The common effect. ``df`` is None where the normal distribution was used.

    ``tau2`` is the variance of the effects themselves; ``q`` and ``q_p`` test whether there is any, and ``i2`` is its
    share of all variance. ``prediction`` is where the effect of one more such estimate lies. ``weights`` add up to 1.
    """

    method: MetaMethod
    estimate: float
    se: float
    df: float | None
    p: float
    interval: tuple[float, float]
    confidence: float
    tau2: float
    q: float
    q_df: int
    q_p: float
    i2: float
    prediction: tuple[float, float] | None
    weights: tuple[float, ...]


@check_arguments()
def meta_analysis(
    estimates: Sequence[float],
    errors: Sequence[float],
    *,
    method: MetaMethod = "reml",
    knapp_hartung: bool = True,
    confidence: float = 0.95,
) -> MetaAnalysis:
    """Return the common effect of independent estimates with these standard errors.

    "fixed": they measure one effect. Random effects: τ² by DerSimonian and Laird ("dl"), Paule and Mandel ("pm") or
    restricted likelihood ("reml"), with ``knapp_hartung``'s error and t; without it, the normal distribution as
    for "fixed". Raises `AnalysisError` for fewer than two estimates, and for errors that are not positive.

    >>> together = meta_analysis([0.10, 0.30, 0.35], [0.10, 0.12, 0.08])
    >>> round(together.estimate, 4), round(together.tau2, 4), round(together.q, 3)
    (0.2544, 0.0095, 3.935)
    """
    check_sides(confidence, "two-sided")
    if method not in get_args(MetaMethod):
        raise AnalysisError("unknown method of meta-analysis", f"Use one of: {', '.join(get_args(MetaMethod))}.")
    y, v = checked_estimates(estimates, errors, least=2)
    df = len(y) - 1
    fixed = 1 / v
    q = scatter(y, fixed)
    tau2 = _BY_METHOD[method](y, v)
    weights = 1 / (v + tau2)
    total = float(weights.sum())
    estimate = float(weights @ y) / total
    by_scatter = knapp_hartung and method != "fixed"
    se = math.sqrt((scatter(y, weights) / df if by_scatter else 1.0) / total)
    used_df = float(df) if by_scatter else math.inf
    typical = df * float(fixed.sum()) / (float(fixed.sum()) ** 2 - float(fixed @ fixed))
    p = t_tail(estimate / se, used_df) if se else float(estimate == 0)
    spread = math.sqrt(tau2 + se * se)
    return MetaAnalysis(
        method, estimate, se, float(df) if by_scatter else None, p,
        t_interval(estimate, se, used_df, confidence), confidence, tau2, q, df, chi2_tail(q, df),
        max(0.0, 1 - df / q if q else 0.0) if method == "fixed" else tau2 / (tau2 + typical),
        None if method == "fixed" else t_interval(estimate, spread, used_df, confidence),
        tuple((weights / total).tolist()),
    )  # fmt: skip


def checked_estimates(estimates: Sequence[float], errors: Sequence[float], *, least: int) -> tuple[Floats, Floats]:
    """Return estimates and their variances as arrays; raises `AnalysisError` where they are none, or too few."""
    if len(estimates) != len(errors):
        raise AnalysisError("every estimate needs its standard error", "Give two lists of the same length.")
    values = [*estimates, *errors]
    if not all(isinstance(value, Real) and math.isfinite(value) for value in values) or not all(e > 0 for e in errors):
        raise AnalysisError(
            "estimates must be numbers, and standard errors positive ones", "Leave out what is not testable."
        )
    if len(estimates) < least:
        raise AnalysisError(f"at least {least} estimates are needed", "Give more releases, batches or experiments.")
    return np.array(estimates, dtype=np.float64), np.array(errors, dtype=np.float64) ** 2


def scatter(y: Floats, weights: Floats) -> float:
    """Return the weighted squares about the weighted mean: Cochran's Q with weights 1/se²."""
    away = y - weights @ y / weights.sum()
    return float(weights @ away**2)


def _der_simonian_laird(y: Floats, v: Floats) -> float:
    w = 1 / v
    total = float(w.sum())
    return max(0.0, (scatter(y, w) - (len(y) - 1)) / (total - float(w @ w) / total))


def _paule_mandel(y: Floats, v: Floats) -> float:
    def excess(tau2: float) -> float:
        return scatter(y, 1 / (v + tau2)) - (len(y) - 1)

    return find_root(excess, 0.0, _largest(y, v)) if excess(0.0) > 0 else 0.0


def restricted_tau2(y: Floats, v: Floats) -> float:
    """Return the variance of effects with the largest restricted likelihood (the mean integrated out)."""

    def slope(tau2: float) -> float:
        w = 1 / (v + tau2)
        total = float(w.sum())
        away = y - w @ y / total
        return float(w**2 @ away**2) - total + float(w @ w) / total

    def likelihood(tau2: float) -> float:
        w = 1 / (v + tau2)
        return float(np.log(w).sum()) - math.log(float(w.sum())) - scatter(y, w)

    grid = [0.0, *np.geomspace(1e-6, 1, 60) * _largest(y, v)]
    best = max(range(len(grid)), key=lambda place: likelihood(grid[place]))
    low, high = grid[max(0, best - 1)], grid[min(best + 1, len(grid) - 1)]
    return find_root(slope, low, high) if slope(low) > 0 > slope(high) else grid[best]


def _largest(y: Floats, v: Floats) -> float:
    """Return a variance that effects cannot exceed: everything that was seen between estimates, and more."""
    return float(np.ptp(y)) ** 2 * len(y) + float(v.max())


_BY_METHOD: dict[str, Callable[[Floats, Floats], float]] = {
    "fixed": lambda _y, _v: 0.0,
    "dl": _der_simonian_laird,
    "pm": _paule_mandel,
    "reml": restricted_tau2,
}


# ── shrinkage ──────────────────────────────────────────────────────────────────────────────────

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
