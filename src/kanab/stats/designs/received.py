"""The effect of what people received, where it is not what they were assigned to (CACE, instrumental variables).

Assignment moves two means: that of the metric, and that of what was received. If assignment does nothing but by what is
received, and keeps nobody from it, their quotient is the mean effect on those who received it because of their
arm (Wald, Bloom, Imbens and Angrist). Counts, sums, squares and products per arm are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError
from kanab.stats.distributions import check_sides, satterthwaite_df, t_interval, t_quantile
from kanab.stats.effect import difference_in_means
from kanab.tally.factor import Level, label
from kanab.tally.moments import Cross
from kanab.tally.tally import Tally

WEAK_BELOW = 10.0
"""With a smaller F, assignment moves what is received so little that the delta method's interval misleads."""

Range = tuple[float, float]


@dataclass(frozen=True)
class ReceivedEffect:
    """The effect of receiving, on those who received because of their arm; per unit of a dose that is not 0/1.

    ``people``, ``shares`` (the means of what was received) and ``means`` are the control's and the arm's. ``means``
    are of those who received because of their arm, without and with it; None for doses. ``assignment`` is the
    effect of being assigned. ``ranges`` is Fieller's confidence set: an interval, two rays, a ray or the whole line;
    it holds 0 exactly where Welch's test of assignment does not reject. ``interval`` is the delta method's. Each is
    None where nothing varies. ``one_sided`` says that nobody of the control received: then it is the effect on all
    who did.
    """

    metric: str
    received: str
    arm: Level
    control: Level
    people: tuple[int, int]
    shares: tuple[float, float]
    difference: float
    f: float
    assignment: float
    estimate: float
    se: float
    df: float | None
    interval: Range | None
    ranges: tuple[Range, ...] | None
    confidence: float
    one_sided: bool
    means: tuple[float, float] | None = None

    @property
    def weak(self) -> bool:
        """Whether assignment hardly moves what is received."""
        return self.f < WEAK_BELOW


@dataclass(frozen=True)
class _ArmMoments:
    """Means of the metric and of what was received in one arm, and the covariance of both means."""

    people: int
    y: Fraction
    d: Fraction
    yy: Fraction
    yd: Fraction
    dd: Fraction
    with_d: Fraction
    """The mean of the metric times what was received."""

    def variance(self, effect: Fraction) -> Fraction:
        """Return the variance of the mean of y − effect · d."""
        return self.yy - 2 * effect * self.yd + effect**2 * self.dd


@check_arguments()
def received_effect(
    tally: Tally,
    metric: str,
    received: str,
    *,
    arm: Any = None,
    control: Any = None,
    confidence: float = 0.95,
) -> ReceivedEffect:
    """Return the effect of receiving: the arms' difference in the metric over their difference in what was received.

    The error is that of y − effect · d in each arm, as two-stage least squares on rows has it (robust, HC2). Raises
    `AnalysisError` where products were not kept, or the arms received alike.

    >>> from kanab.counting.columns import count_columns
    >>> people = {
    ...     "arm": ["A"] * 6 + ["B"] * 6,
    ...     "opened": [0] * 6 + [1, 1, 1, 0, 0, 0],
    ...     "spend": [1, 2, 3, 4, 5, 3, 6, 7, 8, 2, 3, 4],
    ... }
    >>> shop = count_columns(people, arm="arm", metrics=["spend", "opened"], products=[("opened", "spend")])
    >>> effect = received_effect(shop, "spend", "opened")
    >>> effect.assignment, effect.difference, effect.estimate, effect.means
    (2.0, 0.5, 4.0, (3.0, 7.0))
    """
    check_sides(confidence, "two-sided")
    cross = _products(tally, metric, received)
    arms = tally.experiment.levels
    compared = difference_in_means(tally, metric, arm=arm, control=control)  # which also says what is wrong with arms
    after, before = (_arm(tally, cross, arms.index(level)) for level in (compared.arm, compared.control))
    y, d = after.y - before.y, after.d - before.d
    if not d:
        raise AnalysisError(
            f"both arms have the same mean of {received!r}, so nothing can be divided by their difference",
            "Ask for the effect of assignment alone.",
        )
    effect = y / d
    parts = np.array([float(side.variance(effect)) for side in (after, before)])
    freedom = np.array([side.people - 1.0 for side in (after, before)])
    se = math.sqrt(parts.sum()) / abs(float(d))
    df = satterthwaite_df(parts, freedom) if se else None
    spread = after.dd + before.dd
    answer = ReceivedEffect(
        metric, received, compared.arm, compared.control, (before.people, after.people),
        (float(before.d), float(after.d)), float(d), float(d**2 / spread) if spread else math.inf, float(y),
        float(effect), se, df, None if df is None else t_interval(float(effect), se, df, confidence), None, confidence,
        not before.d and not before.dd,
    )  # fmt: skip
    if tally.moments_of(received).metric.binary:
        without = (before.y - before.with_d) - (after.y - after.with_d)
        answer = replace(answer, means=(float(without / d), float((after.with_d - before.with_d) / d)))
    yy = np.array([float(after.yy), float(before.yy)])
    if not yy.any():
        return answer
    t = t_quantile((1 + confidence) / 2, satterthwaite_df(yy, freedom))
    return replace(answer, ranges=_fieller(y, d, after, before, Fraction(t) ** 2))


