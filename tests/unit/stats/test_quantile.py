"""Quantiles from people in bins: rows at the edges, the binomial test, and coverage by simulation."""

import math
import statistics
from dataclasses import replace

import numpy as np
import pytest
from scipy import interpolate, optimize

from kanab.errors import AnalysisError
from kanab.stats.quantile import BinnedPeople, propose_edges, quantile_effect, without_noise

EDGES = (0.0, 50.0, 100.0, 150.0, 200.0, 300.0, 500.0, 900.0)


def binned(values: np.ndarray, edges: tuple[float, ...] = EDGES) -> BinnedPeople:
    places = np.searchsorted(edges, values, side="right")
    return BinnedPeople(edges, tuple(np.bincount(places, minlength=len(edges) + 1).tolist()))


def latencies(seed: int, people: int = 5_000, faster: float = 0.0) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(5, 0.6, people)) * (1 - faster)


def test_the_share_below_an_edge_and_the_quantile_there_are_those_of_the_rows() -> None:
    rows = latencies(1)
    people = binned(rows)
    for edge in EDGES[1:]:
        share = float(np.mean(rows < edge))
        assert people.share_below(edge) == share
        assert people.quantile(share) == edge


def test_between_edges_it_is_the_monotone_cubic_of_another_package() -> None:
    people = binned(latencies(2))
    cubic = interpolate.PchipInterpolator(EDGES, people.shares)
    inner = np.linspace(50, 500, 91)
    assert people.shares_below(inner) == pytest.approx(cubic(inner), abs=1e-12)
    shares = np.array([0.2, 0.5, 0.8, 0.95])
    assert people.shares_below(people.quantiles(shares)) == pytest.approx(shares, abs=1e-13)


def test_open_bins_have_no_values_unless_the_bounds_close_them() -> None:
    people = BinnedPeople((10.0, 20.0, 30.0), (5, 40, 35, 20))
    assert people.quantile(0.03) == -math.inf
    assert people.quantile(0.9) == math.inf
    assert math.isnan(people.share_below(31.0))
    assert people.share_below(30.0) == 0.8
    closed = BinnedPeople((10.0, 20.0, 30.0), (5, 40, 35, 20), low=10.0, high=30.0)
    assert (closed.quantile(0.03), closed.quantile(0.9), closed.quantile(0.05)) == (10.0, 30.0, 10.0)


def test_an_interval_of_one_quantile_is_that_of_the_binomial_test() -> None:
    people = binned(latencies(3))
    low, high = people.quantile_interval(0.9)
    half = statistics.NormalDist().inv_cdf(0.975) * math.sqrt(0.09 / 5_000)
    assert (people.share_below(low), people.share_below(high)) == pytest.approx((0.9 - half, 0.9 + half), abs=1e-12)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
def test_the_interval_ends_where_the_test_of_both_arms_rejects(share: float) -> None:
    control, arm = binned(latencies(4)), binned(latencies(5, faster=0.05))
    effect = quantile_effect(arm, control, share)
    assert effect.interval is not None
    assert effect.estimate is not None
    errors = control.error(share), arm.error(share)
    for end in effect.interval:  # the least statistic over all pairs of values that far apart, by brute force
        values = np.linspace(60, 480, 42_001)
        shifted = values + end
        there = (shifted > 0) & (shifted < 900)
        away = (
            (control.shares_below(values[there]) - share) / errors[0],
            (arm.shares_below(shifted[there]) - share) / errors[1],
        )
        least = float(np.min(away[0] ** 2 + away[1] ** 2))
        assert math.sqrt(least) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=2e-3)


def test_p_agrees_with_the_interval_of_the_same_confidence() -> None:
    control, arm = binned(latencies(6)), binned(latencies(7, faster=0.04))
    p = quantile_effect(arm, control, 0.5).p
    assert p is not None
    interval = quantile_effect(arm, control, 0.5, confidence=1 - p).interval
    assert interval is not None
    assert interval[1] == pytest.approx(0.0, abs=0.01)
    less = quantile_effect(arm, control, 0.5, alternative="less")
    assert less.p == pytest.approx(p / 2, rel=1e-9)
    assert less.interval is not None
    assert less.interval[0] == -math.inf
    greater = quantile_effect(arm, control, 0.5, alternative="greater")
    assert greater.interval is not None
    assert greater.interval[1] == math.inf


