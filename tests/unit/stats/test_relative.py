import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student
from tests.unit.stats.shaped_means import SIDES, drawn_means, made_means, rates_of, values_of

import kanab as kb
from kanab.datasets import eighteen
from kanab.stats.distributions import t_quantile
from kanab.stats.effect import against_control, plain_means
from kanab.stats.relative import OddsRatio, Relative, odds_ratio, relative_delta, relative_effect
from kanab.stats.score import NoisyRates
from kanab.stats.skewness import Shape, critical_t


def means_of(control: list[float], arm: list[float]) -> kb.stats.ArmMeans:
    return plain_means(values_of(kb.Metric("y", 10**6), A=control, B=arm))


@pytest.mark.parametrize("function", [relative_effect, relative_delta])
@pytest.mark.parametrize("side", ["two-sided", "greater", "less"])
def test_a_loss_that_shrinks_is_a_plus(function: Any, side: Any) -> None:
    """The share has the sign of the effect; its interval is the mirror image of the one with all signs turned."""
    rng = np.random.default_rng(1)
    losses, smaller = list(-rng.normal(10, 2, 40)), list(-rng.normal(5, 2, 30))
    means, mirrored = means_of(losses, smaller), means_of([-y for y in losses], [-y for y in smaller])
    turned = {"two-sided": "two-sided", "greater": "less", "less": "greater"}[side]
    share = function(means, kb.stats.against_control(means, alternative=side))
    mirror = function(mirrored, kb.stats.against_control(mirrored, alternative=turned))  # type: ignore[arg-type]
    assert share.estimate == pytest.approx(0.5, abs=0.1)
    assert share.estimate == pytest.approx(-mirror.estimate, rel=1e-12)
    assert share.interval == pytest.approx((-mirror.interval[1], -mirror.interval[0]), rel=1e-12)
    assert share.interval[0] <= share.estimate <= share.interval[1]


def test_without_variance_there_is_no_interval() -> None:
    means = means_of([2, 2, 2], [3, 3, 3])
    relative = relative_effect(means, kb.stats.against_control(means))
    assert (relative.estimate, relative.interval) == (0.5, None)


def test_the_delta_methods_interval_is_symmetric_and_textbook() -> None:
    rng = np.random.default_rng(1)
    means = means_of(list(rng.normal(6, 2, 40)), list(rng.normal(7, 3, 30)))
    effect = kb.stats.against_control(means)
    found = relative_delta(means, effect)
    (a, b), (v_a, v_b) = means.means, means.sample
    assert effect.df is not None
    half = student.ppf(0.975, effect.df) * np.sqrt(v_b / a**2 + b**2 * v_a / a**4)
    assert found.estimate == pytest.approx(b / a - 1, rel=1e-12)
    assert found.interval == pytest.approx((b / a - 1 - half, b / a - 1 + half), rel=1e-12)


def test_the_delta_method_has_nothing_to_say_without_a_control_or_without_variance() -> None:
    zero = means_of([-1, 1, -1, 1], [5, 6, 7, 8])
    assert relative_delta(zero, kb.stats.against_control(zero)) == kb.stats.Relative(None, None)
    flat = means_of([2, 2], [3, 3])
    assert relative_delta(flat, kb.stats.against_control(flat)) == kb.stats.Relative(0.5, None)


def test_a_control_too_small_for_a_square_has_no_delta_interval() -> None:
    means = means_of([-1, 1, -1, 1], [5, 6, 7, 8])
    tiny = replace(means, exact=(Fraction(1, 10**200), means.exact[1]))
    found = relative_delta(tiny, kb.stats.against_control(tiny))
    assert (found.estimate, found.interval) == (pytest.approx(6.5e200), None)


def test_the_relative_effect_of_rates_is_the_score_interval_of_their_ratio() -> None:
    means = plain_means(rates_of(A=(48, 80), B=(56, 70)))
    effect = kb.stats.against_control(means)
    relative = relative_effect(means, effect)
    assert relative.estimate == pytest.approx(1 / 3)
    assert relative.interval == pytest.approx((0.0790471, 0.6721454), abs=1e-7)  # statsmodels, method="score"
    ratio = odds_ratio(effect)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(8 / 3)
    assert ratio.interval == pytest.approx((1.2815732, 5.5402022), abs=1e-7)


def test_without_an_event_in_the_control_there_is_no_share_but_an_odds_ratio_with_a_lower_end() -> None:
    means = plain_means(rates_of(A=(0, 60), B=(30, 60)))
    effect = kb.stats.against_control(means)
    assert relative_effect(means, effect) == Relative(None, None)
    ratio = odds_ratio(effect)
    assert ratio is not None
    assert ratio.interval is not None
    assert ratio.estimate == math.inf
    assert 10 < ratio.interval[0] < ratio.interval[1] == math.inf
    assert odds_ratio(against_control(plain_means(rates_of(A=(0, 20), B=(0, 20))))) == OddsRatio(None, None)


