"""The relative effect (lift, in percent), with an interval that agrees with the test (Fieller)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kanab.arguments import check_arguments
from kanab.stats.distributions import t_interval, t_quantile
from kanab.stats.effect import ArmMeans, Effect, varying_alike
from kanab.stats.score import Rates, agreed_interval
from kanab.stats.skewness import LEVEL, critical_t


@dataclass(frozen=True)
class Relative:
    """The effect as a share of the control's mean; None where that mean cannot be told from 0."""

    estimate: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class OddsRatio:
    """The odds of an event in the arm over those in the control: infinite without one there, None with none at all."""

    estimate: float | None
    interval: tuple[float, float] | None


@check_arguments()
def odds_ratio(effect: Effect) -> OddsRatio | None:
    """Return the odds ratio of two rates with its score interval, which agrees with p; None for any other effect.

    Rates with noise have none: they may be below 0.
    """
    if not isinstance(effect.rates, Rates):
        return None
    alpha, sides = 1 - effect.confidence, effect.alternative
    interval = effect.rates.odds_ratio_interval(alpha, sides)
    if interval is not None:
        interval = agreed_interval(effect.rates, interval, 1.0, alpha, sides)
    return OddsRatio(effect.rates.odds_ratio, interval)


@check_arguments()
def relative_effect(means: ArmMeans, effect: Effect) -> Relative:
    """Return the effect as a share of the size of the control's mean, whatever its sign: a loss that shrinks is a plus.

    The interval holds every share δ for which a test of mean(arm) = mean(control) + δ · |mean(control)|
    does not reject, by the effect's own rule and degrees of freedom: it excludes 0 exactly when p is below α. Where
    the control's mean cannot be told from 0, no share of it is given, unless no value is negative (the ``shape`` of the
    means says so): then no share below −100 % is in the interval, and it may be open above. Of two rates it is the
    score interval of their ratio, which agrees with p likewise; without an event in the control there is no share.
    """
    if effect.rates is not None:
        alpha, sides = 1 - effect.confidence, effect.alternative
        interval = effect.rates.relative_interval(alpha, sides)
        if interval is None:
            return Relative(None, None)
        return Relative(effect.rates.relative, agreed_interval(effect.rates, interval, 0.0, alpha, sides))
    base = _control(means, effect)[0]
    if base == 0:
        return Relative(None, None)
    estimate = effect.estimate / abs(base)
    if effect.df is None:
        return Relative(estimate, None)
    interval = _shares(means, effect)
    if effect.se_alike is not None and interval is not None:
        arms = np.array([arm in (effect.arm, effect.control) for arm in means.arms])
        alike = replace(effect, se_population=effect.se_alike, df=effect.df_alike, tilted=LEVEL)
        second = _shares(varying_alike(means, arms), alike)
        interval = None if second is None else (min(interval[0], second[0]), max(interval[1], second[1]))
    if interval is None:
        return Relative(None, None)
    low = -math.inf if effect.alternative == "less" else interval[0]
    high = math.inf if effect.alternative == "greater" else interval[1]
    return Relative(estimate, (low, high))


def _shares(means: ArmMeans, effect: Effect) -> tuple[float, float] | None:
    """Return the shares that one test does not reject; None where the control's mean cannot be told from 0."""
    assert effect.df is not None
    tail = (1 + effect.confidence) / 2 if effect.alternative == "two-sided" else effect.confidence
    quantile = t_quantile(tail, effect.df)
    below, above = effect.tilted
    low, high = critical_t(quantile, above), critical_t(quantile, below)
    ends = [_fieller(means, effect, limit) for limit in (low, high)]
    return None if ends[0] is None or ends[1] is None else (ends[0][0], ends[1][1])


def _fieller(means: ArmMeans, effect: Effect, limit: float) -> tuple[float, float] | None:
    """Return the shares δ with (difference − δ base)² ≤ limit² (v − 2 δ v_both + δ² v_base).

    Where the control's mean cannot be told from 0 there are none, unless no value is negative: a share is then no less
    than −1, and there is no largest one.
    """
    base, v_base, v_both = _control(means, effect)
    difference, v, square = effect.estimate, effect.se_population**2, limit**2
    a = base**2 - square * v_base
    nonnegative = means.shape is not None and means.shape.nonnegative and base > 0 and base + difference >= 0
    if a <= 0 and not nonnegative:
        return None
    # What is under the root is written so that nothing large is subtracted; the end next to 0 comes from the product
    # of both, so that its sign is p's verdict.
    half = difference * base - square * v_both
    inner = v * base**2 - 2 * v_both * difference * base + v_base * difference**2 - square * (v_base * v - v_both**2)
    far = half + math.copysign(math.sqrt(max(0.0, square * inner)), half)
    near = (difference**2 - square * v) / far if far else 0.0
    other = far / a if a else -math.copysign(math.inf, far)
    if not nonnegative:
        sign = math.copysign(1.0, base)
        low, high = sorted((sign * near, sign * other))
        return low, high
    low, high = sorted((near, other))
    if a > 0:
        v_arm = v + 2 * v_both + v_base
        from_zero = (base + difference) ** 2 <= square * v_arm  # the arm's mean cannot be told from 0
        return -1.0 if from_zero else low, high
    # The control's mean cannot be told from 0: shares between low and high are rejected, if any are.
    if inner < 0:
        return -1.0, math.inf
    if low <= -1:
        return max(-1.0, high), math.inf
    # Adjusted means that go together may leave shares on both sides: all are given, unless no effect is rejected.
    if not low < 0 < high:
        return -1.0, math.inf
    return (high, math.inf) if difference > 0 else (-1.0, low)


def _control(means: ArmMeans, effect: Effect) -> tuple[float, float, float]:
    """Return the control's mean, its variance, and its covariance with the difference."""
    control, arm = means.arms.index(effect.control), means.arms.index(effect.arm)
    of_control = means.covariance[control].tolist()
    return float(means.exact[control]), of_control[control], of_control[arm] - of_control[control]


@check_arguments()
def relative_delta(means: ArmMeans, effect: Effect) -> Relative:
    """Return the relative effect with the delta method's interval: the familiar alternative to Fieller's.

    It is symmetric, and good where the control's mean is many of its errors away from 0. Nearer to 0
    it may disagree with p, or exist where Fieller's says that there is none: then believe Fieller's.
    """
    base, v_base, v_both = _control(means, effect)
    if base == 0:
        return Relative(None, None)
    estimate = effect.estimate / abs(base)
    if effect.df is None:
        return Relative(estimate, None)
    v, share = effect.se_population**2, effect.estimate / base
    variance = max(0.0, v - 2 * share * v_both + share * share * v_base) / base / base
    if not math.isfinite(variance):
        return Relative(estimate, None)
    return Relative(
        estimate, t_interval(estimate, math.sqrt(variance), effect.df, effect.confidence, effect.alternative)
    )
