"""Meta-analysis against published figures, statsmodels and simulation; shrinkage by hand and against known effects."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.meta_analysis import combine_effects

from kanab.errors import AnalysisError
from kanab.portfolio import meta_analysis, shrink

# Thirteen trials of the BCG vaccine (Colditz et al. 1994): cases and others, vaccinated and not.
BCG = np.array([
    [4, 119, 11, 128], [6, 300, 29, 274], [3, 228, 11, 209], [62, 13536, 248, 12619], [33, 5036, 47, 5761],
    [180, 1361, 372, 1079], [8, 2537, 10, 619], [505, 87886, 499, 87892], [29, 7470, 45, 7232], [17, 1699, 65, 1600],
    [186, 50448, 141, 27197], [5, 2493, 3, 2338], [27, 16886, 29, 17825],
])  # fmt: skip


def log_risk_ratios():
    cases, others, control_cases, control_others = BCG.T
    people, control = cases + others, control_cases + control_others
    y = np.log(cases / people) - np.log(control_cases / control)
    return y.tolist(), np.sqrt(1 / cases - 1 / people + 1 / control_cases - 1 / control).tolist()


def test_the_bcg_trials_have_the_results_that_metafor_prints():
    found = meta_analysis(*log_risk_ratios(), method="reml", knapp_hartung=False)
    assert (round(found.estimate, 4), round(found.se, 4)) == (-0.7145, 0.1798)
    assert [round(end, 4) for end in found.interval] == [-1.0669, -0.3622]
    assert (round(found.tau2, 4), round(100 * found.i2, 2)) == (0.3132, 92.22)
    assert (round(found.q, 4), found.q_df) == (152.2330, 12)
    assert found.q_p < 1e-4
    assert [round(end, 4) for end in found.prediction] == [-1.8667, 0.4376]


def test_other_methods_on_the_bcg_trials_have_the_printed_results():
    fixed = meta_analysis(*log_risk_ratios(), method="fixed")
    assert (round(fixed.estimate, 4), round(fixed.se, 4)) == (-0.4303, 0.0405)
    assert [round(end, 4) for end in fixed.interval] == [-0.5097, -0.3509]
    assert (fixed.df, fixed.prediction) == (None, None)
    laird = meta_analysis(*log_risk_ratios(), method="dl", knapp_hartung=False)
    assert (round(laird.estimate, 4), round(laird.se, 4), round(laird.tau2, 4)) == (-0.7141, 0.1787, 0.3088)


@pytest.mark.parametrize(("method", "theirs"), [("dl", "chi2"), ("pm", "iterated")])
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_random_effects_are_those_of_statsmodels(method, theirs, seed):
    rng = np.random.default_rng(seed)
    errors = rng.uniform(0.1, 0.5, 8)
    y = rng.normal(0.3, np.sqrt(errors**2 + seed * 0.1))
    oracle = combine_effects(y, errors**2, method_re=theirs)
    plain = meta_analysis(y.tolist(), errors.tolist(), method=method, knapp_hartung=False)
    hartung = meta_analysis(y.tolist(), errors.tolist(), method=method)
    assert plain.tau2 == pytest.approx(oracle.tau2, rel=2e-5, abs=1e-9)
    assert plain.q == pytest.approx(oracle.q, rel=1e-10)
    assert plain.estimate == pytest.approx(oracle.mean_effect_re, rel=2e-5)
    assert plain.se == pytest.approx(oracle.sd_eff_w_re, rel=2e-5)
    assert hartung.se == pytest.approx(oracle.sd_eff_w_re_hksj, rel=2e-5)
    assert hartung.df == oracle.df_resid
    half = stats.t.ppf(0.975, 7) * oracle.sd_eff_w_re_hksj
    assert hartung.interval == pytest.approx((oracle.mean_effect_re - half, oracle.mean_effect_re + half), rel=1e-4)
    assert plain.weights == pytest.approx(oracle.weights_rel_re, rel=2e-5)


def test_estimates_that_agree_have_no_variance_between_them():
    for method in ("dl", "pm", "reml"):
        found = meta_analysis([1.0, 1.1, 0.9], [1.0, 1.0, 1.0], method=method)
        assert (found.tau2, found.i2) == (0, 0)
    same = meta_analysis([1.0, 1.0], [1.0, 2.0])
    assert (same.estimate, same.se, same.p, same.q) == (1.0, 0.0, 0.0, 0.0)
    assert meta_analysis([1.0, 1.0], [1.0, 2.0], method="fixed").i2 == 0
    assert meta_analysis([0.0, 0.0], [1.0, 2.0]).p == 1.0


def test_knapp_and_hartungs_interval_covers_few_releases_where_the_normal_one_does_not():
    rng = np.random.default_rng(11)
    held = {True: 0, False: 0}
    runs = 1500
    for _ in range(runs):
        errors = rng.uniform(0.2, 0.6, 5)
        y = rng.normal(1.0, np.sqrt(errors**2 + 0.4**2))
        for hartung in held:
            low, high = meta_analysis(y.tolist(), errors.tolist(), method="dl", knapp_hartung=hartung).interval
            held[hartung] += low <= 1.0 <= high
    assert 0.93 <= held[True] / runs <= 0.965
    assert held[False] / runs < 0.92


@pytest.mark.parametrize(
    ("estimates", "errors", "choices", "fact"),
    [
        ([1.0], [1.0], {}, "at least 2 estimates are needed"),
        ([1.0, 2.0], [1.0], {}, "every estimate needs its standard error"),
        ([1.0, 2.0], [1.0, 0.0], {}, "standard errors positive"),
        ([1.0, math.nan], [1.0, 1.0], {}, "estimates must be numbers"),
        ([1.0, "2"], [1.0, 1.0], {}, "estimates must be numbers"),
        ([1.0, 2.0], [1.0, 1.0], {"method": "bayes"}, "unknown method of meta-analysis"),
        ([1.0, 2.0], [1.0, 1.0], {"confidence": 95}, "confidence"),
    ],
)
def test_what_cannot_be_combined_is_refused(estimates, errors, choices, fact):
    with pytest.raises(AnalysisError, match=fact) as problem:
        meta_analysis(estimates, errors, **choices)
    assert problem.value.remedy


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
