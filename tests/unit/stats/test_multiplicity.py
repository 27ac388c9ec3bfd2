"""Corrections for many tests, against statsmodels."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from kanab.errors import AnalysisError
from kanab.stats import Effect, correct
from kanab.stats.distributions import t_interval, t_tail
from kanab.stats.multiplicity import excludes, simultaneous_intervals

THEIRS = {"bonferroni": "bonferroni", "sidak": "sidak", "holm": "holm", "bh": "fdr_bh", "by": "fdr_by"}


@pytest.mark.parametrize(("method", "theirs"), THEIRS.items())
def test_adjusted_p_values_are_those_of_statsmodels(method, theirs):
    rng = np.random.default_rng(1)
    drawn = [rng.uniform(size=m) ** power for m in (1, 2, 3, 10, 200) for power in (1, 3, 8)]
    for p in (*drawn, np.array([0.01, 0.01, 0.04, 0.0, 1.0, 1.0, 0.04])):
        with np.errstate(divide="ignore"):  # their Šidák takes the logarithm of 0
            expected = multipletests(p, method=theirs)[1].tolist()
        assert correct(p.tolist(), method) == pytest.approx(expected, rel=1e-9)


def test_holm_is_the_default_and_keeps_the_order():
    assert correct([0.04, 0.01, 0.03]) == [0.06, 0.03, 0.06]


@pytest.mark.parametrize("method", ["fdr", "", "Holm", None, 5, []])
def test_an_unknown_correction_is_refused_with_the_known_ones(method):
    with pytest.raises(
        AnalysisError,
        match=r"unknown correction\. Use one of: none, bonferroni, sidak, holm, bh, by",
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


def effect(t, df=200.0, alternative="two-sided", confidence=0.95):
    """An effect of this many standard errors."""
    return Effect(
        "y", "B", "A", (("B", 1.0), ("A", -1.0)), "difference", (), t, 1.0, 1.0, df, t,
        t_tail(t, df, alternative), t_interval(t, 1.0, df, confidence, alternative), confidence, alternative,
    )  # fmt: skip


FAMILY = [effect(t) for t in (4.2, -2.9, 2.5, 2.1, 0.3)]
STILL = replace(effect(1.0), df=None, t=None, p=None, interval=None)


@pytest.mark.parametrize(("correction", "level"), [("bonferroni", 0.99), ("sidak", 0.95 ** (1 / 5)), ("none", 0.95)])
def test_single_step_intervals_have_one_level_and_agree(correction, level):
    for member in simultaneous_intervals(FAMILY, correction):
        half = stats.t.ppf((1 + level) / 2, 200)
        assert member.level == pytest.approx(level)
        assert member.interval == pytest.approx((member.effect.estimate - half, member.effect.estimate + half))
        assert member.agrees
        assert excludes(member.interval) == (member.p_adjusted <= 0.05)


@pytest.mark.parametrize(("correction", "selected", "level"), [("bh", 4, 1 - 4 * 0.05 / 5), ("by", 2, 0.991241)])
def test_selected_effects_get_intervals_of_the_false_coverage_rate(correction, selected, level):
    family = simultaneous_intervals(FAMILY, correction)
    chosen = [member for member in family if member.interval is not None]
    assert len(chosen) == selected
    assert all(member.p_adjusted <= 0.05 and excludes(member.interval) for member in chosen)
    assert chosen[0].level == pytest.approx(level, abs=1e-6)
    assert "selected" in chosen[0].meaning


def test_holm_has_bonferronis_intervals_and_says_where_they_do_not_agree():
    family = simultaneous_intervals([effect(4.2), effect(2.1)], "holm")
    assert [member.level for member in family] == [0.975, 0.975]
    assert [member.agrees for member in family] == [True, False]  # p = 0.037 by Holm, but Bonferroni's interval holds 0
    assert family[1].p_adjusted < 0.05
    assert not excludes(family[1].interval)
    assert "Bonferroni" in family[1].meaning


def test_what_cannot_be_tested_stays_out_of_the_family():
    family = simultaneous_intervals([effect(4.2), STILL], "bonferroni")
    assert family[0].level == pytest.approx(0.95)
    assert (family[1].p_adjusted, family[1].level, family[1].interval) == (None, None, None)
    assert simultaneous_intervals([STILL], "holm")[0].interval is None


def test_a_family_has_one_confidence_and_one_side():
    with pytest.raises(AnalysisError, match="one confidence and one alternative"):
        simultaneous_intervals([effect(1), effect(1, confidence=0.9)])
    with pytest.raises(AnalysisError, match="at least one effect"):
        simultaneous_intervals([])
