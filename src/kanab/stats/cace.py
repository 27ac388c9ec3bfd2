"""The effect of what people received, where it is not what they were assigned to (CACE, instrumental variables).

Assignment moves the mean of the metric and that of what was received; if it acts by nothing else, their quotient is the
mean effect on those who received it because of their arm (Wald, Bloom, Imbens and Angrist).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Slopes, Variance
from kanab.errors import AnalysisError, flag
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.distributions import check_sides, satterthwaite_df, t_interval, t_quantile
from kanab.stats.effect import ArmMeans, contrast_freedom, difference_in_means
from kanab.stats.gram import Floats, arm_cross, arm_squares
from kanab.stats.noise_variance import (
    TOO_NOISY,
    arm_products_noise,
    combined_noise,
    floats,
    freedom_with_noise,
    measured,
    variances_above_noise,
)
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Level, label
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
from kanab.tally.noise import AddedNoise
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
    who did. With ``covariates`` both differences are those of adjusted means, and ``means`` are
    None. A ``dose`` is not 0/1.
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
    covariates: tuple[str, ...] = ()
    dose: bool = False

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
    noise: tuple[Fraction, Fraction, Fraction] = (Fraction(0), Fraction(0), Fraction(0))
    """The variances and the covariance of what was added to both means on purpose, in the same order."""

    def variance(self, effect: Fraction) -> Fraction:
        """Return the variance of the mean of y − effect · d."""
        return self.yy - 2 * effect * self.yd + effect**2 * self.dd

    def noise_at(self, effect: Fraction) -> float:
        """Return the part of noise in it, which comes on top."""
        yy, yd, dd = self.noise
        return float(yy - 2 * effect * yd + effect**2 * dd)

    @property
    def spreads(self) -> tuple[Fraction, Fraction, Fraction]:
        """The variances and the covariance of both means, noise and all."""
        yy, yd, dd = self.noise
        return self.yy + yy, self.yd + yd, self.dd + dd


Together = tuple[ArmMeans, ArmMeans, ArmMeans]
"""Adjusted means of a metric, of what was received, and of the sum of both."""


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
    """
    check_sides(confidence, "two-sided")
    cross = _products(tally, metric, received)
    arms = tally.experiment.levels
    compared = difference_in_means(tally, metric, arm=arm, control=control)  # which also says what is wrong with arms
    pair = compared.arm, compared.control
    after, before = (_arm(tally, cross, arms.index(level)) for level in pair)
    y, d = after.y - before.y, after.d - before.d
    if not d:
        raise _alike(received)
    effect = y / d
    parts = np.array([float(side.variance(effect)) for side in (after, before)])
    freedom = np.array([side.people - 1.0 for side in (after, before)])
    known = 0.0
    if tally.noise is not None:
        known = after.noise_at(effect) + before.noise_at(effect)
        d_metric, y_metric = (tally.moments_of(name).metric for name in cross.pair)
        share = np.full(len(arms), -float(effect) * y_metric.scale / d_metric.scale, dtype=object)
        of_both = combined_noise(tally.keep(), cross.pair, (share, share**0))
        squares = floats(of_both.squares[tally.experiment.name,]) / y_metric.scale**4
        freedom = _freedom_with_noise(received, parts, (after, before), [squares[arms.index(level)] for level in pair])
    se = math.sqrt(parts.sum() + known) / abs(float(d))
    df = contrast_freedom(parts, freedom, known) if se else None
    yy, yd, spread = (mine + theirs for mine, theirs in zip(after.spreads, before.spreads, strict=True))
    answer = ReceivedEffect(
        metric, received, compared.arm, compared.control, (before.people, after.people),
        (float(before.d), float(after.d)), float(d), float(d**2 / spread) if spread else math.inf, float(y),
        float(effect), se, df, None if df is None else t_interval(float(effect), se, df, confidence), None, confidence,
        tally.noise is None and not before.d and not before.dd, dose=not tally.moments_of(received).metric.binary,
    )  # fmt: skip
    if not answer.dose:
        without = (before.y - before.with_d) - (after.y - after.with_d)
        answer = replace(answer, means=(float(without / d), float((after.with_d - before.with_d) / d)))
    own = np.array([float(after.yy), float(before.yy)])
    if not own.any():
        return answer
    t = t_quantile((1 + confidence) / 2, contrast_freedom(own, freedom, known))
    return replace(answer, ranges=_fieller(y, d, (yy, yd, spread), Fraction(t) ** 2))


