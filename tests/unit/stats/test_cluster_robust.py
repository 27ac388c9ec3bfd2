"""Clusters: the cluster-robust regression on rows, small numbers of them, and what is said about few."""

import math

import numpy as np
import pytest
import statsmodels.api as sm

from kanab import count_columns
from kanab.errors import AnalysisError, LevelError
from kanab.stats import against_control, cluster_means
from kanab.stats.ratio import FEWEST_CLUSTERS, few_clusters


def people(clusters=24, seed=3, between=2.0, effect=0.0):
    """Return rows of people in clusters of uneven size."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 60, clusters)
    shop = np.repeat(np.arange(clusters), sizes)
    arm = rng.permutation(np.arange(clusters) % 2)
    level = rng.normal(0, between, clusters) + effect * arm
    spend = np.round(20 + level[shop] + rng.normal(0, 4, len(shop)), 1)
    return {"shop": shop, "arm": np.where(arm[shop] == 1, "B", "A"), "spend": spend}


def shops(rows):
    """Return a tally of clusters."""
    names, first = np.unique(rows["shop"], return_index=True)
    table = {
        "arm": rows["arm"][first],
        "spend": [round(rows["spend"][rows["shop"] == name].sum(), 1) for name in names],
        "people": [int((rows["shop"] == name).sum()) for name in names],
    }
    return count_columns(
        table, arm="arm", metrics=["spend", "people"], products=[("spend", "people")], resolution={"spend": 0.1}
    )


def test_the_error_is_the_cluster_robust_one_of_a_regression_on_rows():
    rows = people()
    effect = against_control(cluster_means(shops(rows), "spend"))
    x = sm.add_constant((rows["arm"] == "B").astype(float))
    fit = sm.OLS(rows["spend"], x).fit()
    plain = fit.get_robustcov_results("cluster", groups=rows["shop"], use_correction=False)  # CR0
    usual = fit.get_robustcov_results("cluster", groups=rows["shop"])
    parts, corrected = {}, 0.0
    for arm in "AB":
        inside = rows["arm"] == arm
        residuals = rows["spend"][inside] - rows["spend"][inside].mean()
        sizes = np.bincount(rows["shop"][inside])
        parts[arm] = np.sum(np.bincount(rows["shop"][inside], residuals) ** 2) / inside.sum() ** 2
        alike = inside.sum() ** 2 / np.sum(sizes**2)
        assert alike < 12
        corrected += parts[arm] * alike / (alike - 1)
    assert effect.estimate == pytest.approx(plain.params[1], rel=1e-11)
    assert plain.bse[1] ** 2 == pytest.approx(sum(parts.values()), rel=1e-10)
    assert effect.se == pytest.approx(math.sqrt(corrected), rel=1e-10)
    n, c = len(rows["spend"]), 24
    assert usual.bse[1] ** 2 == pytest.approx(sum(parts.values()) * c / (c - 1) * (n - 1) / (n - 2), rel=1e-10)
    assert effect.metric == "spend"
    assert effect.df < c - 2


@pytest.mark.parametrize(("clusters", "most"), [(20, 0.07), (50, 0.065)])
@pytest.mark.slow
def test_without_an_effect_about_five_in_a_hundred_are_called_clear(clusters, most):
    trials = 600
    ps = [against_control(cluster_means(shops(people(clusters, seed)), "spend")).p for seed in range(trials)]
    false = np.mean(np.array(ps) < 0.05)
    assert 0.03 < false < most, false


def test_fewer_than_thirty_clusters_are_cautioned_about():
    (caution,) = few_clusters({"A": 15, "B": FEWEST_CLUSTERS - 16}, ["city", "hour"])
    assert caution.code == "few-clusters"
    assert caution.sentence.startswith("Arms were assigned by city and hour, and there are fewer than 30 of them")
    assert few_clusters({"A": 15, "B": 15}, ["shop"]) == []


def test_without_products_or_people_there_are_no_means_per_person():
    tally = count_columns({"arm": ["A", "B"], "spend": [1, 2]}, arm="arm", metrics=["spend"])
    with pytest.raises(LevelError, match="unknown metric"):
        cluster_means(tally, "spend")
    rows = {"arm": ["A", "B"] * 3, "spend": [1, 2] * 3, "people": [1, 2] * 3}
    with pytest.raises(AnalysisError, match="no cross-products"):
        cluster_means(count_columns(rows, arm="arm", metrics=["spend", "people"]), "spend")
