"""Real experiments: the figures their authors printed, and those of statsmodels on the rows.

``published`` figures must agree to their printed digits. ``reference`` figures come from floating point over rows: the
t and Lin–Ding ones are good to 1e-13, the F ones are not (see ``f_tolerance``), so that every pooled F must also equal
the F of rational arithmetic.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import kanab as kb

DOUBLES = 1e-12  # far above the last digits of a double, far below anything that could matter
RSS_ERROR = 2.5e-14
"""How far statsmodels' residual sums of squares over rows may be off (measured with rational arithmetic: 1.7e-14)."""


HILLSTROM = ["newbie", "channel", "zip_code", "history_segment", "womens", "mens"]
PAST_VOTES = ["primary_00", "general_00", "primary_02", "general_02", "primary_04"]
MENS, WOMENS, NONE = "Mens E-Mail", "Womens E-Mail", "No E-Mail"
MAILED = ["Civic Duty", "Hawthorne", "Self", "Neighbors"]


def near(value: Any, *, rel: float = DOUBLES) -> Any:
    """Equal in relative terms alone: pytest's own absolute tolerance would hide digits of small numbers."""
    return pytest.approx(value, rel=rel, abs=0)


def f_tolerance(entry: dict[str, float]) -> float:
    """How well a reference F is known.

    Its numerator is the difference of two residual sums of squares over rows. Where the interaction explains little,
    that difference is a small part of them, and their rounding errors are a large part of it.
    """
    return RSS_ERROR * entry["rss_main"] / (entry["rss_main"] - entry["rss_full"])


def assert_reference_f(found: kb.stats.FTest, entry: dict[str, float]) -> None:
    """The reference F and degrees of freedom, and its p: d ln p / d ln F is about −qF/2 far out."""
    tolerance = f_tolerance(entry)
    steepness = 1 + entry["df_num"] * entry["F"] / 2
    f, p = found.F, found.p
    assert found.df == (entry["df_num"], entry["df_den"])
    assert f == near(entry["F"], rel=tolerance)
    assert p == near(entry["p"], rel=tolerance * steepness)


def exact_f(rows: pd.DataFrame, factors: list[str], values: pd.Series, exact_ols: Any) -> float:
    """The pooled partial F in rational arithmetic, from whole-number values of the rows."""
    whole = values.astype(int)
    cells = whole.groupby([rows[factor] for factor in factors]).agg(["size", "sum"])
    places = [tuple(np.unique(cells.index.get_level_values(factor), return_inverse=True)[1]) for factor in factors]
    first, second = (np.eye(max(place) + 1, dtype=int)[list(place)][:, 1:] for place in places)
    design = np.column_stack([np.ones(len(cells), dtype=int), first, second]).tolist()
    counts, sums = cells["size"].tolist(), cells["sum"].tolist()
    squares = sum(int(value) ** 2 for value in whole)
    main = exact_ols(design, counts, sums, squares)[1]
    full = exact_ols(np.eye(len(cells), dtype=int).tolist(), counts, sums, squares)[1]
    q, df = len(cells) - len(design[0]), len(rows) - len(cells)
    return float((main - full) / q / (full / df))


# ── Lin (2013): college men ────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def lin(shared: Path) -> kb.Tally:
    return kb.count_columns(
        shared / "lin2013_alo_star_men.csv.gz", arm="sfsp", covariates=["gpa0"], metrics=["GPA_year1"], squares="arm"
    )


def test_lin_unadjusted_difference_is_minus_0_036_with_hc0_error_0_158(lin, published):
    estimate, se = published["lin2013_alo_star_men"]["unadjusted"]
    means = kb.stats.plain_means(lin)
    n = means.df + 1
    assert lin.total == published["lin2013_alo_star_men"]["n"] == 157
    assert round(kb.stats.difference_in_means(lin).estimate, 3) == estimate == -0.036
    assert (
        round(float(np.sqrt(np.sum(means.sample * (n - 1) / n))), 3) == se == 0.158
    )  # HC0 divides by n, Welch by n − 1


def test_lin_single_slope_coefficient_is_minus_0_083(lin, published):
    model = kb.stats.fit(lin, "arm + gpa0")
    assert (
        round(model.b[model.names.index("sfsp[1]")], 3)
        == published["lin2013_alo_star_men"]["ancova1_gpa0"][0]
        == -0.083
    )


def test_lin_interacted_effect_is_minus_0_081(lin, published):
    published_effect = published["lin2013_alo_star_men"]["ancova2_interacted"][0]
    assert round(kb.stats.adjusted_effect(lin).estimate, 3) == published_effect == -0.081


