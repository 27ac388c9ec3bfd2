"""Two rates by Miettinen and Nurminen: published intervals, another package, the likelihood itself, exact sizes."""

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from kanab.errors import AnalysisError
from kanab.stats.score import NoisyRates, Rates

NEWCOMBE = {
    # Newcombe (1998), Statistics in Medicine 17, table II, method 6 (Miettinen and Nurminen)
    (56, 70, 48, 80): (0.0528, 0.3382),
    (9, 10, 3, 10): (0.1700, 0.8406),
    (6, 7, 2, 7): (0.0342, 0.8534),
    (5, 56, 0, 29): (-0.0326, 0.1933),
    (0, 10, 0, 20): (-0.1658, 0.2844),
    (0, 10, 0, 10): (-0.2879, 0.2879),
    (10, 10, 0, 20): (0.7156, 1.0),
    (10, 10, 0, 10): (0.6636, 1.0),
}


@pytest.mark.parametrize(("counts", "published"), NEWCOMBE.items())
def test_intervals_are_those_that_newcombe_published(counts: tuple[int, int, int, int], published: tuple) -> None:
    assert Rates(*counts).difference_interval(0.05) == pytest.approx(published, abs=5.1e-5)


def drawn_rates(seed: int, runs: int, most: float) -> list[Rates]:
    draw = random.Random(seed)
    rates = []
    for _ in range(runs):
        n1, n0 = (int(10 ** draw.uniform(0.7, most)) for _ in range(2))
        level = 10 ** draw.uniform(-6, 0)
        x1, x0 = (min(n, int(draw.random() * 2 * level * n)) for n in (n1, n0))
        rates.append(Rates(x1, n1, x0, n0))
    return rates


def test_differences_and_ratios_are_rounded_once() -> None:
    for rates in drawn_rates(7, 200, 7):
        ours, control = Fraction(rates.events, rates.people), Fraction(rates.control_events, rates.control_people)
        assert rates.difference == float(ours - control)
        assert rates.relative == (float(ours / control - 1) if control else None)
        if 0 < control < 1 and ours < 1:
            assert rates.odds_ratio == float(ours / (1 - ours) / (control / (1 - control)))


def likelihood_z(rates: Rates, difference: float) -> float:
    """The statistic with the likeliest rates from a bisection of the likelihood's slope."""
    x1, n1, x0, n0 = rates.events, rates.people, rates.control_events, rates.control_people

    def slope(p: float) -> float:
        parts = ((x1, p + difference), (x1 - n1, 1 - p - difference), (x0, p), (x0 - n0, 1 - p))
        return math.fsum(x / q for x, q in parts if x)

    low, high = max(0.0, -difference), min(1.0, 1 - difference)
    for _ in range(200):
        middle = (low + high) / 2
        inside = low < middle < high and 0 < middle + difference < 1
        low, high = (middle, high) if inside and slope(middle) > 0 else (low, middle)
    p, q = low, low + difference
    variance = (q * (1 - q) / n1 + p * (1 - p) / n0) * rates.total / (rates.total - 1)
    return (x1 / n1 - x0 / n0 - difference) / math.sqrt(variance)


@pytest.mark.parametrize("difference", [0.013, -0.02, 0.3, -0.45])
def test_the_statistic_of_a_difference_is_that_of_the_likeliest_rates(difference: float) -> None:
    for rates in drawn_rates(1, 60, 6):
        if 0 < rates.all_events < rates.total:
            assert rates.z_difference(difference) == pytest.approx(likelihood_z(rates, difference), rel=2e-8, abs=1e-8)


def test_ratio_and_odds_ratio_are_those_of_statsmodels() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    compared = 0
    for rates in drawn_rates(2, 120, 5):
        counts = rates.events, rates.people, rates.control_events, rates.control_people
        if 0 in counts or rates.events == rates.people or rates.control_events == rates.control_people:
            continue  # statsmodels has its own way with zeros; our own tests cover them
        for value in (0.7, 1.0, 1.3):
            for compare, z in (("ratio", rates.z_relative(value - 1)), ("odds-ratio", rates.z_odds(math.log(value)))):
                theirs = proportion.score_test_proportions_2indep(*counts, value=value, compare=compare)
                assert z == pytest.approx(theirs.statistic, rel=1e-8, abs=1e-8)
                compared += 1
    assert compared > 150


def test_ends_of_every_interval_are_where_the_statistic_passes_its_limit() -> None:
    for rates in drawn_rates(3, 120, 7.4):
        for alpha, reach in ((0.05, 1.959963984540054), (1e-9, 6.109410204869)):
            if 0 < rates.all_events < rates.total:
                for end, sign in zip(rates.difference_interval(alpha), (1, -1), strict=True):
                    if abs(end) < 1:
                        assert rates.z_difference(end) == pytest.approx(sign * reach, rel=1e-6)
            relative = rates.relative_interval(alpha)
            if relative is not None and rates.events:
                assert rates.z_relative(relative[0]) == pytest.approx(reach, rel=1e-6)
                assert rates.z_relative(relative[1]) == pytest.approx(-reach, rel=1e-6)
            odds = rates.odds_ratio_interval(alpha)
            if odds is not None and odds[0] > 0 and math.isfinite(odds[1]):
                assert rates.z_odds(math.log(odds[0])) == pytest.approx(reach, rel=1e-6)
                assert rates.z_odds(math.log(odds[1])) == pytest.approx(-reach, rel=1e-6)


