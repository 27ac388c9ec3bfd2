"""Corrections for many tests, against statsmodels."""

import math

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from kanab.errors import AnalysisError
from kanab.stats import correct

THEIRS = {
    "bonferroni": "bonferroni",
    "sidak": "sidak",
    "holm": "holm",
    "hochberg": "simes-hochberg",
    "bh": "fdr_bh",
    "by": "fdr_by",
}


@pytest.mark.parametrize(("method", "theirs"), THEIRS.items())
@pytest.mark.parametrize("m", [1, 2, 3, 10, 200])
def test_adjusted_p_values_are_those_of_statsmodels(method, theirs, m):
    rng = np.random.default_rng(m)
    for power in (1, 3, 8):
        p = rng.uniform(size=m) ** power
        assert correct(p.tolist(), method) == pytest.approx(multipletests(p, method=theirs)[1].tolist(), rel=1e-9)


@pytest.mark.parametrize(("method", "theirs"), THEIRS.items())
def test_ties_zeros_and_ones_are_those_of_statsmodels(method, theirs):
    p = [0.01, 0.01, 0.04, 0.0, 1.0, 1.0, 0.04]
    with np.errstate(divide="ignore"):  # their Šidák takes the logarithm of 0
        expected = multipletests(p, method=theirs)[1].tolist()
    assert correct(p, method) == pytest.approx(expected, rel=1e-12)


def test_none_leaves_the_p_values_alone():
    assert correct([0.5, 0.01], "none") == [0.5, 0.01]


@pytest.mark.parametrize("method", [*THEIRS, "none"])
def test_what_is_not_testable_stays_out_of_the_family(method):
    alone = correct([0.01, 0.02], method)
    assert correct([None, 0.01, math.nan, 0.02], method) == [None, alone[0], None, alone[1]]
    assert correct([None, None], method) == [None, None]
    assert correct([], method) == []


@pytest.mark.parametrize("method", THEIRS)
def test_tiny_p_values_are_multiplied_and_not_rounded_to_zero(method):
    tiny, other = correct([1e-300, 0.5], method)
    assert 1e-300 < tiny <= 3.1e-300
    assert 0.5 <= other <= 1


def test_corrections_are_never_below_the_p_value_nor_above_one():
    p = (np.random.default_rng(1).uniform(size=50) ** 2).tolist()
    for method in THEIRS:
        assert all(one <= adjusted <= 1 for one, adjusted in zip(p, correct(p, method), strict=True))


def test_holm_is_the_default_and_keeps_the_order():
    assert correct([0.04, 0.01, 0.03]) == [0.06, 0.03, 0.06]


@pytest.mark.parametrize("method", ["fdr", "", "Holm", None, 5, []])
def test_an_unknown_correction_is_refused_with_the_known_ones(method):
    with pytest.raises(
        AnalysisError, match=r"unknown correction\. Use one of: none, bonferroni, sidak, holm, hochberg"
    ):
        correct([0.5], method)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.inf, 22.6])
def test_statistics_are_not_taken_for_p_values(p):
    with pytest.raises(AnalysisError, match=r"a p-value lies outside 0 … 1\. Give p-values, not statistics\."):
        correct([0.5, p])


@pytest.mark.parametrize("p_values", [["0.5"], [[0.5]]])
def test_anything_but_numbers_is_refused(p_values):
    with pytest.raises(AnalysisError):
        correct(p_values)
