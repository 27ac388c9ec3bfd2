"""Six words, and the rules behind them."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from kanab.errors import AnalysisError, ArgumentError
from kanab.scan.stats.outcomes import Outcome
from kanab.scan.stats.scan_verdicts import (
    ALMOST,
    FEW_COULD,
    WITHIN,
    Evidence,
    Rules,
    correct_families,
    decide,
    interval_levels,
)
from kanab.stats import correct
from kanab.stats.multiplicity import Correction

RULES = Rules(10, "metric", "holm")
NAN = float("nan")


def judged(alarm="interference", **changes):
    fields = {
        "p_adjusted": 1.0, "p_guarded": 1.0, "could_miss": 0.5, "could_miss_guarded": 0.6, "assignment": 1.0,
        "tolerance": NAN, "untested": False,
    } | changes  # fmt: skip
    evidence = Evidence(**{name: np.array([value]) for name, value in fields.items()})
    verdict, note = decide(evidence, 0.05, alarm)
    return verdict[0], note[0]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("nothing found", "")),
        ({"p_adjusted": 0.01, "p_guarded": 0.02}, ("interference", "")),
        ({"p_adjusted": 0.01, "p_guarded": 0.2}, ("watch", FEW_COULD)),
        ({"tolerance": 1.0}, ("clear within tolerance", "")),
        ({"tolerance": 0.55}, ("nothing found", ALMOST)),
        ({"tolerance": 0.1}, ("nothing found", "")),
        ({"tolerance": 1.0, "p_adjusted": 0.01, "p_guarded": 0.02}, ("clear within tolerance", WITHIN)),
        ({"tolerance": 0.55, "p_adjusted": 0.01, "p_guarded": 0.2}, ("watch", FEW_COULD)),
        ({"assignment": 0.0009, "p_adjusted": 0.01, "p_guarded": 0.02}, ("assignment broken", "")),
        ({"assignment": 0.0009, "tolerance": 1.0}, ("assignment broken", "")),
        ({"assignment": NAN}, ("nothing found", "")),
        ({"assignment": 0.002}, ("nothing found", "")),
        ({"untested": True, "p_adjusted": NAN, "assignment": 0.0009}, ("not testable", "")),
        ({"could_miss": NAN, "could_miss_guarded": NAN, "tolerance": 1.0}, ("nothing found", "")),
    ],
)
def test_the_verdict_follows_from_the_evidence(changes, expected):
    assert judged(**changes) == expected


def test_effects_that_differ_between_levels_have_their_own_word():
    assert judged("differs", p_adjusted=0.01, p_guarded=0.01) == ("differs", "")


@pytest.mark.parametrize("correction", get_args(Correction))
def test_each_family_is_corrected_by_itself_and_untested_ones_stay_out(correction):
    p = np.array([0.01, 0.2, NAN, 0.03, 0.04, 0.5])
    families = np.array([0, 1, 0, 0, 1, 1])
    found = correct_families(p, families, correction)
    for family in (0, 1):
        inside = families == family
        expected = correct([None if np.isnan(value) else value for value in p[inside]], correction)
        assert [None if np.isnan(value) else value for value in found[inside]] == expected


def test_intervals_of_family_wise_corrections_hold_together():
    adjusted = np.array([0.01, 1.0, 1.0, NAN])
    family = np.zeros(4, dtype=np.intp)
    for correction in ("bonferroni", "holm"):
        assert (
            interval_levels(adjusted, family, replace(RULES, correction=correction))[:3].tolist()
            == [pytest.approx(0.05 / 3)] * 3
        )
    levels = interval_levels(adjusted, family, replace(RULES, correction="sidak"))
    assert levels[0] == pytest.approx(1 - 0.95 ** (1 / 3))
    assert interval_levels(adjusted, family, replace(RULES, correction="none"))[0] == 0.05


def test_intervals_of_false_discovery_corrections_bound_the_share_of_wrong_ones():
    adjusted = np.array([0.01, 1.0, 1.0, 1.0])
    family = np.zeros(4, dtype=np.intp)
    assert interval_levels(adjusted, family, replace(RULES, correction="bh")).tolist() == pytest.approx(
        [0.05 / 4, *[0.15 / 4] * 3]
    )
    harmonic = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert interval_levels(adjusted, family, replace(RULES, correction="by"))[0] == pytest.approx(0.05 / 4 / harmonic)


@pytest.mark.parametrize(
    "changes",
    [
        {"k": 0}, {"k": 2.5}, {"family": "pair"}, {"correction": "magic"}, {"alpha": 0.0}, {"alpha": 1},
        {"alpha": "5 %"}, {"tolerance": {"y": 0.0}}, {"tolerance": {"y": "little"}},
        {"tolerance": 0.5},
    ],
)  # fmt: skip
def test_rules_that_make_no_sense_are_refused(changes):
    with pytest.raises((AnalysisError, ArgumentError)):
        replace(RULES, **changes)


@pytest.mark.parametrize(
    ("df", "plain"), [((2.0, float("inf")), [2.0, None]), ((2.0, 80.0), [2.0, 80.0]), (None, None)]
)
def test_plain_data_of_a_test_has_no_infinity(df, plain):
    outcome = Outcome(
        metric="bought", F=None, df=None, p=None, variance="arm", F_robust=1.5, df_robust=df, p_robust=0.2,
        p_adjusted=None, assignment_p=None, could_miss=None, verdict="nothing found",
    )  # fmt: skip
    assert outcome.to_dict()["df_robust"] == plain


def test_rules_without_a_metric_keep_the_tolerance_of_the_others() -> None:
    rules = Rules(tolerance={"spend": 0.5, "bought": 0.01})
    assert rules.without(["spend"]) == Rules(tolerance={"bought": 0.01})