def test_lin_ding_errors_are_the_reference_ones(lin, reference):
    found, entry = kb.stats.adjusted_effect(lin, variance="paper"), reference["lin2013_ding"]
    assert round(found.se, 4) == 0.1483
    assert found.estimate == near(entry["ate"])
    assert found.se == near(entry["se_sate"])
    assert found.se**2 == near(entry["var_sate"])
    assert found.se_population == near(entry["se_pate"])
    assert found.se_population**2 == near(entry["var_pate"])


# ── Hillstrom: three e-mail arms ───────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def hillstrom_rows(shared: Path) -> pd.DataFrame:
    return pd.read_csv(shared / "hillstrom_email.csv.gz")


@pytest.fixture(scope="session")
def hillstrom(hillstrom_rows: pd.DataFrame) -> kb.Tally:
    """All six covariates crossed."""
    return kb.count_columns(
        hillstrom_rows, arm="segment", covariates=HILLSTROM, metrics=["visit", "conversion", "spend"],
        resolution={"spend": 0.01},
    )  # fmt: skip


@pytest.fixture(scope="session")
def by_recency(hillstrom_rows: pd.DataFrame) -> kb.Tally:
    return kb.count_columns(
        hillstrom_rows, arm="segment", covariates=["recency"], metrics=["visit", "spend"], resolution={"spend": 0.01},
        squares="arm",
    )  # fmt: skip


def test_hillstrom_six_covariates_make_711_classes_17_of_them_below_5(hillstrom, published, reference):
    people = [n for n in hillstrom.people.ravel().tolist() if n]
    small = [n for n in people if n < 5]
    found = {"classes": len(people), "k_min": min(people), "classes_lt5": len(small), "rows_lt5": sum(small)}
    assert found == reference["hillstrom_classes_6_covariates"]
    assert found == {"classes": 711, "k_min": 2, "classes_lt5": 17, "rows_lt5": 59}
    assert hillstrom.total == published["hillstrom_email"]["n"] == 64_000


@pytest.mark.parametrize(("pair", "arm", "control"), [
    ("spend_mens_minus_none", MENS, NONE),
    ("spend_womens_minus_none", WOMENS, NONE),
    ("spend_mens_minus_womens", MENS, WOMENS),
])  # fmt: skip
def test_hillstrom_spend_lifts_and_errors_are_the_published_ones(hillstrom, published, pair, arm, control):
    lift, se = published["hillstrom_email"][pair]
    effect = kb.stats.difference_in_means(hillstrom, "spend", arm=arm, control=control)
    assert effect.estimate == near(lift)
    assert effect.se == near(se)


@pytest.mark.parametrize(("metric", "t", "p"), [("visit", 22.62, 1.36e-112), ("spend", 5.30, 1.16e-07)])
def test_hillstrom_welch_has_the_reference_t_df_and_p(hillstrom, reference, metric, t, p):
    effect = kb.stats.difference_in_means(hillstrom, metric, arm=MENS, control=NONE, test="welch")
    entry = reference[f"hillstrom_welch_{metric}_mens_vs_none"]
    assert (round(effect.t, 2), float(f"{effect.p:.2e}")) == (t, p)
    assert effect.estimate == near(entry["diff"])
    assert effect.t == near(entry["t"])
    assert effect.df == near(entry["df"])
    assert effect.p == near(entry["p"], rel=1e-10)


@pytest.mark.parametrize("covariate", HILLSTROM)
@pytest.mark.parametrize("metric", ["visit", "conversion", "spend"])
def test_hillstrom_interaction_has_the_reference_and_the_rational_f(
    hillstrom, hillstrom_rows, reference, exact_ols, metric, covariate
):
    found = kb.stats.pooled_f(hillstrom, covariate, metric)
    assert_reference_f(found, reference[f"hillstrom_{metric}_x_{covariate}"])
    values = (hillstrom_rows[metric] * 100).round() if metric == "spend" else hillstrom_rows[metric]
    f = found.F
    assert f == near(exact_f(hillstrom_rows, ["segment", covariate], values, exact_ols), rel=1e-13)


@pytest.mark.parametrize("people", ["all", "pair"])
@pytest.mark.parametrize("metric", ["visit", "spend"])
def test_hillstrom_effect_adjusted_for_recency_is_the_reference_one(by_recency, reference, metric, people):
    tally = by_recency if people == "all" else by_recency.select_arms([NONE, MENS])
    effect = kb.stats.adjusted_effect(tally, metric, arm=MENS, control=NONE, variance="paper")
    entry = reference[f"hillstrom_lin_{metric}_recency_mens_vs_none_{people}"]
    assert effect.estimate == near(entry["ate"])
    assert effect.se == near(entry["se_sate"])
    assert effect.se_population == near(entry["se_pate"])


