"""OLS from classes: the paper's numbers, and what cannot be fitted."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from kanab import Metric, count_columns
from kanab.datasets import eighteen, eighteen_rows
from kanab.errors import AnalysisError, DesignError
from kanab.stats import fit


def eight(y, **more):
    rows = {"arm": list("AAAABBBB"), "tier": [1, 1, 2, 2] * 2, "y": y, **more}
    return count_columns(rows, arm="arm", covariates=["tier", *more], metrics=["y"])


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


def test_scores_beside_their_own_categories_are_named():
    with pytest.raises(DesignError, match=r"cannot tell these terms apart: tier\[3\]\."):
        fit(eighteen(), "tier + C(tier)")


def test_fewer_people_than_coefficients_are_refused():
    rows = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "y": [1, 2, 3, 5]}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    assert fit(tally, "arm + tier").df == 1
    with pytest.raises(DesignError, match="too few people for the 4 coefficients of this formula"):
        fit(tally, "arm * tier")


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
    fitted = fit(counted(rows), formula, metric, errors=kind)
    oracle = smf.ols(f"{metric} ~ {formula}", rows).fit(cov_type=kind, use_t=True)
    order = [name.replace("C(tier)", "tier").replace("[T.", "[") for name in oracle.params.index]
    expected = pd.DataFrame({"b": oracle.params.to_numpy(), "se": oracle.bse.to_numpy()}, index=order).loc[
        list(fitted.names)
    ]
    assert fitted.b == pytest.approx(expected["b"].to_numpy(), rel=1e-9, abs=1e-12)
    assert fitted.se == pytest.approx(expected["se"].to_numpy(), rel=1e-9)
    p = dict(zip(order, oracle.pvalues, strict=True))
    assert fitted.p == pytest.approx([p[name] for name in fitted.names], rel=1e-7, abs=1e-300)


def test_others_need_squares_per_class_only_where_the_formula_does():
    table = counted(people(), squares="arm")
    assert fit(table, "arm", "y", errors="HC3").se == pytest.approx(
        fit(counted(people()), "arm", "y", errors="HC3").se, rel=1e-12
    )
    with pytest.raises(AnalysisError, match="no squares by arm × tier"):
        fit(table, "arm + tier", "y", errors="HC3")


def test_a_person_alone_in_a_class_has_no_hc3():
    rows = pd.DataFrame(eighteen_rows()).rename(columns={"treatment": "arm", "minutes": "y"})
    rows.loc[0, "tier"] = 4
    table = count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y", 10**9)}, squares="class")
    assert np.isfinite(fit(table, "arm + C(tier)", errors="HC0").se).all()
    with pytest.raises(DesignError, match="fits itself, so HC3"):
        fit(table, "arm + C(tier)", errors="HC3")


def test_unknown_errors_are_refused():
    with pytest.raises(AnalysisError, match="unknown kind of errors"):
        fit(eighteen(), "arm", errors="HC4")


def test_a_fit_says_what_its_errors_are():
    assert str(fit(eighteen(), "arm", errors="HC3")).startswith("minutes ~ arm   (n = 18, df = 16, HC3 errors)")
