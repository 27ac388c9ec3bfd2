"""Tail probabilities, against 50-digit values (mpmath)."""

import math

import numpy as np
import pytest

from kanab.errors import AnalysisError
from kanab.stats import distributions
from kanab.stats.distributions import (
    check_sides,
    chi2_tail,
    f_tail,
    find_root,
    satterthwaite_df,
    t_interval,
    t_quantile,
    t_tail,
)


@pytest.mark.parametrize(
    ("t", "df", "p"),
    [
        (0.5, 3, 0.65144796484815099),
        (2, 12, 0.068655014038085938),
        (1e-8, 5, 0.9999999924078662),
        (30, 10, 3.9617923420313243e-11),
        (12, 50, 2.4623806253325446e-16),
        (22.5, 40_000, 2.0449506873304179e-111),
        (36.9, 1e4, 1.4551799637993393e-279),
        (37, 1e6, 1.8299730861802263e-299),
        (1e5, 4, 5.999999996e-20),
        (1e6, 8, 1.119999999967744e-45),
        (1e9, 1, 6.3661977236758134e-10),
        (1e30, 2, 1e-60),
    ],
)
def test_t_tail_is_right_to_twelve_digits_down_to_1e_minus_299(t, df, p):
    assert t_tail(t, df) == pytest.approx(p, rel=1e-12, abs=0)
    assert t_tail(-t, df) == t_tail(t, df)


def test_one_sided_tails_are_half_of_the_two_sided_one_and_add_up_to_one():
    both = t_tail(2, 12)
    assert t_tail(2, 12, "greater") == both / 2
    assert t_tail(2, 12, "less") == 1 - both / 2
    assert t_tail(-2, 12, "less") == both / 2
    assert t_tail(-2, 12, "greater") == 1 - both / 2


def test_t_quantile_inverts_the_tail():
    assert t_quantile(0.975, 1) == pytest.approx(12.706204736174694, rel=1e-14)
    assert t_quantile(0.975, 1e12) == pytest.approx(1.959963984542, rel=1e-12)
    assert t_tail(t_quantile(0.975, 4.3), 4.3) == pytest.approx(0.05, rel=1e-13)


@pytest.mark.parametrize(
    ("f", "numerator", "denominator", "p"),
    [
        (41.5, 2, 12, 4.0620554220251503e-6),
        (1.5, 99, 1e6, 0.00095231401305445853),
        (0.001, 5, 1e6, 0.99999990613580202),
        (1e5, 3, 40, 1.6164749652777309e-77),
        (1e12, 2, 4, 3.999999999984e-24),
        (690, 2, 1e6, 3.4945001227309076e-300),
    ],
)
def test_f_tail_is_right_to_twelve_digits_down_to_1e_minus_300(f, numerator, denominator, p):
    assert f_tail(f, numerator, denominator) == pytest.approx(p, rel=1e-12, abs=0)


@pytest.mark.parametrize(
    ("x", "df", "p"),
    [
        (5, 4, 0.28729749518364578),
        (1e-5, 3, 0.99999999158958349),
        (1300, 7, 1.6632784025498238e-276),
        (1360, 1, 1.0341991197827858e-297),
    ],
)
def test_chi2_tail_is_right_to_twelve_digits_down_to_1e_minus_297(x, df, p):
    assert chi2_tail(x, df) == pytest.approx(p, rel=1e-12, abs=0)


def test_one_sided_intervals_are_open_and_agree_with_the_test():
    estimate, se, df = 3.0, 1.0, 10
    p = t_tail(estimate / se, df, "greater")
    low, high = t_interval(estimate, se, df, 1 - p, "greater")
    assert low == pytest.approx(0, abs=1e-12)
    assert high == math.inf
    low, high = t_interval(-estimate, se, df, 1 - p, "less")
    assert low == -math.inf
    assert high == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, math.nan, math.inf, True, "0.95", None])
def test_a_confidence_outside_0_to_1_is_refused(confidence):
    with pytest.raises(AnalysisError, match="confidence must lie between 0 and 1"):
        check_sides(confidence, "two-sided")


@pytest.mark.parametrize("alternative", ["larger", "", None, 1, ["less"]])
def test_an_unknown_alternative_is_refused(alternative):
    with pytest.raises(AnalysisError, match=r"unknown alternative. Use 'two-sided', 'greater' or 'less'"):
        check_sides(0.95, alternative)


def test_satterthwaites_df_lie_between_the_smallest_and_all_together():
    assert satterthwaite_df(np.array([2.0, 2.0]), np.array([8.0, 8.0])) == 16
    assert satterthwaite_df(np.array([3.0, 0.0]), np.array([8.0, 5.0])) == 8
    assert satterthwaite_df(np.array([4.0, 1.0]), np.array([9.0, 4.0])) == pytest.approx(25 / (16 / 9 + 0.25))


def test_a_root_is_found_to_the_last_digits():
    assert find_root(lambda x: x * x - 2, 0, 2) == pytest.approx(math.sqrt(2), rel=1e-14)
    assert find_root(lambda x: math.tanh(50 * (x - 0.9)), 0, 1) == pytest.approx(0.9, rel=1e-13)


def test_a_root_is_as_near_as_the_most_steps_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "_MOST_STEPS", 3)
    root = find_root(lambda x: x**3 - 2, 0, 4)
    assert 0 < abs(root - 2 ** (1 / 3)) < 1


def test_an_end_may_be_the_root():
    assert find_root(lambda x: x, 0, 1) == 0
    assert find_root(lambda x: x - 1, 0, 1) == 1


def test_no_change_of_sign_is_an_error():
    with pytest.raises(AnalysisError, match="no solution"):
        find_root(lambda x: x + 1, 0, 1)
