"""Mantel–Haenszel over strata: published figures, statsmodels on the rows, and its size."""

import math

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import StratifiedTable

from kanab import Metric, Tally, count_columns
from kanab.datasets import eighteen, shop_rows
from kanab.errors import AnalysisError, LevelError
from kanab.stats import common_odds
from kanab.tally import Factor
from kanab.tally.moments import Moments

# Admissions to six departments of Berkeley, 1973 (Bickel, Hammel and O'Connell): admitted, rejected; men, then women.
BERKELEY = {
    "A": (512, 313, 89, 19), "B": (353, 207, 17, 8), "C": (120, 205, 202, 391),
    "D": (138, 279, 131, 244), "E": (53, 138, 94, 299), "F": (22, 351, 24, 317),
}  # fmt: skip
# Penicillin and rabbits (Agresti 1990): cured, died; injected at once, then after 1.5 hours.
RABBITS = {
    "1/8": (0, 6, 0, 5), "1/4": (3, 3, 0, 6), "1/2": (6, 0, 2, 4), "1": (5, 1, 6, 0), "4": (2, 0, 5, 0),
}  # fmt: skip


def table(strata, arms=("late", "now")):
    """The tally of 2 × 2 tables, each given as events and others of the arm, then of the control."""
    cells = np.array([[(c, a), (c + d, a + b)] for a, b, c, d in strata.values()], dtype=object)
    events, people = cells[:, 0].T, cells[:, 1].T
    factors = Factor("arm", arms, "arm"), Factor("level", tuple(strata))
    return Tally(factors, people, (Moments(Metric("hit", 1, (0, 1)), people, events, {}),))


def on_rows(strata):
    return StratifiedTable([np.array([[a, b], [c, d]], dtype=float) for a, b, c, d in strata.values()])


def test_berkeley_admissions_are_as_published():
    # R: mantelhaen.test(UCBAdmissions); SAS: proc freq, cmh
    (odds,) = common_odds(table(BERKELEY, ("women", "men")), control="women")
    assert odds.odds_ratio == pytest.approx(0.9046968, abs=5e-8)
    assert odds.interval == pytest.approx((0.7719074, 1.0603298), abs=5e-8)
    assert odds.chi2 == pytest.approx(1.5246, abs=5e-5)
    assert odds.p == pytest.approx(0.2169, abs=5e-5)
    assert odds.equal.plain_chi2 == pytest.approx(18.8255, abs=5e-4)
    assert (odds.equal.df, round(odds.equal.plain_p, 4)) == (5, 0.0021)
    assert [round(level.odds_ratio, 2) for level in odds.levels] == [0.35, 0.80, 1.13, 0.92, 1.22, 0.83]


def test_strata_without_a_choice_say_nothing():
    # R's mantelhaen.test(Rabbits) has p = 0.047 with its continuity correction; two of five strata do not count
    (odds,) = common_odds(table(RABBITS))
    assert odds.odds_ratio == pytest.approx(7)
    assert [level.odds_ratio for level in odds.levels] == [None, None, None, 0, None]
    assert [level.interval is None for level in odds.levels] == [True, False, False, False, True]
    assert odds.equal.df == 2
    assert sum(level.weight for level in odds.levels) == pytest.approx(1)
    assert "the χ² test is rough; few people are to be expected in many cells" in odds.note
    inner = {level: cells for level, cells in RABBITS.items() if level not in ("1/8", "4")}
    assert odds.chi2 == pytest.approx(on_rows(inner).test_null_odds().statistic)
    corrected = (odds.z * (1 - 0.5 / 3)) ** 2  # events are 3 more than expected
    assert math.erfc(math.sqrt(corrected / 2)) == pytest.approx(0.047, abs=5e-4)


