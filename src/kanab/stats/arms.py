"""All arms at once: do any differ (omnibus), and which ones differ from the control (Dunnett)?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Alternative
from kanab.errors import AnalysisError, listed
from kanab.stats.distributions import (
    check_sides,
    chi2_tail,
    correlations_of,
    f_tail,
    joint_quantile,
    joint_tail,
    t_quantile,
    t_tail,
)
from kanab.stats.effect import ArmMeans, Effect, contrast, differences_from
from kanab.stats.ftest import FTest
from kanab.stats.gram import Floats
from kanab.stats.multiplicity import ALL_TOGETHER, Simultaneous
from kanab.stats.noise_variance import TOO_NOISY
from kanab.tally.factor import label


@check_arguments()
def omnibus(means: ArmMeans) -> FTest:
    """Test whether any of the arms differ, by Welch's analysis of variance; of adjusted means too.

    Every arm has its own variance. What adjusted means share, because people were drawn from one
    population, is in the covariance; the degrees of freedom are those of the arms' own parts, as in
    ``contrast``, so that with two arms F is t². Rates are compared by the score test: Pearson's χ² times
    (N − 1)/N, as an F whose second degrees of freedom are infinite.

    >>> from kanab.datasets import eighteen
    >>> from kanab.stats.effect import plain_means
    >>> print(omnibus(plain_means(eighteen())))
    minutes: A, B (by arm) F(1, 13.8898) = 0.0918624, p = 0.766
    """
    between = ", ".join(label(arm) for arm in means.arms)
    note = f"adjusted for {listed(means.covariates)}" if means.covariates else ""
    if means.events is not None:
        return _of_rates(means, between)
    if np.any(means.sample <= 0):
        why = TOO_NOISY if means.noise is not None else "nothing varies in an arm"
        return FTest(means.metric, between, "by_arm", None, None, None, why)
    c = differences_from(0, len(means.arms))
    differences = np.array([means.combined(row)[0] for row in c])
    inverse = np.linalg.inv(c @ means.covariance @ c.T)
    q = len(c)
    # V = Σ V_a with one estimated variance each: Welch and James, as in the robust F
    known = 0.0 if means.noise is None else c @ means.noise @ c.T
    parts = np.linalg.inv((c * means.sample) @ c.T + known)
    t = np.array([s * float(column @ parts @ column) for s, column in zip(means.sample, c.T, strict=True)])
    h = float(np.sum(t**2 / means.df))
    f = float(differences @ inverse @ differences) / q / (1 + 2 * (q - 1) * h / (q * (q + 2)))
    df = q * (q + 2) / (3 * h)
    return FTest(means.metric, between, "by_arm", f, (float(q), df), f_tail(f, q, df), note)


def _of_rates(means: ArmMeans, between: str) -> FTest:
    """Test whether any rates differ; where nobody or everybody has the event, none do."""
    assert means.events is not None
    if means.noise is not None:
        c = differences_from(0, len(means.arms))
        apart, inverse = c @ means.means, np.linalg.inv(c @ _rates_alike(means) @ c.T)
        chi2, q = float(apart @ inverse @ apart), len(c)
        return FTest(means.metric, between, "pooled", chi2 / q, (float(q), math.inf), chi2_tail(chi2, q), "score test")
    events, people = sum(means.events), sum(means.people)
    chi2, q = 0.0, len(means.arms) - 1
    if 0 < events < people:
        overall = Fraction(events, people)
        squares = [n * (mean - overall) ** 2 for n, mean in zip(means.people, means.exact, strict=True)]
        chi2 = float(sum(squares) * Fraction(people - 1, people) / (overall * (1 - overall)))
    return FTest(means.metric, between, "pooled", chi2 / q, (float(q), math.inf), chi2_tail(chi2, q), "score test")


def _rates_alike(means: ArmMeans) -> Floats:
    """Return the covariance of rates if they are alike: by people alone, or with that of their noise."""
    people = np.array(means.people, dtype=np.float64)
    if means.noise is None:
        return np.diag(1 / people)
    total = people.sum()
    overall = min(1.0, max(0.0, float(people @ means.means) / total))
    return np.diag(overall * (1 - overall) / people * (total / (total - 1))) + means.noise


@check_arguments()
def many_to_one(
    means: ArmMeans,
    control: Any = None,
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> tuple[Simultaneous, ...]:
    """Compare every arm with the control, corrected for how the comparisons correlate (Dunnett).

    They share the control, which Bonferroni and Holm do not use. Each arm has its own variance, and each comparison
    its own degrees of freedom (Hasler and Hothorn). Intervals hold together and agree with the p-values. Raises
    `LevelError` for an unknown control.
    """
    base = means.base(control)
    weights = [{arm: 1.0, base: -1.0} for arm in means.arms if arm != base]
    return joint_contrasts(means, weights, confidence=confidence, alternative=alternative)


@check_arguments()
def joint_contrasts(
    means: ArmMeans,
    contrasts: Sequence[Mapping[Any, float]],
    *,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
) -> tuple[Simultaneous, ...]:
    """Return any contrasts of the arms, corrected for how they correlate.

    None of them may follow from the others (B − A and C − A and C − B: leave one out); raises
    `AnalysisError` otherwise.
    """
    check_sides(confidence, alternative)
    if len(contrasts) == 0:
        raise AnalysisError("there are no contrasts", "For example [{'B': 1, 'A': -1}].")
    effects = [contrast(means, weighted, confidence=confidence, alternative=alternative) for weighted in contrasts]
    weights = np.array([[dict(effect.contrast).get(arm, 0.0) for arm in means.arms] for effect in effects])
    # the score test is about arms that are alike, so its statistics correlate by people alone
    covariance = means.covariance if means.events is None else _rates_alike(means)
    covariance = weights @ covariance @ weights.T
    tested = [place for place, effect in enumerate(effects) if effect.testable]
    correlations = correlations_of(covariance[np.ix_(tested, tested)])
    joined = []
    for effect in effects:
        if effect.t is None or effect.df is None:
            joined.append(Simultaneous(effect, "dunnett", None, None, None, True, ALL_TOGETHER))
            continue
        p = joint_tail(_worth(effect), effect.df, correlations, alternative)
        reach = joint_quantile(confidence, effect.df, correlations, alternative)
        level = 1 - t_tail(reach, effect.df, "two-sided" if alternative == "two-sided" else "greater")
        joined.append(Simultaneous(effect, "dunnett", p, level, effect.interval_at(1 - level), True, ALL_TOGETHER))
    return tuple(joined)


def _worth(effect: Effect) -> float:
    """Return the t of an effect, or the one that is worth as much as its p where that is not Welch's."""
    assert effect.t is not None
    assert effect.df is not None
    assert effect.p is not None
    two_sided = effect.alternative == "two-sided"
    if effect.p == effect.p_usual:
        return abs(effect.t) if two_sided else effect.t
    worth = -t_quantile(max(effect.p, 1e-300) / (2 if two_sided else 1), effect.df)
    return -worth if effect.alternative == "less" else worth
