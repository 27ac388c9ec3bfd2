"""All arms at once: Welch's analysis of variance, and every arm against the control (Dunnett)."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from tests.unit.stats.shaped_means import SIDES, rates_of

from kanab import Metric, count_columns
from kanab.errors import AnalysisError, LevelError
from kanab.stats import adjusted_means, contrast, plain_means
from kanab.stats.arms import joint_contrasts, many_to_one, omnibus
from kanab.stats.distributions import joint_tail
from kanab.stats.effect import ArmMeans, differences_from
from kanab.stats.multiplicity import excludes
from kanab.stats.skewness import Shape


def world(sizes=(40, 25, 30, 50), sds=(1, 1, 1, 1), shift=0.0):
    rng = np.random.default_rng(3)
    groups = [
        np.round(rng.normal(i * 0.25, sd, n), 2) + shift for i, (n, sd) in enumerate(zip(sizes, sds, strict=True))
    ]
    level = [rng.integers(0, 3, n) for n in sizes]
    rows = {
        "arm": np.repeat(list("ABCD")[: len(sizes)], sizes),
        "x": np.concatenate(level),
        "y": np.concatenate([y + 0.5 * x for y, x in zip(groups, level, strict=True)]),
    }
    return count_columns(rows, arm="arm", covariates=["x"], metrics={"y": Metric("y", 100)}), [
        y + 0.5 * x for y, x in zip(groups, level, strict=True)
    ]


@pytest.mark.parametrize(
    ("shape", "misled"),  # these small arms have higher means, and less variance than the large one
    [(Shape(9.0, 1.0), False), (Shape(-9.0, 1.0), True), (Shape(None), True), (Shape(0.0, 0.2), True)],
)
@pytest.mark.parametrize("side", SIDES)
def test_dunnett_corrects_the_rules_p_and_its_intervals_agree(shape, misled, side):
    table, _ = world(sizes=(400, 40, 25), sds=(2, 1, 1))
    means = replace(plain_means(table), shape=shape)
    plain = many_to_one(replace(means, shape=None), alternative=side)
    corrected = 0
    for arm, usual in zip(many_to_one(means, alternative=side), plain, strict=True):
        p = arm.effect.p
        assert p - 1e-12 <= arm.p_adjusted <= 2 * p + 1e-12
        if p > arm.effect.p_usual:
            corrected += 1
            assert arm.p_adjusted > usual.p_adjusted
        elif p == arm.effect.p_usual:
            assert arm.p_adjusted == pytest.approx(usual.p_adjusted, abs=1e-12)
    assert bool(corrected) == (misled and side != "less")
    for alpha in (0.001, 0.01, 0.05, 0.1, 0.2, 0.4):
        for arm in many_to_one(means, alternative=side, confidence=1 - alpha):
            low, high = arm.interval
            assert (low <= 0 <= high) == (arm.p_adjusted >= alpha)


@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_the_omnibus_is_welchs_analysis_of_variance(shift):
    table, groups = world(sds=(1, 2, 3, 1), shift=shift)
    test = omnibus(plain_means(table))
    welch = stats.f_oneway(*[g - shift for g in groups], equal_var=False)
    assert (test.F, test.p) == pytest.approx((welch.statistic, welch.pvalue), rel=1e-5 if shift else 1e-8)


def test_the_omnibus_needs_something_that_varies():
    rows = {"arm": ["A", "A", "B", "B"], "y": [1, 2, 3, 3]}
    test = omnibus(plain_means(count_columns(rows, arm="arm", metrics={"y": Metric("y")})))
    assert (test.F, test.p) == (None, None)


def test_adjusted_means_are_joined_by_their_whole_covariance():
    means = adjusted_means(world()[0])
    comparisons = many_to_one(means, "B")
    assert [comparison.effect.arm for comparison in comparisons] == ["A", "C", "D"]
    c = np.array([[1, -1, 0, 0], [0, -1, 1, 0], [0, -1, 0, 1.0]])
    covariance = c @ means.covariance @ c.T
    d = np.sqrt(np.diag(covariance))
    for comparison in comparisons:
        oracle = stats.multivariate_t(shape=covariance / np.outer(d, d), df=comparison.effect.df, seed=1)
        reach = np.full(3, abs(comparison.effect.t))
        assert comparison.p_adjusted == pytest.approx(1 - oracle.cdf(reach, lower_limit=-reach), abs=1e-3)


def test_any_contrasts_can_be_joined():
    means = plain_means(world()[0])
    weights = [{"B": 0.5, "C": 0.5, "A": -1}, {"D": 1, "A": -1}]
    comparisons = joint_contrasts(means, weights)
    assert [comparison.effect.estimate for comparison in comparisons] == [
        contrast(means, weighted).estimate for weighted in weights
    ]
    assert all(comparison.p_adjusted >= comparison.effect.p for comparison in comparisons)
    with pytest.raises(AnalysisError, match="follows from the others"):
        joint_contrasts(means, [{"B": 1, "A": -1}, {"C": 1, "A": -1}, {"C": 1, "B": -1}])


def test_an_arm_in_which_nothing_varies_stays_out():
    rows = {"arm": ["A", "B", "C"] * 4, "y": [1, 1, 1, 1, 1, 2, 1, 1, 3, 1, 1, 4]}
    comparisons = many_to_one(plain_means(count_columns(rows, arm="arm", metrics={"y": Metric("y")})))
    assert (comparisons[0].p_adjusted, comparisons[0].interval) == (None, None)
    assert comparisons[1].p_adjusted == comparisons[1].effect.p


def test_wrong_choices_are_refused():
    means = plain_means(world()[0])
    with pytest.raises(LevelError, match="unknown arm as control"):
        many_to_one(means, "Z")
    with pytest.raises(AnalysisError, match="no contrasts"):
        joint_contrasts(means, [])


def shops(*arms):
    return plain_means(rates_of(**dict(zip("ABCD", arms, strict=False))))


def test_rates_of_several_arms_differ_by_pearsons_chi_square():
    arms = (30, 200), (45, 210), (0, 50)
    test = omnibus(shops(*arms))
    chi2, _, _, _ = stats.chi2_contingency([[x, n - x] for x, n in arms], correction=False)
    n = sum(people for _, people in arms)
    statistic = chi2 * (n - 1) / n
    assert statistic == pytest.approx(2 * test.F, rel=1e-12)
    assert test.p == pytest.approx(stats.chi2.sf(statistic, 2), rel=1e-12)
    pair = shops(*arms[:2])
    assert math.sqrt(omnibus(pair).F) == pytest.approx(contrast(pair, {"B": 1, "A": -1}).t, rel=1e-12)
    assert omnibus(shops((0, 20), (0, 30), (0, 10))).p == 1.0


def test_dunnett_of_rates_correlates_by_people_and_has_score_intervals():
    means = shops((30, 200), (45, 200), (0, 200))
    first, second = many_to_one(means)
    dunnett = [
        joint_tail(abs(contrast(means, {arm: 1, "A": -1}).t), np.inf, np.array([[1, 0.5], [0.5, 1]])) for arm in "BC"
    ]
    assert [first.p_adjusted, second.p_adjusted] == pytest.approx(dunnett, rel=1e-9)
    assert first.interval == first.effect.interval_at(1 - first.level)
    assert first.interval == first.effect.rates.difference_interval(1 - first.level)
    assert excludes(second.interval)
    nobody = many_to_one(shops((0, 20), (0, 20), (0, 20)))
    assert [arm.p_adjusted for arm in nobody] == [1.0, 1.0]


def three_arms(means, noise, *, events=None, sample=1e-4, people=1000):
    return ArmMeans(
        "bought", "difference", (), ("A", "B", "C"), "A", (people,) * 3, tuple(map(Fraction, means)),
        np.full(3, sample), np.full(3, 999.0), ((),) * 3, np.zeros((0, 0)), events, noise,
    )  # fmt: skip


def test_all_arms_together_know_the_noise():
    means, noise = (0.5, 0.55, 0.45), np.diag([4e-4, 1e-4, 1e-4])
    c = differences_from(0, 3)
    apart = c @ np.array(means)
    test = omnibus(three_arms(means, noise))
    covariance = c @ (np.eye(3) * 1e-4 + noise) @ c.T
    assert pytest.approx(apart @ np.linalg.solve(covariance, apart) / 2, rel=1e-3) == test.F
    assert test.p > omnibus(three_arms(means, None)).p
    assert omnibus(three_arms(means, noise, sample=0.0)).note == "too noisy to tell"


def test_rates_of_all_arms_together_know_the_noise():
    noise = np.diag([4e-4, 1e-4, 1e-4])
    rates = three_arms((-0.02, 0.05, 0.03), noise, events=(-20, 50, 30))
    c, overall = differences_from(0, 3), 0.02
    covariance = c @ (np.eye(3) * overall * (1 - overall) / 1000 * 3000 / 2999 + noise) @ c.T
    apart = c @ rates.means
    test = omnibus(rates)
    assert pytest.approx(apart @ np.linalg.solve(covariance, apart) / 2) == test.F
    assert (test.note, test.df) == ("score test", (2.0, math.inf))
    family = many_to_one(rates)
    correlation = covariance[0, 1] / math.sqrt(covariance[0, 0] * covariance[1, 1])
    assert family[0].p_adjusted == pytest.approx(
        joint_tail(abs(family[0].effect.t), math.inf, np.array([[1, correlation], [correlation, 1]]), "two-sided")
    )
