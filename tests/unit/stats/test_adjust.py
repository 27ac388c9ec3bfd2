"""The adjusted effect: the paper's altered table, several arms and covariates, and what is refused."""

import math

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import assert_noise_is_as_stated, stated_noise, with_noise

from kanab import Metric, count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, DesignError, FormulaError, LevelError
from kanab.stats import adjusted_effect, adjusted_means


def people(n=240, arms="AB", seed=1):
    """A seeded crowd: numeric tier, categorical device, effects that differ by arm."""
    rng = np.random.default_rng(seed)
    arm, tier, device = rng.integers(0, len(arms), n), rng.integers(1, 5, n), rng.integers(0, 3, n)
    y = rng.integers(-20, 20, n) + 3 * arm + (4 + 2 * arm) * tier + 5 * (device == 1) * arm
    names = np.array(list(arms))[arm]
    return {"arm": names, "tier": tier, "device": np.array(["pc", "phone", "tv"])[device], "y": y}


def counted(rows, covariates=("tier", "device")):
    return count_columns(rows, arm="arm", covariates=list(covariates), metrics={"y": Metric("y")})


def test_fewer_people_than_coefficients_in_an_arm_are_refused():
    rows = {"arm": list("AAAAABB"), "tier": [1, 2, 1, 2, 1, 1, 2], "y": range(7)}
    with pytest.raises(DesignError, match="arm 'B' has too few people for its 2 coefficients"):
        adjusted_effect(counted(rows, ["tier"]))


def test_a_level_that_an_arm_lacks_is_named_with_the_arm():
    rows = {"arm": ["A"] * 9 + ["B"] * 8, "tier": ["x", "y", "z"] * 3 + ["x", "y"] * 4, "y": range(17)}
    with pytest.raises(DesignError, match=r"in arm 'B' the classes cannot tell these terms apart: tier\[z\]\."):
        adjusted_effect(counted(rows, ["tier"]))


def test_without_a_covariate_there_is_nothing_to_adjust_for():
    tally = counted(people())
    for covariates in ("", [], "1"):
        with pytest.raises(AnalysisError, match="there is no covariate to adjust for"):
            adjusted_effect(tally, covariates=covariates)
    with pytest.raises(AnalysisError, match="there is no covariate to adjust for"):
        adjusted_effect(tally.keep())
    with pytest.raises(AnalysisError, match="there is no covariate to adjust for"):
        adjusted_effect(counted({"arm": list("AABB"), "tier": ["x"] * 4, "y": range(4)}, ["tier"]))


@pytest.mark.parametrize("covariates", ["arm", "tier + arm", "tier * treatment", ["tier", "treatment"]])
def test_the_arm_is_no_covariate(covariates):
    with pytest.raises(AnalysisError, match="cannot be adjusted for the arm itself"):
        adjusted_effect(eighteen(), covariates=covariates)


def test_unknown_names_are_refused():
    with pytest.raises(FormulaError, match="unknown factor"):
        adjusted_effect(eighteen(), covariates=["device"])
    with pytest.raises(LevelError, match="unknown metric"):
        adjusted_effect(eighteen(), "spend")
    with pytest.raises(AnalysisError, match=r"unknown variance\. Use 'exact', or 'paper' \(Ding's\)\."):
        adjusted_effect(eighteen(), variance="hc3")
    with pytest.raises(AnalysisError, match="unknown alternative"):
        adjusted_effect(eighteen(), alternative="up")


@pytest.mark.parametrize("covariates", [5, [5], [None]])
def test_covariates_of_the_wrong_type_are_refused(covariates):
    with pytest.raises((AnalysisError, FormulaError)):
        adjusted_effect(eighteen(), covariates=covariates)


def shop_with_tiers(people=3000, levels=(1, 2, 3)):
    rng = np.random.default_rng(4)
    tier = rng.choice(levels, people, p=[0.5, 0.3, 0.2])
    place = np.searchsorted(levels, tier)
    rows = {
        "arm": rng.choice(["A", "B", "C"], people, p=[0.5, 0.3, 0.2]),
        "tier": tier,
        "spend": np.clip(np.round(rng.gamma(1.0 + place, 9.0, people)), 0, 100),
        "bought": (rng.random(people) < 0.1 + 0.2 * place).astype(int),
    }
    return count_columns(
        rows, arm="arm", covariates=["tier"], metrics=["spend", "bought"],
        bounds={"spend": (0, 100), "bought": (0, 1)}, resolution={"spend": 1},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "covariates"), [("spend", "tier"), ("spend", "C(tier)"), ("bought", "C(tier)")])
def test_the_noise_of_adjusted_means_varies_together_as_it_says(metric, covariates):
    tally, rng, draws = shop_with_tiers(), np.random.default_rng(9), 250
    tables = [with_noise(tally, stated_noise(tally, 0.05), rng) for _ in range(draws)]
    drawn = [adjusted_means(table, metric, covariates) for table in tables]
    assert_noise_is_as_stated(drawn, adjusted_means(tally, metric, covariates))


def test_means_adjusted_for_one_covariate_share_the_noise_of_its_people():
    tally = shop_with_tiers()
    table = with_noise(tally, stated_noise(tally, 0.05), np.random.default_rng(2))
    noise = adjusted_means(table, "spend").noise
    assert np.all(noise[~np.eye(3, dtype=bool)] > 0)
    assert adjusted_effect(table, "spend", arm="B").se_noise == pytest.approx(
        math.sqrt(noise[0, 0] + noise[1, 1] - 2 * noise[0, 1])
    )


def test_a_level_with_too_few_people_for_the_noise_cannot_be_adjusted_for():
    tally = shop_with_tiers(60)
    table = with_noise(tally, stated_noise(tally, 0.02), np.random.default_rng(2))
    with pytest.raises(DesignError, match="has too few people for this noise"):
        adjusted_means(table, "spend")
