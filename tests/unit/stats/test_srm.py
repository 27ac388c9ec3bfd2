"""The sample ratio: χ² against the planned shares, and residuals that name the arm."""

import math

import numpy as np
import pytest
from scipy import stats

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.stats import sample_ratio
from kanab.stats.srm import (
    LIVE_SAMPLE_RATIO_ALARM,
    SAMPLE_RATIO_ALARM,
    alarm_limit,
    independence,
    is_alarm,
    log_evidence_with_noise,
    multinomial,
    noise_off_shares,
    people_noise,
)
from kanab.tally.factor import Factor
from kanab.tally.noise import AddedNoise
from kanab.tally.tally import Tally


def crowd(**people):
    return count_columns({"arm": [arm for arm, n in people.items() for _ in range(n)]}, arm="arm")


def test_equal_shares_are_the_default_and_it_says_so():
    ratio = sample_ratio(crowd(A=60, B=40))
    assert (ratio.chi2, ratio.df) == (4, 1)
    assert ratio.p == pytest.approx(stats.chisquare([60, 40]).pvalue, rel=1e-13)
    assert ratio.residuals == {"A": 2, "B": -2}
    assert ratio.shares == {"A": 0.5, "B": 0.5}
    assert not ratio.declared
    assert str(ratio) == (
        "sample ratio against equal shares (none were declared): χ²(1) = 4.000, p = 0.0455; A +2.00, B -2.00"
    )


def test_planned_shares_are_any_positive_numbers():
    one, two = (sample_ratio(crowd(A=60, B=40), shares) for shares in ({"A": 2, "B": 1}, {"A": 2 / 3, "B": 1 / 3}))
    assert one.chi2 == pytest.approx(two.chi2, rel=1e-14)
    assert one.chi2 == pytest.approx(stats.chisquare([60, 40], [200 / 3, 100 / 3]).statistic, rel=1e-13)
    assert one.declared
    assert "against the planned shares" in str(one)


def test_shares_may_come_in_any_order():
    assert sample_ratio(crowd(A=60, B=40), {"B": 1, "A": 3}) == sample_ratio(crowd(A=60, B=40), {"A": 3, "B": 1})


def test_the_residual_beyond_three_names_the_arm_at_fault():
    ratio = sample_ratio(crowd(A=1000, B=1000, C=1000, D=800))
    assert {arm for arm, residual in ratio.residuals.items() if abs(residual) > 3} == {"D"}
    assert sum(ratio.residuals.values()) == pytest.approx(0, abs=1e-12)
    assert ratio.p == pytest.approx(stats.chisquare([1000, 1000, 1000, 800]).pvalue, rel=1e-12)


def test_an_empty_arm_counts_against_its_share():
    tally = crowd(A=60, B=40)
    emptied = tally.select_arms(["A"]) + tally.select_arms(["B"]).empty()
    assert sample_ratio(emptied).chi2 == 60


def test_a_p_of_1e_minus_300_is_printed_and_a_smaller_one_is_not_zero():
    ratio = sample_ratio(crowd(A=1850, B=220), {"A": 1, "B": 1})
    assert 1e-300 < ratio.p < 1e-250
    assert f"p = {ratio.p:.2e}" in str(ratio)
    assert "p = < 1e-300" in str(sample_ratio(crowd(A=3000, B=20)))


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
        sample_ratio(crowd(A=60, B=40), shares)


def test_numpy_numbers_are_shares_too():
    given = {"A": np.int64(2), "B": np.float32(1)}
    assert sample_ratio(crowd(A=60, B=40), given) == sample_ratio(crowd(A=60, B=40), {"A": 2, "B": 1})


def test_a_list_of_shares_is_refused():
    with pytest.raises(AnalysisError):
        sample_ratio(crowd(A=60, B=40), [0.5, 0.5])


def test_an_unknown_arm_is_refused_with_the_known_ones():
    with pytest.raises(LevelError, match=r"unknown arm of 'arm'\. It has: A, B\."):
        sample_ratio(crowd(A=60, B=40), {"A": 1, "Z": 1})


def test_a_covariate_or_a_single_arm_has_no_ratio():
    with pytest.raises(AnalysisError, match="'tier' does not have two arms to compare"):
        sample_ratio(eighteen(), experiment="tier")
    with pytest.raises(AnalysisError, match="'arm' does not have two arms to compare"):
        sample_ratio(crowd(A=60))
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        sample_ratio(eighteen(), experiment="device")


def test_nobody_at_all_is_an_error():
    with pytest.raises(AnalysisError, match="nobody has been counted"):
        sample_ratio(crowd(A=60, B=40).empty())


