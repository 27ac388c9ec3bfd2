"""A declared normal prior: posterior, best arm, expected loss."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kanab import Metric, count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, LevelError
from kanab.stats import adjusted_means, against_control, contrast, difference_in_means, plain_means
from kanab.stats.posteriors import Prior, best_arm, posterior


def four_arms(shift=(0, 0.1, 0.2, -0.3)):
    rng = np.random.default_rng(8)
    sizes = (200, 100, 150, 120)
    rows = {
        "arm": np.repeat(list("ABCD"), sizes),
        "x": rng.integers(0, 3, sum(sizes)),
        "y": np.round(np.concatenate([rng.normal(m, 1, n) for m, n in zip(shift, sizes, strict=True)]), 2),
    }
    return count_columns(rows, arm="arm", covariates=["x"], metrics={"y": Metric("y", 100)})


def test_the_posterior_weighs_by_precision():
    effect = difference_in_means(eighteen())
    belief = posterior(effect, Prior(0.5, 0.25))
    a, b = 1 / 0.25**2, 1 / effect.se**2
    assert belief.mean == pytest.approx((0.5 * a + effect.estimate * b) / (a + b), rel=1e-14)
    assert belief.sd == pytest.approx((a + b) ** -0.5, rel=1e-14)
    assert belief.interval == pytest.approx(stats.norm.interval(0.95, belief.mean, belief.sd))
    assert belief.positive == pytest.approx(stats.norm.sf(0, belief.mean, belief.sd))
    assert belief.above(0.3) == pytest.approx(stats.norm.sf(0.3, belief.mean, belief.sd))


def test_two_arms_have_closed_forms():
    means = plain_means(eighteen())
    belief = posterior(against_control(means), Prior(0, 0.3))
    b, a = sorted(best_arm(means, Prior(0, 0.3)), key=lambda candidate: candidate.arm, reverse=True)
    assert (b.best, a.best) == pytest.approx((belief.positive, 1 - belief.positive))
    z = belief.mean / belief.sd
    assert a.loss == pytest.approx(belief.mean * stats.norm.cdf(z) + belief.sd * stats.norm.pdf(z))
    assert a.loss - b.loss == pytest.approx(belief.mean)
    assert (a.mean, b.mean) == pytest.approx((0, belief.mean))


@pytest.mark.parametrize("make", [plain_means, adjusted_means])
@pytest.mark.parametrize("prior", [Prior(), Prior(0.1, 0.1)])
def test_several_arms_agree_with_plain_drawing(make, prior):
    means = make(four_arms())
    candidates = {candidate.arm: candidate for candidate in best_arm(means, prior)}
    c = np.column_stack([-np.ones(3), np.eye(3)])
    data = np.linalg.inv(c @ means.covariance @ c.T)
    covariance = np.linalg.inv(data + np.eye(3) / prior.sd**2)
    centre = covariance @ (data @ c @ means.means + prior.mean / prior.sd**2)
    drawn = np.random.default_rng(1).multivariate_normal(centre, covariance, 200_000)
    effects = np.column_stack([np.zeros(len(drawn)), drawn])
    best = np.bincount(effects.argmax(1), minlength=4) / len(drawn)
    loss = (effects.max(1, keepdims=True) - effects).mean(0)
    for place, arm in enumerate("ABCD"):
        assert candidates[arm].best == pytest.approx(best[place], abs=4e-3)
        assert candidates[arm].loss == pytest.approx(loss[place], abs=2e-3)
    assert sum(candidate.best for candidate in candidates.values()) == pytest.approx(1, abs=1e-3)


def test_lower_can_be_better():
    candidates = best_arm(plain_means(four_arms()), Prior(), better="lower")
    assert candidates[0].arm == "D"
    assert candidates[0].mean < 0
    mirrored = best_arm(plain_means(four_arms((0, -0.1, -0.2, 0.3))), Prior(), better="lower")
    assert mirrored[-1].arm == "D"


def test_it_prints_in_one_line():
    candidates = best_arm(plain_means(eighteen()), Prior(0, 0.2))
    assert str(candidates[0]).startswith("A: best with probability 55")
    assert "above 0 with probability" in str(posterior(difference_in_means(eighteen()), Prior(0, 0.2)))
    pooled = contrast(plain_means(four_arms()), {"B": 0.5, "C": 0.5, "A": -1})
    assert str(posterior(pooled, Prior())).startswith("y: the contrast is ")


def test_impossible_beliefs_are_refused():
    for wrong in ({"sd": 0}, {"sd": -1}, {"sd": math.nan}, {"mean": math.inf}, {"mean": "0"}):
        with pytest.raises(AnalysisError, match="prior's"):
            Prior(**wrong)
    flat = count_columns({"arm": ["A", "A", "B", "B"], "y": [1, 1, 2, 2]}, arm="arm", metrics={"y": Metric("y")})
    with pytest.raises(AnalysisError, match="nothing varies"):
        posterior(difference_in_means(flat), Prior(0, 1))
    with pytest.raises(AnalysisError, match="nothing varies"):
        best_arm(plain_means(flat), Prior(0, 1))
    with pytest.raises(LevelError, match="unknown arm"):
        best_arm(plain_means(eighteen()), Prior(), control="C")
    with pytest.raises(AnalysisError, match="unknown direction"):
        best_arm(plain_means(eighteen()), Prior(), better="up")


def test_a_prior_has_nothing_to_weigh_where_it_is_too_noisy_to_tell():
    means = replace(plain_means(eighteen()), sample=np.zeros(2), noise=np.eye(2))
    with pytest.raises(AnalysisError, match="too noisy to tell whether anything varies"):
        best_arm(means, Prior(0, 1))
    with pytest.raises(AnalysisError, match="too noisy to tell whether anything varies"):
        posterior(against_control(means), Prior(0, 1))
    known = replace(means, sample=np.ones(2))
    assert posterior(against_control(known), Prior()).sd == pytest.approx(2.0)


def test_a_relative_prior_is_in_shares_of_the_controls_mean():
    assert Prior(0.1, 0.05, relative=True).in_units(-20) == Prior(2.0, 1.0)
    assert Prior(0.1, 0.05).in_units(0) == Prior(0.1, 0.05)
    for mean in (0, None):
        with pytest.raises(AnalysisError, match="a relative prior needs a control mean other than 0"):
            Prior(0.1, 0.05, relative=True).in_units(mean)