# ── Hillstrom: the robust F ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("metric", "squares", "variance", "p"), [
    ("conversion", "arm", "by_class", 0.011),
    ("spend", "class", "by_class", 0.053),
    ("spend", "marginals", "two_marginals", 0.062),  # without class squares: other variances, the same verdict
])  # fmt: skip
def test_hillstrom_robust_f_by_history_segment(hillstrom_rows, metric, squares, variance, p):
    tally = kb.count_columns(
        hillstrom_rows, arm="segment", covariates=["history_segment"], metrics=[metric], squares=squares,
        resolution={"spend": 0.01} if metric == "spend" else None,
    )  # fmt: skip
    test = kb.stats.robust_f(tally)
    assert test.variance == variance
    assert round(test.p, 3) == p


@pytest.mark.parametrize(("metric", "pooled"), [("conversion", 0.0015), ("spend", 0.0145)])
def test_hillstrom_pooled_f_by_history_segment_is_too_sure(hillstrom, metric, pooled):
    test = kb.stats.pooled_f(hillstrom, "history_segment", metric)
    assert round(test.p, 4) == pooled
    assert test.p < kb.stats.robust_f(hillstrom, "history_segment", metric).p / 4


# ── Cookie Cats: a gate moved from level 30 to 40 ──────────────────────────────────────────────


@pytest.fixture(scope="session")
def cookie_cats(shared: Path) -> kb.Tally:
    return kb.count_columns(shared / "cookie_cats.csv.gz", arm="version", metrics=["retention_1", "retention_7"])


@pytest.mark.slow
def test_cookie_cats_arms_have_the_published_people(cookie_cats, published):
    assert cookie_cats.people_by() == published["cookie_cats"]["n"] == {"gate_30": 44_700, "gate_40": 45_489}


@pytest.mark.parametrize(("metric", "digits", "rates"), [
    ("retention_1", 3, [0.448, 0.442]),
    ("retention_7", 4, [0.1902, 0.1820]),
])  # fmt: skip
def test_cookie_cats_rates_are_the_published_ones(cookie_cats, published, metric, digits, rates):
    found = kb.stats.plain_means(cookie_cats, metric).means
    assert [round(rate, digits) for rate in found.tolist()] == published["cookie_cats"][metric] == rates


def test_cookie_cats_gate_40_loses_day_7_retention(cookie_cats, published):
    effect = kb.stats.difference_in_means(cookie_cats, "retention_7")
    assert (effect.arm, effect.control) == ("gate_40", "gate_30")
    assert round(effect.p, 4) == published["cookie_cats"]["retention_7_p"] == 0.0016
    points = [round(100 * end, 2) for end in effect.interval]
    assert points == published["cookie_cats"]["retention_7_ci_pp_gate40_minus_gate30"] == [-1.33, -0.31]


# ── Gerber, Green and Larimer (2008): social pressure ──────────────────────────────────────────


@pytest.fixture(scope="session")
def ggl_rows(shared: Path) -> pd.DataFrame:
    columns = ["treatment", "primary_06", "sex", *PAST_VOTES]
    return pd.read_csv(shared / "ggl2008_social_pressure.csv.gz", usecols=columns)


@pytest.fixture(scope="session")
def ggl(ggl_rows: pd.DataFrame) -> kb.Tally:
    tally = kb.count_columns(ggl_rows, arm="treatment", covariates=["sex", *PAST_VOTES], metrics=["primary_06"])
    return tally.select_arms(["No Postcard", *MAILED])


def test_ggl_table_2_has_the_published_people_and_rates(ggl, published):
    people, rates = ggl.people_by(), kb.stats.plain_means(ggl).means.tolist()
    found = {arm: [people[arm], round(rate, 3)] for arm, rate in zip(people, rates, strict=True)}
    assert found == published["ggl2008_social_pressure"]["arms"]
    assert [round(100 * rate, 1) for rate in rates] == [29.7, 31.5, 32.2, 34.5, 37.8]
    assert ggl.total == published["ggl2008_social_pressure"]["n"] == 344_084


def test_ggl_table_3a_has_the_published_coefficients(ggl, published):
    model = kb.stats.fit(ggl, "arm")
    found = dict(zip(model.names, model.b.tolist(), strict=True))
    rounded = {arm: round(found[f"treatment[{arm}]"], 3) for arm in MAILED}
    assert rounded == published["ggl2008_social_pressure"]["table3_a"]
    assert rounded == {"Civic Duty": 0.018, "Hawthorne": 0.026, "Self": 0.049, "Neighbors": 0.081}


