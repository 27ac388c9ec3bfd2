"""Adjusting from pair tables gives what one table that crosses everything gives."""

import inspect
from itertools import combinations

import numpy as np
import pytest

from kanab import Metric, count_columns
from kanab.errors import AnalysisError, DesignError
from kanab.stats import additive_ratio_means, adjusted_means, adjusted_ratio_means, against_control
from kanab.stats.additive import additive_means

NAMES = ("tier", "device", "country")


def rows(n=900, shift=0.0, seed=2):
    rng = np.random.default_rng(seed)
    tier = rng.integers(1, 5, n).astype(float)
    tier[rng.random(n) < 0.05] = np.nan
    device = rng.choice(["phone", "desktop", "tablet"], n)
    country = np.where((device == "phone") & (rng.random(n) < 0.5), "NO", rng.choice(["SE", "DK"], n))
    arm = rng.choice(["A", "B", "C"], n, p=[0.6, 0.3, 0.1])
    y = np.round(np.nan_to_num(tier) + (device == "phone") + rng.normal(0, 1, n), 2) + shift
    bought = (rng.random(n) < 0.2).astype(int)
    return {"arm": arm, "tier": tier, "device": device, "country": country, "y": y, "bought": bought}


def counted(data, covariates):
    metrics = {"y": Metric("y", 100), "bought": Metric("bought", 1, (0, 1))}
    return count_columns(data, arm="arm", covariates=covariates, metrics=metrics, squares="arm")


def pairs(data, names=NAMES):
    return [counted(data, pair) for pair in combinations(names, 2)]


@pytest.mark.parametrize("variance", ["paper", "exact"])
@pytest.mark.parametrize("metric", ["y", "bought"])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_pair_tables_are_as_good_as_the_full_cross(variance, metric, shift):
    data = rows(shift=shift)
    means = additive_means(pairs(data), metric, variance=variance)
    full = adjusted_means(counted(data, NAMES), metric, variance=variance)
    assert means.covariates == full.covariates == NAMES
    assert means.means == pytest.approx(full.means, rel=1e-13)
    assert means.covariance == pytest.approx(full.covariance, rel=1e-9)
    assert means.df == pytest.approx(full.df)
    for arm in "BC":
        one, two = against_control(means, arm), against_control(full, arm)
        assert (one.estimate, one.se, one.se_population, one.p) == pytest.approx(
            (two.estimate, two.se, two.se_population, two.p), rel=1e-9
        )


def test_scores_may_have_fractions():
    data = rows(shift=1e6)
    data["tier"] = data["tier"] / 4 + 0.1
    means = additive_means(pairs(data), "y")
    full = adjusted_means(counted(data, NAMES), "y")
    assert means.means == pytest.approx(full.means, rel=1e-13)
    assert means.covariance == pytest.approx(full.covariance, rel=1e-9)


def test_a_score_that_everybody_has_is_one_column():
    data = rows()
    data["tier"] = np.nan_to_num(data["tier"], nan=2.0)
    means = additive_means(pairs(data), "y")
    full = adjusted_means(counted(data, NAMES), "y")
    assert means.means == pytest.approx(full.means, rel=1e-13)
    assert means.df == pytest.approx(full.df)


def test_the_order_of_tables_and_covariates_does_not_matter():
    data = rows()
    swapped = [counted(data, pair[::-1]) for pair in reversed(list(combinations(NAMES, 2)))]
    assert additive_means(swapped, "y", NAMES).exact == additive_means(pairs(data), "y").exact


def test_fewer_covariates_can_be_asked_for():
    data = rows()
    means = additive_means(pairs(data), "y", ["device"])
    assert means.means == pytest.approx(adjusted_means(counted(data, ["device"]), "y").means, rel=1e-13)


def test_a_missing_pair_is_named():
    data = rows()
    with pytest.raises(AnalysisError, match="there is no table of arm × device × country"):
        additive_means(pairs(data)[:2], "y")


