"""Arm means, their covariance, and effects: any contrast of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.choices import Alternative, RateTest
from kanab.errors import AnalysisError, DesignError, LevelError, listed
from kanab.stats.distributions import check_sides, satterthwaite_df, t_quantile, t_tail
from kanab.stats.gram import Classes, Floats, arm_squares, classes_of
from kanab.stats.noise_variance import (
    TOO_NOISY,
    class_mean_noise,
    freedom_with_noise,
    lost_squares,
    measured,
    variances_above_noise,
)
from kanab.stats.score import NoisyRates, Rates, agreed_interval, exact_p
from kanab.stats.skewness import LEVEL, Shape, Tilt, corrected_t, critical_t, tilt
from kanab.tabular import number, p_value
from kanab.tally.factor import EVERYBODY, Level, as_level, label
from kanab.tally.tally import Tally

Method = Literal["difference", "adjusted"]
Test = Literal["welch", "score", "regression"]


@dataclass(frozen=True, eq=False)
class ArmMeans:
    """One mean per arm, plain or adjusted, with what is needed to compare them.

    ``exact`` are the means as fractions: a difference of them loses no digits, however large
    they are. ``sample`` holds the arms' own variances. ``exact_slopes`` are the arms' coefficients
    of the covariates and ``spread`` is Sxx / (N (N − 1)): together they give what comes on top
    because the people were drawn from a population (nothing for plain means). ``events`` are those of plain means
    of a 0/1 metric: two arms of them are compared by the score test. ``noise`` is the covariance of what was added to
    the means on purpose; where it leaves nothing to be said of an arm's own variance, that is 0: ``too_noisy``.
    With a ``shape`` of the metric, tests and intervals reckon with few and large values; without one they are Welch's.
    """

    metric: str
    method: Method
    covariates: tuple[str, ...]
    arms: tuple[Level, ...]
    control: Level
    people: tuple[int, ...]
    exact: tuple[Fraction, ...]
    sample: Floats
    df: Floats
    exact_slopes: tuple[tuple[Fraction, ...], ...]
    spread: Floats
    events: tuple[int, ...] | None = None
    noise: Floats | None = None
    shape: Shape | None = None

    @property
    def means(self) -> Floats:
        """The arm means in units of the metric."""
        return np.array([float(mean) for mean in self.exact])

    @property
    def slopes(self) -> Floats:
        """The coefficients of the covariates, one row per arm."""
        return np.array([[float(slope) for slope in slopes] for slopes in self.exact_slopes]).reshape(
            len(self.arms), -1
        )

    @property
    def too_noisy(self) -> NDArray[np.bool_]:
        """In which arms noise hides whether anything varies."""
        return np.asarray((self.sample <= 0) & (self.noise is not None))

    @property
    def covariance(self) -> Floats:
        """The covariance of the means, for the population."""
        drawn = self.slopes @ self.spread @ self.slopes.T
        return np.asarray(np.diag(self.sample) + drawn + (0.0 if self.noise is None else self.noise))

    def noise_in(self, weights: Floats) -> float:
        """Return the variance of the noise in a weighted sum of the means."""
        return 0.0 if self.noise is None else float(weights @ self.noise @ weights)

    def combined(self, weights: Floats) -> tuple[float, float]:
        """Return a weighted sum of the means, and its variance beyond the arms' own."""
        exact = [Fraction(weight) for weight in weights.tolist()]
        estimate = sum((w * mean for w, mean in zip(exact, self.exact, strict=True)), Fraction(0))
        columns = zip(*self.exact_slopes, strict=True)
        slopes = np.array([float(sum(w * b for w, b in zip(exact, column, strict=True))) for column in columns])
        return float(estimate), float(slopes @ self.spread @ slopes) + self.noise_in(weights)

    def base(self, control: Any = None) -> Level:
        """Return the arm to compare with: the control unless another one is named; raises `LevelError`."""
        return known_control(self.arms, self.control if control is None else as_level(control, "arm"))