def test_an_alarm_is_a_p_value_below_the_limit():
    assert is_alarm(SAMPLE_RATIO_ALARM / 2)
    assert not is_alarm(SAMPLE_RATIO_ALARM)
    assert not is_alarm(None)


def test_a_ratio_that_is_tested_every_hour_has_a_stricter_limit():
    assert LIVE_SAMPLE_RATIO_ALARM < SAMPLE_RATIO_ALARM
    assert not is_alarm(LIVE_SAMPLE_RATIO_ALARM, LIVE_SAMPLE_RATIO_ALARM)
    assert is_alarm(LIVE_SAMPLE_RATIO_ALARM / 2, LIVE_SAMPLE_RATIO_ALARM)


def test_the_limit_of_an_alarm_is_printed_from_its_one_home():
    assert alarm_limit(SAMPLE_RATIO_ALARM) == "alarm below 0.001"
    assert alarm_limit(LIVE_SAMPLE_RATIO_ALARM) == "alarm below 0.0001"


# ── people counted with noise ──────────────────────────────────────────────────────────────────


def noisy(people, variance):
    factor, noise = Factor("arm", tuple("ABC"[: len(people)]), "arm"), np.full(len(people), variance, dtype=object)
    return Tally((factor,), np.array(people, dtype=object), noise=AddedNoise(noise))


def test_noise_of_no_size_changes_nothing():
    exact = sample_ratio(crowd(A=60, B=45, C=50), {"A": 2, "B": 1, "C": 1})
    none = sample_ratio(noisy([60, 45, 50], 0.0), {"A": 2, "B": 1, "C": 1})
    assert none.chi2 == pytest.approx(exact.chi2, rel=1e-12)
    assert none.p == pytest.approx(exact.p, rel=1e-12)
    assert none.residuals == pytest.approx(exact.residuals, rel=1e-12)


def test_two_arms_with_noise_have_a_closed_form():
    ratio = sample_ratio(noisy([560, 440], 81.0))
    assert ratio.chi2 == pytest.approx(60**2 / (1000 / 4 + 81 / 2), rel=1e-12)
    assert ratio.residuals["A"] == pytest.approx(math.sqrt(ratio.chi2), rel=1e-12)
    assert ratio.p > sample_ratio(crowd(A=560, B=440)).p


def test_the_noise_of_a_table_is_that_of_its_arms():
    factors = Factor("arm", ("A", "B"), "arm"), Factor("tier", ("1", "2", "3"))
    variances = np.full((2, 3), 9.0, dtype=object)
    table = Tally(factors, np.full((2, 3), 100, dtype=object), noise=AddedNoise(variances))
    assert people_noise(table, "arm").tolist() == [27, 27]
    assert people_noise(crowd(A=6, B=4), "arm") is None


def test_covariances_of_people_and_noise_are_those_of_draws():
    rng, shares, variances = np.random.default_rng(1), np.array([0.5, 0.3, 0.2]), np.array([40.0, 90.0, 250.0])
    people = rng.multinomial(1_000, shares, 40_000) + np.rint(rng.normal(0, np.sqrt(variances), (40_000, 3)))
    off = people - people.sum(axis=1, keepdims=True) * shares
    stated = multinomial(shares, 1_000) + noise_off_shares(shares, variances)
    np.testing.assert_allclose(np.cov(off.T), stated, atol=0.03 * stated.max())


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


def test_noise_between_arms_and_levels_is_that_of_draws():
    rng, noise = np.random.default_rng(1), np.diag([40.0, 90.0, 20.0, 60.0, 10.0, 250.0])
    shares = np.outer([0.6, 0.4], [0.5, 0.3, 0.2])
    draws = rng.multinomial(2_000, shares.ravel(), 1_500) + rng.normal(0, np.sqrt(np.diag(noise)), (1_500, 6))
    chi2 = [independence(people.reshape(2, 3), noise)[0] for people in draws]
    assert np.mean(chi2) == pytest.approx(2, abs=0.2)
    assert np.mean(np.array(chi2) > stats.chi2.ppf(0.95, 2)) == pytest.approx(0.05, abs=0.02)


def test_evidence_of_noisy_people_is_one_on_average_and_grows_where_shares_are_off():
    rng, shares, noise = np.random.default_rng(1), np.array([0.5, 0.3, 0.2]), np.full(3, 80.0)
    draws = rng.multinomial(2_000, shares, 4_000) + rng.normal(0, math.sqrt(80), (4_000, 3))
    evidence = [math.exp(log_evidence_with_noise(people, shares, noise, 3_000.0)) for people in draws]
    assert np.mean(evidence) == pytest.approx(1, abs=0.05)
    assert log_evidence_with_noise(np.array([1_200.0, 500.0, 300.0]), shares, noise, 3_000.0) > 5
