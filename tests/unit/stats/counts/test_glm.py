"""Logistic and Poisson regression from classes: what rows would give, and clear refusals."""

import json
import math
import time

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf

from kanab import Metric, count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError, DesignError, FormulaError
from kanab.stats import fit, fit_counts, likelihood_ratio
from kanab.stats.counts.glm import _not_beyond

FAMILIES = {"binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}
METRICS = {"bought": Metric("bought", 1, (0, 1)), "orders": Metric("orders", 1, (0, 60)), "spend": Metric("spend", 100)}


def people(n=1500, seed=1):
    rng = np.random.default_rng(seed)
    arm, tier, device = rng.choice(["A", "B"], n, p=[0.6, 0.4]), rng.integers(1, 5, n), rng.choice(["pc", "tv"], n)
    bought = rng.random(n) < 1 / (1 + np.exp(2.2 - 0.3 * tier - 0.4 * (arm == "B")))
    orders = rng.negative_binomial(2, 2 / (2 + 0.4 * tier + 0.5 * (arm == "B")))
    return pd.DataFrame(
        {
            "arm": arm,
            "tier": tier,
            "device": device,
            "bought": bought.astype(int),
            "orders": orders,
            "spend": orders / 4,
        }
    )


def counted(rows, squares="class"):
    return count_columns(rows, arm="arm", covariates=["tier", "device"], metrics=METRICS, squares=squares)


def on_rows(rows, formula, metric, family, **named):
    """The same model by statsmodels on people, its numbers in our order of terms."""
    model = smf.glm(f"{metric} ~ {formula}", rows, family=FAMILIES[family])
    near = model.fit(tol=1e-14, maxiter=200)
    result = model.fit(start_params=near.params, **named)  # its errors are those of the step before the last
    names = [name.replace("C(tier)", "tier").replace("[T.", "[") for name in result.params.index]
    return result, lambda values: dict(zip(names, np.asarray(values).tolist(), strict=True))


ROWS = people()
TALLY = counted(ROWS)
CASES = [("binomial", "bought"), ("poisson", "orders"), ("poisson", "bought")]


@pytest.mark.parametrize(("family", "metric"), CASES)
@pytest.mark.parametrize("formula", ["arm", "arm + tier", "arm * C(tier) + device"])
def test_coefficients_errors_and_tests_are_those_of_the_rows(family, metric, formula):
    fitted = fit(TALLY, formula, metric, family=family)
    oracle, by_name = on_rows(ROWS, formula, metric, family)
    for ours, theirs in ((fitted.b, oracle.params), (fitted.se, oracle.bse), (fitted.z, oracle.tvalues)):
        named = by_name(theirs)
        assert ours.tolist() == pytest.approx([named[name] for name in fitted.names], rel=1e-10)
    p = by_name(oracle.pvalues)
    assert fitted.p.tolist() == pytest.approx([p[name] for name in fitted.names], rel=1e-8)
    ends = [by_name(column) for column in oracle.conf_int().to_numpy().T]
    assert fitted.intervals.T.tolist() == [
        pytest.approx([end[name] for name in fitted.names], rel=1e-9) for end in ends
    ]
    assert fitted.ratios.tolist() == pytest.approx(np.exp(fitted.b).tolist())
    assert (fitted.n, fitted.df) == (oracle.nobs, oracle.df_resid)
    assert fitted.pearson == pytest.approx(oracle.pearson_chi2, rel=1e-10)
    assert fitted.overall.chi2 == pytest.approx(2 * (oracle.llf - oracle.llnull), rel=1e-9)


@pytest.mark.parametrize(("family", "metric"), CASES)
def test_log_likelihood_and_deviance_are_those_of_the_rows_where_sums_tell_them(family, metric):
    fitted = fit(TALLY, "arm * C(tier)", metric, family=family)
    oracle, _ = on_rows(ROWS, "arm * C(tier)", metric, family)
    if metric == "orders":
        assert (fitted.loglik, fitted.deviance) == (None, None)
        constant = math.fsum(math.lgamma(y + 1) for y in ROWS["orders"])
        assert fitted.kernel - constant == pytest.approx(oracle.llf, rel=1e-10)
        assert any("Σ log y! needs rows" in note for note in fitted.notes)
    else:
        assert fitted.loglik == pytest.approx(oracle.llf, rel=1e-10)
        assert fitted.deviance == pytest.approx(oracle.deviance, rel=1e-10)


@pytest.mark.parametrize(("family", "metric"), CASES)
def test_likelihood_ratio_and_wald_tests_are_those_of_the_rows(family, metric):
    main, full = "arm + C(tier)", "arm * C(tier)"
    (small, _), (large, _) = on_rows(ROWS, main, metric, family), on_rows(ROWS, full, metric, family)
    test = likelihood_ratio(TALLY, main, full, metric, family=family)
    assert (test.chi2, test.df) == (pytest.approx(2 * (large.llf - small.llf), rel=1e-9), 3)
    wald = fit(TALLY, full, metric, family=family).wald("arm:tier")
    names = [name for name in large.params.index if ":" in name]
    theirs = large.wald_test(", ".join(f"({name} = 0)" for name in names), scalar=True)
    assert (wald.chi2, wald.df, wald.p) == (
        pytest.approx(theirs.statistic, rel=1e-9), 3, pytest.approx(theirs.pvalue, rel=1e-8),
    )  # fmt: skip


@pytest.mark.parametrize(("family", "metric"), CASES)
def test_robust_errors_are_those_of_the_rows(family, metric):
    fitted = fit(TALLY, "arm + tier", metric, family=family, errors="HC0")
    oracle, by_name = on_rows(ROWS, "arm + tier", metric, family, cov_type="HC0")
    named = by_name(oracle.bse)
    assert fitted.se.tolist() == pytest.approx([named[name] for name in fitted.names], rel=1e-10)
    wider = fit(TALLY, "arm + tier", metric, family=family, errors="HC1").se / fitted.se
    assert wider.tolist() == pytest.approx([math.sqrt(1500 / 1497)] * 3, rel=1e-12)


def test_quasi_errors_are_those_of_the_rows_with_squares_per_class():
    fitted = fit(TALLY, "arm + tier", "orders", family="poisson", errors="quasi")
    oracle, by_name = on_rows(ROWS, "arm + tier", "orders", "poisson", scale="X2")
    named = by_name(oracle.bse)
    assert fitted.se.tolist() == pytest.approx([named[name] for name in fitted.names], rel=1e-9)
    assert fitted.dispersion == pytest.approx(oracle.scale, rel=1e-10)


def test_squares_per_arm_are_enough_for_a_dispersion_per_arm():
    by_arm = counted(ROWS, squares="arm")
    fitted = fit(by_arm, "arm", "orders", family="poisson", errors="arm")
    means, variances, people_of = (ROWS.groupby("arm")["orders"].agg(kind) for kind in ("mean", "var", "count"))
    parts = variances / people_of / means**2  # the variance of a logarithm of a mean
    assert fitted.se.tolist() == pytest.approx([math.sqrt(parts["A"]), math.sqrt(parts.sum())], rel=1e-10)
    wide = fit(by_arm, "arm + tier", "orders", family="poisson", errors="quasi")
    narrow = fit(by_arm, "arm + tier", "orders", family="poisson")
    assert narrow.pearson is None
    assert (wide.se / narrow.se).tolist() == pytest.approx([math.sqrt(narrow.dispersion)] * 3)
    exact = fit(TALLY, "arm + tier", "orders", family="poisson", errors="quasi")
    assert wide.se.tolist() == pytest.approx(exact.se.tolist(), rel=0.05)


def test_overdispersed_counts_are_noted_where_errors_do_not_allow_for_them():
    assert "times as much as Poisson's" in str(fit(TALLY, "arm", "orders", family="poisson"))
    assert "times as much as" not in str(fit(TALLY, "arm", "orders", family="poisson", errors="arm"))


def test_lack_of_fit_compares_with_one_mean_per_class():
    saturated = fit(TALLY, "arm * C(tier)", "bought", family="binomial")
    line = fit(TALLY, "arm * tier", "bought", family="binomial")
    assert saturated.lack_of_fit is None
    assert line.lack_of_fit.chi2 == pytest.approx(2 * (saturated.loglik - line.loglik), rel=1e-9)
    assert line.lack_of_fit.df == 4
    nothing = fit(TALLY, "1", "bought", family="binomial")
    assert (nothing.overall.chi2, nothing.overall.df, nothing.overall.p) == (pytest.approx(0, abs=1e-9), 0, 1)
    assert nothing.b[0] == pytest.approx(math.log(ROWS["bought"].mean() / (1 - ROWS["bought"].mean())))
    rates = fit(TALLY, "arm * tier", "orders", family="poisson")
    assert rates.lack_of_fit.chi2 == pytest.approx(
        2 * (fit(TALLY, "arm * C(tier)", "orders", family="poisson").kernel - rates.kernel), rel=1e-8
    )


def test_wald_takes_coefficients_and_terms_and_names_what_it_has():
    fitted = fit(TALLY, "arm * C(tier)", "bought", family="binomial")
    assert fitted.wald("arm[B]").chi2 == pytest.approx(fitted.z[1] ** 2)
    assert fitted.wald("tier", "tier[2]").df == 3
    assert str(fitted.wald("tier")).startswith("tier: Wald χ²(3) = ")
    with pytest.raises(FormulaError, match=r"the model has no such term\. It has: arm, tier, arm:tier\."):
        fitted.wald("device")
    with pytest.raises(FormulaError, match="no term is named"):
        fitted.wald()


def test_a_fit_is_json_and_html():
    fitted = fit(TALLY, "arm + C(tier)", "orders", family="poisson", errors="HC1")
    plain = json.loads(json.dumps(fitted.to_dict(), allow_nan=False))
    assert plain["ratio"] == "rate ratio"
    assert plain["coefficients"][1]["term"] == "arm[B]"
    assert plain["coefficients"][1]["ratio_interval"] == pytest.approx(fitted.ratio_intervals[1].tolist())
    assert plain["lack_of_fit"]["df"] == 3
    assert plain["loglik"] is None
    assert fit(TALLY, "arm * C(tier)", "bought", family="binomial").to_dict()["lack_of_fit"] is None
    html = fitted._repr_html_()
    assert "<td" in html
    assert "HC1 errors" in html
    assert "<p>The log-likelihood" in html


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_a_class_without_events_is_refused_with_the_terms_that_have_no_end(family):
    rows = ROWS.assign(bought=np.where(ROWS["tier"] == 3, 0, ROWS["bought"]))
    with pytest.raises(DesignError, match=r"no finite coefficient.*: tier\[3\]\. Merge levels") as problem:
        fit(counted(rows), "arm + C(tier)", "bought", family=family)
    assert "tier[2]" not in problem.value.fact
    assert np.isfinite(fit(counted(rows), "arm + tier", "bought", family=family).b).all()


def test_quasi_separation_by_a_number_is_refused():
    rows = ROWS.assign(bought=(ROWS["tier"] > 2).astype(int))
    with pytest.raises(DesignError, match="no finite coefficient"):
        fit(counted(rows), "arm + tier", "bought", family="binomial")


@pytest.mark.parametrize(("value", "family"), [(0, "binomial"), (1, "binomial"), (0, "poisson")])
def test_a_metric_that_is_the_same_for_everybody_is_refused(value, family):
    with pytest.raises(DesignError, match="bought is the same for everybody"):
        fit(counted(ROWS.assign(bought=value)), "arm", "bought", family=family)


def test_metrics_of_another_kind_are_refused():
    with pytest.raises(AnalysisError, match="orders is not a 0/1 metric, so it has no odds"):
        fit(TALLY, "arm", "orders", family="binomial")
    with pytest.raises(AnalysisError, match="spend is not known to be whole numbers from 0 on"):
        fit(TALLY, "arm", "spend", family="poisson")
    below = count_columns(ROWS, arm="arm", metrics={"orders": Metric("orders", 1, (-1, 60))})
    with pytest.raises(AnalysisError, match="Declare bounds from 0 on and resolution 1"):
        fit(below, "arm", "orders", family="poisson")


def test_choices_that_are_not_there_are_refused():
    with pytest.raises(AnalysisError, match=r"unknown family\. Use one of: gaussian, binomial, poisson\."):
        fit(TALLY, "arm", "bought", family="gamma")
    with pytest.raises(AnalysisError, match="unknown kind of errors"):
        fit(TALLY, "arm", "bought", family="binomial", errors="HC3")
    with pytest.raises(AnalysisError, match="a 0/1 metric cannot vary more than its mean allows"):
        fit(TALLY, "arm", "bought", family="binomial", errors="quasi")
    with pytest.raises(AnalysisError, match="no squares by arm × tier"):
        fit(counted(ROWS, squares="arm"), "arm + tier", "orders", family="poisson", errors="HC0")
    with pytest.raises(FormulaError, match="not contained in the second"):
        likelihood_ratio(TALLY, "arm * tier", "arm + device", "bought")
    with pytest.raises(AnalysisError, match="confidence must lie"):
        fit(TALLY, "arm", "bought", family="binomial", confidence=2)


def test_a_linear_fit_takes_robust_errors_by_the_same_word():
    assert fit(TALLY, "arm + tier", "orders", errors="HC2").errors == "HC2"
    with pytest.raises(AnalysisError, match="unknown kind of errors"):
        fit(TALLY, "arm", "orders", errors="quasi")


def test_a_design_that_classes_cannot_tell_apart_is_refused():
    rows = ROWS.assign(device=np.where(ROWS["tier"] > 2, "pc", "tv"))
    with pytest.raises(DesignError, match=r"cannot tell these terms apart: device\[tv\]"):
        fit(counted(rows), "C(tier) + device", "bought", family="binomial")


def test_too_few_people_are_refused():
    rows = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "y": [0, 1, 1, 0]}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    with pytest.raises(DesignError, match="too few people for the 4 coefficients"):
        fit(tally, "arm * C(tier)", family="binomial")
    alone = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "y": [3, 5, 4, 9]}
    metric = {"y": Metric("y", 1, (0, 9))}
    lonely = count_columns(alone, arm="arm", covariates=["tier"], metrics=metric, squares="arm")
    assert fit(lonely, "arm + tier", family="poisson").dispersion is None
    with pytest.raises(DesignError, match="too few people to tell how much its counts vary"):
        fit(lonely, "arm + tier", family="poisson", errors="arm")
    with pytest.raises(AnalysisError, match="so it has no odds"):
        fit_counts(eighteen(), "arm")


