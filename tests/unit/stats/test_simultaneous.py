"""Intervals for many effects at once, and where they agree with corrected p-values."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import Effect, difference_in_means
from kanab.stats.distributions import t_interval, t_tail
from kanab.stats.simultaneous import excludes, holm_regions, simultaneous_intervals


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
    for one in simultaneous_intervals(FAMILY, correction):
        half = stats.t.ppf((1 + level) / 2, 200)
        assert one.level == pytest.approx(level)
        assert one.interval == pytest.approx((one.effect.estimate - half, one.effect.estimate + half))
        assert one.agrees
        assert excludes(one.interval) == (one.p_adjusted <= 0.05)


@pytest.mark.parametrize(("correction", "selected", "level"), [("bh", 4, 1 - 4 * 0.05 / 5), ("by", 2, 0.991241)])
def test_selected_effects_get_intervals_of_the_false_coverage_rate(correction, selected, level):
    found = simultaneous_intervals(FAMILY, correction)
    chosen = [one for one in found if one.interval is not None]
    assert len(chosen) == selected
    assert all(one.p_adjusted <= 0.05 and excludes(one.interval) for one in chosen)
    assert chosen[0].level == pytest.approx(level, abs=1e-6)
    assert "selected" in chosen[0].meaning


def test_where_nothing_is_selected_there_is_no_interval():
    assert [one.interval for one in simultaneous_intervals([effect(0.1), effect(0.2)], "bh")] == [None, None]


def test_holm_has_bonferronis_intervals_and_says_where_they_do_not_agree():
    found = simultaneous_intervals([effect(4.2), effect(2.1)], "holm")
    assert [one.level for one in found] == [0.975, 0.975]
    assert [one.agrees for one in found] == [True, False]  # p = 0.037 by Holm, but Bonferroni's interval holds 0
    assert found[1].p_adjusted < 0.05
    assert not excludes(found[1].interval)
    assert "Bonferroni" in found[1].meaning


def test_what_cannot_be_tested_stays_out_of_the_family():
    found = simultaneous_intervals([effect(4.2), STILL], "bonferroni")
    assert found[0].level == pytest.approx(0.95)
    assert (found[1].p_adjusted, found[1].level, found[1].interval) == (None, None, None)
    assert simultaneous_intervals([STILL], "holm")[0].interval is None
    assert holm_regions([STILL])[0].interval is None


def test_one_sided_families_keep_their_side():
    found = simultaneous_intervals([effect(t, alternative="greater") for t in (3.0, 1.0)], "bonferroni")
    assert found[0].interval == pytest.approx((3 - stats.t.ppf(0.975, 200), math.inf))


def test_holms_one_sided_regions_exclude_0_exactly_where_it_rejects():
    found = holm_regions([effect(t, alternative="greater") for t in (3.0, 2.2, 1.0)])
    assert [one.rejected for one in found] == [True, True, False]
    assert found[0].interval == found[1].interval == (0.0, math.inf)
    assert found[2].interval == pytest.approx((1 - stats.t.ppf(0.95, 200), math.inf))  # 1 − α/(m − r)
    below = holm_regions([effect(-3.0, alternative="less"), effect(0.5, alternative="less")])
    assert below[0].interval == (-math.inf, 0.0)


def test_if_all_are_rejected_bonferronis_bounds_hold_too():
    found = holm_regions([effect(t, alternative="greater") for t in (4.0, 1.8)])
    limit = stats.t.ppf(0.975, 200)
    assert [one.interval[0] for one in found] == pytest.approx([4 - limit, 0.0])


def test_two_sided_rejections_say_only_that_it_is_not_0():
    found = holm_regions(FAMILY)
    assert [one.rejected for one in found] == [True, True, True, False, False]
    assert [one.interval is None for one in found] == [True, True, True, False, False]
    assert [one.without_zero for one in found] == [True, True, True, False, False]
    half = stats.t.ppf(1 - 0.05 / 4, 200)
    assert found[3].interval == pytest.approx((2.1 - half, 2.1 + half))
    assert not any(excludes(one.interval) for one in found[3:])
    every = holm_regions([effect(4.0), effect(2.1)])
    assert all(one.without_zero and one.interval is not None for one in every)


def test_a_family_has_one_confidence_and_one_side():
    with pytest.raises(AnalysisError, match="one confidence and one alternative"):
        simultaneous_intervals([effect(1), effect(1, confidence=0.9)])
    with pytest.raises(AnalysisError, match="at least one effect"):
        holm_regions([])


def test_a_family_of_one_is_the_effect_itself():
    one = difference_in_means(eighteen())
    for correction in ("bonferroni", "holm", "hochberg", "sidak"):
        assert simultaneous_intervals([one], correction)[0].interval == pytest.approx(one.interval)