def test_difference_ratio_and_odds_ratio_agree_with_p() -> None:
    for rates in drawn_rates(4, 300, 5):
        z = rates.z_difference()
        assert rates.z_relative() == pytest.approx(z, rel=1e-9, abs=1e-12)
        if 0 < rates.all_events < rates.total:
            assert rates.z_odds() == pytest.approx(z, rel=1e-6, abs=1e-9)
        clear = rates.p() < 0.05
        low, high = rates.difference_interval(0.05)
        assert (not low < 0 < high) == clear
        relative, odds = rates.relative_interval(0.05), rates.odds_ratio_interval(0.05)
        assert relative is None or (not relative[0] < 0 < relative[1]) == clear
        assert odds is None or (not odds[0] < 1 < odds[1]) == clear


def test_nobody_with_an_event_is_no_effect_with_an_interval() -> None:
    nobody, everybody = Rates(0, 400, 0, 600), Rates(400, 400, 600, 600)
    for rates in (nobody, everybody):
        assert (rates.z_difference(), rates.p(), rates.p_exact()) == (0.0, 1.0, 1.0)
        assert rates.odds_ratio is None
        assert rates.odds_ratio_interval(0.05) is None
        assert rates.z_odds(1.0) == 0.0
        low, high = rates.difference_interval(0.05)
        assert -0.011 < low < -0.003 < 0.003 < high < 0.011
    assert nobody.relative is None
    assert nobody.relative_interval(0.05) is None
    assert everybody.relative == 0.0


def test_an_arm_without_events_has_an_effect_with_ends() -> None:
    rates = Rates(0, 200, 30, 1800)
    assert rates.p() == pytest.approx(0.0656, abs=5e-4)
    assert rates.relative == -1.0
    low, high = rates.relative_interval(0.05) or (0, 0)
    assert low == -1.0
    assert 0 < high < 0.3
    assert rates.odds_ratio == 0.0
    assert (rates.odds_ratio_interval(0.05) or (1, 0))[0] == 0.0
    assert Rates(30, 1800, 0, 200).odds_ratio == math.inf
    assert (Rates(30, 1800, 0, 200).odds_ratio_interval(0.05) or (0, 0))[1] == math.inf


def test_tests_at_impossible_values_reject_for_certain() -> None:
    rates = Rates(9, 10, 3, 10)
    assert rates.z_difference(1.5) == -math.inf
    assert rates.z_difference(-1.0) == math.inf
    assert rates.z_relative(-1.0) == math.inf
    assert Rates(0, 10, 3, 10).z_relative(-1.0) == 0.0
    assert Rates(10, 10, 0, 10).z_difference(1.0) == 0.0
    assert Rates(10, 10, 10, 10).z_relative(1e-17) == -math.inf
    assert rates.z_odds(400.0) == -math.inf
    assert rates.z_odds(-400.0) == math.inf


def test_one_sided_intervals_are_open_and_those_without_error_are_whole() -> None:
    rates = Rates(56, 70, 48, 80)
    assert rates.difference_interval(0.025, "greater") == (pytest.approx(0.0528, abs=5e-5), math.inf)
    assert rates.difference_interval(0.025, "less") == (-math.inf, pytest.approx(0.3382, abs=5e-5))
    assert (rates.odds_ratio_interval(0.025, "less") or (1, 0))[0] == 0.0
    assert rates.difference_interval(0.0) == (-1.0, 1.0)
    assert rates.relative_interval(0.0) == (-1.0, math.inf)
    assert rates.odds_ratio_interval(0.0) == (0.0, math.inf)


def test_the_exact_p_is_that_of_the_hypergeometric_distribution() -> None:
    for counts in ((1, 20, 0, 180), (3, 400, 40, 1600), (12, 30, 3, 50), (0, 10, 0, 20), (20, 20, 170, 180)):
        rates = Rates(*counts)
        chances = stats.hypergeom(rates.total, rates.all_events, rates.people)
        half = chances.pmf(rates.events) / 2
        up, down = chances.sf(rates.events) + half, chances.cdf(rates.events) - half
        assert rates.p_exact("greater") == pytest.approx(up, rel=1e-9)
        assert rates.p_exact("less") == pytest.approx(down, rel=1e-9)
        assert rates.p_exact() == pytest.approx(min(1, 2 * up, 2 * down), rel=1e-9)
    assert Rates(40, 25_000_000, 0, 25_000_000).p_exact() == pytest.approx(2**-40, rel=1e-4)


