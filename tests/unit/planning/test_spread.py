"""What the error of an effect is made of: from numbers, and from finished experiments."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import shop, stated_noise, with_noise

import kanab as kb
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.planning.spread import spread_of_amounts, spread_of_means, spread_of_rate
from kanab.stats import adjusted_effect, adjusted_means, difference_in_means, plain_means


def test_realised_noise_gives_back_the_plain_error_and_df():
    spread, effect = spread_of_means(plain_means(eighteen())), difference_in_means(eighteen())
    assert spread.error("B", 18, 0.0) == pytest.approx((effect.se, effect.df), rel=1e-13)
    assert spread.mean == pytest.approx(11.436314287 / 9)


def test_realised_noise_gives_back_the_adjusted_error_and_df():
    table = eighteen(altered=True)
    spread, effect = spread_of_means(adjusted_means(table)), adjusted_effect(table)
    assert spread.error("B", 18, 0.0) == pytest.approx((effect.se_population, effect.df), rel=1e-12)
    assert spread.lost.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: spread_of_amounts(0), "standard deviation must be positive"),
        (lambda: spread_of_amounts(-1), "standard deviation must be a finite number"),
        (lambda: spread_of_amounts({"A": 1}), "needed for every arm"),
        (lambda: spread_of_amounts(1, shares={"A": 1}), "shares need"),
        (lambda: spread_of_amounts(1, shares={"A": 1, "B": 0}), "shares need"),
        (lambda: spread_of_amounts(1, r2=1), "R² must be below 1"),
        (lambda: spread_of_amounts(1, slopes=-1), "slopes must be"),
        (lambda: spread_of_amounts(1, mean=float("nan")), "mean must be a finite number"),
        (lambda: spread_of_rate(1.2), "a rate must lie between"),
    ],
)
def test_impossible_numbers_are_refused(make, fact):
    with pytest.raises(AnalysisError, match=fact):
        make()


def test_unknown_arms_are_refused():
    with pytest.raises(LevelError, match="unknown arm as control"):
        spread_of_rate(0.1, control="C")
    with pytest.raises(LevelError, match="not those of these arms"):
        spread_of_means(plain_means(eighteen()), shares={"A": 1, "C": 1})
    with pytest.raises(LevelError, match="unknown arm as control"):
        spread_of_means(plain_means(eighteen()), control="C")
    with pytest.raises(LevelError, match="unknown arm"):
        spread_of_rate(0.1).place("C")


def test_an_effect_that_multiplies_amounts_multiplies_their_deviation():
    spread = spread_of_amounts({"A": 20, "B": 30}, mean=10, grows=True)
    assert spread.variance_of("A", 5) == 400
    assert spread.variance_of("B", 5) == pytest.approx((30 * 1.5) ** 2)
    assert spread.variance_of("B", -10) == 0
    for mean in (None, 0, -3):
        with pytest.raises(AnalysisError, match="positive mean"):
            spread_of_amounts(20, mean=mean, grows=True)


def test_a_found_rate_keeps_what_adjustment_left_and_follows_the_effect():
    rng = np.random.default_rng(3)
    tier = rng.integers(1, 6, 50_000)
    rows = {"arm": rng.choice(["A", "B"], 50_000, p=[0.8, 0.2]), "tier": tier, "y": rng.random(50_000) < tier / 30}
    table = kb.count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": kb.Metric("y", 1, (0, 1))})
    plain, adjusted = plain_means(table), adjusted_means(table)
    spread = spread_of_means(plain, rate=True)
    assert spread.unexplained == pytest.approx([1, 1], abs=2e-4)  # n − 1, not n
    p = float(plain.means[0])
    assert spread.variance_of("B", 0.05) == pytest.approx((p + 0.05) * (0.95 - p), rel=2e-4)
    left = spread_of_means(adjusted, rate=True)
    assert left.error("B", 50_000, float(adjusted.means[1]) - left.mean) == pytest.approx(
        spread_of_means(adjusted).error("B", sum(adjusted.people), 0.0), rel=1e-4
    )
    assert left.variance_of("B", 0.05) > 1.2 * left.variance_of("B", 0.0)


def test_noise_of_a_release_is_no_part_of_how_values_vary_nor_of_the_coefficients():
    rng = np.random.default_rng(11)
    exact = shop(40_000, rng)
    noisy = with_noise(exact, stated_noise(exact), rng)
    for means in (plain_means, adjusted_means):
        as_found = spread_of_means(means(noisy, "spend"))
        assert as_found.lost.tolist() == spread_of_means(means(exact, "spend")).lost.tolist()
        assert as_found.error("B", 2_000, 0.0) == pytest.approx(
            spread_of_means(means(exact, "spend")).error("B", 2_000, 0.0), rel=0.05
        )


def test_values_of_which_noise_hides_how_they_vary_are_not_planned_with():
    rng = np.random.default_rng(12)
    exact = shop(40_000, rng)
    stated = stated_noise(exact, rho=1e-9)
    means = plain_means(with_noise(exact, replace(stated, people=stated.people // 10**9), rng), "spend")
    assert np.any(means.too_noisy)
    with pytest.raises(AnalysisError, match="how spend varies is hidden by the noise of this release"):
        spread_of_means(means)