def test_tables_of_other_people_are_refused():
    data = rows()
    changed = data | {"y": np.concatenate([[data["y"][0] + 1], data["y"][1:]])}
    with pytest.raises(AnalysisError, match="not about the same people"):
        additive_means([*pairs(data)[:2], pairs(changed)[2]], "y")
    fewer = {name: column[:-1] for name, column in data.items()}
    with pytest.raises(AnalysisError, match="not about the same people"):
        additive_means([*pairs(data)[:2], pairs(fewer)[2]], "bought")


def test_levels_must_be_merged_alike():
    data = rows()
    first, second, third = pairs(data)
    with pytest.raises(AnalysisError, match="different arms or levels"):
        additive_means([first, second, third.coarsen("device", {"phone": "other", "tablet": "other"})], "y")


def test_what_cannot_be_told_apart_is_named():
    data = rows()
    data["twin"] = np.where(data["device"] == "phone", "yes", "no")
    with pytest.raises(DesignError, match="cannot tell these terms apart"):
        additive_means(pairs(data, ("tier", "device", "twin")), "y")


def test_wrong_requests_are_refused():
    data = rows()
    with pytest.raises(AnalysisError, match="in none of the tables"):
        additive_means(pairs(data), "y", ["age"])
    with pytest.raises(AnalysisError, match="in none of the tables"):
        additive_means([], "y")
    with pytest.raises(AnalysisError, match="unknown variance"):
        additive_means(pairs(data), "y", variance="hc3")
    alone = {name: column[:40] for name, column in data.items()} | {"device": ["phone"] * 40}
    with pytest.raises(AnalysisError, match="no covariate to adjust for"):
        additive_means([counted(alone, ["device"])], "y")
    tiny = {name: column[:12] for name, column in data.items()}
    with pytest.raises(DesignError, match="too few people"):
        additive_means(pairs(tiny), "y")


def test_an_arm_without_anybody_is_refused():
    data = rows()
    only = {name: values[data["arm"] == "C"] for name, values in data.items()}
    tables = [counted(data, pair) - counted(only, pair) for pair in combinations(NAMES, 2)]
    with pytest.raises(AnalysisError, match="an arm has nobody in it"):
        additive_means(tables, "y")


def test_the_same_pair_in_the_other_order_says_the_same():
    data = rows()
    twice = [*pairs(data), counted(data, ("device", "tier"))]
    assert additive_means(twice, "y").exact == additive_means(pairs(data), "y").exact


def people_only(tables):
    return [table.select_metrics([]) for table in tables]


@pytest.mark.parametrize("variance", ["paper", "exact"])
def test_pairs_without_metrics_are_enough_beside_tables_of_each_covariate(variance):
    data = rows()
    tables = [*people_only(pairs(data)), *(counted(data, [name]) for name in NAMES)]
    means = additive_means(tables, "y", NAMES, variance=variance)
    full = adjusted_means(counted(data, NAMES), "y", variance=variance)
    assert means.exact == additive_means(pairs(data), "y", variance=variance).exact
    assert means.covariance == pytest.approx(full.covariance, rel=1e-9)


def test_a_covariate_needs_a_table_with_the_metric():
    data = rows()
    tables = [*people_only(pairs(data)), counted(data, ["tier"]), counted(data, ["device"])]
    with pytest.raises(AnalysisError, match=r"there are no sums of 'y' by country\. Give a table of each covariate"):
        additive_means(tables, "y")


def test_people_without_a_value_are_not_taken_for_people_with_one():
    data = rows()
    data["y"][:40] = np.nan
    metrics = {"y": Metric("y", 100, missing="exclude")}
    singles = [count_columns(data, arm="arm", covariates=[name], metrics=metrics, squares="arm") for name in NAMES]
    with pytest.raises(AnalysisError, match="some people have no value of 'y', and by tier × device it is not known"):
        additive_means([*singles, *people_only(pairs(data))], "y")


def test_joint_adjustment_has_the_variance_that_adjustment_for_one_covariate_has():
    functions = (adjusted_means, adjusted_ratio_means, additive_means, additive_ratio_means)
    assert len({inspect.signature(function).parameters["variance"].default for function in functions}) == 1
