"""Tests of an effect against a margin instead of 0: not worse, better by enough, or the same."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Alternative, Claim
from kanab.errors import AnalysisError
from kanab.stats.distributions import t_tail
from kanab.stats.effect import ArmMeans, Effect, alike_error
from kanab.stats.noise_variance import TOO_NOISY
from kanab.stats.relative import relative_effect
from kanab.stats.score import NoisyRates, Rates, exact_p
from kanab.tabular import number, p_value
from kanab.tally.factor import label

Better = Literal["higher", "lower"]


@check_arguments(skip=("size",))
@dataclass(frozen=True)
class Margin:
    """How much worse is still fine, how much better is worth it, or how different is still the same.

    ``size`` is positive, whichever direction is ``better``; for equivalence it may be two numbers,
    (−0.5, 1). With ``relative`` it is a share of the control's mean: 0.02 is two percent.

    >>> Margin("non-inferiority", 0.01).tests            # shown when the effect lies above −0.01
    ((-0.01, 'greater'),)
    >>> Margin("equivalence", 0.5).tests
    ((-0.5, 'greater'), (0.5, 'less'))
    """

    claim: Claim
    size: float | tuple[float, float]
    better: Better = "higher"
    relative: bool = False

    def __post_init__(self) -> None:
        if self.claim not in get_args(Claim):
            raise AnalysisError("unknown claim", f"Use one of: {', '.join(get_args(Claim))}.")
        if self.better not in get_args(Better):
            raise AnalysisError("unknown direction", "Say better='higher' or better='lower'.")
        if isinstance(self.size, (tuple, list)):
            self._check_pair(tuple(self.size))
        elif not _is_number(self.size) or not self.size > 0:
            raise AnalysisError(
                f"the margin of {self.claim} must be a positive number",
                "Give its size; better='higher' or 'lower' says in which direction it lies.",
            )

    def _check_pair(self, pair: tuple[Any, ...]) -> None:
        if self.claim != "equivalence":
            raise AnalysisError(f"{self.claim} has one margin", "Give one positive number.")
        if len(pair) != 2 or not all(map(_is_number, pair)) or not pair[0] < 0 < pair[1]:
            raise AnalysisError(
                "the two margins of equivalence must lie on both sides of 0", "For example (-0.5, 1), or 0.5 for both."
            )
        object.__setattr__(self, "size", pair)

    @property
    def tests(self) -> tuple[tuple[float, Alternative], ...]:
        """The limits that the effect must be shown to lie above or below."""
        if self.claim == "equivalence":
            low, high = self.size if isinstance(self.size, tuple) else (-self.size, self.size)
            return (low, "greater"), (high, "less")
        assert not isinstance(self.size, tuple)
        upwards = self.better == "higher"
        above = upwards == (self.claim == "superiority")
        return ((self.size if above else -self.size, "greater" if upwards else "less"),)

    def in_units(self, mean: float | None) -> Margin:
        """Return the margin in units of the metric, given the control's mean; raises `AnalysisError` where it is 0."""
        if not self.relative:
            return self
        if mean is None or mean == 0:
            raise AnalysisError("a relative margin needs a control mean other than 0", "Give a margin in units.")
        if isinstance(self.size, tuple):
            low, high = self.size
            return replace(self, size=(abs(mean) * low, abs(mean) * high), relative=False)
        return replace(self, size=abs(mean) * self.size, relative=False)

    def __str__(self) -> str:
        scale, unit = (100, " %") if self.relative else (1, "")
        limits = " and ".join(
            f"{'above' if side == 'greater' else 'below'} {scale * limit:+.4g}{unit}" for limit, side in self.tests
        )
        return f"{self.claim} (the effect lies {limits})"


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class MarginTest:
    """The test of a claim, which is shown if the interval lies inside the margin.

    ``t`` and ``p`` are those of the weaker of two tests for equivalence, whose interval has
    confidence 1 − 2α; otherwise the interval is one-sided at 1 − α. With a relative margin, estimate
    and interval are relative too (Fieller). All None where nothing varies. p and interval follow the effect's own
    rule. Two rates are tested at the margin by the score test, whose z is ``t``. ``p_adjusted``, over arms, decides.
    """

    effect: Effect
    margin: Margin
    estimate: float
    t: float | None
    p: float | None
    interval: tuple[float, float] | None
    confidence: float
    p_adjusted: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the data show the claim."""
        p = self.p if self.p_adjusted is None else self.p_adjusted
        return p is not None and p < 1 - self.confidence

    def __str__(self) -> str:
        arm, control = self.effect.arm, self.effect.control
        pair = "the contrast" if arm is None else f"{label(arm)} against {label(control)}"
        head = f"{self.effect.metric}: {pair}, {self.margin}"
        if self.interval is None:
            return f"{head} is not testable: {TOO_NOISY if self.effect.too_noisy else 'nothing varies'}"
        verdict = "shown" if self.shown else "not shown"
        unit, times = ("", 1) if not self.margin.relative else (" %", 100)
        low, high = (number(times * end) if math.isfinite(end) else "∞" for end in self.interval)
        span = (
            f"{low} … {high}{unit}" if "∞" not in (low, high)
            else f"at least {low}{unit}" if high == "∞"
            else f"at most {high}{unit}"
        )  # fmt: skip
        return f"{head}: {verdict}, p = {p_value(self.p)}, effect {number(times * self.estimate)}{unit}, {span}"


@check_arguments()
def against_margin(
    effect: Effect, margin: Margin, *, means: ArmMeans | None = None, confidence: float | None = None
) -> MarginTest:
    """Test an effect (plain, adjusted or of a ratio) against a margin.

    Each test is one-sided at 1 − confidence (the effect's own unless another is given). A relative
    margin needs the arm ``means`` from which the effect was made, and so does the second test. Raises
    `AnalysisError` for a relative margin without them, and where the control's mean cannot be told from 0.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import difference_in_means
    >>> print(against_margin(difference_in_means(eighteen()), Margin("non-inferiority", 1)))
    minutes: B against A, non-inferiority (the effect lies above -1): shown, p = 0.0207, effect -0.1188, at least ...
    """
    level = effect.confidence if confidence is None else confidence
    if not (isinstance(level, (int, float)) and 0.5 < level < 1):
        raise AnalysisError("the confidence must lie between 0.5 and 1", "For example 0.95.")
    side: Alternative = margin.tests[0][1] if len(margin.tests) == 1 else "two-sided"
    wide = level if side != "two-sided" else 2 * level - 1
    read = replace(effect, confidence=wide, alternative=side)
    if margin.relative:
        return _relative(read, margin, means, level)
    if effect.df is None:
        return MarginTest(effect, margin, effect.estimate, None, None, None, level)
    if effect.rates is not None:
        z = effect.rates.z_difference
        t, p = _hardest([_of_rates(effect.rates, z(limit), limit, beyond) for limit, beyond in margin.tests])
    else:
        away = [((effect.estimate - limit) / effect.se_population, limit, beyond) for limit, beyond in margin.tests]
        t, p = _hardest([(t, effect.p_at(limit, beyond)) for t, limit, beyond in away])
    return MarginTest(effect, margin, effect.estimate, t, p, read.interval_at(1 - wide), level)


def _of_rates(rates: Rates | NoisyRates, z: float, limit: float, side: Alternative) -> tuple[float, float]:
    """Return statistic and p of the score test at a limit; beyond 0 the exact test has to agree, as for 0 itself."""
    p = t_tail(z, math.inf, side)
    beyond = limit > 0 if side == "greater" else limit < 0
    return z, max(p, exact_p(rates, side)) if beyond else p


def _hardest(tests: list[tuple[float, float]]) -> tuple[float, float]:
    """Return statistic and p of the test that is hardest to pass."""
    return max(tests, key=lambda test: test[1])


def _relative(effect: Effect, margin: Margin, means: ArmMeans | None, level: float) -> MarginTest:
    """Test H0: arm = (1 + limit) · control as one contrast, which is what Fieller's interval inverts."""
    if means is None or effect.arm is None:
        raise AnalysisError(
            "a relative margin needs the two arms' means", "Give means=…, and an effect of one arm against another."
        )
    ratio = relative_effect(means, effect)
    base = float(means.means[means.arms.index(effect.control)])
    if base == 0:
        raise AnalysisError("a relative margin needs a control mean other than 0", "Give a margin in units.")
    if ratio.estimate is None:
        raise AnalysisError("the control's mean cannot be told from 0", "Give a margin in units of the metric.")
    if effect.df is None:
        return MarginTest(effect, margin, ratio.estimate, None, None, None, level)
    if effect.rates is not None:
        z = effect.rates.z_relative
        t, p = _hardest([_of_rates(effect.rates, z(limit), limit, side) for limit, side in margin.tests])
        return MarginTest(effect, margin, ratio.estimate, t, p, ratio.interval, level)
    tests = [_at_share(effect, means, limit * math.copysign(1.0, base), side) for limit, side in margin.tests]
    return MarginTest(effect, margin, ratio.estimate, *_hardest(tests), ratio.interval, level)


def _at_share(effect: Effect, means: ArmMeans, share: float, side: Alternative) -> tuple[float, float]:
    """Return statistic and p of the test that the arm's mean is the control's and this share of it."""
    weights = np.array([{effect.arm: 1.0, effect.control: -1.0 - share}.get(arm, 0.0) for arm in means.arms])
    away, se = means.combined(weights)[0], math.sqrt(float(weights @ means.covariance @ weights))
    alike = None if effect.se_alike is None else alike_error(means, weights)[0]
    return away / se, replace(effect, estimate=away, se_population=se, se_alike=alike).p_at(0.0, side)