def _freedom_with_noise(received: str, parts: Floats, sides: Sequence[_ArmMoments], squares: Sequence[float]) -> Floats:
    """Return the degrees of freedom of variances whose squares carry noise; raises `AnalysisError` if it hides them."""
    people = np.array([float(side.people) for side in sides])
    rss = parts * people * (people - 1)
    df = freedom_with_noise(rss, people - 1, np.array(squares))
    if not (variances_above_noise(rss, df).all() and all(side.yy > 0 for side in sides)):
        raise AnalysisError(f"the effect of receiving {received!r} is {TOO_NOISY}", "Wait for more people.")
    return df


def means_together(
    tables: Sequence[Tally], metric: str, received: str, *, variance: Variance, numbers: Sequence[str], slopes: Slopes
) -> Together:
    """Return the adjusted means of the metric, of what was received, and of their sum: the same for every arm."""
    sums = [_with_sum(table, metric, received, numbers) if table.moments else table for table in tables]
    y, d, both = (
        adjusted_means(sums[0], name, variance=variance)
        if len(sums) == 1 and len(numbers) == 0 and slopes == "own"
        else additive_means(sums, name, variance=variance, numbers=numbers, slopes=slopes)
        for name in (metric, received, _SUM)
    )
    return y, d, both


def received_from_means(plain: ReceivedEffect, table: Tally, means: Together) -> ReceivedEffect:
    """Return the effect of receiving in one arm from adjusted means of all, beside the plain one."""
    y, d, _ = means
    metric, received, confidence = plain.metric, plain.received, plain.confidence
    weights = np.array([{plain.arm: 1.0, plain.control: -1.0}.get(level, 0.0) for level in y.arms])
    d_scale, y_scale = (table.moments_of(name).metric.scale for name in (received, metric))
    unit = d_scale / y_scale  # what d counts in the sum
    if any(np.any(each.too_noisy[weights != 0]) for each in (y, means[2])):
        raise AnalysisError(f"the adjusted effect of receiving {received!r} is {TOO_NOISY}", "Wait for more people.")
    (dy, drawn_y), (dd, drawn_d), (_, drawn_both) = (each.combined(weights) for each in means)
    if abs(dd) <= _NOTHING * float(np.abs(d.means).max()):
        raise _alike(received)
    # The variance of the sum tells how both move together.
    yy, sd, summed = (weights**2 * each.sample for each in means)
    together = (summed - yy - sd * unit**2) / (2 * unit)
    drawn = (drawn_both - drawn_y - drawn_d * unit**2) / (2 * unit)
    effect = dy / dd
    parts = np.maximum(yy - 2 * effect * together + effect**2 * sd, 0.0)
    wide = max(0.0, float(parts.sum()) + drawn_y - 2 * effect * drawn + effect**2 * drawn_d)
    se = math.sqrt(wide) / abs(dd)
    taking_part = weights != 0
    df = satterthwaite_df(parts[taking_part], y.df[taking_part]) if se else None
    vary = [float(yy.sum()) + drawn_y, float(together.sum()) + drawn, float(sd.sum()) + drawn_d]
    t = t_quantile((1 + confidence) / 2, satterthwaite_df(yy[taking_part], y.df[taking_part]))
    spreads = (Fraction(vary[0]), Fraction(vary[1]), Fraction(vary[2]))
    return replace(
        plain, difference=dd, f=dd**2 / vary[2] if vary[2] else math.inf, assignment=dy, estimate=effect, se=se, df=df,
        interval=None if df is None else t_interval(effect, se, df, confidence), means=None, covariates=y.covariates,
        ranges=_fieller(Fraction(dy), Fraction(dd), spreads, Fraction(t) ** 2) if vary[0] else None,
    )  # fmt: skip


_NOTHING = 1e-12
"""A difference of adjusted means that is smaller than this share of them is rounding."""

_SUM = "the metric and what was received"


def _with_sum(tally: Tally, metric: str, received: str, numbers: Sequence[str]) -> Tally:
    """Return both metrics, their sum in steps of both, class by class, and the numbers with the products of all."""
    cross = _products(tally, metric, received)
    d, y = (tally.moments_of(name) for name in cross.pair)
    if np.any(y.counts != d.counts) or np.any(marginal(y.counts, tally.axes, cross.by) != cross.counts):
        raise AnalysisError(
            f"some people have only one of {metric!r} and {received!r}, so that nothing is adjusted for",
            "Count both with missing = 'zero', or read the effect without adjustment.",
        )
    squares = cross.squares[1] + 2 * cross.products + cross.squares[0]
    total = Moments(Metric(_SUM, y.metric.scale), y.counts, y.sums + d.sums, {cross.by: squares})
    moments = (y, d, total, *(part for part in tally.moments if part.metric.name in numbers))
    kept = [other for other in tally.crosses if {*other.pair} <= {*numbers, metric, received}]
    crosses = (*kept, *_sum_products(tally, cross, squares, numbers))
    return replace(tally, moments=moments, crosses=crosses, noise=_sum_noise(tally, cross, numbers))


