"""Formulas that are read and refused and their columns, and OLS from classes: the paper's numbers, robust errors."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

from kanab import Metric, Tally, count_columns
from kanab.datasets import eighteen, eighteen_rows
from kanab.errors import AnalysisError, DesignError, FormulaError
from kanab.stats import fit
from kanab.stats.gram import classes_of
from kanab.stats.regression import design, parse
from kanab.tally import Factor
from kanab.tally.moments import Moments


def terms(formula):
    return [":".join(map(str, term)) for term in parse(formula)]


def columns(tally, formula):
    model = design(tally, parse(formula), classes_of(tally))
    return {name: column.tolist() for name, column in zip(model.names, model.matrix.T, strict=True)}


def crossed(**levels):
    """One person in every combination of the levels; the first factor is the experiment."""
    factors = []
    for name, values in levels.items():
        numbers = len(factors) > 0 and not any(isinstance(value, str) for value in values)
        scores = tuple(None if value is None else float(value) for value in values) if numbers else None
        factors.append(Factor(name, tuple(values), "covariate" if factors else "arm", scores))
    ones = np.ones(tuple(len(factor.levels) for factor in factors), dtype=object)
    return Tally(tuple(factors), ones, (Moments(Metric("y", 1, (0, 1)), ones, ones, {}),))


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("arm", ["arm"]),
        ("arm + tier", ["arm", "tier"]),
        ("arm * tier", ["arm", "tier", "arm:tier"]),
        ("arm:tier", ["arm:tier"]),
        ("arm + arm + tier", ["arm", "tier"]),
        ("tier:arm + arm:tier", ["arm:tier"]),
        ("arm:arm", ["arm"]),
        ("arm*tier*device", ["arm", "tier", "device", "arm:tier", "arm:device", "tier:device", "arm:tier:device"]),
        ("arm * (tier + device)", ["arm", "tier", "device", "arm:tier", "arm:device"]),
        ("arm:(tier + device)", ["arm:tier", "arm:device"]),
        ("arm:tier + arm", ["arm", "arm:tier"]),
        ("((arm))", ["arm"]),
        ("1", []),
        ("1 + arm", ["arm"]),
        ("C(tier) + tier", ["C(tier)", "tier"]),
        ("C ( tier )", ["C(tier)"]),
        ("C(`time on app`) + `time on app`", ["C(time on app)", "time on app"]),
        ("C", ["C"]),
        ("C + C(C)", ["C", "C(C)"]),
        ("größe + _x1 + a.b.c", ["größe", "_x1", "a.b.c"]),
        ("  arm\n+\ttier  ", ["arm", "tier"]),
    ],
)
def test_a_formula_is_read_as_its_terms_main_effects_first(formula, expected):
    assert terms(formula) == expected


@pytest.mark.parametrize(
    "formula",
    [
        "", " ", "+", "arm +", "+ arm", "arm ++ tier", "arm tier", "arm *", "* arm", "arm : ", ":arm", "(arm", "arm)",
        "()", "arm - tier", "-1", "0 + arm", "arm + 2", "arm ** 2", "arm^2", "log(tier)", "C()", "C(", "C(tier", "C(+)",
        "C(a b)", "C(C(tier))", "arm | tier", "arm, tier", "arm == 1", "`", "``", "`arm", "1arm", "²", "arm; drop",
        "\x00", "11",
    ],
)  # fmt: skip
def test_what_is_not_a_formula_is_refused_with_a_place_and_a_remedy(formula):
    with pytest.raises(FormulaError, match=r"this is not a formula - at position \d+ of the formula\. Use names, \+"):
        parse(formula)


@pytest.mark.parametrize("formula", ["y ~ arm", "~ arm", "arm ~ tier"])
def test_a_left_side_is_refused_with_a_hint_where_the_metric_goes(formula):
    with pytest.raises(FormulaError, match=r"a formula has no left side .*fit\(tally, 'arm', 'spend'\)"):
        parse(formula)


def test_the_place_of_an_error_is_the_word_that_is_wrong():
    with pytest.raises(FormulaError, match="at position 3 of the formula"):
        parse("arm + + tier")
    with pytest.raises(FormulaError, match="at position 6 of the formula"):
        parse("arm + C(tier device)")
    with pytest.raises(FormulaError, match="at position 5 of the formula"):
        parse("arm + C(+)")


@pytest.mark.parametrize("formula", [None, 5, b"arm", ["arm"], "a" * 2_001])
def test_anything_but_a_short_text_is_refused(formula):
    with pytest.raises(FormulaError, match=r"a formula must be a short text\. For example 'arm \+ tier'\."):
        parse(formula)


def test_twenty_brackets_are_read_and_twenty_one_refused():
    assert terms("(" * 20 + "arm" + ")" * 20) == ["arm"]
    with pytest.raises(FormulaError, match="nested too deeply"):
        parse("(" * 21 + "arm" + ")" * 21)


def test_more_than_two_hundred_terms_are_refused():
    assert len(terms("*".join("abcdefg"))) == 127
    with pytest.raises(FormulaError, match="too many terms"):
        parse("*".join("abcdefgh"))
    with pytest.raises(FormulaError, match="too many terms"):
        parse("(" + "+".join(f"a{i}" for i in range(15)) + "):(" + "+".join(f"b{i}" for i in range(15)) + ")")


@pytest.mark.slow
def test_products_of_long_sums_are_refused_before_they_fill_the_memory():
    half = "+".join(["a*b*c*d*e*f*g"] * 70)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))\n"
        "from kanab.errors import FormulaError\nfrom kanab.stats.regression import parse\n"
        f"half = {half!r}\n"
        "try:\n    parse(f'({half})*({half})')\nexcept FormulaError:\n    pass\n"
    )
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=False, env=alone)
    assert done.returncode == 0, done.stderr.decode()[-300:]


def test_columns_are_treatment_coded_with_the_first_level_as_reference():
    assert columns(crossed(arm="AB", tier=[1, 2, 3]), "arm + C(tier)") == {
        "Intercept": [1, 1, 1, 1, 1, 1],
        "arm[B]": [0, 0, 0, 1, 1, 1],
        "tier[2]": [0, 1, 0, 0, 1, 0],
        "tier[3]": [0, 0, 1, 0, 0, 1],
    }


def test_the_missing_level_of_a_numeric_covariate_is_a_column_of_its_own():
    coded = columns(crossed(arm="AB", tier=[1, 2, None]), "tier")
    assert coded == {
        "Intercept": [1] * 6,
        "tier": [1, 2, 0, 1, 2, 0],
        "tier[missing]": [0, 0, 1, 0, 0, 1],
    }


def test_a_missing_level_that_nobody_has_makes_no_column():
    tally = crossed(arm="AB", tier=[1, 2, None])
    missing = np.zeros((2, 3), dtype=object)
    missing[:, 2] = 1
    gone = Tally(tally.factors, missing, (Moments(tally.metrics[0], missing, missing, {}),))
    assert list(columns(tally - gone, "tier")) == ["Intercept", "tier"]


def test_the_experiments_of_a_pair_are_called_by_their_names():
    rows = {"one": list("ABAB"), "two": list("XXYY"), "y": [0, 1, 1, 0]}
    tally = count_columns(rows, arm=["one", "two"], metrics=["y"])
    assert list(columns(tally, "one * two")) == ["Intercept", "one[B]", "two[Y]", "one[B]:two[Y]"]
    with pytest.raises(FormulaError, match=r"unknown factor\. This tally has: one, two\."):
        columns(tally, "arm")


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
