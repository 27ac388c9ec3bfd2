"""Intervals for many effects at once that agree with their corrected p-values, as far as theory goes.

Bonferroni's and Šidák's cover all effects together and agree with their p-values. After a selection
by Benjamini and Hochberg (or Yekutieli), the selected ones get intervals whose expected share of
misses is bounded (false coverage rate), and these agree too. Holm's and Hochberg's steps have no
two-sided intervals of their own that say more than Bonferroni's, so theirs are Bonferroni's, and one
that holds 0 although p is small says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kanab.errors import AnalysisError
from kanab.stats.distributions import t_interval
from kanab.stats.effect import Effect
from kanab.stats.multiplicity import Correction, correct


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


_ALL = "all intervals hold their effects together, with this confidence"
_SELECTED = "of the intervals of selected effects, the expected share that miss is at most 1 − confidence"
_EACH = "each interval by itself; nothing is promised for all of them"
_STEPS = "Bonferroni's intervals: all hold together, but one may contain 0 although its corrected p is small"


def simultaneous_intervals(effects: Sequence[Effect], correction: Correction = "holm") -> tuple[Simultaneous, ...]:
    """The effects of one family with corrected p-values and intervals to go with them.

    A family has one confidence and one alternative. Effects that cannot be tested stay out of it.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.adjust import adjusted_effect
    >>> from kanab.stats.effect import difference_in_means
    >>> both = simultaneous_intervals([difference_in_means(eighteen()), adjusted_effect(eighteen())], "bonferroni")
    >>> [(one.level, round(one.p_adjusted, 4)) for one in both]
    [(0.975, 1.0), (0.975, 1.0)]
    """
    confidence = family_confidence(effects)
    adjusted = correct([one.p for one in effects], correction)
    tested = [p for p in adjusted if p is not None]
    alpha = 1 - confidence
    chosen = sum(p <= alpha for p in tested)
    level = _level(correction, alpha, len(tested), chosen)
    meaning = {"none": _EACH, "bonferroni": _ALL, "sidak": _ALL, "bh": _SELECTED, "by": _SELECTED}.get(
        correction, _STEPS
    )
    selective = correction in ("bh", "by")
    found = []
    for effect, p in zip(effects, adjusted, strict=True):
        own = None if p is None or (selective and p > alpha) else level
        interval = None if own is None else interval_at(effect, own)
        agrees = interval is None or p is None or excludes(interval) == (p <= alpha)
        found.append(Simultaneous(effect, correction, p, own, interval, agrees, meaning))
    return tuple(found)


def family_confidence(effects: Sequence[Effect]) -> float:
    """The one confidence of a family, or an error."""
    if not effects:
        raise AnalysisError("a family needs at least one effect", "Give a list of effects.")
    if len({(one.confidence, one.alternative) for one in effects}) > 1:
        raise AnalysisError("a family has one confidence and one alternative", "Make its effects with the same ones.")
    return effects[0].confidence


def _level(correction: Correction, alpha: float, tests: int, chosen: int) -> float | None:
    """The confidence of each single interval."""
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


def interval_at(effect: Effect, level: float) -> tuple[float, float]:
    """The effect's interval at another confidence."""
    assert effect.df is not None
    return t_interval(effect.estimate, effect.se_population, effect.df, level, effect.alternative)


def excludes(interval: tuple[float, float], value: float = 0.0) -> bool:
    """Does the value lie outside?"""
    return not interval[0] < value < interval[1]


@dataclass(frozen=True)
class HolmRegion:
    """What Holm's steps say about one effect, together with all the others.

    ``interval`` is None where nothing more can be said than that the effect is not 0 (two-sided).
    """

    effect: Effect
    p_adjusted: float | None
    rejected: bool
    interval: tuple[float, float] | None
    without_zero: bool


def holm_regions(effects: Sequence[Effect]) -> tuple[HolmRegion, ...]:
    """Regions that agree with Holm's p-values exactly and hold together (Strassburger–Bretz, Guilbaud).

    Of m effects, r are rejected. Those not rejected have intervals at 1 − α/(m − r), narrower than
    Bonferroni's. The rejected ones are known to lie beyond 0 and nothing more, unless all are
    rejected: then they also lie in Bonferroni's intervals. Compatible, and often not informative:
    that is as far as theory goes.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import difference_in_means
    >>> holm_regions([difference_in_means(eighteen())])[0].interval == difference_in_means(eighteen()).interval
    True
    """
    alpha = 1 - family_confidence(effects)
    adjusted = correct([one.p for one in effects], "holm")
    rejected = [p is not None and p <= alpha for p in adjusted]
    tests = sum(p is not None for p in adjusted)
    open_ends = tests - sum(rejected)
    found = []
    for effect, p, gone in zip(effects, adjusted, rejected, strict=True):
        interval = None
        if p is not None and not gone:
            interval = interval_at(effect, 1 - alpha / open_ends)
        elif p is not None:
            whole = (-math.inf, math.inf) if open_ends else interval_at(effect, 1 - alpha / tests)
            interval = _beyond_zero(effect, whole)
        found.append(HolmRegion(effect, p, gone, interval, gone and effect.alternative == "two-sided"))
    return tuple(found)


def _beyond_zero(effect: Effect, interval: tuple[float, float]) -> tuple[float, float] | None:
    """The part of an interval that a rejection leaves; two-sided, 0 alone is taken out of it."""
    low, high = interval
    if effect.alternative == "greater":
        return max(0.0, low), high
    if effect.alternative == "less":
        return low, min(0.0, high)
    return None if math.isinf(low) else (low, high)