@dataclass(frozen=True)
class Effect:
    """A difference between arms. ``se`` is for these people (SATE), ``se_population`` for the
    population that they were drawn from (PATE); interval, t and p use the latter.

    t, p and interval are None where nothing varies, or noise hides it (``too_noisy``): not testable. p and interval
    follow one rule: Welch's t, corrected for the skewness of the difference (``tilted``) on the side that it misleads;
    where skewness is unknown, or few people make an arm's mean, also t with one variance for all arms (``se_alike``,
    ``df_alike``), of which p is the larger and the interval the wider. ``p_usual`` is Welch's alone. Two ``rates``
    (plain means of a 0/1 metric) are compared by the score test: t is its z, df is infinite, and the error is not used;
    where events are few the exact test has to agree. ``se_noise`` is the part of both errors that noise makes, added on
    purpose.
    """

    metric: str
    arm: Level
    control: Level
    contrast: tuple[tuple[Level, float], ...]
    method: Method
    covariates: tuple[str, ...]
    estimate: float
    se: float
    se_population: float
    df: float | None
    t: float | None
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    alternative: Alternative
    p_usual: float | None = None
    rates: Rates | NoisyRates | None = None
    tilted: Tilt = LEVEL
    se_alike: float | None = None
    df_alike: float | None = None
    se_noise: float = 0.0
    too_noisy: bool = False

    @property
    def test(self) -> Test:
        """How it was tested: by its two rates (score), by the arms' own variances (Welch), or by a regression."""
        if self.rates is not None:
            return "score"
        return "regression" if self.method == "adjusted" else "welch"

    @property
    def testable(self) -> bool:
        """Whether anything varies, so that there is an error to compare the effect with."""
        return self.t is not None

    @property
    def interval_welch(self) -> tuple[float, float] | None:
        """Welch's interval, or of two rates the score interval, where one test is enough."""
        if self.interval is None or self.rates is not None:
            return None if self.rates is None else self.rates.difference_interval(1 - self.confidence, self.alternative)
        return replace(self, tilted=LEVEL, se_alike=None).interval_at(1 - self.confidence)

    def interval_at(self, alpha: float) -> tuple[float, float]:
        """Return the values that the rule at ``alpha`` does not reject; the effect must be testable."""
        if self.rates is not None:
            interval = self.rates.difference_interval(alpha, self.alternative)
            return agreed_interval(self.rates, interval, 0.0, alpha, self.alternative)
        assert self.df is not None
        down, up = self._reach(alpha, self.df, self.se_population, self.tilted)
        if self.se_alike is not None and self.df_alike is not None:
            reach, _ = self._reach(alpha, self.df_alike, self.se_alike, LEVEL)
            down, up = max(down, reach), max(up, reach)
        low = -math.inf if self.alternative == "less" else self.estimate - down
        high = math.inf if self.alternative == "greater" else self.estimate + up
        return low, high

    def _reach(self, alpha: float, df: float, se: float, tilted: Tilt) -> tuple[float, float]:
        """Return how far below and above the estimate a test does not reject."""
        sides = 2 if self.alternative == "two-sided" else 1
        quantile = -t_quantile(alpha / sides, df) if alpha else math.inf
        below, above = tilted
        return critical_t(quantile, above) * se, critical_t(quantile, below) * se

    def p_at(self, value: float, alternative: Alternative) -> float:
        """Return the p of the test that the effect is this value; of amounts that can be tested."""
        assert self.df is not None
        away = self.estimate - value
        p = t_tail(corrected_t(away / self.se_population, self.tilted), self.df, alternative)
        if self.se_alike is None or self.df_alike is None:
            return p
        return max(p, t_tail(away / self.se_alike, self.df_alike, alternative))

    def __str__(self) -> str:
        adjusted = f", adjusted for {listed(self.covariates)}" if self.method == "adjusted" else ""
        parts = [("+" if w > 0 else "−", "" if abs(w) == 1 else f"{abs(w):g} ", label(a)) for a, w in self.contrast]
        name = " ".join(f"{sign} {weight}{arm}" for sign, weight, arm in parts)
        head = f"{self.metric}: {name.removeprefix('+ ')}{adjusted} = {number(self.estimate)}"
        if self.interval is None or self.df is None:
            return f"{head} (not testable: {TOO_NOISY if self.too_noisy else 'nothing varies'})"
        low, high = (number(end) for end in self.interval)
        statistic = "z" if self.rates is not None else f"t({self.df:.1f})"
        return (
            f"{head} ± {number(self.se_population)}, {self.confidence:.0%} interval {low} … {high}, "
            f"{statistic} = {number(self.t)}, p = {p_value(self.p)}"
        )


def known_control(arms: tuple[Level, ...], control: Level) -> Level:
    """Return the control; raises `LevelError` where it is none of the arms."""
    if control not in arms:
        raise LevelError("unknown arm as control", f"Arms: {listed(map(label, arms))}.")
    return control


def differences_from(base: int, size: int) -> Floats:
    """Return one row of weights for every place but one: that place minus the base."""
    rows = np.delete(np.eye(size), base, axis=0)
    rows[:, base] = -1.0
    return rows


