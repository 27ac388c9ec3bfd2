"""HC0 to HC3 from classes are those of statsmodels from rows."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from kanab import Metric, count_columns
from kanab.datasets import eighteen, eighteen_rows
from kanab.errors import AnalysisError, DesignError
from kanab.stats import difference_in_means, fit
from kanab.stats.hc import robust_fit

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
    found = robust_fit(counted(rows), formula, metric, errors=kind)
    oracle = smf.ols(f"{metric} ~ {formula}", rows).fit(cov_type=kind, use_t=True)
    order = [name.replace("C(tier)", "tier").replace("[T.", "[") for name in oracle.params.index]
    expected = pd.DataFrame({"b": oracle.params.to_numpy(), "se": oracle.bse.to_numpy()}, index=order).loc[
        list(found.names)
    ]
    assert found.b == pytest.approx(expected["b"].to_numpy(), rel=1e-9, abs=1e-12)
    assert found.se == pytest.approx(expected["se"].to_numpy(), rel=1e-9)
    p = dict(zip(order, oracle.pvalues, strict=True))
    assert found.p == pytest.approx([p[name] for name in found.names], rel=1e-7, abs=1e-300)


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
