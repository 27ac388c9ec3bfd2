"""Many tests at once: corrected p-values, and intervals that agree with them as far as theory goes.

Holm's steps have no two-sided intervals of their own that say more than Bonferroni's, so theirs are these, and one that
holds 0 although p is small says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Correction
from kanab.errors import AnalysisError
from kanab.stats.effect import Effect
from kanab.stats.gram import Floats

SEGMENT_CORRECTION: Correction = "bh"
"""Segments are searched for discoveries that a later test will confirm, so the false ones' share is bounded."""


@check_arguments()
def correct(p_values: Sequence[float | None], correction: Correction = "holm") -> list[float | None]:
    """Return corrected p-values, in the given order; None (not testable) stays out of the family.

    "bonferroni" and "holm" bound the chance of any false alarm however tests depend on each other; "sidak"
    does for tests that are independent or rise and fall together. "bh" (Benjamini–Hochberg) and "by"
    (Benjamini–Yekutieli, any dependence) bound the share of false ones among alarms.
    Raises `AnalysisError` for an unknown correction and for what is not a p-value.

    >>> correct([0.01, 0.04, None, 0.03], "holm")
    [0.03, 0.06, None, 0.06]
    """
    if correction not in get_args(Correction):
        raise AnalysisError("unknown correction", f"Use one of: {', '.join(get_args(Correction))}.")
    if not all(p is None or isinstance(p, Real) for p in p_values):
        raise AnalysisError("p-values must be numbers", "Use None where a test could not be done.")
    tested = [place for place, p in enumerate(p_values) if p is not None and not math.isnan(p)]
    p = np.array([p_values[place] for place in tested], dtype=np.float64)
    if np.any((p < 0) | (p > 1)):
        raise AnalysisError("a p-value lies outside 0 … 1", "Give p-values, not statistics.")
    adjusted = corrected_array(p, correction) if len(p) else p
    result: list[float | None] = [None] * len(p_values)
    for place, value in zip(tested, adjusted.tolist(), strict=True):
        result[place] = value
    return result


def corrected_array(p: Floats, correction: Correction) -> Floats:
    """Return the corrected p-values of one family as an array: all are tested, none beyond 1."""
    return np.minimum(1.0, _steps(p, correction))


def _steps(p: Floats, correction: Correction) -> Floats:
    m = len(p)
    if correction == "none":
        return p
    if correction == "bonferroni":
        return p * m
    if correction == "sidak":  # how often the smallest p of so many independent tests is this small
        with np.errstate(divide="ignore"):
            return np.asarray(-np.expm1(m * np.log1p(-p)))
    order = np.argsort(p, kind="stable")
    rank = np.arange(1, m + 1)
    if correction == "holm":
        stepped = np.maximum.accumulate(p[order] * (m - rank + 1))
    else:
        weights = m / rank * (np.sum(1 / rank) if correction == "by" else 1.0)
        stepped = np.minimum.accumulate((p[order] * weights)[::-1])[::-1]
    result = np.empty(m)
    result[order] = stepped
    return result


@dataclass(frozen=True)
class Simultaneous:
    """One effect of a family: its corrected p-value, and an interval at the level that goes with it.

    ``level`` is the confidence of this interval by itself; a relative interval of the same kind has
    it too. ``agrees``: the interval leaves out 0 exactly if the corrected p is below α. ``meaning``
    says what the intervals promise together. Without a level there is no interval: not testable, or
    not selected.
    """

    effect: Effect
    correction: str
    p_adjusted: float | None
    level: float | None
    interval: tuple[float, float] | None
    agrees: bool
    meaning: str


ALL_TOGETHER = "all intervals hold their effects together, with this confidence"
_SELECTED = "of the intervals of selected effects, the expected share that miss is at most 1 − confidence"
_EACH = "each interval by itself; nothing is promised for all of them"
_STEPS = "Bonferroni's intervals: all hold together, but one may contain 0 although its corrected p is small"


@check_arguments()
def simultaneous_intervals(effects: Sequence[Effect], correction: Correction = "holm") -> tuple[Simultaneous, ...]:
    """Return the effects of one family with corrected p-values and intervals to go with them.

    A family has one confidence and one alternative; raises `AnalysisError` otherwise. Effects that
    cannot be tested stay out of it.
    """
    if not effects:
        raise AnalysisError("a family needs at least one effect", "Give a list of effects.")
    if len({(effect.confidence, effect.alternative) for effect in effects}) > 1:
        raise AnalysisError("a family has one confidence and one alternative", "Make its effects with the same ones.")
    adjusted = correct([effect.p for effect in effects], correction)
    tested = [p for p in adjusted if p is not None]
    alpha = 1 - effects[0].confidence
    chosen = sum(p < alpha for p in tested)
    level = _level(correction, alpha, len(tested), chosen)
    meaning = {"none": _EACH, "holm": _STEPS, "bh": _SELECTED, "by": _SELECTED}.get(correction, ALL_TOGETHER)
    selective = correction in ("bh", "by")
    intervals = []
    for effect, p in zip(effects, adjusted, strict=True):
        confident = None if p is None or (selective and p >= alpha) else level
        interval = None if confident is None else effect.interval_at(1 - confident)
        agrees = interval is None or p is None or excludes(interval) == (p < alpha)
        intervals.append(Simultaneous(effect, correction, p, confident, interval, agrees, meaning))
    return tuple(intervals)


def _level(correction: Correction, alpha: float, tests: int, chosen: int) -> float | None:
    """Return the confidence of each single interval."""
    if not tests:
        return None
    if correction == "none":
        return 1 - alpha
    if correction == "sidak":
        return math.exp(math.log1p(-alpha) / tests)
    if correction in ("bh", "by"):
        harmonic = math.fsum(1 / i for i in range(1, tests + 1)) if correction == "by" else 1.0
        return 1 - chosen * alpha / (tests * harmonic) if chosen else None
    return 1 - alpha / tests


def excludes(interval: tuple[float, float], value: float = 0.0) -> bool:
    """Return whether the value lies outside the interval."""
    return not interval[0] <= value <= interval[1]
