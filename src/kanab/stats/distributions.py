"""Tail probabilities by survival functions, so that 1e-112 is 1e-112 and not 0; quantiles, intervals and df."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import get_args

import numpy as np
import scipy
from numpy.typing import NDArray

from kanab.choices import Alternative
from kanab.errors import AnalysisError

_MOST_STEPS = 500


def t_tail(t: float, df: float, alternative: Alternative = "two-sided") -> float:
    """Return how often |T| (or T, or −T) is at least this large if there is no effect; with infinite df, a normal.

    >>> t_tail(22.620230766723257, 40593.688228635794)
    1.36445119627...e-112
    """
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

    >>> round(satterthwaite_df(np.array([0.5, 0.25]), np.array([9.0, 4.0])), 3)
    12.96
    """
    spread = float(np.sum(variances**2 / df))
    return float(variances.sum()) ** 2 / spread if spread > 0 else float(df.sum())


def find_root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the point between two others where a function crosses 0, by Chandrupatla's method (1997).

    It is as near as floats can tell. Raises `AnalysisError` where the function has the same sign at both ends.

    >>> round(find_root(lambda x: x * x - 2, 0, 2), 12)
    1.414213562373
    """
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