@pytest.mark.parametrize("seed", range(8))
def test_all_is_as_statsmodels_has_it_on_the_rows(seed):
    rng = np.random.default_rng(seed)
    strata = {str(level): tuple(rng.integers(1, 60, 4).tolist()) for level in range(2 + seed)}
    (odds,) = common_odds(table(strata))
    oracle = on_rows(strata)
    assert odds.odds_ratio == pytest.approx(oracle.oddsratio_pooled, rel=1e-12)
    assert odds.se_log == pytest.approx(oracle.logodds_pooled_se, rel=1e-12)
    assert odds.interval == pytest.approx(oracle.oddsratio_pooled_confint(), rel=1e-12)
    assert odds.risk_ratio == pytest.approx(oracle.riskratio_pooled, rel=1e-12)
    null = oracle.test_null_odds()
    assert (odds.chi2, odds.p) == (pytest.approx(null.statistic, rel=1e-10), pytest.approx(null.pvalue, rel=1e-9))
    for ours, theirs in (
        ((odds.equal.plain_chi2, odds.equal.plain_p), oracle.test_equal_odds()),
        ((odds.equal.chi2, odds.equal.p), oracle.test_equal_odds(adjust=True)),
    ):
        assert ours == (pytest.approx(theirs.statistic, rel=1e-9), pytest.approx(theirs.pvalue, rel=1e-8))


def test_one_stratum_is_the_plain_table():
    (odds,) = common_odds(table({"all": (56, 14, 48, 32)}))
    assert odds.odds_ratio == pytest.approx(56 * 32 / (14 * 48))
    assert odds.risk_difference == pytest.approx(0.2)
    assert odds.risk_ratio == pytest.approx(0.8 / 0.6)
    assert odds.se_log == pytest.approx(math.sqrt(1 / 56 + 1 / 14 + 1 / 48 + 1 / 32))
    assert odds.equal is None
    assert str(odds).splitlines()[-1].startswith("Mantel–Haenszel χ²(1) = 6.977")
    half = (odds.risk_difference_interval[1] - odds.risk_difference_interval[0]) / 2
    assert half == pytest.approx(1.959964 * math.sqrt(0.8 * 0.2 / 70 + 0.6 * 0.4 / 80), rel=2e-3)


def test_several_covariates_are_crossed_and_others_collapsed():
    rows = shop_rows(4000)
    tally = count_columns(rows, arm="variant", covariates=["device", "tier"], metrics=["bought"])
    both = common_odds(tally, metric="bought")[0]
    assert both.covariates == ("device", "tier")
    assert len(both.levels) == 15
    assert both.levels[1].level == "desktop, 2"
    alone = count_columns(rows, arm="variant", covariates=["tier"], metrics=["bought"])
    for named in ("tier", ["tier"]):
        assert common_odds(tally, named)[0].interval == common_odds(alone)[0].interval


def test_every_arm_is_compared_with_the_control():
    rng = np.random.default_rng(3)
    rows = {"arm": rng.choice(list("ABC"), 900), "tier": rng.integers(0, 2, 900), "y": rng.integers(0, 2, 900)}
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics=["y"])
    assert [(odds.arm, odds.control) for odds in common_odds(tally)] == [("B", "A"), ("C", "A")]
    assert [(odds.arm, odds.control) for odds in common_odds(tally, control="C")] == [("A", "C"), ("B", "C")]
    two = tally.select_arms(["B", "C"])
    first, turned = common_odds(two, control="B")[0], common_odds(two, control="C")[0]
    assert first.odds_ratio == pytest.approx(1 / turned.odds_ratio)
    assert first.equal.chi2 == pytest.approx(turned.equal.chi2)
    assert first.risk_difference_interval == pytest.approx([-end for end in turned.risk_difference_interval[::-1]])


def test_one_sided_tests_have_open_intervals():
    (odds,) = common_odds(table(BERKELEY), alternative="less")
    assert odds.p == pytest.approx(0.2169 / 2, abs=1e-4)
    assert odds.interval[0] == 0
    assert odds.risk_difference_interval[0] == -math.inf


