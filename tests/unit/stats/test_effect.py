"""Effects between arms: Welch, contrasts, sides, and what cannot be compared."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from tests.unit.stats.noisy_tables import stated_noise, with_noise
from tests.unit.stats.shaped_means import SIDES, rates_of, values_of

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, DesignError, LevelError
from kanab.stats import adjusted_means, against_control, contrast, difference_in_means, plain_means
from kanab.stats.noise_variance import class_mean_noise
from kanab.stats.score import NoisyRates
from kanab.stats.skewness import Shape

A, B, C = [1, 2, 3, 4], [2, 4, 6, 8, 10], [5, 5, 6]


def test_one_variance_for_an_adjusted_effect_adds_what_comes_from_drawing_people():
    means = replace(adjusted_means(eighteen(altered=True)), shape=Shape(skewness=None))
    effect = against_control(means)
    # both arms have nine people, seven of them free: one error, and all degrees of freedom
    assert effect.se_alike == pytest.approx(effect.se_population, rel=1e-12)
    assert effect.p == max(effect.p_usual, 2 * stats.t.sf(abs(effect.t), 14))


def test_a_contrast_has_the_weighted_variances_and_satterthwaites_df():
    effect = contrast(plain_means(values_of(A=A, B=B, C=C)), {"B": 0.5, "C": 0.5, "A": -1})
    parts = np.array([(5 / 3) / 4, 0.25 * 10 / 5, 0.25 * (1 / 3) / 3])
    assert effect.estimate == pytest.approx(3 + 8 / 3 - 2.5, rel=1e-14)
    assert effect.se == pytest.approx(math.sqrt(parts.sum()), rel=1e-14)
    assert effect.df == pytest.approx(parts.sum() ** 2 / np.sum(parts**2 / [3, 4, 2]), rel=1e-14)


def test_a_zero_one_metric_is_tested_by_the_score_test_unless_welch_is_asked_for():
    effect = difference_in_means(rates_of(A=(48, 80), B=(56, 70)))
    assert effect.test == "score"
    assert effect.interval == pytest.approx((0.0528, 0.3382), abs=5e-5)  # Newcombe (1998)
    assert effect.p == pytest.approx(0.0082583, rel=1e-5)
    assert (effect.df, effect.t) == (math.inf, pytest.approx(2.641323, abs=1e-6))
    assert (effect.p_usual, effect.interval_welch) == (effect.p, effect.interval)
    assert str(effect).endswith("95% interval 0.05283 … 0.3382, z = 2.641, p = 0.00826")
    welch = difference_in_means(rates_of(A=(48, 80), B=(56, 70)), test="welch")
    assert (welch.test, welch.rates) == ("welch", None)
    assert welch.p == pytest.approx(stats.ttest_ind([1] * 56 + [0] * 14, [1] * 48 + [0] * 32, equal_var=False).pvalue)
    assert welch.se_population == effect.se_population
    with pytest.raises(AnalysisError, match="unknown test"):
        difference_in_means(rates_of(A=(1, 2), B=(1, 2)), test="fisher")


def test_an_arm_without_events_is_testable_and_not_certain():
    effect = difference_in_means(rates_of(A=(18, 1800), B=(0, 200)))
    assert effect.testable
    assert effect.p_usual == pytest.approx(0.1556, abs=1e-3)  # Welch says 2e-05
    assert effect.rates.p_exact() == pytest.approx(0.149, abs=2e-3)
    assert effect.p == max(effect.p_usual, effect.rates.p_exact())
    assert difference_in_means(rates_of(A=(18, 1800), B=(0, 200)), test="welch").p < 3e-5


@pytest.mark.parametrize("side", SIDES)
def test_where_events_are_few_the_exact_test_has_to_agree_and_intervals_hold_zero_until_it_does(side):
    for events in range(7):
        effect = difference_in_means(rates_of(A=(3, 180), B=(events, 20)), alternative=side)
        assert effect.rates.thin
        assert effect.p == max(effect.rates.p(side), effect.rates.p_exact(side))
        for alpha in (0.01, 0.05, 0.2):
            low, high = effect.interval_at(alpha)
            assert (low <= 0 <= high) == (effect.p >= alpha)
        low, high = effect.interval_welch
        assert (low, high) == pytest.approx(effect.rates.difference_interval(0.05, side), rel=1e-12)
        assert (low <= 0 <= high) == (effect.p_usual >= 0.05)
    lonely = difference_in_means(rates_of(A=(0, 180), B=(1, 20)))
    assert (lonely.p_usual, lonely.p) == (pytest.approx(0.0027, abs=1e-4), pytest.approx(0.1))


def test_weights_other_than_two_arms_stay_welch():
    means = plain_means(rates_of(A=(48, 80), B=(56, 70), C=(30, 60)))
    assert contrast(means, {"B": 1, "C": -1}).test == "score"
    mixed = contrast(means, {"B": 0.5, "C": 0.5, "A": -1})
    assert (mixed.test, mixed.rates) == ("welch", None)
    assert mixed.df < 210


def test_nothing_varies_is_not_testable_and_none_not_nan():
    effect = difference_in_means(values_of(A=[3, 3, 3], B=[5, 5]))
    assert effect.estimate == 2
    assert (effect.se, effect.se_population) == (0, 0)
    assert (effect.t, effect.p, effect.df, effect.interval) == (None, None, None, None)
    assert not effect.testable
    assert str(effect) == "y: B − A = 2.000 (not testable: nothing varies)"


EMPTIED = values_of(A=A, B=B).select_arms(["A"]) + values_of(A=A, B=B).select_arms(["B"]).empty()
PAIR = count_columns({"one": list("ABAB"), "two": list("XXYY"), "y": [0, 1, 1, 0]}, arm=["one", "two"], metrics=["y"])


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: difference_in_means(values_of(A=A)), "'arm' has a single arm. An effect needs two arms to compare."),
        (lambda: difference_in_means(EMPTIED), "arm 'B' has nobody in it. Select the arms that have people first."),
        (lambda: difference_in_means(values_of(A=A, B=[7])), "arm 'B' has too few people for its 1 coefficients"),
        (
            lambda: difference_in_means(values_of(A=A, B=B, C=C)),
            "several arms to compare with the control",
        ),
        (lambda: difference_in_means(values_of(A=A, B=B), arm="A"), "cannot be compared with itself"),
        (lambda: difference_in_means(PAIR), "several experiments. Name one, or collapse the others: one, two."),
        (
            lambda: contrast(plain_means(values_of(A=A, B=B)), {"B": math.nan}),
            "a contrast needs finite weights. For example",
        ),
        (lambda: contrast(plain_means(values_of(A=A, B=B)), {"B": 0}), "only zero weights compares nothing"),
    ],
)
def test_what_cannot_be_compared_is_said(call, says):
    with pytest.raises((AnalysisError, DesignError, LevelError), match=re.escape(says)):
        call()


def test_unknown_arms_are_refused_with_the_known_ones():
    means = plain_means(values_of(A=A, B=B))
    for call in (
        lambda: against_control(means, "Z"),
        lambda: against_control(means, "B", "Z"),
        lambda: against_control(means, control="Z"),
        lambda: contrast(means, {"B": 1, "Z": -1}),
    ):
        with pytest.raises(LevelError, match=r"unknown arm.*A, B"):
            call()


def test_a_covariate_called_arm_is_not_taken_for_the_experiment():
    rows = {"variant": list("XXYY") * 5, "arm": ["left", "right"] * 10, "y": range(20)}
    effect = difference_in_means(count_columns(rows, arm="variant", covariates=["arm"], metrics=["y"]))
    assert (effect.arm, effect.control) == ("Y", "X")


def noisy_shop(people=2000, rho=0.005, seed=3, share=0.1):
    rng = np.random.default_rng(seed)
    rows = {
        "arm": np.where(rng.random(people) < share, "B", "A"),
        "spend": np.round(rng.gamma(1.0, 12.0, people)),
        "bought": (rng.random(people) < 0.05).astype(int),
    }
    bounds = {"spend": (0, 100), "bought": (0, 1)}
    tally = count_columns(rows, arm="arm", metrics=["spend", "bought"], bounds=bounds, resolution={"spend": 1})
    return tally, with_noise(tally, stated_noise(tally, rho), rng)


def test_an_effect_with_noise_says_how_much_of_its_error_is_noise():
    exact, noisy = noisy_shop(20_000, share=0.5)
    plain, effect = difference_in_means(exact, "spend"), difference_in_means(noisy, "spend")
    noise = class_mean_noise(noisy, "spend").sum()
    assert effect.se_noise == pytest.approx(math.sqrt(noise))
    assert effect.se**2 == pytest.approx(plain.se**2 + noise, rel=0.1)
    assert plain.se_noise == 0.0
    assert not plain.too_noisy
    assert 0 < effect.df < plain.df


def test_the_variance_of_noise_is_known_and_adds_degrees_of_freedom():
    means = replace(
        plain_means(noisy_shop()[1], "spend"), sample=np.array([1.0, 1.0]), df=np.array([9.0, 9.0]), noise=np.eye(2)
    )
    assert contrast(means, {"B": 1, "A": -1}).df == pytest.approx(16 / (2 / 9))


def test_an_arm_whose_variance_drowns_in_noise_is_too_noisy_to_tell():
    _, noisy = noisy_shop(rho=1e-5, share=0.5, people=20_000)
    means = plain_means(noisy, "spend")
    effect = difference_in_means(noisy, "spend")
    assert means.too_noisy.any()
    assert (effect.too_noisy, effect.testable, effect.p, effect.interval) == (True, False, None, None)
    assert str(effect).endswith("(not testable: too noisy to tell)")


def test_rates_with_noise_are_tested_even_where_there_are_fewer_than_no_events():
    _, noisy = noisy_shop(2000, rho=1e-4, seed=6, share=0.5)
    means = plain_means(noisy, "bought")
    assert means.means.min() < 0
    effect = difference_in_means(noisy, "bought")
    assert isinstance(effect.rates, NoisyRates)
    assert (effect.test, effect.df, effect.p_usual, effect.too_noisy) == ("score", math.inf, effect.p, False)
    assert effect.interval[0] < effect.estimate < effect.interval[1]
    assert difference_in_means(noisy, "bought", test="welch").too_noisy
    assert difference_in_means(noisy_shop()[1], "bought", test="welch").test == "welch"