def test_a_step_that_would_lower_the_likelihood_is_halved():
    step, reached = _not_beyond(lambda scaled: -float((scaled[0] - 1) ** 2), np.array([8.0]), -1.0)
    assert (step[0], reached) == (2.0, -1.0)


def test_a_coefficient_that_no_step_moves_has_no_z():
    rows = {"arm": ["A"] * 20 + ["B"] * 20, "y": [0, 1] * 20}
    fitted = fit(count_columns(rows, arm="arm", metrics=["y"]), "arm", family="binomial")
    assert fitted.b.tolist() == pytest.approx([0, 0], abs=1e-12)
    assert fitted.p[1] == pytest.approx(1)


@pytest.mark.slow
def test_wald_and_likelihood_ratio_tests_hold_their_size():
    rng = np.random.default_rng(16)
    tier, arm = np.repeat([0, 1, 2], 200), np.tile(["A", "B"], 300)
    rate = np.array([0.1, 0.2, 0.4])[tier]
    alarms = np.zeros(3)
    for _ in range(400):
        rows = {"arm": arm, "tier": tier, "bought": (rng.random(600) < rate).astype(int)}
        tally = count_columns(rows, arm="arm", covariates=["tier"], metrics={"bought": METRICS["bought"]})
        fitted = fit(tally, "arm + C(tier)", "bought", family="binomial")
        crossed = likelihood_ratio(tally, "arm + C(tier)", "arm * C(tier)")
        alone = likelihood_ratio(tally, "C(tier)", "arm + C(tier)")
        alarms += np.array([fitted.p[1], alone.p, crossed.p]) < 0.05
    assert np.all((alarms / 400 > 0.025) & (alarms / 400 < 0.08)), alarms / 400


def test_a_thousand_classes_are_fitted_in_milliseconds():
    rng = np.random.default_rng(2)
    n = 20_000
    rows = {"arm": rng.choice(["A", "B"], n), "tier": rng.integers(0, 500, n), "y": rng.integers(0, 2, n)}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    assert len(tally.people.ravel()) == 1000
    began = time.process_time()
    fit(tally, "arm * tier", family="binomial")
    assert time.process_time() - began < 0.5  # 8 ms where it was written