def test_events_on_one_side_only_have_a_test_but_no_ratio():
    (odds,) = common_odds(table({"x": (8, 12, 0, 20), "y": (6, 14, 0, 20)}))
    assert (odds.odds_ratio, odds.interval, odds.risk_ratio, odds.equal) == (None, None, None, None)
    assert odds.p < 0.001
    assert odds.risk_difference == pytest.approx(0.35)
    (everybody,) = common_odds(table({"x": (20, 0, 10, 10)}))
    assert everybody.odds_ratio is None
    assert everybody.risk_ratio == pytest.approx(2)


def test_strata_in_which_nothing_differs_leave_a_sentence():
    (odds,) = common_odds(table({"x": (0, 12, 0, 20), "y": (5, 5, 0, 0)}))
    assert (odds.odds_ratio, odds.p) == (None, None)
    assert str(odds).endswith("no stratum has both arms, and both people with the event and without it")
    assert [level.level for level in odds.levels] == ["x", "y"]


def test_a_quadratic_with_a_falling_side_is_solved_without_loss():
    strata = {"x": (2, 38, 30, 3), "y": (4, 60, 40, 2)}  # odds far below 1, and more events than controls without
    (odds,) = common_odds(table(strata))
    assert odds.equal.chi2 == pytest.approx(on_rows(strata).test_equal_odds(adjust=True).statistic, rel=1e-9)


def test_it_prints_itself():
    (odds,) = common_odds(table(BERKELEY, ("women", "men")), control="women")
    lines = str(odds).splitlines()
    assert lines[0] == "hit: men against women over level"
    assert lines[-3].split() == ["common", "557", "1198", "1835", "2691", "0.9047", "0.7719", "…", "1.060"]
    assert lines[-2].startswith("Mantel–Haenszel χ²(1) = 1.525, p = 0.217; risk ratio ")
    assert lines[-1] == "Equal odds in all strata: Breslow–Day χ²(5) = 18.83, p = 0.00207 (Tarone)"
    assert "<table" in odds._repr_html_()
    assert "<p>Equal odds" in odds._repr_html_()


def test_what_has_no_odds_or_no_strata_is_refused():
    with pytest.raises(AnalysisError, match="minutes is not a 0/1 metric"):
        common_odds(eighteen())
    bare = count_columns({"arm": list("AB") * 9, "y": [0, 1, 1] * 6}, arm="arm", metrics=["y"])
    with pytest.raises(AnalysisError, match=r"odds over strata need a covariate\. This tally has: none\."):
        common_odds(bare)
    with pytest.raises(AnalysisError, match="need a covariate"):
        common_odds(table(BERKELEY), "arm")
    with pytest.raises(LevelError, match="unknown arm column or covariate"):
        common_odds(table(BERKELEY), "tier")


def simulated(rng, runs, people, odds):
    """P-values of the three tests, and whether intervals hold, for strata of very different rates."""
    base = np.log(np.array([0.05, 0.2, 0.5]) / np.array([0.95, 0.8, 0.5]))
    control, arm = 1 / (1 + np.exp(-base)), 1 / (1 + np.exp(-base - math.log(odds)))
    for _ in range(runs):
        c, a = rng.binomial(people, control), rng.binomial(people, arm)
        cells = zip(a, people - a, c, people - c, strict=True)
        yield common_odds(table({str(i): tuple(map(int, four)) for i, four in enumerate(cells)}))[0]


@pytest.mark.slow
def test_tests_hold_their_size_and_intervals_their_truth():
    rng = np.random.default_rng(7)
    runs = 200
    null = list(simulated(rng, runs, 200, 1.0))
    size = [np.mean([odds.p < 0.05 for odds in null]), np.mean([odds.equal.p < 0.05 for odds in null])]
    assert all(0.02 < share < 0.09 for share in size), size
    held = [odds.interval[0] <= 2 <= odds.interval[1] for odds in simulated(rng, runs, 200, 2.0)]
    assert 0.91 < np.mean(held) < 0.98
    zero = [odds.risk_difference_interval for odds in null]
    assert 0.9 < np.mean([low <= 0 <= high for low, high in zero]) < 0.98
    one = [odds.risk_ratio_interval for odds in null]
    assert 0.9 < np.mean([low <= 1 <= high for low, high in one]) < 0.98