def test_of_unknown_skewness_the_interval_is_the_wider_of_both_tests() -> None:
    rng = np.random.default_rng(8)
    b, a = rng.normal(5, 1, 40).round(3), rng.normal(5, 3, 400).round(3)
    rows = {"arm": ["A"] * 400 + ["B"] * 40, "y": [*a.tolist(), *b.tolist()]}
    means = kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 0.001}))
    welch = relative_effect(means, kb.stats.against_control(means)).interval
    unknown = replace(means, shape=Shape(skewness=None))
    low, high = relative_effect(unknown, kb.stats.against_control(unknown)).interval
    assert low < welch[0] < welch[1] < high
    # Fieller with one variance, on the rows: at the ends the t of b = (1 + share) a is the t of 5 %
    variance = (np.sum((a - a.mean()) ** 2) + np.sum((b - b.mean()) ** 2)) / 438
    for share in (low, high):
        t = (b.mean() - (1 + share) * a.mean()) / np.sqrt(variance * (1 / 40 + (1 + share) ** 2 / 400))
        assert abs(t) == pytest.approx(student.ppf(0.975, 438), rel=1e-9)


# ── metrics that cannot be negative ─────────────────────────────────────────────────────────────────


@settings(deadline=None, max_examples=400, derandomize=True)
@given(drawn_means(nonnegative=True), st.sampled_from(SIDES), st.sampled_from([0.9, 0.95, 0.99]))
def test_a_share_of_what_is_never_negative_is_always_there_and_agrees_with_p(
    means: kb.stats.ArmMeans, side: Any, confidence: float
) -> None:
    effect = against_control(means, alternative=side, confidence=confidence)
    share = relative_effect(means, effect)
    assert share.interval is not None
    assert effect.p is not None
    assert share.estimate == pytest.approx(float(means.means[1] / means.means[0]) - 1, rel=1e-9)
    low, high = share.interval
    assert low <= share.estimate <= high
    assert low >= -1 or side == "less"
    assert math.isinf(low) == (side == "less")
    assert (low > 0 or high < 0) == (effect.p < 1 - confidence)
    negative = replace(means, shape=replace(means.shape, nonnegative=False))
    usual = relative_effect(negative, effect).interval
    if usual is not None:  # what may be negative has the same interval, but for what lies below −100 %
        ends = [(a, b) for a, b in zip(share.interval, usual, strict=True) if math.isfinite(b) and b > -1]
        assert [a for a, _ in ends] == pytest.approx([b for _, b in ends], rel=1e-9, abs=1e-9)


@settings(deadline=None, max_examples=500, derandomize=True)
@given(
    drawn_means(nonnegative=True),
    st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    st.floats(0.01, 4),
    st.lists(st.floats(0.01, 6), min_size=2, max_size=2),
)
def test_shares_of_adjusted_means_that_go_together_agree_with_p(
    means: kb.stats.ArmMeans, slopes: list[float], spread: float, away: list[float]
) -> None:
    adjusted = replace(
        means,
        method="adjusted",
        exact_slopes=tuple((Fraction(slope),) for slope in slopes),
        spread=np.array([[spread]]),
    )
    errors = np.sqrt(np.diag(adjusted.covariance))
    adjusted = replace(adjusted, exact=tuple(Fraction(float(x)) for x in errors * away))
    effect = against_control(adjusted)
    share = relative_effect(adjusted, effect)
    low, high = share.interval
    assert -1 <= low <= share.estimate <= high
    assert (low > 0 or high < 0) == (effect.p < 0.05)


def test_shares_on_both_sides_of_what_is_rejected_are_all_given_unless_no_effect_is_rejected() -> None:
    def share(control: float) -> tuple[float, Relative]:
        means = made_means([control, 0.2], [0.5, 0.25], [900, 900], Shape(0.0, 1.0, nonnegative=True))
        slopes = (Fraction(26, 10),), (Fraction(11, 10),)
        adjusted = replace(means, method="adjusted", exact_slopes=slopes, spread=np.array([[1.0]]))
        effect = against_control(adjusted)
        return effect.p, relative_effect(adjusted, effect)

    (p, both), (clear, lower) = share(3.2), share(3.6)
    assert (p > 0.05, both.interval) == (True, (-1.0, math.inf))
    assert clear < 0.05
    assert lower.interval[0] == -1 < lower.interval[1] < 0