def _sum_noise(tally: Tally, cross: Cross, numbers: Sequence[str]) -> AddedNoise | None:
    """Return the noise with that of the sum, and of its products with numbers."""
    if tally.noise is None:
        return None
    once = np.ones(len(tally.experiment.levels), dtype=object)
    products = dict(tally.noise.products)
    for number in numbers:
        parts = [arm_products_noise(tally, number, name) for name in cross.pair]
        if parts[0] is not None and parts[1] is not None:
            products[(number, _SUM), cross.by] = parts[0] + parts[1]
    metrics = {**tally.noise.metrics, _SUM: combined_noise(tally, cross.pair, (once, once))}
    return replace(tally.noise, metrics=metrics, products=products)


def _sum_products(tally: Tally, cross: Cross, squares: Cells, numbers: Sequence[str]) -> list[Cross]:
    """Return the products of each number with the sum: those with its two parts, added."""
    made = []
    for number in numbers:
        parts = [arm_cross(tally, number, name) for name in cross.pair]
        if parts[0] is not None and parts[1] is not None:
            d, y = parts[0], parts[1]
            both = (d.sums[0], d.sums[1] + y.sums[1])
            made.append(Cross((number, _SUM), d.by, d.counts, both, (d.squares[0], squares), d.products + y.products))
    return made


def _alike(received: str) -> AnalysisError:
    return AnalysisError(
        f"both arms have the same mean of {received!r}, so nothing can be divided by their difference",
        "Ask for the effect of assignment alone.",
    )


def _fieller(y: Fraction, d: Fraction, spreads: tuple[Fraction, Fraction, Fraction], t2: Fraction) -> tuple[Range, ...]:
    """Return all effects b for which a test of y − b · d does not reject: a b² − 2 h b + c ≤ 0.

    ``spreads`` are the variance of y, the covariance, and the variance of d.
    """
    yy, yd, dd = spreads
    a, h, c = d**2 - t2 * dd, y * d - t2 * yd, y**2 - t2 * yy
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
    noise = (Fraction(0), Fraction(0), Fraction(0)) if tally.noise is None else _arm_noise(tally, cross, place)
    return _ArmMoments(
        n, Fraction(y, n * y_scale), Fraction(d, n * d_scale),
        Fraction(n * y2 - y * y, of_mean * y_scale**2),
        Fraction(n * both - y * d, of_mean * y_scale * d_scale),
        Fraction(n * d2 - d * d, of_mean * d_scale**2),
        Fraction(both, n * y_scale * d_scale),
        noise,
    )  # fmt: skip


def _arm_noise(tally: Tally, cross: Cross, place: int) -> tuple[Fraction, Fraction, Fraction]:
    """Return the noise of an arm's two means and their covariance: they share the noise in people.

    What noise takes from the spread within the arm, one part in n − 1 of it, is given back.
    """
    arms = tally.keep()
    assert arms.noise is not None
    received, metric = cross.pair
    parts = [measured(arms, name, arm_squares(arms, name)) for name in (metric, received)]
    y, d = (float(part.t[place] / part.n[place]) for part in parts)
    n, people = float(parts[0].n[place]), float(parts[0].n_noise[place])
    yy, dd = (float(part.t_noise[place]) for part in parts)
    y_scale, d_scale = (tally.moments_of(name).metric.scale for name in (metric, received))
    unit = n * (n - 1)
    return (
        Fraction((yy + y**2 * people) / unit / y_scale**2),
        Fraction(y * d * people / unit / y_scale / d_scale),
        Fraction((dd + d**2 * people) / unit / d_scale**2),
    )


def _products(tally: Tally, metric: str, received: str) -> Cross:
    """Return the products of the pair per arm, what was received first."""
    for name in (metric, received):
        tally.moments_of(name)
    cross = arm_cross(tally, received, metric)
    if cross is not None:
        return cross
    raise AnalysisError(
        f"no products of {metric!r} and {received!r} were kept, so the effect of receiving has no error",
        f'Count again with {flag("--treatment-received", received)}, or received = "{received}" in the plan.',
    )