@check_arguments()
def plain_means(tally: Tally, metric: str | None = None, *, test: RateTest = "score") -> ArmMeans:
    """Return the arm means as they are, each with its own variance; raises what `arm_parts` raises.

    Two arms are compared by Welch's t, of a 0/1 metric by the score test unless ``test`` is "welch".
    """
    if test not in get_args(RateTest):
        raise AnalysisError("unknown test", "Use 'score' (Miettinen and Nurminen, for 0/1 metrics) or 'welch'.")
    table = tally.keep()
    classes = classes_of(table, metric)
    exact, within, people = [], [], []
    for _, rss, n, part in arm_parts(table, metric, classes, parameters=1):
        exact.append((Fraction(int(part.sums.sum()), n) + classes.centre) / classes.scale)
        within.append(rss)
        people.append(n)
    of = tally.moments_of(metric).metric
    df = np.array([n - 1.0 for n in people])
    events = tuple(int(mean * n) for mean, n in zip(exact, people, strict=True))
    noise = None
    if table.noise is not None:
        noise = np.diag(class_mean_noise(table, of.name)) / classes.scale**2
        known = measured(table, of.name, arm_squares(table, of.name))
        left, left_noise = known.left(known.t / known.n)
        rss_arm = left + lost_squares(table, of.name)
        df = freedom_with_noise(rss_arm, df, left_noise)
        within = variances_above_noise(rss_arm, df).tolist()
    sample = np.array([rss / (n * (n - 1)) / classes.scale**2 for rss, n in zip(within, people, strict=True)])
    score = of.binary and test == "score"
    return ArmMeans(
        of.name, "difference", (), tally.experiment.levels, tally.experiment.control,
        tuple(people), tuple(exact), sample, df,
        ((),) * len(people), np.zeros((0, 0)), events if score else None, noise,
    )  # fmt: skip


def arm_parts(
    tally: Tally, metric: str | None, classes: Classes, parameters: int
) -> list[tuple[Level, float, int, Classes]]:
    """Return for each arm its name, the squares within its classes, its people and its classes."""
    factor = tally.experiment
    if len(factor.levels) < 2 and factor.name != EVERYBODY:
        raise AnalysisError(f"{factor.name!r} has a single arm", "An effect needs two arms to compare.")
    squares = arm_squares(tally, metric)
    axis = tally.axes.index(factor.name)
    parts = []
    for position, arm in enumerate(factor.levels):
        inside = classes.places[:, axis] == position
        part = Classes(
            classes.places[inside], classes.counts[inside], classes.sums[inside], classes.centre, classes.scale
        )
        n = part.total if inside.any() else 0
        if n == 0:
            raise AnalysisError(f"arm {label(arm)!r} has nobody in it", "Select the arms that have people first.")
        if n <= parameters:
            raise DesignError(
                f"arm {label(arm)!r} has too few people for its {parameters} coefficients",
                "Wait for more people, or use fewer covariates or levels.",
            )
        parts.append((arm, part.within(int(squares[position])), n, part))
    return parts


@check_arguments()
def contrast(
    means: ArmMeans, weights: Mapping[Any, float], *, confidence: float = 0.95, alternative: Alternative = "two-sided"
) -> Effect:
    """Return any weighted sum of arm means: ``{"B": 1, "A": -1}``, or ``{"B": 0.5, "C": 0.5, "A": -1}``.

    Two arms of a 0/1 metric are compared by the score test; other weights of them, and all other means, by
    Welch's t. Raises `LevelError` for an unknown arm, `AnalysisError` for weights that compare nothing.

    >>> from kanab.datasets import eighteen
    >>> print(contrast(plain_means(eighteen()), {"B": 1, "A": -1}))
    minutes: B − A = -0.1188 ± 0.3921, 95% interval -0.9605 … 0.7228, t(13.9) = -0.3031, p = 0.766
    """
    check_sides(confidence, alternative)
    c = np.zeros(len(means.arms))
    for arm, weight in weights.items():
        level = as_level(arm, "arm")
        if level not in means.arms:
            raise LevelError("the contrast names an unknown arm", f"Arms: {listed(map(label, means.arms))}.")
        if not isinstance(weight, Real) or not np.isfinite(weight):
            raise AnalysisError("a contrast needs finite weights", "For example {'B': 1, 'A': -1}.")
        c[means.arms.index(level)] = weight
    if not c.any():
        raise AnalysisError("a contrast with only zero weights compares nothing", "Weigh two arms.")
    estimate, drawn = means.combined(c)
    parts = c**2 * means.sample
    sample = float(parts.sum())
    noise, too_noisy = means.noise_in(c), bool(np.any(means.too_noisy & (c != 0)))
    se = float(np.sqrt(sample + noise))
    wide = float(np.sqrt(sample + drawn))
    df = t = None
    if sample > 0 and not too_noisy:
        df = contrast_freedom(parts, means.df, noise)
        t = estimate / wide
    named = tuple((arm, float(weight)) for arm, weight in zip(means.arms, c, strict=True) if weight)
    ordered = tuple(sorted(named, key=lambda item: -item[1]))
    pair = len(ordered) == 2 and ordered[0][1] == 1 and ordered[1][1] == -1
    effect = Effect(
        means.metric, ordered[0][0] if pair else None, ordered[1][0] if pair else None, ordered,
        means.method, means.covariates, estimate, se, wide, df, t, None, None, confidence, alternative,
        se_noise=math.sqrt(noise), too_noisy=too_noisy,
    )  # fmt: skip
    if pair and means.events is not None:
        return _by_score(means, effect)
    return effect if df is None or t is None else _tested(means, c, replace(effect, p_usual=t_tail(t, df, alternative)))