@pytest.mark.parametrize("covariate", ["primary_04", "sex"])
def test_ggl_interaction_has_the_reference_and_the_rational_f(ggl, ggl_rows, reference, exact_ols, covariate):
    entry, test = reference[f"ggl_treatment_x_{covariate}"], kb.stats.pooled_f(ggl, covariate)
    assert ggl.total == entry["n"]
    assert_reference_f(test, entry)
    expected, f = exact_f(ggl_rows, ["treatment", covariate], ggl_rows["primary_06"], exact_ols), test.F
    assert f == near(expected, rel=1e-13)


def test_ggl_neighbors_has_the_reference_welch_t(ggl, reference):
    found, entry = kb.stats.difference_in_means(ggl, arm="Neighbors", test="welch"), reference["ggl_welch_neighbors"]
    assert found.estimate == near(entry["diff"])
    assert found.t == near(entry["t"])
    assert found.df == near(entry["df"])


@pytest.mark.parametrize("people", ["all", "pair"])
def test_ggl_neighbors_adjusted_for_five_past_votes_is_the_reference_effect(ggl, reference, people):
    tally = ggl if people == "all" else ggl.select_arms(["No Postcard", "Neighbors"])
    effect = kb.stats.adjusted_effect(tally, covariates=PAST_VOTES, arm="Neighbors", variance="paper")
    entry = reference[f"ggl_lin_neighbors_past5_{people}"]
    assert effect.covariates == tuple(PAST_VOTES)
    assert effect.estimate == near(entry["ate"])
    assert effect.se == near(entry["se_sate"])
    assert effect.se_population == near(entry["se_pate"])


# ── Upworthy: headline tests, equivalence classes as found ─────────────────────────────────────


@pytest.fixture(scope="session")
def upworthy_rows(shared: Path) -> pd.DataFrame:
    columns = ["clickability_test_id", "test_week", "impressions", "clicks"]
    return pd.read_csv(shared / "upworthy_exploratory.csv.gz", usecols=columns)


def _headline_test(packages: pd.DataFrame) -> kb.Tally:
    table = {
        "package": [f"package {place}" for place in range(len(packages))],
        "impressions": packages["impressions"].tolist(),
        "clicks": packages["clicks"].tolist(),
    }
    return kb.counting.read_classes(table, count="impressions", bounds={"clicks": (0, 1)})


@pytest.fixture(scope="session")
def alarms(upworthy_rows: pd.DataFrame, published: dict[str, Any]) -> pd.DataFrame:
    """Per headline test: was it run in the weeks of broken assignment, and does the sample ratio say so?"""
    first, last = published["upworthy_exploratory"]["bad_randomisation_weeks"]
    found = [
        (first <= packages["test_week"].iloc[0] <= last, kb.stats.sample_ratio(_headline_test(packages)).p < 0.001)
        for _, packages in upworthy_rows.groupby("clickability_test_id", sort=False)
    ]
    return pd.DataFrame(found, columns=["broken", "alarm"])


@pytest.mark.slow
def test_upworthy_has_22_666_packages_in_4_873_tests(upworthy_rows, alarms, published):
    assert len(upworthy_rows) == published["upworthy_exploratory"]["packages"] == 22_666
    assert len(alarms) == published["upworthy_exploratory"]["tests"] == 4_873


def test_upworthy_ran_22_percent_of_its_tests_in_the_broken_weeks(alarms, published):
    published_share = published["upworthy_exploratory"]["bad_share_published"]
    assert alarms["broken"].sum() == 1_102
    assert abs(alarms["broken"].mean() - published_share) < 0.01


def test_upworthy_sample_ratio_alarms_in_67_percent_of_the_broken_weeks_tests(alarms):
    assert round(100 * alarms.loc[alarms["broken"], "alarm"].mean(), 1) == 66.8


def test_upworthy_sample_ratio_alarms_in_under_half_a_percent_elsewhere(alarms):
    assert round(100 * alarms.loc[~alarms["broken"], "alarm"].mean(), 2) == 0.45


def test_upworthy_clicks_are_a_0_1_metric_whose_squares_are_known(upworthy_rows):
    packages = upworthy_rows[upworthy_rows["clickability_test_id"] == "546d88fb84ad38b2ce000024"]
    tally = _headline_test(packages)
    clicks, impressions = packages["clicks"].to_numpy(), packages["impressions"].to_numpy()
    assert tally.metrics[0].binary
    assert tally.squares("clicks").tolist() == clicks.tolist()
    assert kb.stats.plain_means(tally).means.tolist() == near((clicks / impressions).tolist())