def rejections(n1: int, n0: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each table's score test rings, and whether the exact one does too where the table is thin."""
    score, both = np.zeros((n1 + 1, n0 + 1), bool), np.zeros((n1 + 1, n0 + 1), bool)
    for x1 in range(n1 + 1):
        for x0 in range(n0 + 1):
            rates = Rates(x1, n1, x0, n0)
            score[x1, x0] = rates.p() < 0.05
            both[x1, x0] = score[x1, x0] and (not rates.thin or rates.p_exact() < 0.05)
    return score, both


@pytest.mark.parametrize(("n1", "n0", "score_size"), [(50, 50, 0.057), (10, 90, 0.050), (5, 95, 0.071)])
def test_enumerated_sizes_stay_near_five_percent_where_both_tests_have_to_ring(
    n1: int, n0: int, score_size: float
) -> None:
    score, both = rejections(n1, n0)
    worst_score = worst_both = 0.0
    for rate in np.linspace(0.002, 0.5, 60):
        chances = stats.binom.pmf(np.arange(n1 + 1), n1, rate), stats.binom.pmf(np.arange(n0 + 1), n0, rate)
        worst_score = max(worst_score, float(chances[0] @ score @ chances[1]))
        worst_both = max(worst_both, float(chances[0] @ both @ chances[1]))
    assert worst_score == pytest.approx(score_size, abs=0.001)
    assert worst_both < 0.0571


def test_what_is_not_a_rate_is_refused() -> None:
    for counts in ((3, 2, 0, 5), (0, 0, 0, 5), (-1, 5, 0, 5), (1.5, 5, 0, 5)):
        with pytest.raises(AnalysisError, match="whole numbers of events and people"):
            Rates(*counts)  # type: ignore[arg-type]


def test_rates_with_next_to_no_noise_have_the_score_tests_z_and_p():
    exact, noisy = Rates(56, 70, 48, 80), NoisyRates(56 / 70, 70, 48 / 80, 80, 1e-18, 1e-18)
    assert noisy.z_difference() == pytest.approx(exact.z_difference(), rel=1e-12)
    assert noisy.z_relative() == pytest.approx(noisy.z_difference(), rel=1e-12)
    assert noisy.p("greater") == pytest.approx(exact.p("greater"), rel=1e-12)
    assert noisy.relative == pytest.approx(exact.relative)
    assert noisy.difference_interval(0.05) == pytest.approx(exact.difference_interval(0.05), abs=0.005)
    assert noisy.relative_interval(0.05) == pytest.approx(exact.relative_interval(0.05), abs=0.03)
    assert (noisy.thin, NoisyRates(0.01, 70, 0.02, 80, 1e-9, 1e-9).thin) == (False, True)


def test_intervals_of_noisy_rates_end_where_the_test_rejects():
    rates = NoisyRates(-0.004, 200, 0.012, 1800, 5e-4, 6e-6)
    low, high = rates.difference_interval(0.05)
    assert rates.z_difference(low) == pytest.approx(1.959964, rel=1e-5)
    assert rates.z_difference(high) == pytest.approx(-1.959964, rel=1e-5)
    assert rates.difference_interval(0.05, "greater")[1] == math.inf
    low, high = rates.relative_interval(0.05)
    assert low == -1.0  # no events at all in the arm are not rejected
    assert rates.z_relative(high) == pytest.approx(-1.959964, rel=1e-5)
    wide = NoisyRates(1.2, 20, -0.1, 20, 0.04, 0.04)
    assert wide.difference_interval(0.05)[1] == 1.0
    assert wide.difference_interval(0.0) == (-1.0, 1.0)


def test_a_control_rate_that_noise_could_have_made_has_no_share():
    assert NoisyRates(0.01, 200, -0.001, 1800, 5e-4, 6e-6).relative is None
    assert NoisyRates(0.01, 200, -0.001, 1800, 5e-4, 6e-6).relative_interval(0.05) is None
    assert NoisyRates(0.01, 200, 0.004, 1800, 5e-4, 6e-6).relative_interval(0.05) is None
    assert NoisyRates(0.01, 200, 0.006, 1800, 5e-4, 6e-6).relative_interval(0.05) is not None


@pytest.mark.parametrize("effect", [0.0, 0.01])
def test_intervals_of_rare_rates_with_noise_cover_and_those_that_ignore_it_do_not(effect):
    rng, runs, deviation = np.random.default_rng(11), 4000, 6.4  # people and events at ε = 1
    kept = ignored = 0
    for _ in range(runs):
        sides = []
        for n, rate in ((200, 0.01 + effect), (1800, 0.01)):
            people = n + round(rng.normal(0, deviation))
            about = rng.binomial(n, rate) - n / 2 + rng.normal(0, deviation) / 2
            sides += [about / people + 0.5, people]
        noise = [deviation**2 * (0.25 + (rate - 0.5) ** 2) / n**2 for rate, n in (sides[:2], sides[2:])]
        kept += abs(NoisyRates(*sides, *noise).z_difference(effect)) < 1.96
        ignored += abs(NoisyRates(*sides, 1e-12, 1e-12).z_difference(effect)) < 1.96
    assert 0.94 <= kept / runs <= 0.96
    assert ignored / runs < 0.6