def _tested(means: ArmMeans, weights: Floats, effect: Effect) -> Effect:
    """Return the effect with p and interval by the rule that the shape of its metric asks for."""
    shape, taking_part = means.shape, weights != 0
    people = np.array(means.people, dtype=np.float64)
    if shape is not None and shape.skewness:
        parts = weights[taking_part], people[taking_part], means.sample[taking_part]
        effect = replace(effect, tilted=tilt(shape.skewness, *parts))
    if shape is not None and shape.needs_alike(float(people[taking_part].min())):
        se, df = alike_error(means, weights)
        effect = replace(effect, se_alike=se, df_alike=df)
    return replace(effect, p=effect.p_at(0.0, effect.alternative), interval=effect.interval_at(1 - effect.confidence))


def contrast_freedom(parts: Floats, df: Floats, noise: float) -> float:
    """Return Satterthwaite's degrees of freedom; the variance of noise is known, not estimated."""
    if not noise:
        return satterthwaite_df(parts, df)
    return satterthwaite_df(np.append(parts, noise), np.append(df, math.inf))


def _by_score(means: ArmMeans, effect: Effect) -> Effect:
    """Return the effect tested by its two rates; where events are few the exact test has to agree."""
    assert means.events is not None
    arm, control = means.arms.index(effect.arm), means.arms.index(effect.control)
    sides = effect.alternative
    rates: Rates | NoisyRates
    if means.noise is None:
        rates = Rates(means.events[arm], means.people[arm], means.events[control], means.people[control])
    else:
        rates = NoisyRates(
            float(means.exact[arm]), means.people[arm], float(means.exact[control]), means.people[control],
            float(means.noise[arm, arm]), float(means.noise[control, control]),
        )  # fmt: skip
    usual = rates.p(sides)
    p = max(usual, exact_p(rates, sides))
    effect = replace(effect, rates=rates, df=math.inf, t=rates.z_difference(), p=p, p_usual=usual, too_noisy=False)
    return replace(effect, interval=effect.interval_at(1 - effect.confidence))


def alike_error(means: ArmMeans, weights: Floats) -> tuple[float, float]:
    """Return the error of a contrast, and its degrees of freedom, if its arms vary alike: one variance for all.

    An arm's own variance moves with its mean where a few large values make both. In a small arm that
    lacks them the mean is low and Welch's error is small; this error, which the large arm decides, is not.
    With arms of one size it is Welch's, so that nothing is lost.
    """
    taking_part = weights != 0
    _, drawn = means.combined(weights)
    variance = float(np.sum(weights**2 * varying_alike(means, taking_part).sample))
    return float(np.sqrt(variance + drawn)), float(means.df[taking_part].sum())


def varying_alike(means: ArmMeans, arms: NDArray[np.bool_]) -> ArmMeans:
    """Return the means with one variance for the people of these arms."""
    people = np.array(means.people, dtype=np.float64)
    variance = np.sum((means.sample * people * means.df)[arms]) / np.sum(means.df[arms])
    return replace(means, sample=np.where(arms, variance / people, means.sample))


@check_arguments()
def against_control(
    means: ArmMeans,
    arm: Any = None,
    control: Any = None,
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> Effect:
    """Return one arm minus the control; with two arms neither need be named.

    Raises `LevelError` for an unknown arm, `AnalysisError` where it is not clear which arm is meant.
    """
    base = means.base(control)
    others = [level for level in means.arms if level != base]
    if arm is None:
        if len(others) != 1:
            raise AnalysisError(
                "there are several arms to compare with the control", f"Name one: {listed(map(label, others))}."
            )
        arm = others[0]
    if as_level(arm, "arm") == base:
        raise AnalysisError("an arm cannot be compared with itself", "Name another arm or control.")
    return contrast(means, {arm: 1, base: -1}, confidence=confidence, alternative=alternative)


@check_arguments()
def difference_in_means(
    tally: Tally,
    metric: str | None = None,
    *,
    arm: Any = None,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
    test: RateTest = "score",
) -> Effect:
    """Return the plain effect: Welch's t with Satterthwaite's degrees of freedom; raises what `contrast` raises.

    A 0/1 metric is tested by the score test of Miettinen and Nurminen unless ``test`` is "welch".
    """
    means = plain_means(tally, metric, test=test)
    return against_control(means, arm, control, confidence=confidence, alternative=alternative)
