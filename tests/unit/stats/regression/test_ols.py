"""OLS from classes: the paper's numbers, and what cannot be fitted."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from kanab import Metric, count_columns
from kanab.datasets import eighteen, eighteen_rows
from kanab.errors import AnalysisError, DesignError, FormulaError, LevelError
from kanab.stats import difference_in_means, fit
from kanab.stats.regression.ols import robust_fit


def eight(y, **more):
    rows = {"arm": list("AAAABBBB"), "tier": [1, 1, 2, 2] * 2, "y": y, **more}
    return count_columns(rows, arm="arm", covariates=["tier", *more], metrics=["y"])


def test_main_effects_are_the_papers():
    fitted = fit(eighteen(), "arm + C(tier)")
    assert fitted.names == ("Intercept", "treatment[B]", "tier[2]", "tier[3]")
    assert fitted.b == pytest.approx([0.658342556056, -0.118845493111, 0.721147466667, 1.115929627500], abs=5e-13)
    assert fitted.se == pytest.approx([0.338716133705, 0.338716133705, 0.414840847613, 0.414840847613], abs=5e-13)
    assert fitted.t == pytest.approx([1.943640974094, -0.350870482050, 1.738371403917, 2.690018675649], abs=5e-12)
    assert (fitted.rss, fitted.n, fitted.df) == (pytest.approx(7.22790301161416, rel=1e-14), 18, 14)
    assert fitted.tss == pytest.approx(37.5434090025428, rel=1e-14)


def test_the_full_model_is_the_papers():
    fitted = fit(eighteen(), "arm * C(tier)")
    expected = [0.72361644, -0.24939326, 1.34668183, 0.29457361, -1.25106873, 1.64271203]
    assert fitted.b == pytest.approx(expected, abs=5e-9)
    assert fitted.rss == pytest.approx(0.909081572737122, rel=1e-14)


def test_an_intercept_alone_is_the_mean_with_no_f_test():
    fitted = fit(eight([1, 2, 3, 4, 5, 6, 7, 8]), "1")
    assert fitted.names == ("Intercept",)
    assert fitted.b.tolist() == [4.5]
    assert fitted.rss == 42
    assert fitted.anova.df == (0, 7, 7)
    assert (fitted.anova.F, fitted.anova.p, fitted.r2) == (None, None, 0)


def test_anova_splits_the_squares_about_the_mean():
    fitted = fit(eight([1, 2, 3, 4, 5, 6, 7, 8]), "arm")
    assert fitted.anova.df == (1, 6, 7)
    assert fitted.anova.ss == pytest.approx((32, 10, 42), rel=1e-14)
    assert (fitted.anova.F, fitted.anova.p) == pytest.approx((19.2, fitted.p[1]), rel=1e-12)
    assert fitted.r2 == pytest.approx(32 / 42, rel=1e-15)
    assert str(fitted.anova).splitlines()[2].split() == ["Regression", "1", "32.00", "32.00", "19.20", "0.00466"]


def test_xtx_and_xty_are_those_of_the_rows():
    fitted = fit(eight([1, 2, 3, 4, 5, 6, 7, 8]), "arm + tier")
    assert fitted.xtx.tolist() == [[8, 4, 12], [4, 4, 6], [12, 6, 20]]
    assert fitted.xty.tolist() == [36, 26, 58]


def test_covariance_is_the_inverse_of_xtx_times_the_residual_variance():
    fitted = fit(eighteen(), "arm * C(tier)")
    expected = np.linalg.inv(fitted.xtx) * fitted.rss / fitted.df
    assert fitted.covariance == pytest.approx(expected, rel=1e-12)
    assert fitted.se == pytest.approx(np.sqrt(np.diag(expected)), rel=1e-12)


def test_a_wider_confidence_gives_wider_intervals():
    narrow, wide = (fit(eighteen(), "arm", confidence=level) for level in (0.5, 0.99))
    assert np.all(wide.intervals[:, 0] < narrow.intervals[:, 0])
    assert np.all(wide.intervals[:, 1] > narrow.intervals[:, 1])
    assert wide.confidence == 0.99
    assert "99% interval" in str(wide)


def test_the_printed_fit_has_one_line_per_coefficient():
    lines = str(fit(eighteen(), "arm + C(tier)", "minutes")).splitlines()
    assert lines[0] == "minutes ~ arm + C(tier)   (n = 18, df = 14)"
    assert lines[3].split()[:5] == ["Intercept", "0.6583", "0.3387", "1.944", "0.0723"]
    assert len(lines) == 3 + 4


def test_numeric_and_categorical_codings_of_two_levels_agree():
    tally = eight([1, 2, 3, 9, 5, 6, 7, 8])
    numeric, categories = fit(tally, "arm + tier"), fit(tally, "arm + C(tier)")
    assert numeric.b[1:] == pytest.approx(categories.b[1:], rel=1e-14)
    assert numeric.rss == pytest.approx(categories.rss, rel=1e-14)


def test_people_without_a_value_are_left_out_when_the_metric_says_so():
    rows = {"arm": list("AAAABBBB"), "y": [1, 2, 3, None, 5, 6, None, None]}
    tally = count_columns(rows, arm="arm", metrics=["y"], missing={"y": "exclude"})
    fitted = fit(tally, "arm")
    assert fitted.n == 5
    assert fitted.b.tolist() == [2, 3.5]


def test_the_metric_is_named_where_there_are_several():
    tally = count_columns({"arm": list("AABB"), "y": [1, 2, 3, 5], "z": [4, 3, 2, 0]}, arm="arm", metrics=["y", "z"])
    assert fit(tally, "arm", "z").b.tolist() == [3.5, -2.5]
    with pytest.raises(LevelError, match=r"several metrics, and none named\. This tally has: y, z\."):
        fit(tally, "arm")
    with pytest.raises(LevelError, match=r"unknown metric\. This tally has: y, z\."):
        fit(tally, "arm", "x")


def test_both_experiments_of_a_pair_fit_in_one_formula():
    rows = {"one": list("ABAB") * 2, "two": list("XXYY") * 2, "y": [0, 1, 1, 4, 2, 3, 3, 6]}
    fitted = fit(count_columns(rows, arm=["one", "two"], metrics=["y"]), "one * two")
    assert fitted.names == ("Intercept", "one[B]", "two[Y]", "one[B]:two[Y]")
    assert fitted.b == pytest.approx([1, 1, 1, 2], rel=1e-14)
    assert fitted.rss == 8


def test_an_arm_with_nobody_makes_no_coefficient():
    tally = eight([1, 2, 3, 4, 5, 6, 7, 8])
    only_a = tally.select_arms(["A"]) + tally.select_arms(["B"]).empty()
    assert fit(only_a, "arm + tier").names == ("Intercept", "tier")


def test_a_saturated_formula_over_empty_classes_names_its_terms():
    rows = {"arm": list("AAABBB"), "tier": [1, 2, 3, 1, 1, 2], "y": range(6)}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    with pytest.raises(DesignError, match=r"cannot tell these terms apart: arm\[B\]:tier\[3\]\."):
        fit(tally + tally, "arm * C(tier)")


def test_scores_beside_their_own_categories_are_named():
    with pytest.raises(DesignError, match=r"cannot tell these terms apart: tier\[3\]\."):
        fit(eighteen(), "tier + C(tier)")


def test_fewer_people_than_coefficients_are_refused():
    rows = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "y": [1, 2, 3, 5]}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    assert fit(tally, "arm + tier").df == 1
    with pytest.raises(DesignError, match="too few people for the 4 coefficients of this formula"):
        fit(tally, "arm * tier")


def test_a_formula_without_squares_is_refused_with_the_remedy():
    tally = eighteen()
    bare = type(tally)(
        tally.factors, tally.people, tuple(type(m)(m.metric, m.counts, m.sums, {}) for m in tally.moments)
    )
    with pytest.raises(AnalysisError, match="no squares by treatment were kept, so no error can be estimated"):
        fit(bare, "arm")


def test_unknown_names_and_bad_formulas_are_formula_errors():
    with pytest.raises(FormulaError, match="unknown factor"):
        fit(eighteen(), "arm + device")
    with pytest.raises(FormulaError, match="this is not a formula"):
        fit(eighteen(), "arm +")
    with pytest.raises(AnalysisError, match="nobody has been counted"):
        fit(eighteen().empty(), "arm")


@pytest.mark.parametrize("confidence", [0, 1, 95, "0.95"])
def test_an_impossible_confidence_is_refused(confidence):
    with pytest.raises(AnalysisError, match="confidence must lie between 0 and 1"):
        fit(eighteen(), "arm", confidence=confidence)


def test_a_constant_metric_has_no_errors_no_p_and_no_f():
    fitted = fit(eight([7] * 8), "arm")
    assert fitted.b.tolist() == [7, 0]
    assert fitted.se.tolist() == [0, 0]
    assert (fitted.rss, fitted.anova.F, fitted.anova.p, fitted.r2) == (0, None, None, None)
    assert np.isnan(fitted.t).all()
    assert np.isnan(fitted.p).all()
    assert str(fitted).splitlines()[3].split()[3:5] == ["–", "–"]
    assert str(fitted.anova).splitlines()[2].split() == ["Regression", "1", "0", "–", "–"]


def test_a_perfect_fit_has_no_errors_to_test_against():
    x = [0, 3, 6, 9] * 8
    rows = {"arm": ["A"] * 16 + ["B"] * 16, "x": x, "y": [value // 3 for value in x]}
    fitted = fit(count_columns(rows, arm="arm", covariates=["x"], metrics=["y"]), "arm + x")
    assert fitted.rss == 0
    assert np.isnan(fitted.p).all()


def test_the_intercept_keeps_its_digits_when_other_levels_are_far_away():
    near = [1, 1, 2, 3, 3, 4]
    rows = {"arm": list("AAABBB") * 2, "tier": [1] * 6 + [2] * 6, "y": near + [4e12 + value for value in near]}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y", 1024)})
    assert fit(tally, "arm + C(tier)").b.tolist() == pytest.approx([4 / 3, 2, 4e12], rel=1e-12)


# ── robust errors ───────────────────────────────────────────────────────────────────────────────────

KINDS = ["HC0", "HC1", "HC2", "HC3"]


def people(n=400, shift=0.0, seed=1):
    rng = np.random.default_rng(seed)
    arm, tier = rng.choice(["A", "B"], n, p=[0.8, 0.2]), rng.integers(1, 5, n)
    y = np.round(rng.normal(tier, 1 + tier * (arm == "B")), 2) + shift
    return pd.DataFrame({"arm": arm, "tier": tier, "y": y, "bought": (rng.random(n) < 0.05 * tier).astype(int)})


def counted(rows, squares="class"):
    metrics = {"y": Metric("y", 100), "bought": Metric("bought", 1, (0, 1))}
    return count_columns(rows, arm="arm", covariates=["tier"], metrics=metrics, squares=squares)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("metric", ["y", "bought"])
@pytest.mark.parametrize("formula", ["arm", "arm + tier", "arm * C(tier)"])
def test_errors_are_those_of_the_rows(kind, metric, formula):
    rows = people()
    fitted = robust_fit(counted(rows), formula, metric, errors=kind)
    oracle = smf.ols(f"{metric} ~ {formula}", rows).fit(cov_type=kind, use_t=True)
    order = [name.replace("C(tier)", "tier").replace("[T.", "[") for name in oracle.params.index]
    expected = pd.DataFrame({"b": oracle.params.to_numpy(), "se": oracle.bse.to_numpy()}, index=order).loc[
        list(fitted.names)
    ]
    assert fitted.b == pytest.approx(expected["b"].to_numpy(), rel=1e-9, abs=1e-12)
    assert fitted.se == pytest.approx(expected["se"].to_numpy(), rel=1e-9)
    p = dict(zip(order, oracle.pvalues, strict=True))
    assert fitted.p == pytest.approx([p[name] for name in fitted.names], rel=1e-7, abs=1e-300)


def test_a_large_mean_costs_no_digits():
    near, far = (robust_fit(counted(people(shift=s)), "arm + tier", "y").se for s in (0, 1e9))
    assert far == pytest.approx(near, rel=1e-6)  # the rows themselves are rounded at 1e9


def test_hc2_of_the_arm_is_welchs_error():
    assert robust_fit(eighteen(), "arm", errors="HC2").se[1] == pytest.approx(
        difference_in_means(eighteen()).se, rel=1e-13
    )


def test_zero_one_metrics_need_no_kept_squares():
    table = counted(people(), squares="arm")
    assert robust_fit(table, "arm * C(tier)", "bought").se == pytest.approx(
        robust_fit(counted(people()), "arm * C(tier)", "bought").se, rel=1e-14
    )


def test_others_need_squares_per_class_only_where_the_formula_does():
    table = counted(people(), squares="arm")
    assert robust_fit(table, "arm", "y").se == pytest.approx(robust_fit(counted(people()), "arm", "y").se, rel=1e-12)
    with pytest.raises(AnalysisError, match="no squares by arm × tier"):
        robust_fit(table, "arm + tier", "y")


def test_the_rest_of_the_fit_stays():
    plain, robust = fit(counted(people()), "arm + tier", "y"), robust_fit(counted(people()), "arm + tier", "y")
    assert (robust.rss, robust.df, robust.r2, robust.n) == (plain.rss, plain.df, plain.r2, plain.n)
    assert str(robust).split("\n")[0] == "y ~ arm + tier   (n = 400, df = 397, HC3 errors)"


def test_a_person_alone_in_a_class_has_no_hc3():
    rows = pd.DataFrame(eighteen_rows()).rename(columns={"treatment": "arm", "minutes": "y"})
    rows.loc[0, "tier"] = 4
    table = count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y", 10**9)}, squares="class")
    assert np.isfinite(robust_fit(table, "arm + C(tier)", errors="HC0").se).all()
    with pytest.raises(DesignError, match="fits itself, so HC3"):
        robust_fit(table, "arm + C(tier)")


def test_unknown_errors_are_refused():
    with pytest.raises(AnalysisError, match="unknown kind of errors"):
        robust_fit(eighteen(), "arm", errors="HC4")


def test_a_fit_takes_the_kind_of_errors():
    assert fit(eighteen(), "arm", errors="HC2").se.tolist() == robust_fit(eighteen(), "arm", errors="HC2").se.tolist()
