"""Many tests at once: p-values that keep the family's false alarms under control."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Literal, get_args

import numpy as np

from kanab.errors import AnalysisError
from kanab.stats.gram import Floats

Correction = Literal["none", "bonferroni", "sidak", "holm", "hochberg", "bh", "by"]


def correct(p_values: Sequence[float | None], method: Correction = "holm") -> list[float | None]:
    """Adjusted p-values, in the given order; None (not testable) stays out of the family.

    "bonferroni", "sidak", "holm" and "hochberg" bound the chance of any false alarm; "bh"
    (Benjamini–Hochberg) and "by" (Benjamini–Yekutieli) the share of false ones among alarms.

    >>> correct([0.01, 0.04, None, 0.03], "holm")
    [0.03, 0.06, None, 0.06]
    """
    if method not in get_args(Correction):
        raise AnalysisError("unknown correction", f"Use one of: {', '.join(get_args(Correction))}.")
    if not all(p is None or isinstance(p, Real) for p in p_values):
        raise AnalysisError("p-values must be numbers", "Use None where a test could not be done.")
    tested = [place for place, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    p = np.array([p_values[place] for place in tested], dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise AnalysisError("a p-value lies outside 0 … 1", "Give p-values, not statistics.")
    adjusted = adjusted_array(p, method) if len(p) else p
    result: list[float | None] = [None] * len(p_values)
    for place, value in zip(tested, adjusted.tolist(), strict=True):
        result[place] = value
    return result


def adjusted_array(p: Floats, method: Correction) -> Floats:
    """Adjusted p-values of one family as an array: all are tested, none beyond 1."""
    return np.minimum(1.0, _steps(p, method))


def _steps(p: Floats, method: Correction) -> Floats:
    m = len(p)
    if method == "none":
        return p
    if method == "bonferroni":
        return p * m
    if method == "sidak":
        with np.errstate(divide="ignore"):
            return np.asarray(-np.expm1(m * np.log1p(-p)))
    order = np.argsort(p, kind="stable")
    rank = np.arange(1, m + 1)
    if method == "holm":
        stepped = np.maximum.accumulate(p[order] * (m - rank + 1))
    else:
        weights = {"hochberg": m - rank + 1.0, "bh": m / rank, "by": m / rank * np.sum(1 / rank)}[method]
        stepped = np.minimum.accumulate((p[order] * weights)[::-1])[::-1]
    result = np.empty(m)
    result[order] = stepped
    return result