def test_a_quantile_in_an_open_bin_is_no_number_and_an_end_there_is_open() -> None:
    slow = BinnedPeople((0.0, 100.0, 200.0), (0, 400, 300, 300))
    fast = BinnedPeople((0.0, 100.0, 200.0), (0, 500, 480, 20))
    lost = quantile_effect(fast, slow, 0.9)
    assert (lost.estimate, lost.interval, lost.p) == (None, None, None)
    assert lost.values[0] == math.inf
    near = quantile_effect(fast, slow, 0.69)
    assert near.interval is not None
    assert near.interval[0] == -math.inf


def test_proposed_edges_keep_the_outer_ones_and_put_a_few_percent_into_each_bin() -> None:
    rows = latencies(12, 20_000)
    edges = propose_edges([binned(rows), binned(latencies(13, 20_000))])
    assert (edges[0], edges[-1]) == (0.0, 900.0)
    assert 30 <= len(edges) <= 45
    assert max(binned(rows, edges).people) / 20_000 < 0.08
    assert sum(edge > np.quantile(rows, 0.9) for edge in edges) >= 6


def test_what_makes_no_sense_is_refused() -> None:
    for edges, people in (((1.0,), (1, 1)), ((2.0, 1.0), (1, 1, 1)), ((0.0, 1.0), (1, 1)), ((0.0, 1.0), (0, 0, 0))):
        with pytest.raises(AnalysisError, match="bins need edges in increasing order"):
            BinnedPeople(edges, people)
    with pytest.raises(AnalysisError, match="a share of people between 0 and 1"):
        quantile_effect(binned(latencies(1)), binned(latencies(2)), 1.5)
    with pytest.raises(AnalysisError, match="at least 8 bins"):
        propose_edges([], 40)


def test_noisy_people_are_made_possible_again_and_stay_as_many() -> None:
    people = [12, -3, 40, -1, 0, 25, -6]
    told = without_noise(people)
    assert min(told) >= 0
    assert sum(told) == sum(people)
    assert without_noise([5, 0, 7]) == (5, 0, 7)
    assert without_noise([-4, 10, 0]) == (0, 6, 0)
    assert without_noise([0, 10, -4]) == (0, 6, 0)


def test_sums_from_the_left_are_the_isotonic_regression_of_another_package() -> None:
    rng = np.random.default_rng(3)
    people = rng.integers(-20, 60, 15).tolist()
    sums = np.cumsum(people)[:-1].astype(float)
    nearest = np.clip(optimize.isotonic_regression(sums).x, 0, sum(people))
    assert np.cumsum(without_noise(people))[:-1] == pytest.approx(nearest, abs=0.51)


@pytest.mark.slow
def test_intervals_of_noisy_people_cover_and_those_that_ignore_noise_do_not() -> None:
    rng, variance, covered, ignored = np.random.default_rng(6), 400.0, 0, 0
    shares = np.array(binned(latencies(1, 200_000)).people) / 200_000
    truth = binned(latencies(1, 200_000)).quantile(0.9)
    for _ in range(50):
        sides = []
        for _ in range(2):
            noise = np.rint(rng.normal(0, math.sqrt(variance), len(shares))).astype(int)
            told = without_noise((rng.multinomial(1_500, shares) + noise).tolist())
            sides.append(BinnedPeople(EDGES, told, noise=(variance,) * len(told)))
        low, high = quantile_effect(*sides, 0.9).interval or (-math.inf, math.inf)
        own = sides[0].quantile_interval(0.9)
        covered += low <= 0 <= high and own[0] <= truth <= own[1]
        low, high = quantile_effect(*(replace(side, noise=()) for side in sides), 0.9).interval or (0.0, 0.0)
        ignored += low <= 0 <= high
    assert covered >= 43
    assert ignored < 40


def test_where_noise_could_hide_the_last_people_an_interval_ends_with_the_bounds() -> None:
    people = BinnedPeople((0.0, 10.0, 20.0, 30.0), (0, 60, 40, 0, 0), 0.0, 30.0, noise=(50.0,) * 5)
    assert people.quantile_interval(0.95)[1] == 30.0
    assert people.quantile_interval(0.05)[0] == 0.0
    open_ended = replace(people, low=-math.inf, high=math.inf)
    assert open_ended.quantile_interval(0.95)[1] == math.inf
    assert open_ended.quantile_interval(0.05)[0] == -math.inf