def _fieller(y: Fraction, d: Fraction, after: _ArmMoments, before: _ArmMoments, t2: Fraction) -> tuple[Range, ...]:
    """Return all effects b for which a test of y − b · d does not reject: a b² − 2 h b + c ≤ 0."""
    a = d**2 - t2 * (after.dd + before.dd)
    h = y * d - t2 * (after.yd + before.yd)
    c = y**2 - t2 * (after.yy + before.yy)
    under = h**2 - a * c
    if not a:
        if not h:
            return ((-math.inf, math.inf),)
        end = float(c / (2 * h))
        return ((end, math.inf),) if h > 0 else ((-math.inf, end),)
    if under < 0:  # only with a < 0, because the estimate itself is always inside
        return ((-math.inf, math.inf),)
    far = float(h) + math.copysign(math.sqrt(under), float(h))
    low, high = sorted((far / float(a), float(c) / far if far else 0.0))
    return ((low, high),) if a > 0 else ((-math.inf, low), (high, math.inf))


def _arm(tally: Tally, cross: Cross, place: int) -> _ArmMoments:
    """Return one arm in units of the metrics."""
    d_scale, y_scale = (tally.moments_of(name).metric.scale for name in cross.pair)
    n = int(cross.counts[place])
    d, y = (int(sums[place]) for sums in cross.sums)
    d2, y2 = (int(squares[place]) for squares in cross.squares)
    both = int(cross.products[place])
    if n < 2:
        raise AnalysisError(
            f"arm {label(tally.experiment.levels[place])!r} has too few people who have both values",
            "Wait for more people.",
        )
    of_mean = n * n * (n - 1)
    return _ArmMoments(
        n, Fraction(y, n * y_scale), Fraction(d, n * d_scale),
        Fraction(n * y2 - y * y, of_mean * y_scale**2),
        Fraction(n * both - y * d, of_mean * y_scale * d_scale),
        Fraction(n * d2 - d * d, of_mean * d_scale**2),
        Fraction(both, n * y_scale * d_scale),
    )  # fmt: skip


def _products(tally: Tally, metric: str, received: str) -> Cross:
    """Return the products of the pair per arm, what was received first."""
    for name in (metric, received):
        tally.moments_of(name)
    for cross in tally.crosses:
        if cross.by == (tally.experiment.name,) and set(cross.pair) == {metric, received}:
            if cross.pair == (received, metric):
                return cross
            return replace(cross, pair=(received, metric), sums=cross.sums[::-1], squares=cross.squares[::-1])
    raise AnalysisError(
        f"no products of {metric!r} and {received!r} were kept, so the effect of receiving has no error",
        f'Count again with --received {received}, or received = "{received}" in the experiment\'s plan.',
    )
