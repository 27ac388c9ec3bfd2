"""Kaplan–Meier and log-rank from counts per arm and day: what rows would give."""

import json
import math

import numpy as np
import pytest
from statsmodels.duration.survfunc import SurvfuncRight, survdiff

from kanab import count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.stats import survival

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


@pytest.mark.slow
def test_the_log_rank_test_holds_its_size():
    rng = np.random.default_rng(9)
    alarms = 0
    for _ in range(200):
        day, event = rng.geometric(0.1, 200), (rng.random(200) < 0.7).astype(int)
        alarms += survival(counted(np.tile(["A", "B"], 100), day, event)).p < 0.05
    assert 0.015 < alarms / 200 < 0.1
