"""The joint t: published tables, scipy, and its edges."""

import numpy as np
import pytest
from scipy import stats

from kanab.errors import AnalysisError
from kanab.stats.distributions import (
    box_probability,
    joint_quantile,
    joint_tail,
    lattice,
    one_factor,
    t_quantile,
    t_tail,
)


def alike(m, rho=0.5):
    return np.full((m, m), rho) + (1 - rho) * np.eye(m)


@pytest.mark.parametrize(
    ("m", "df", "one_sided", "two_sided"),
    [(2, 10, 2.15, 2.57), (3, 10, 2.34, 2.76), (4, 20, 2.30, 2.65), (9, 20, 2.60, 2.95), (5, 1e9, 2.23, 2.51)],
)
def test_limits_are_those_of_dunnetts_tables(m, df, one_sided, two_sided):
    assert joint_quantile(0.95, df, alike(m), "greater") == pytest.approx(one_sided, abs=0.0051)
    assert joint_quantile(0.95, df, alike(m)) == pytest.approx(two_sided, abs=0.0051)


@pytest.mark.parametrize("loadings", [[0.7, 0.7], [0.3, 0.6, 0.8], [0.99, 0.95, 0.2, 0.5]])
@pytest.mark.parametrize("df", [5, 60, 1e8])
def test_quadrature_and_lattice_agree(loadings, df):
    correlations = np.outer(loadings, loadings)
    np.fill_diagonal(correlations, 1.0)
    assert one_factor(correlations) == pytest.approx(loadings)
    reach = np.full(len(loadings), 2.3)
    expected = 1 - box_probability(-reach, reach, correlations, df)
    assert joint_tail(2.3, df, correlations) == pytest.approx(expected, abs=2e-4)
    one_sided = 1 - box_probability(np.full(len(loadings), -np.inf), reach, correlations, df)
    assert joint_tail(2.3, df, correlations, "greater") == pytest.approx(one_sided, abs=2e-4)
    assert joint_tail(-2.3, df, correlations, "less") == joint_tail(2.3, df, correlations, "greater")


def test_any_correlations_agree_with_scipy():
    correlations = np.array([[1, 0.3, -0.2], [0.3, 1, 0.1], [-0.2, 0.1, 1]])
    assert one_factor(correlations) is None
    oracle = stats.multivariate_normal(cov=correlations, abseps=1e-8, releps=1e-8)
    inside = oracle.cdf(np.full(3, 2.1), lower_limit=np.full(3, -2.1))
    assert joint_tail(2.1, 1e9, correlations) == pytest.approx(1 - inside, abs=2e-5)


def test_the_limit_gives_back_its_level():
    for sided in ("two-sided", "greater"):
        limit = joint_quantile(0.99, 25, alike(4), sided)
        assert joint_tail(limit, 25, alike(4), sided) == pytest.approx(0.01, abs=1e-9)


def test_one_comparison_is_an_ordinary_t():
    assert joint_tail(2.1, 9, np.eye(1)) == t_tail(2.1, 9)
    assert joint_quantile(0.95, 9, np.eye(1)) == pytest.approx(t_quantile(0.975, 9))


def test_far_tails_are_bonferronis_and_not_zero():
    assert joint_tail(30, 1e6, alike(3)) == 3 * t_tail(30, 1e6) > 0
    assert joint_tail(0, 10, alike(3)) == 1


def test_points_are_the_same_every_time():
    assert np.array_equal(lattice(3), lattice(3))
    with pytest.raises(AnalysisError, match="too many comparisons"):
        lattice(40)


def test_a_comparison_that_follows_from_others_is_refused():
    with pytest.raises(AnalysisError, match="follows from the others"):
        box_probability(np.full(2, -1.0), np.full(2, 1.0), np.ones((2, 2)))
