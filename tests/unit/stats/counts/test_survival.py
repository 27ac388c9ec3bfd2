"""Kaplan–Meier and log-rank from counts per arm and day: what rows would give."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import survival, survival_effect

# Remission of leukaemia in weeks, Freireich et al. 1963: 6-mercaptopurine (with censoring) and placebo
DRUG = [6, 6, 6, 7, 10, 13, 16, 22, 23, 6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
DRUG_EVENT = [1] * 9 + [0] * 12
PLACEBO = [1, 1, 2, 2, 3, 4, 4, 5, 5, 8, 8, 8, 8, 11, 11, 12, 12, 15, 17, 22, 23]


def counted(arm, day, event, covariates=("day",), **more):
    rows = {"arm": arm, "day": day, "event": event, **more}
    return count_columns(rows, arm="arm", covariates=list(covariates), metrics=["event"])


def leukaemia():
    return counted(["drug"] * 21 + ["placebo"] * 21, DRUG + PLACEBO, DRUG_EVENT + [1] * 21)


def test_remission_of_leukaemia_is_as_published():
    found = survival(leukaemia())  # log-rank χ² 16.79, medians 23 and 8: Kleinbaum and Klein, and R's survdiff
    assert found.chi2 == pytest.approx(16.79, abs=0.005)
    assert [curve.median for curve in found.curves] == [23, 8]
    drug = dict(zip(found.curves[0].days.tolist(), found.curves[0].share.tolist(), strict=True))
    printed = {6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448}
    assert {day: round(drug[day], 3) for day in printed} == printed


@pytest.mark.parametrize("arms", ["AB", "ABC"])
def test_curves_and_test_are_those_of_the_rows(arms):
    rng = np.random.default_rng(5)
    arm, day = rng.choice(list(arms), 400), rng.integers(1, 25, 400)
    event = (rng.random(400) < np.where(arm == "B", 0.5, 0.7)).astype(int)
    found = survival(counted(arm, day, event))
    chi2, p = survdiff(day, event, arm)
    assert (found.chi2, found.p) == (pytest.approx(chi2, rel=1e-10), pytest.approx(p, rel=1e-9))
    assert found.df == len(arms) - 1
    for curve in found.curves:
        oracle = SurvfuncRight(day[arm == curve.arm], event[arm == curve.arm])
        ours = dict(zip(curve.days.tolist(), zip(curve.share, curve.se, strict=True), strict=True))
        for time, share, se in zip(oracle.surv_times, oracle.surv_prob, oracle.surv_prob_se, strict=True):
            assert ours[time][0] == pytest.approx(share, rel=1e-12, abs=1e-15)
            if share > 1e-9:
                assert ours[time][1] == pytest.approx(se, rel=1e-10)
        assert curve.median == oracle.quantile(0.5)
        low, high = oracle.quantile_ci(0.5, method="cloglog")
        assert curve.median_interval == (low, None if np.isinf(high) else high)


def test_a_curve_without_events_has_no_median_and_no_interval_yet():
    curve = survival(counted(list("AB") * 20, [1, 1, 5, 5] * 10, [0, 0, 1, 0] * 10)).curves[0]
    assert curve.share.tolist() == [1.0, 0.0]
    assert np.isnan(curve.intervals).all()
    assert math.isnan(curve.se[1])
    other = survival(counted(list("AB") * 20, [1, 1, 5, 5] * 10, [0, 0, 1, 0] * 10)).curves[1]
    assert other.median is None


def test_nobody_with_an_event_leaves_no_test():
    found = survival(counted(list("AB") * 4, [1, 2] * 4, [0] * 7 + [1]).select_arms(["A"]))
    assert (found.chi2, found.p) == (None, None)
    assert str(found).endswith("nobody has the event")


def test_other_covariates_are_collapsed_and_the_result_is_json():
    tally = counted(list("AB") * 21, DRUG + PLACEBO, DRUG_EVENT + [1] * 21, ("tier", "day"), tier=[1, 2, 3] * 14)
    found = survival(tally, "day", "event", confidence=0.9)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["df"] == 1
    assert plain["curves"][0]["days"][0]["at_risk"] == 21
    assert str(found).startswith("event by day\n")


def test_the_order_of_the_axes_does_not_matter():
    tally = leukaemia()
    plain = tally.to_dict()
    assert survival(type(tally).from_dict(plain)).chi2 == survival(tally).chi2
    swapped = type(tally)(
        tally.factors[::-1],
        tally.people.T,
        tuple(type(m)(m.metric, m.counts.T, m.sums.T, {}) for m in tally.moments),
    )
    assert survival(swapped).chi2 == survival(tally).chi2


def test_what_is_not_a_day_or_not_an_event_is_refused():
    with pytest.raises(AnalysisError, match="minutes is not a 0/1 metric"):
        survival(eighteen())
    texts = counted(list("AB") * 4, list("xy") * 4, [0, 1] * 4)
    with pytest.raises(AnalysisError, match="day is not a number of days"):
        survival(texts)
    with pytest.raises(AnalysisError, match="not a number of days"):
        survival(leukaemia(), "arm")
    two = counted(list("AB") * 4, [1, 2] * 4, [0, 1] * 4, ("day", "tier"), tier=[1] * 8)
    with pytest.raises(AnalysisError, match=r"needs one covariate, the day\. This tally has: day, tier\."):
        survival(two)
    gone = counted(list("AB") * 4, [1, 2, 3, None] * 2, [0, 1] * 4)
    with pytest.raises(AnalysisError, match="some people have no day"):
        survival(gone)


def test_two_arms_are_compared_by_log_rank_shares_and_days_as_on_the_rows():
    drug, placebo = survival(leukaemia()).curves
    effect = survival_effect(drug, placebo, day=10)
    assert effect.z**2 == pytest.approx(survdiff(DRUG + PLACEBO, DRUG_EVENT + [1] * 21, [0] * 21 + [1] * 21)[0])
    assert (effect.z < 0, effect.p) == (True, pytest.approx(survival(leukaemia()).p))  # relapses come later
    assert effect.shares == (pytest.approx(8 / 21), pytest.approx(0.7529, abs=5e-5))
    assert effect.means[0] == pytest.approx(np.minimum(PLACEBO, 10).mean())  # nobody is censored
    variance = np.minimum(PLACEBO, 10).var() / 21
    assert placebo.mean_to(10)[1] == pytest.approx(math.sqrt(variance))
    reach = 1.959964 * math.hypot(placebo.mean_to(10)[1], drug.mean_to(10)[1])
    assert effect.mean_interval[1] - effect.mean_difference == pytest.approx(reach, rel=1e-6)
    assert effect.interval[0] < effect.difference < effect.interval[1]
    one_sided = survival_effect(drug, placebo, day=10, alternative="less")
    assert one_sided.p == pytest.approx(effect.p / 2)


def test_the_day_is_the_last_with_people_in_both_unless_one_is_named():
    drug, placebo = survival(leukaemia()).curves
    assert survival_effect(drug, placebo).day == 22  # of placebo nobody is left after 23
    assert survival_effect(drug, placebo, day=0.5).difference == 0
    with pytest.raises(AnalysisError, match=r"not within both curves\. Name one from 0 to 22"):
        survival_effect(drug, placebo, day=30)


def merged_days(rng, people=20_000):
    """Days of everybody, and the tally in which days 11 to 20 are one."""
    leaves, seen = rng.geometric(0.05, people), rng.integers(5, 31, people)
    day, event = np.minimum(leaves, seen), (leaves <= seen).astype(int)
    arm = np.tile(["A", "B"], people // 2)
    tally = counted(arm, day, event)
    into = {level: "11 … 20" if 11 <= level <= 20 else level for level in tally.factors[1].levels}
    return arm, day, event, tally.coarsen("day", into, {"11 … 20": 20.0})


def test_merged_days_are_a_step_at_their_end_that_is_near_the_curve_of_the_rows():
    arm, day, event, tally = merged_days(np.random.default_rng(4))
    rows = survival(counted(arm, day, event)).curves[0]
    curve = survival(tally).curves[0]
    assert 20 in curve.days
    assert not {*range(11, 20)} & {*curve.days.tolist()}
    assert curve.share_at(10) == rows.share_at(10)
    away = curve.share_at(20)[0] - rows.share_at(20)[0]
    as_one_day = curve.share_at(10)[0] * (1 - curve.events[10] / curve.at_risk[10])
    assert abs(away) < 0.015
    assert as_one_day - rows.share_at(20)[0] > 0.05  # who was last seen within would count as if there to the end
    assert curve.mean_to(20)[0] == pytest.approx(rows.mean_to(20)[0], abs=0.2)  # a flat step: 13.7
    assert curve.mean_to(20)[1] == pytest.approx(rows.mean_to(20)[1], rel=0.05)


def test_curves_end_before_open_days_which_the_test_still_counts():
    arm, day, event, _ = merged_days(np.random.default_rng(4), 2_000)
    tally = counted(arm, day, event)
    into = {level: level if level <= 25 else "≥ 25.5" for level in tally.factors[1].levels}
    cut = survival(tally.coarsen("day", into, {"≥ 25.5": 30.0}))
    curve = cut.curves[0]
    late = (arm == "A") & (day > 25)
    assert curve.days[-1] == 25
    assert curve.later == (late.sum(), event[late].sum())
    assert curve.share_at(25) == survival(tally).curves[0].share_at(25)
    assert sum(each["later"]["events"] for each in cut.to_dict()["curves"]) == event[day > 25].sum()
    one_step = survdiff(np.minimum(day, 26), event, arm)[0]
    assert cut.chi2 == pytest.approx(one_step, rel=1e-9)
    with pytest.raises(AnalysisError, match="day has no days that end"):
        survival(tally.coarsen("day", dict.fromkeys(tally.factors[1].levels, "≥ 1"), {"≥ 1": 1.0}))


def test_arms_without_any_event_are_not_compared():
    curves = survival(counted(list("AB") * 20, [1, 1, 5, 5] * 10, [0] * 39 + [1])).curves
    assert survival_effect(curves[1], curves[0]).p is not None
    none = [replace(curve, events=np.zeros_like(curve.events)) for curve in curves]
    assert survival_effect(none[1], none[0]).p is None


@pytest.mark.slow
def test_the_log_rank_test_holds_its_size():
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(200):
        day, event = rng.geometric(0.1, 200), (rng.random(200) < 0.7).astype(int)
        alarms += survival(counted(np.tile(["A", "B"], 100), day, event)).p < 0.05
    assert 0.015 < alarms / 200 < 0.1