def share_of(m0: float, e0: float, m1: float, e1: float, c_low: float, c_high: float) -> tuple[float, float]:
    """The interval by its formula: e are variances of the means, c the limits on either side."""

    def inner(c: float) -> float:
        return max(0.0, c * c * (e1 * m0 * m0 + e0 * m1 * m1 - c * c * e1 * e0))

    low = 0.0 if m1 * m1 <= c_low**2 * e1 else (m1 * m1 - c_low**2 * e1) / (m1 * m0 + math.sqrt(inner(c_low)))
    room = m0 * m0 - c_high**2 * e0
    return low - 1, (m1 * m0 + math.sqrt(inner(c_high))) / room - 1 if room > 0 else math.inf


@settings(deadline=None, max_examples=200, derandomize=True)
@given(drawn_means(nonnegative=True))
def test_the_ends_of_a_share_are_those_of_the_formula(means: kb.stats.ArmMeans) -> None:
    known = Shape(2.0 if means.shape.skewness is None else means.shape.skewness, unusual=1.0, nonnegative=True)
    means = replace(means, shape=known, people=tuple(people + 20 for people in means.people))
    effect = against_control(means)
    reach = student.ppf(0.975, effect.df)
    below, above = effect.tilted
    (m0, m1), (e0, e1) = means.means, means.sample
    limits = critical_t(reach, above), critical_t(reach, below)
    expected = share_of(m0, e0, m1, e1, *limits)
    assert relative_effect(means, effect).interval == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_share_is_open_above_where_the_control_cannot_be_told_from_zero() -> None:
    shape = Shape(0.0, 1.0, nonnegative=True)
    near, far = (made_means([mean, 4.0], [1.0, 1.0], [900, 900], shape) for mean in (1.9, 2.1))
    (low, high), (_, there) = (relative_effect(means, against_control(means)).interval for means in (near, far))
    assert (high, there < math.inf) == (math.inf, True)
    assert -0.25 < low < 0
    hopeless = made_means([0.5, 0.7], [1.0, 1.0], [900, 900], shape)
    assert relative_effect(hopeless, against_control(hopeless)).interval == (-1.0, math.inf)
    for may_be_negative in (None, Shape(0.0, 1.0)):
        without = replace(near, shape=may_be_negative)
        assert relative_effect(without, against_control(without)) == Relative(None, None)


def test_a_mean_below_zero_that_cannot_be_is_read_as_one_that_can():
    """Adjusting or noise may take the mean of an arm below 0, whatever its values are."""
    shape = Shape(0.0, 1.0, nonnegative=True)
    means = made_means([5.0, -0.3], [0.2, 0.2], [900, 900], shape)
    assert relative_effect(means, against_control(means)).interval[0] < -1


@pytest.mark.parametrize("side", SIDES)
def test_shares_and_odds_ratios_of_few_events_hold_no_difference_until_the_exact_test_excludes_it(side: Any) -> None:
    for events in range(1, 7):
        for arms in ({"A": (3, 180), "B": (events, 20)}, {"A": (events, 20), "B": (3, 180)}):
            means = plain_means(rates_of(**arms))
            effect = against_control(means, alternative=side)
            low, high = relative_effect(means, effect).interval
            odds = odds_ratio(effect).interval
            assert (low <= 0 <= high, odds[0] <= 1 <= odds[1]) == (effect.p >= 0.05, effect.p >= 0.05)


def test_a_share_of_a_control_with_noise_knows_it():
    means = replace(plain_means(eighteen()), noise=np.diag([0.01, 0.02]))
    effect = against_control(means)
    low, high = relative_effect(means, effect).interval
    base, t = means.means[0], t_quantile(0.975, effect.df)
    for share in (low, high):
        variance = means.covariance[1, 1] + (1 + share) ** 2 * means.covariance[0, 0]
        assert abs(effect.estimate - share * base) == pytest.approx(t * math.sqrt(variance))
    exact = plain_means(eighteen())
    delta, without = relative_delta(means, effect), relative_delta(exact, against_control(exact))
    assert delta.interval[1] - delta.interval[0] > without.interval[1] - without.interval[0]


def test_rates_with_noise_have_no_odds_ratio_and_no_share_where_noise_could_have_made_the_control():
    effect = against_control(plain_means(eighteen()))
    sure = replace(effect, rates=NoisyRates(0.2, 900, 0.1, 900, 1e-6, 1e-6))
    assert odds_ratio(sure) is None
    assert relative_effect(plain_means(eighteen()), sure).estimate == pytest.approx(1.0)
    hidden = replace(effect, rates=NoisyRates(0.2, 900, 0.01, 900, 1e-6, 1e-4))
    assert relative_effect(plain_means(eighteen()), hidden) == Relative(None, None)
