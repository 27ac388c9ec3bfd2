"""Not worse, better by enough, the same: tests against a margin, and intervals that agree with them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.weightstats import ttost_ind
from tests.unit.stats.shaped_means import drawn_means, rates_of, values_of

from kanab import Metric
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import against_control, difference_in_means, plain_means
from kanab.stats.margins import Margin, against_margin
from kanab.stats.skewness import Shape

A = [3.0, 5.0, 4.0, 6.0, 7.0, 5.0, 4.0, 5.0]
B = [4.0, 6.0, 5.0, 5.0, 8.0, 6.0, 4.0, 7.0, 5.0]
TABLE = values_of(Metric("y", 1000), A=A, B=B)


def test_non_inferiority_is_a_shifted_welch_test():
    test = against_margin(difference_in_means(TABLE), Margin("non-inferiority", 0.5))
    shifted = stats.ttest_ind([y + 0.5 for y in B], A, equal_var=False, alternative="greater")
    low, _ = stats.ttest_ind(B, A, equal_var=False, alternative="greater").confidence_interval(0.95)
    assert (test.t, test.p) == pytest.approx((shifted.statistic, shifted.pvalue), rel=1e-12)
    assert test.interval == pytest.approx((low, math.inf))
    assert test.shown == (low > -0.5)


def test_equivalence_is_two_one_sided_tests():
    test = against_margin(difference_in_means(TABLE), Margin("equivalence", (-1, 2)))
    p, _, _ = ttost_ind(B, A, -1, 2, usevar="unequal")
    assert test.p == pytest.approx(p, rel=1e-10)
    ninety = stats.ttest_ind(B, A, equal_var=False).confidence_interval(0.9)
    assert test.interval == pytest.approx(tuple(ninety))
    assert test.shown == (ninety[0] > -1 and ninety[1] < 2)


def test_a_relative_margin_tests_the_mean_against_a_share_of_the_control():
    means = plain_means(TABLE)
    effect = against_control(means)
    test = against_margin(effect, Margin("non-inferiority", 0.2, relative=True), means=means)
    va, vb = np.var(A, ddof=1) / len(A), np.var(B, ddof=1) / len(B)
    t = (np.mean(B) - 0.8 * np.mean(A)) / math.sqrt(vb + 0.64 * va)
    assert test.t == pytest.approx(t, rel=1e-12)
    assert test.p == pytest.approx(stats.t.sf(t, effect.df), rel=1e-10)
    assert test.estimate == pytest.approx(np.mean(B) / np.mean(A) - 1)


def test_a_relative_margin_becomes_one_in_units():
    assert Margin("superiority", 0.1).in_units(50) == Margin("superiority", 0.1)
    assert Margin("equivalence", (-0.1, 0.2), relative=True).in_units(-50) == Margin("equivalence", (-5.0, 10.0))
    assert Margin("superiority", 0.1, relative=True).in_units(50).size == pytest.approx(5)
    with pytest.raises(AnalysisError, match="other than 0"):
        Margin("superiority", 0.1, relative=True).in_units(0)


def test_nothing_that_varies_is_not_testable():
    test = against_margin(difference_in_means(values_of(A=[1, 1, 1], B=[2, 2, 2])), Margin("superiority", 0.5))
    assert (test.t, test.p, test.interval, test.shown) == (None, None, None, False)
    assert "not testable" in str(test)
    means = plain_means(values_of(A=[1, 1, 1], B=[2, 2, 2]))
    still = against_margin(against_control(means), Margin("superiority", 0.5, relative=True), means=means)
    assert still.p is None


@pytest.mark.parametrize(
    ("margin", "text"),
    [
        (Margin("non-inferiority", 2), "above -2): shown, p = 0.000329, effect 0.6806, at least -0.4169"),
        (Margin("superiority", 2, "lower"), "below -2): not shown, p = 1.000, effect 0.6806, at most 1.778"),
        (Margin("equivalence", 2), "above -2 and below +2): shown, p = 0.0262, effect 0.6806, -0.4169 … 1.778"),
    ],
)
def test_the_verdict_prints_in_one_line(margin, text):
    line = str(against_margin(difference_in_means(TABLE), margin))
    assert line.startswith(f"y: B against A, {margin.claim} (the effect lies ")
    assert line.endswith(text)


def test_a_relative_verdict_prints_percent():
    means = plain_means(TABLE)
    line = str(against_margin(against_control(means), Margin("equivalence", 0.5, relative=True), means=means))
    assert line.endswith("above -50 % and below +50 %): shown, p = 0.0217, effect 13.96 %, -7.709 … 41.50 %")


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (("non-inferiority", -0.5), "must be a positive number"),
        (("superiority", 0), "must be a positive number"),
        (("equivalence", -1), "must be a positive number"),
        (("equivalence", (1, 2)), "both sides of 0"),
        (("equivalence", (2, -1)), "both sides of 0"),
        (("superiority", (-1, 1)), "has one margin"),
        (("better", 1), "unknown claim"),
        (("superiority", 1, "up"), "unknown direction"),
        (("superiority", math.nan), "must be a positive number"),
        (("superiority", "0.1"), "must be a positive number"),
    ],
)
def test_a_margin_of_the_wrong_sign_or_kind_is_refused(arguments, fact):
    with pytest.raises(AnalysisError, match=fact):
        Margin(*arguments)


def test_a_relative_margin_needs_means_that_are_not_zero():
    relative = Margin("superiority", 0.1, relative=True)
    with pytest.raises(AnalysisError, match="needs the two arms' means"):
        against_margin(difference_in_means(TABLE), relative)
    zero = plain_means(values_of(A=[-1, 1, -1, 1], B=B))
    with pytest.raises(AnalysisError, match="other than 0"):
        against_margin(against_control(zero), relative, means=zero)
    near = plain_means(values_of(A=[-1, 1, -1, 2], B=B))
    with pytest.raises(AnalysisError, match="cannot be told from 0"):
        against_margin(against_control(near), relative, means=near)


def test_the_confidence_must_leave_room_for_two_tests():
    with pytest.raises(AnalysisError, match=r"between 0\.5 and 1"):
        against_margin(difference_in_means(TABLE), Margin("equivalence", 1), confidence=0.4)


def test_of_unknown_skewness_a_claim_is_shown_if_welch_and_student_show_it():
    rng = np.random.default_rng(1)
    large = np.round(rng.normal(10, 3, 900), 1).tolist()
    small = np.round(rng.normal(10.2, 1, 25), 1).tolist()
    counted = values_of(Metric("y", 1000), A=large, B=small)
    margin, shifted = Margin("non-inferiority", 0.5), np.array(small) + 0.5
    welch, student = (
        stats.ttest_ind(shifted, large, equal_var=alike, alternative="greater") for alike in (False, True)
    )
    means = plain_means(counted)
    alone = against_margin(against_control(means), margin)
    unknown = against_margin(against_control(replace(means, shape=Shape(skewness=None))), margin)
    assert (alone.p, unknown.p) == pytest.approx((welch.pvalue, student.pvalue), rel=1e-9)
    assert alone.p < 0.05 < unknown.p
    assert (alone.shown, unknown.shown) == (True, False)
    assert unknown.interval[0] < -0.5 < alone.interval[0]


def test_with_a_relative_margin_one_variance_is_that_of_the_same_contrast():
    means = replace(plain_means(TABLE), shape=Shape(skewness=None))
    test = against_margin(against_control(means), Margin("equivalence", 0.5, relative=True), means=means)
    base, arm, df = means.means[0], means.means[1], float(means.df.sum())
    pooled = float(np.sum(means.sample * means.people * means.df)) / df
    usual = replace(means, shape=None)
    ps = [against_margin(against_control(usual), Margin("equivalence", 0.5, relative=True), means=usual).p]
    for limit, sign in ((-0.5, 1), (0.5, -1)):
        se = np.sqrt(pooled * (1 / means.people[1] + (1 + limit) ** 2 / means.people[0]))
        ps.append(stats.t.sf(sign * (arm - (1 + limit) * base) / se, df))
    assert test.p == pytest.approx(max(ps), rel=1e-9)


CLAIMS = [
    Margin("non-inferiority", 0.2), Margin("superiority", 0.2), Margin("equivalence", 0.3),
    Margin("non-inferiority", 0.2, "lower"), Margin("superiority", 0.2, "lower"), Margin("equivalence", (-0.5, 0.2)),
]  # fmt: skip


def lies_inside(test):
    """Whether the interval lies on the right side of every limit."""
    low, high = test.interval
    return all(low > limit if side == "greater" else high < limit for limit, side in test.margin.tests)


@limits(deadline=None, max_examples=300, derandomize=True)
@given(drawn_means(nonnegative=True), st.sampled_from(CLAIMS), st.booleans(), st.sampled_from([0.9, 0.95, 0.99]))
def test_a_claim_is_shown_exactly_where_the_interval_lies_inside_the_margin(means, margin, relative, confidence):
    size = tuple(3 * limit for limit in margin.size) if isinstance(margin.size, tuple) else 3 * margin.size
    margin = replace(margin, relative=True) if relative else replace(margin, size=size)
    test = against_margin(against_control(means), margin, means=means, confidence=confidence)
    assert test.shown == lies_inside(test)


def test_a_claim_about_few_events_is_shown_exactly_where_the_interval_lies_inside_the_margin():
    shown = set()
    for events in range(21):
        means = plain_means(rates_of(A=(3, 180), B=(events, 20)))
        for margin in CLAIMS:
            for relative, factor in ((False, 0.2), (True, 5.0)):
                size = margin.size
                size = tuple(factor * end for end in size) if isinstance(size, tuple) else factor * size
                scaled = replace(margin, size=size, relative=relative)
                test = against_margin(against_control(means), scaled, means=means)
                assert test.shown == lies_inside(test), (events, scaled)
                shown.add((test.shown, margin.claim))
    assert {(True, "superiority"), (False, "superiority"), (True, "non-inferiority")} <= shown


def test_a_rate_beyond_a_margin_above_zero_needs_the_exact_test_too():
    """One event among 21 against none among 180: more than half a hundredth more by the score test alone."""
    means = plain_means(rates_of(A=(0, 180), B=(1, 21)))
    test = against_margin(against_control(means), Margin("superiority", 0.005), means=means)
    assert test.effect.rates.z_difference(0.005) > 1.645
    assert test.p == pytest.approx(21 / 201 / 2)  # Fisher's, in which what was seen counts by half
    assert test.interval[0] == 0
    assert not test.shown


def test_rates_are_tested_at_the_margin_by_the_score_test():
    means = plain_means(rates_of(A=(48, 80), B=(56, 70)))
    effect = against_control(means)
    test = against_margin(effect, Margin("superiority", 0.0528, "higher"), confidence=0.975)
    assert test.t == pytest.approx(1.96, abs=1e-3)  # the end of Newcombe's published interval
    assert test.p == pytest.approx(0.025, abs=1e-4)
    assert test.interval == (pytest.approx(0.0528, abs=5e-5), math.inf)
    same = against_margin(effect, Margin("equivalence", 0.4))
    assert same.interval == pytest.approx(effect.interval_at(0.1), rel=1e-12)
    assert same.t == pytest.approx(effect.rates.z_difference(0.4))
    assert same.shown == (same.p < 0.05)


def test_relative_margins_of_rates_are_tested_by_the_ratio():
    means = plain_means(rates_of(A=(48, 80), B=(56, 70)))
    test = against_margin(
        against_control(means), Margin("superiority", 0.0790471, "higher", relative=True), means=means, confidence=0.975
    )
    assert test.t == pytest.approx(1.959964, abs=1e-5)
    assert test.interval == (pytest.approx(0.0790471, abs=1e-6), math.inf)


def test_a_claim_about_what_is_too_noisy_says_so():
    means = replace(plain_means(eighteen()), sample=np.zeros(2), noise=np.eye(2))
    test = against_margin(against_control(means), Margin("non-inferiority", 1), means=means)
    assert str(test).endswith("is not testable: too noisy to tell")
    known = replace(means, sample=np.ones(2), df=np.array([8.0, 8.0]))
    claim = against_margin(against_control(known), Margin("non-inferiority", 1), means=known)
    assert claim.t == pytest.approx((claim.estimate + 1) / 2)
