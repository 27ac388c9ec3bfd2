"""Evidence that is valid at any time: fair games, and the boundary that follows from them."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from kanab.stats.mixture import log_evidence, log_evidence_of_counts, mixture_z, tuning


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("share", [0.05, 1.0, 30.0])
def test_the_expected_evidence_is_one_where_there_is_no_effect(sides, share):
    found, _ = integrate.quad(
        lambda z: math.exp(log_evidence(z, share, 0.05, sides) + stats.norm.logpdf(z)), -200, 200, points=[0], limit=200
    )
    assert found == pytest.approx(1, abs=1e-7)


def test_the_boundary_is_the_published_confidence_sequence():
    # Waudby-Smith et al. (2024): width σ sqrt(2 (tρ² + 1) / (t²ρ²) · log(sqrt(tρ² + 1) / α)).
    alpha, t, best = 0.05, np.array([50.0, 500.0, 5000.0]), 500.0
    rho2 = tuning(alpha, 2) / best
    published = np.sqrt(2 * (t * rho2 + 1) / (t**2 * rho2) * np.log(np.sqrt(t * rho2 + 1) / alpha))
    assert mixture_z(t / best, alpha, 2) / np.sqrt(t) == pytest.approx(published, rel=1e-13)


@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.001, 1e-12])
def test_the_boundary_is_lowest_where_it_is_tuned(alpha):
    def at_one(c):
        return (1 + 1 / c) * (math.log1p(c) - 2 * math.log(alpha))

    best = optimize.minimize_scalar(at_one, bounds=(0.1, 200), method="bounded", options={"xatol": 1e-10})
    assert tuning(alpha, 2) == pytest.approx(best.x, rel=1e-5)
    assert float(mixture_z(np.array(1.0), alpha, 2)) == pytest.approx(math.sqrt(1 + tuning(alpha, 2)), rel=1e-12)


@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("alpha", [0.6, 0.05, 1e-6])
def test_at_the_boundary_the_evidence_is_one_over_alpha(sides, alpha):
    for share in (0.01, 1.0, 1000.0):
        z = float(mixture_z(np.array(share), alpha, sides))
        assert log_evidence(z, share, alpha, sides) == pytest.approx(-math.log(alpha), rel=1e-10)


def test_one_side_needs_less_than_both_at_the_same_alpha():
    shares = np.array([0.1, 1.0, 10.0])
    assert np.all(mixture_z(shares, 0.05, 1) < mixture_z(shares, 0.05, 2))
    assert mixture_z(shares, 0.025, 1) == pytest.approx(mixture_z(shares, 0.05, 2), rel=1e-3)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.9, 0.1), (0.5, 0.3, 0.2)])
def test_the_evidence_of_counts_is_exactly_fair(shares):
    n = 7
    total = math.fsum(
        stats.multinomial.pmf(counts, n, shares) * math.exp(log_evidence_of_counts(counts, shares, 25.0))
        for counts in itertools.product(range(n + 1), repeat=len(shares))
        if sum(counts) == n
    )
    assert total == pytest.approx(1, rel=1e-12)


def test_the_evidence_of_many_counts_is_that_of_their_chi_square():
    # −½ (k − 1) ln(1 + n/c) + ½ χ² n/(n + c), for large counts near the planned shares.
    shares, concentration, n = np.array([0.5, 0.3, 0.2]), 5e4, 1_000_000
    counts = n * shares + np.array([900, -500, -400])
    chi2 = float(((counts - n * shares) ** 2 / (n * shares)).sum())
    expected = -math.log1p(n / concentration) + chi2 / 2 * n / (n + concentration)
    assert log_evidence_of_counts(counts, shares, concentration) == pytest.approx(expected, abs=2e-3)
