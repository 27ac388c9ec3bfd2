"""The sample ratio: χ² against the planned shares, and residuals that name the arm."""

import math

import numpy as np
import pytest
from scipy import stats
from tests.unit.stats.shaped_means import arms_of

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.stats import sample_ratio
from kanab.stats.srm import (
    LIVE_SAMPLE_RATIO_ALARM,
    alarm_limit,
    independence,
    is_alarm,
    people_noise,
)
from kanab.tally.factor import Factor
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally


def test_equal_shares_are_the_default_and_it_says_so():
    ratio = sample_ratio(arms_of(A=60, B=40))
    assert (ratio.chi2, ratio.df) == (4, 1)
    assert ratio.p == pytest.approx(stats.chisquare([60, 40]).pvalue, rel=1e-13)
    assert ratio.residuals == {"A": 2, "B": -2}
    assert ratio.shares == {"A": 0.5, "B": 0.5}
    assert not ratio.declared
    assert str(ratio) == (
        "sample ratio against equal shares (none were declared): χ²(1) = 4.000, p = 0.0455; A +2.00, B -2.00"
    )


def test_planned_shares_are_any_positive_numbers():
    one, two = (sample_ratio(arms_of(A=60, B=40), shares) for shares in ({"A": 2, "B": 1}, {"A": 2 / 3, "B": 1 / 3}))
    assert one.chi2 == pytest.approx(two.chi2, rel=1e-14)
    assert one.chi2 == pytest.approx(stats.chisquare([60, 40], [200 / 3, 100 / 3]).statistic, rel=1e-13)
    assert one.declared
    assert "against the planned shares" in str(one)


def test_each_experiment_of_a_pair_is_checked_by_its_name():
    tally = count_columns({"one": list("ABAB"), "two": list("XXXY")}, arm=["one", "two"])
    assert sample_ratio(tally, experiment="one").chi2 == 0
    assert sample_ratio(tally, experiment="two").chi2 == 1
    with pytest.raises(LevelError, match=r"several experiments\. Name one, or collapse the others: one, two\."):
        sample_ratio(tally)


@pytest.mark.parametrize(
    "shares",
    [{"A": 1}, {}, {"A": 1, "B": 0}, {"A": 1, "B": -1}, {"A": 1, "B": math.nan}, {"A": 1, "B": math.inf},
     {"A": 1, "B": "1"}, {"A": 1, "B": None}],
)  # fmt: skip
def test_shares_need_a_positive_number_for_every_arm(shares):
    with pytest.raises(AnalysisError, match=r"shares need one positive number for every arm\. For example"):
        sample_ratio(arms_of(A=60, B=40), shares)


def test_a_covariate_or_a_single_arm_has_no_ratio():
    with pytest.raises(AnalysisError, match="'tier' does not have two arms to compare"):
        sample_ratio(eighteen(), experiment="tier")
    with pytest.raises(AnalysisError, match="'arm' does not have two arms to compare"):
        sample_ratio(arms_of(A=60))
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        sample_ratio(eighteen(), experiment="device")


def test_an_alarm_is_a_p_below_the_limit_that_is_said():
    assert [is_alarm(p) for p in (0.0009, 0.001, None)] == [True, False, False]
    assert alarm_limit(LIVE_SAMPLE_RATIO_ALARM) == "alarm below 0.0001"


def test_nobody_at_all_is_an_error():
    with pytest.raises(AnalysisError, match="nobody has been counted"):
        sample_ratio(arms_of(A=60, B=40).empty())


def noisy(people, variance):
    factor, noise = Factor("arm", tuple("ABC"[: len(people)]), "arm"), np.full(len(people), variance, dtype=object)
    return Tally((factor,), np.array(people, dtype=object), noise=AddedNoise(noise))


def test_two_arms_with_noise_have_a_closed_form():
    ratio = sample_ratio(noisy([560, 440], 81.0))
    assert ratio.chi2 == pytest.approx(60**2 / (1000 / 4 + 81 / 2), rel=1e-12)
    assert ratio.residuals["A"] == pytest.approx(math.sqrt(ratio.chi2), rel=1e-12)
    assert ratio.p > sample_ratio(arms_of(A=560, B=440)).p


def test_the_noise_of_a_table_is_that_of_its_arms():
    factors = Factor("arm", ("A", "B"), "arm"), Factor("tier", ("1", "2", "3"))
    variances = np.full((2, 3), 9.0, dtype=object)
    table = Tally(factors, np.full((2, 3), 100, dtype=object), noise=AddedNoise(variances))
    assert people_noise(table, "arm").tolist() == [27, 27]
    assert people_noise(arms_of(A=6, B=4), "arm") is None


@pytest.mark.parametrize("people", [400, 20_000])
def test_the_alarm_of_noisy_people_keeps_its_size_and_the_one_that_ignores_noise_does_not(people):
    rng, shares, variance, runs = np.random.default_rng(people), np.array([0.45, 0.45, 0.1]), people / 10, 800
    planned = dict(zip("ABC", shares.tolist(), strict=True))
    known, ignored = [], []
    for _ in range(runs):
        counts = rng.multinomial(people, shares) + np.rint(rng.normal(0, math.sqrt(variance), 3)).astype(int)
        known.append(sample_ratio(noisy(counts.tolist(), variance), planned).p)
        ignored.append(sample_ratio(noisy(counts.tolist(), 0.0), planned).p)
    assert abs(np.mean(np.array(known) < 0.05) - 0.05) < 0.025
    assert np.mean(np.array(ignored) < 0.05) > 0.12


def test_noise_that_leaves_nobody_is_refused():
    with pytest.raises(AnalysisError, match="nobody has been counted"):
        sample_ratio(noisy([3, -5], 81.0))


def test_arms_and_levels_of_noisy_people_have_pearsons_chi2_if_the_noise_is_nothing():
    people = np.array([[60.0, 80.0, 30.0], [55.0, 70.0, 60.0]])
    expected = stats.chi2_contingency(people, correction=False)
    chi2, df, residuals = independence(people, np.zeros((6, 6)))
    assert (chi2, df) == (pytest.approx(expected.statistic, rel=1e-12), expected.dof)
    rows, columns = people.sum(axis=1) / people.sum(), people.sum(axis=0) / people.sum()
    spread = expected.expected_freq * np.outer(1 - rows, 1 - columns)
    np.testing.assert_allclose(residuals, (people - expected.expected_freq) / np.sqrt(spread))
