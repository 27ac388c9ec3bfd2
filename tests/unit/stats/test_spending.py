"""Boundaries of planned looks: published tables, other arithmetic, and designs that cannot be."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kanab.errors import AnalysisError
from kanab.stats.spending import (
    boundaries,
    shares_by,
    smallest_alpha,
    smallest_alpha_of_share,
    spent_by,
    z_boundaries,
)

FIFTHS = [0.2, 0.4, 0.6, 0.8, 1.0]
FUNCTIONS = ["obrien-fleming", "pocock", "power:1", "power:3", "hsd:-4", "hsd:0", "hsd:1.5"]


def levels(fractions, **choices):
    return [look.z for look in boundaries(fractions, **choices)]


@pytest.mark.parametrize(
    ("spending", "published"),
    [
        ("obrien-fleming", [4.8769, 3.3569, 2.6803, 2.2898, 2.0310]),
        ("pocock", [2.4380, 2.4268, 2.4101, 2.3966, 2.3859]),
    ],
)
def test_five_equal_looks_have_the_published_boundaries(spending, published):
    # The published ones come from a coarser grid: three of the ten are a unit off in the fourth decimal.
    assert levels(FIFTHS, spending=spending) == pytest.approx(published, abs=1.2e-4)


def test_one_sided_looks_have_the_published_boundaries():
    published = [3.74955, 2.53993, 2.01604, 1.72014]
    assert levels([0.25, 0.5, 0.75, 1], alternative="greater") == pytest.approx(published, abs=5e-5)
    assert levels([0.25, 0.5, 0.75, 1], alternative="less") == levels([0.25, 0.5, 0.75, 1], alternative="greater")


def test_all_is_spent_at_the_end_and_nothing_at_the_start():
    for spending in FUNCTIONS:
        for sides in (1, 2):
            assert spent_by(1.0, 0.05, sides, spending) == 0.05
            assert spent_by(1 - 1e-12, 0.05, sides, spending) == pytest.approx(0.05, rel=1e-9)
            assert spent_by(1e-9, 0.05, sides, spending) < 1e-8


def test_a_look_that_spends_nothing_cannot_stop_and_changes_nothing():
    early, *rest = boundaries([1e-4, 0.5, 1.0])
    assert (early.z, early.nominal) == (math.inf, 0.0)
    assert [one.z for one in rest] == pytest.approx(levels([0.5, 1.0]), rel=1e-12)


@pytest.mark.slow
@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.floats(1e-4, 0.5),
    st.sampled_from(FUNCTIONS),
    st.sampled_from([1, 2]),
)
def test_the_sequential_p_is_the_alpha_whose_boundary_is_just_reached(steps, alpha, spending, sides):
    times = tuple(float(t) for t in np.cumsum(steps))
    fractions = tuple(t / (times[-1] * 1.25) for t in times)
    z = z_boundaries(times, tuple(spent_by(f, alpha, sides, spending) for f in fractions), sides)[-1]
    if z < 37:
        assert smallest_alpha(z, times, fractions, sides, spending) == pytest.approx(alpha, rel=1e-7)


@pytest.mark.parametrize("spending", ["pocock", "obrien-fleming", "hsd:-4"])
@pytest.mark.parametrize("fractions", [(1.0,), (0.4,), (0.25, 0.5), (0.2, 0.4, 0.6, 0.8, 1.0)])
@pytest.mark.parametrize("p", [1e-200, 1e-9, 0.003, 0.04])
def test_the_smallest_alpha_of_a_share_spends_just_that_share(spending, fractions, p):
    alpha = smallest_alpha_of_share(p, fractions, 2, spending)
    assert p <= alpha <= 1
    if alpha < 0.5:
        shares = [0.0, *shares_by(fractions, alpha, 2, spending)]
        assert shares[-1] - shares[-2] == pytest.approx(p, rel=1e-6)


def test_a_p_that_no_alpha_spends_is_one():
    assert smallest_alpha_of_share(0.9, (0.2, 0.4), 2, "obrien-fleming") == 1.0
    assert smallest_alpha_of_share(1.0, (1.0,), 2, "pocock") == 1.0
    assert smallest_alpha_of_share(0.0, (0.5, 1.0), 2, "pocock") == pytest.approx(0, abs=1e-290)


def test_gsdesigns_own_design_has_its_printed_bounds():
    # gsDesign(): k = 3, one-sided α = .025, sfHSD with γ = −4; the futility bound does not bind
    bounds = levels([1 / 3, 2 / 3, 1], confidence=0.975, alternative="greater", spending="hsd:-4")
    assert [round(z, 4) for z in bounds] == [3.0107, 2.5465, 1.9992]


def test_families_spend_by_their_formulas():
    assert spent_by(0.5, 0.05, 2, "power:2") == pytest.approx(0.05 / 4)
    assert spent_by(0.5, 0.05, 2, "hsd:-4") == pytest.approx(0.05 * (1 - math.exp(2)) / (1 - math.exp(4)))
    assert spent_by(0.5, 0.05, 2, "hsd:0") == spent_by(0.5, 0.05, 2, "power:1") == 0.025
    assert spent_by(0.5, 0.05, 2, "hsd:1e-9") == pytest.approx(0.025)


def outside(times, z):
    """Return how often a boundary is crossed, from the joint normal distribution of all looks."""
    correlation = np.sqrt(np.minimum.outer(times, times) / np.maximum.outer(times, times))
    joint = stats.multivariate_normal(cov=correlation, seed=1, abseps=1e-6, maxpts=100_000)
    return 1 - joint.cdf(z, lower_limit=-z)


@pytest.mark.parametrize("spending", FUNCTIONS)
def test_every_function_spends_what_the_joint_normal_distribution_says(spending):
    times = (0.3, 0.5, 0.9)
    z = np.array(levels(times, spending=spending))
    assert outside(times, z) == pytest.approx(spent_by(0.9, 0.05, 2, spending), abs=1e-5)


@pytest.mark.parametrize(
    ("choices", "fact"),
    [
        ({"spending": "power"}, "the spending function power needs a number, above 0 and up to 40. Write power:3"),
        ({"spending": "power:0"}, "power needs a number"),
        ({"spending": "power:nan"}, "power needs a number"),
        ({"spending": "hsd:x"}, "the spending function hsd needs a number, from -40 up to 40. Write hsd:-4"),
        ({"spending": "hsd:41"}, "hsd needs a number"),
    ],
)
def test_numbers_that_no_family_has_are_refused(choices, fact):
    with pytest.raises(AnalysisError, match=fact) as problem:
        boundaries([1.0], **choices)
    assert problem.value.remedy


def test_looks_end_with_the_design_and_have_a_time():  # what else people or fractions may not be, planned looks say
    for fractions, fact in (([0.5, 1.2], "beyond the end of the design"), ([0.5, "x"], "must be positive numbers")):
        with pytest.raises(AnalysisError, match=fact):
            boundaries(fractions)
