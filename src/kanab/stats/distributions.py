"""Tail probabilities by survival functions, so that 1e-112 is 1e-112 and not 0; quantiles, intervals and df.

The joint t of correlated estimates is by two nested quadratures where one common part explains the correlations (eight
digits), else by a fixed lattice rule (four, Genz): the same question has the same answer to the last digit.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from kanab.choices import Alternative
from kanab.errors import AnalysisError
from kanab.stats.gram import Floats

_MOST_STEPS = 500


def t_tail(t: float, df: float, alternative: Alternative = "two-sided") -> float:
    """Return how often |T| (or T, or −T) is at least this large if there is no effect; with infinite df, a normal."""
    square = t * t
    both = (
        math.erfc(abs(t) / math.sqrt(2))
        if math.isinf(df)
        else float(
            scipy.special.betaincc(0.5, df / 2, square / (df + square))
            if square < df
            else scipy.special.betainc(df / 2, 0.5, df / (df + square))
        )
    )
    if alternative == "two-sided":
        return both
    upper = t > 0 if alternative == "greater" else t < 0
    return both / 2 if upper else 1 - both / 2


def t_quantile(probability: float, df: float) -> float:
    """Return the point below which T falls with this probability."""
    return float(scipy.special.stdtrit(df, probability))


def f_tail(f: float, numerator: float, denominator: float) -> float:
    """Return how often F is at least this large if there is no effect."""
    return float(scipy.special.fdtrc(numerator, denominator, f))


def chi2_tail(x: float, df: float) -> float:
    """Return how often χ² is at least this large if there is no effect."""
    return float(scipy.special.chdtrc(df, x))


def satterthwaite_df(variances: NDArray[np.float64], df: NDArray[np.float64]) -> float:
    """Return the degrees of freedom of a sum of estimated variances (Satterthwaite, as in Welch's t).

    Where every variance is 0, these are all the degrees of freedom together.
    """
    spread = float(np.sum(variances**2 / df))
    return float(variances.sum()) ** 2 / spread if spread > 0 else float(df.sum())


def find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the point between two others where a function crosses 0, by Chandrupatla's method (1997)."""
    a, b, f_a, f_b = float(high), float(low), function(high), function(low)
    if 0.0 in (f_a, f_b):
        return a if f_a == 0 else b
    if not ((f_a < 0 < f_b) or (f_b < 0 < f_a)):
        raise AnalysisError("there is no solution between these ends", "Ask for something less extreme.")
    least, part = 1e-18 * max(abs(a), abs(b)), 0.5
    for _ in range(_MOST_STEPS):
        x = a + part * (b - a)
        f_x = function(x)
        if (f_x > 0) == (f_a > 0):
            c, f_c = a, f_a
        else:
            c, b, f_c, f_b = b, a, f_b, f_a
        a, f_a = x, f_x
        best = a if abs(f_a) < abs(f_b) else b
        edge = (1e-14 * abs(best) + least) / abs(b - a)
        if edge > 0.5 or 0.0 in (f_a, f_b):
            break
        across, along = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
        part = 0.5
        if along**2 < across and (1 - along) ** 2 < 1 - across:  # a parabola through the three is steep enough
            part = f_a / (f_b - f_a) * f_c / (f_b - f_c) + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
        part = min(max(part, edge), 1 - edge)
    return best


def check_sides(confidence: float, alternative: str) -> None:
    """Check that the confidence lies in (0, 1) and the alternative is a known one; raises `AnalysisError`."""
    if not (isinstance(confidence, (int, float)) and 0 < confidence < 1):
        raise AnalysisError("the confidence must lie between 0 and 1", "For example 0.95.")
    if alternative not in get_args(Alternative):
        raise AnalysisError("unknown alternative", "Use 'two-sided', 'greater' or 'less'.")


def t_interval(
    estimate: float, se: float, df: float, confidence: float, alternative: Alternative = "two-sided"
) -> tuple[float, float]:
    """Return the interval that agrees with the test: two-sided, or open on one side."""
    if alternative == "two-sided":
        half = t_quantile((1 + confidence) / 2, df) * se
        return estimate - half, estimate + half
    reach = t_quantile(confidence, df) * se
    infinite = float("inf")
    return (estimate - reach, infinite) if alternative == "greater" else (-infinite, estimate + reach)


# ── the joint t ────────────────────────────────────────────────────────────────────────────────


_NORMAL = 1e7
"""From so many degrees of freedom on, t is taken as normal: the difference is below 1e-8."""

_SMALL = 1e-7
"""Below this the quadrature's bulk says little about the tail, and Bonferroni's bound is as good."""

_PRIMES = np.sqrt([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71])
_SHIFTS, _POINTS = 8, 2048


def joint_tail(t: float, df: float, correlations: Floats, alternative: Alternative = "two-sided") -> float:
    """Return how often at least one of the statistics is this far out if there is no effect at all."""
    single = t_tail(t, df, alternative)
    m = len(correlations)
    if m == 1:
        return single
    reach = -t if alternative == "less" else t
    if alternative == "two-sided" and t <= 0:
        return 1.0
    if single * m < _SMALL:
        return min(1.0, single * m)
    loadings = one_factor(correlations)
    two_sided = alternative == "two-sided"
    if loadings is not None:
        beyond = _by_quadrature(reach, df, loadings, two_sided)
    else:
        low = np.full(m, -reach if two_sided else -np.inf)
        beyond = 1 - box_probability(low, np.full(m, reach), correlations, df)
    return min(1.0, single * m, max(single, beyond))


def joint_quantile(confidence: float, df: float, correlations: Floats, alternative: Alternative = "two-sided") -> float:
    """Return how far out a statistic must be so that any of them gets there with probability 1 − confidence."""
    alpha, m = 1 - confidence, len(correlations)
    sides = 2 if alternative == "two-sided" else 1
    single = -t_quantile(alpha / sides, df)
    if m == 1:
        return single
    side: Alternative = "two-sided" if sides == 2 else "greater"
    bonferroni = -t_quantile(alpha / (sides * m), df) * (1 + 1e-12)  # beyond it, whatever rounding does
    # on the scale of logarithms tails are nearly straight, and found in few steps
    return find_root(lambda t: math.log(joint_tail(t, df, correlations, side) / alpha), single, bonferroni)


def correlations_of(covariance: Floats) -> Floats:
    """Return the correlations that belong to a covariance."""
    deviation = np.sqrt(np.diag(covariance))
    return np.asarray(covariance / np.outer(deviation, deviation))


def one_factor(correlations: Floats) -> Floats | None:
    """Return loadings λ with ρ_ij = λ_i λ_j, if there are any: then one common part explains everything."""
    m = len(correlations)
    if m == 2:
        rho = float(correlations[0, 1])
        return np.full(2, math.sqrt(rho)) if 0 <= rho < 1 else None
    first, second, third = (float(correlations[i, j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    if not (first > 0 and second > 0 and third > 0):
        return None
    leading = math.sqrt(first * second / third)
    loadings = np.concatenate([[leading], correlations[0, 1:] / leading])
    fitted = np.outer(loadings, loadings)
    np.fill_diagonal(fitted, 1.0)
    fits = np.all(loadings < 1) and np.allclose(fitted, correlations, rtol=0, atol=1e-12)
    return loadings if fits else None


def _by_quadrature(reach: float, df: float, loadings: Floats, two_sided: bool) -> float:
    """Return 1 − E Π P(|T_j| ≤ reach | common part, scale)."""
    shift, unit, weights, scale_weights = _grid(df, tuple(loadings.tolist()), two_sided)
    limit = reach * unit
    beyond = scipy.special.ndtr(shift - limit)
    if two_sided:
        beyond += scipy.special.ndtr(-shift - limit)
    any_beyond = 1 - np.prod(1 - np.minimum(beyond, 1.0), axis=1)
    return float(scale_weights @ (any_beyond @ weights))


@lru_cache(maxsize=8)
def _grid(df: float, loadings: tuple[float, ...], two_sided: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what the quadrature needs at every reach; cached, because a limit is looked for at several."""
    load = np.array(loadings)
    unshared = np.sqrt(1 - load**2)
    pieces = 3 if unshared.min() > 0.2 else 12  # the common part decides nearly alone: steep steps
    z, weights = _gauss(0.0, 9.0, 20, pieces)
    if not two_sided:  # two-sided, both halves of the common part are alike
        z, weights = np.concatenate([-z, z]), np.concatenate([weights, weights]) / 2
    weights = weights * np.exp(-(z**2) / 2) * math.sqrt(2 / math.pi)
    scales, scale_weights = _scales(df)
    return load[:, None] * z / unshared[:, None], scales[:, None, None] / unshared[:, None], weights, scale_weights


def _scales(df: float) -> tuple[Floats, Floats]:
    """Return points and weights of s = χ/√df, the estimated error over the true one."""
    if df >= _NORMAL:
        return np.ones(1), np.ones(1)
    low, high = (math.sqrt(2 * scipy.special.gammaincinv(df / 2, p) / df) for p in (1e-13, 1 - 1e-13))
    s, weights = _gauss(low, high, 24, 1 if df > 50 else 3)
    log = (df - 1) * np.log(s) - df * (s**2 - 1) / 2
    weights = weights * np.exp(log)
    return s, weights / weights.sum()


@cache
def legendre(order: int) -> tuple[Floats, Floats]:
    """Return points and weights of Gauss and Legendre's rule on −1 … 1."""
    return np.polynomial.legendre.leggauss(order)


def _gauss(low: float, high: float, order: int, pieces: int) -> tuple[Floats, Floats]:
    """Return Gauss and Legendre's rule on several pieces in a row."""
    x, w = legendre(order)
    edges = np.linspace(low, high, pieces + 1)
    half = np.diff(edges)[:, None] / 2
    centre = (edges[:-1] + edges[1:])[:, None] / 2
    return np.ravel(centre + half * x), np.ravel(half * w)


def box_probability(low: Floats, high: Floats, correlations: Floats, df: float = math.inf) -> float:
    """Return how often a joint t (or, by default, a normal) lies between two corners; raises what `lattice` raises."""
    order = np.argsort(scipy.special.ndtr(high) - scipy.special.ndtr(low), kind="stable")  # the narrowest side first
    low, high = low[order], high[order]
    root = _root(correlations[np.ix_(order, order)])
    points = lattice(len(low))
    scale = np.ones(len(points))
    if df < _NORMAL:
        scale = np.sqrt(2 * scipy.special.gammaincinv(df / 2, points[:, 0]) / df)
    inside = np.ones(len(points))
    y = np.zeros((len(points), len(low)))
    for j in range(len(low)):
        moved = y[:, :j] @ root[j, :j]
        below = scipy.special.ndtr((low[j] * scale - moved) / root[j, j])
        width = scipy.special.ndtr((high[j] * scale - moved) / root[j, j]) - below
        inside *= width
        y[:, j] = scipy.special.ndtri(np.clip(below + points[:, j + 1] * width, 1e-300, 1 - 1e-16))
    return float(np.mean(inside))


@cache
def lattice(dimensions: int) -> Floats:
    """Return points spread evenly over a cube of one dimension more (Richtmyer's, shifted), always the same."""
    if dimensions + 1 > len(_PRIMES):
        raise AnalysisError("there are too many comparisons for their joint distribution", "Use Holm's correction.")
    rng = np.random.default_rng(2025)
    steps = np.arange(1, _POINTS + 1)[:, None] * _PRIMES[: dimensions + 1]
    shifted = [np.abs(2 * np.mod(steps + rng.random(dimensions + 1), 1) - 1) for _ in range(_SHIFTS)]
    points: Floats = np.clip(np.concatenate(shifted), 1e-12, 1 - 1e-12)
    points.setflags(write=False)
    return points


def _root(covariance: Floats) -> Floats:
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        raise AnalysisError(
            "one of the comparisons follows from the others", "Leave it out: it has no test of its own."
        ) from None
