from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

import kanab as kb
from kanab.datasets import eighteen
from kanab.stats.distributions import t_quantile
from kanab.stats.effect import against_control, plain_means
from kanab.stats.relative import Relative, odds_ratio, relative_delta, relative_effect, safe_relative_interval
from kanab.stats.score import NoisyRates


def means_of(control: list[float], arm: list[float]) -> kb.stats.ArmMeans:
    rows = {"arm": ["A"] * len(control) + ["B"] * len(arm), "y": [*control, *arm]}
    return kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 1e-6}))


@given(st.integers(0, 10_000), st.floats(-3, 3), st.sampled_from(["two-sided", "greater", "less"]))
@settings(deadline=None, max_examples=80, derandomize=True)
def test_the_interval_excludes_zero_exactly_when_p_is_below_alpha(seed: int, shift: float, side: str) -> None:
    rng = np.random.default_rng(seed)
    means = means_of(list(rng.normal(6, 2, 40)), list(rng.normal(6 + shift, 3, 30)))
    effect = kb.stats.against_control(means, alternative=side)  # type: ignore[arg-type]
    relative = relative_effect(means, effect)
    assert relative.interval is not None
    low, high = relative.interval
    assert effect.p is not None
    assert (low > 0 or high < 0) == (effect.p < 0.05)
    assert low <= (relative.estimate or 0) <= high


def test_every_end_of_the_interval_solves_fiellers_equation() -> None:
    rng = np.random.default_rng(1)
    means = means_of(list(rng.normal(6, 2, 40)), list(rng.normal(7, 3, 30)))
    effect = kb.stats.against_control(means)
    interval = relative_effect(means, effect).interval
    assert interval is not None
    a, b = means.means
    assert effect.df is not None
    critical = student.ppf(0.975, effect.df)
    for end in interval:
        ratio = 1 + end
        z = (b - ratio * a) / np.sqrt(means.sample[1] + ratio**2 * means.sample[0])
        assert abs(z) == pytest.approx(critical, rel=1e-9)


def test_no_share_is_given_of_a_control_that_cannot_be_told_from_zero() -> None:
    means = means_of([-1, 1, -1, 1.01], [5, 6, 7, 8])
    relative = relative_effect(means, kb.stats.against_control(means))
    assert (relative.estimate, relative.interval) == (None, None)


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


def test_a_control_of_exactly_zero_has_neither() -> None:
    means = means_of([-1, 1, -1, 1], [5, 6, 7, 8])
    relative = relative_effect(means, kb.stats.against_control(means))
    assert (relative.estimate, relative.interval) == (None, None)


def test_without_variance_there_is_no_interval() -> None:
    means = means_of([2, 2, 2], [3, 3, 3])
    relative = relative_effect(means, kb.stats.against_control(means))
    assert (relative.estimate, relative.interval) == (0.5, None)


def test_one_sided_intervals_are_open_on_the_side_of_the_alternative() -> None:
    rng = np.random.default_rng(1)
    positive = means_of(list(rng.normal(6, 2, 40)), list(rng.normal(7, 3, 30)))
    negative = means_of(list(rng.normal(-6, 2, 40)), list(rng.normal(-7, 3, 30)))
    ends = [
        relative_effect(means, kb.stats.against_control(means, alternative=side)).interval  # type: ignore[arg-type]
        for means in (positive, negative)
        for side in ("greater", "less")
    ]
    assert [tuple(np.isinf(pair)) for pair in ends if pair] == [
        (False, True),
        (True, False),
        (False, True),
        (True, False),
    ]


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


@pytest.mark.parametrize("sign", [1, -1])
def test_one_sided_delta_intervals_are_open_where_fiellers_are(sign: int) -> None:
    rng = np.random.default_rng(1)
    means = means_of(list(sign * rng.normal(6, 2, 40)), list(sign * rng.normal(7, 3, 30)))
    effect = kb.stats.against_control(means, alternative="greater")
    for relative in (relative_delta(means, effect), relative_effect(means, effect)):
        assert relative.interval is not None
        assert np.isinf(relative.interval).tolist() == [False, True]


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


def rates(events: int, people: int, control_events: int, control_people: int) -> kb.stats.ArmMeans:
    rows = {
        "arm": ["B"] * people + ["A"] * control_people,
        "y": [int(i < events) for i in range(people)] + [int(i < control_events) for i in range(control_people)],
    }
    return kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics={"y": kb.Metric("y", bounds=(0, 1))}))


def test_the_relative_effect_of_rates_is_the_score_interval_of_their_ratio() -> None:
    means = rates(56, 70, 48, 80)
    effect = kb.stats.against_control(means)
    relative = relative_effect(means, effect)
    assert relative.estimate == pytest.approx(1 / 3)
    assert relative.interval == pytest.approx((0.0790471, 0.6721454), abs=1e-7)  # statsmodels, method="score"
    ratio = odds_ratio(effect)
    assert ratio is not None
    assert ratio.estimate == pytest.approx(8 / 3)
    assert ratio.interval == pytest.approx((1.2815732, 5.5402022), abs=1e-7)


def test_without_an_event_in_the_control_there_is_no_share_but_an_odds_ratio_with_a_lower_end() -> None:
    means = rates(30, 60, 0, 60)
    effect = kb.stats.against_control(means)
    assert relative_effect(means, effect) == Relative(None, None)
    ratio = odds_ratio(effect)
    assert ratio is not None
    assert ratio.interval is not None
    assert ratio.estimate == math.inf
    assert 10 < ratio.interval[0] < ratio.interval[1] == math.inf


def test_only_rates_have_an_odds_ratio() -> None:
    assert odds_ratio(kb.stats.difference_in_means(eighteen())) is None


def test_the_safe_relative_interval_is_the_wider_of_both_tests() -> None:
    rng = np.random.default_rng(8)
    b, a = rng.normal(5, 1, 40).round(3), rng.normal(5, 3, 400).round(3)
    rows = {"arm": ["A"] * 400 + ["B"] * 40, "y": [*a.tolist(), *b.tolist()]}
    means = kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 0.001}))
    effect = kb.stats.against_control(means)
    low, high = safe_relative_interval(means, effect)
    welch = relative_effect(means, effect).interval
    assert low < welch[0] < welch[1] < high
    # Fieller with one variance, on the rows: at the ends the t of b = (1 + share) a is the t of 5 %
    variance = (np.sum((a - a.mean()) ** 2) + np.sum((b - b.mean()) ** 2)) / 438
    for share in (low, high):
        t = (b.mean() - (1 + share) * a.mean()) / np.sqrt(variance * (1 / 40 + (1 + share) ** 2 / 400))
        assert abs(t) == pytest.approx(student.ppf(0.975, 438), rel=1e-9)


def test_without_a_relative_interval_of_either_test_there_is_none() -> None:
    rng = np.random.default_rng(8)
    rows = {"arm": ["A"] * 400 + ["B"] * 40, "y": rng.normal(0, 1, 440).round(3).tolist()}
    means = kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 0.001}))
    assert safe_relative_interval(means, kb.stats.against_control(means)) is None


def test_a_control_that_only_its_own_variance_tells_from_0_has_no_safe_share() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.3, 1, 100).round(3), rng.normal(0.3, 30, 100).round(3)
    rows = {"arm": ["A"] * 100 + ["B"] * 100, "y": [*a.tolist(), *b.tolist()]}
    means = kb.stats.plain_means(kb.count_columns(rows, arm="arm", metrics=["y"], resolution={"y": 0.001}))
    effect = kb.stats.against_control(means)
    assert relative_effect(means, effect).interval is not None
    assert safe_relative_interval(means, effect) is None


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
