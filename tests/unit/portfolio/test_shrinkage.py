"""Empirical Bayes: by hand, and against made-up experiments whose true effects are known."""

import math

import numpy as np
import pytest

from kanab.errors import AnalysisError
from kanab.portfolio import shrink


def made_up(seed, experiments=400, mean=0.05, sd=0.3):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, experiments)
    errors = rng.uniform(0.1, 0.6, experiments)
    return truth, rng.normal(truth, errors), errors


def test_effects_are_precision_weighted_means_of_what_was_seen_and_the_prior():
    _, seen, errors = made_up(1)
    drawn = shrink(seen.tolist(), errors.tolist())
    for effect, y, se in zip(drawn.effects, seen, errors, strict=True):
        weights = np.array([1 / se**2, 1 / drawn.sd**2])
        assert effect.shrunk == pytest.approx(weights @ [y, drawn.mean] / weights.sum())
        own = 1 / weights.sum() + (1 - effect.kept) ** 2 * drawn.mean_se**2
        assert effect.shrunk_se == pytest.approx(math.sqrt(own))
        half = 1.959963984540054 * effect.shrunk_se
        assert effect.interval == pytest.approx((effect.shrunk - half, effect.shrunk + half))


def test_the_fitted_prior_is_near_the_true_one():
    drawn = shrink(*(part.tolist() for part in made_up(2, 2000)[1:]))
    assert drawn.mean == pytest.approx(0.05, abs=0.03)
    assert drawn.sd == pytest.approx(0.3, abs=0.03)


def test_shrunk_effects_are_nearer_to_the_truth_and_winners_are_not_too_large():
    raw_squares, shrunk_squares, raw_bias, shrunk_bias, inside = [], [], [], [], []
    for seed in range(20):
        truth, seen, errors = made_up(seed, 200)
        drawn = shrink(seen.tolist(), errors.tolist())
        shrunk = np.array([effect.shrunk for effect in drawn.effects])
        raw_squares.append(np.mean((seen - truth) ** 2))
        shrunk_squares.append(np.mean((shrunk - truth) ** 2))
        winners = seen > 1.96 * errors
        raw_bias.append(np.mean((seen - truth)[winners]))
        shrunk_bias.append(np.mean((shrunk - truth)[winners]))
        held = [
            low <= true <= high for (low, high), true in zip((e.interval for e in drawn.effects), truth, strict=True)
        ]
        inside.append(np.mean(held))
    assert np.mean(shrunk_squares) < 0.5 * np.mean(raw_squares)
    assert np.mean(raw_bias) > 0.15
    assert abs(np.mean(shrunk_bias)) < 0.02
    assert 0.94 < np.mean(inside) < 0.96


def test_where_effects_do_not_differ_all_are_the_same():
    drawn = shrink([0.2, 0.21, 0.19], [1.0, 1.0, 1.0])
    assert drawn.sd == 0
    assert {round(effect.shrunk, 12) for effect in drawn.effects} == {0.2}
    assert drawn.effects[0].shrunk_se == pytest.approx(1 / math.sqrt(3))


def test_two_experiments_have_no_prior():
    with pytest.raises(AnalysisError, match="at least 3 estimates are needed"):
        shrink([0.1, 0.2], [1.0, 1.0])
