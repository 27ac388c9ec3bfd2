"""The sampler against exact probabilities, and whole numbers that pass through untouched."""

import numpy as np
import pytest
from scipy.stats import chi2

from kanab.privacy.epsilon import mechanism
from kanab.privacy.epsilon.mechanism import Scale, add_noise, draw, random_bits, scale_for

pytest.importorskip("opendp")


@pytest.mark.parametrize("deviation", [0.7, 2.5])
def test_noise_has_the_probabilities_of_the_discrete_gaussian(deviation: float) -> None:
    size, edge = 8_000, int(3 * deviation) + 1
    values = np.array(draw(size, Scale(1, 1, deviation)))
    places = np.arange(-60, 61)
    weights = np.exp(-(places**2) / (2 * deviation**2))
    share = weights / weights.sum()
    inner = np.abs(places) < edge
    expected = size * np.array([share[places <= -edge].sum(), *share[inner], share[places >= edge].sum()])
    clipped = np.clip(values, -edge, edge)
    observed = np.array([(clipped == place).sum() for place in range(-edge, edge + 1)])
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert chi2.sf(statistic, len(expected) - 1) > 1e-6
    wrong = draw(size, Scale(1, 1, 1.2 * deviation))
    observed = np.array([(np.clip(wrong, -edge, edge) == place).sum() for place in range(-edge, edge + 1)])
    assert chi2.sf(float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1) < 1e-6


def test_whole_numbers_beyond_doubles_and_64_bits_pass_through_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.array([[2**53 + 1, 2**70 + 3], [-(2**90) - 7, 0]], dtype=object)
    noise = iter([1, -2, 3, -4])
    monkeypatch.setattr(mechanism, "draw", lambda size, _: [next(noise) for _ in range(size)])
    noisy = add_noise(cells, Scale(1, 1, 5.0))
    assert (noisy - cells).tolist() == [[1, -2], [3, -4]]


def test_no_size_of_the_numbers_makes_drawing_fail() -> None:
    cells = np.array([2**200, -(2**200)], dtype=object)
    noisy = add_noise(cells, Scale(1, 1, 5.0))
    assert np.all(np.abs((noisy - cells).astype(float)) < 100)
    assert draw(0, Scale(1, 1, 5.0)) == []


def test_a_scale_costs_what_it_may() -> None:
    for influence in (1, 7, 10**6, 10**15, 10**30):
        scale = scale_for(influence, 0.001)
        assert scale.rho == pytest.approx(0.001)
        assert scale.deviation < 2**56
        assert scale.influence * scale.unit >= influence


def test_numbers_with_wide_bounds_are_rounded_to_units_before_noise() -> None:
    """One person more, by at most the influence, moves the rounded number by no more than is paid for."""
    scale = scale_for(10**30, 0.001)
    assert scale.unit > 1
    for value in (0, 17, 10**40 + 5):
        assert (value + 10**30) // scale.unit - value // scale.unit <= scale.influence
    noisy = add_noise(np.array([12345], dtype=object), scale)
    assert noisy[0] % scale.unit == 0
    assert scale.variance == pytest.approx((scale.deviation * scale.unit) ** 2)


def test_random_bits_are_as_many_as_asked_for() -> None:
    assert {*random_bits((50, 8), 2).ravel().tolist()} == {0, 1, 2, 3}
    assert {*random_bits((400,)).tolist()} == {0, 1}
    assert random_bits((0,)).shape == (0,)
