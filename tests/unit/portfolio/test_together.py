"""A folder of releases: shrinkage, discoveries, and everything shipped against a holdout."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import kanab as kb
from kanab.errors import AnalysisError, LevelError, PrivacyError
from kanab.portfolio import e_bh, read_portfolio, shrink
from kanab.privacy.release import Release


def test_every_experiment_but_the_holdout_is_shrunk(folder: dict[str, Release]) -> None:
    read = read_portfolio(folder, "spend", holdout="global")
    assert [row.name for row in read.effects] == [f"e{n}" for n in range(12)]
    drawn = shrink([row.effect.estimate for row in read.effects], [row.effect.se for row in read.effects])
    assert read.shrinkage == drawn
    assert [row.drawn for row in read.effects] == list(drawn.effects)


def test_e_values_are_those_of_the_any_time_test(folder: dict[str, Release]) -> None:
    read = read_portfolio(folder, "spend", tuned_at=2000, holdout="global")
    for row in read.effects:
        look = kb.analyze(folder[row.name], looks=kb.Looks("always", tuned_at=2000)).effects[0].look
        assert math.exp(-max(0.0, row.effect.log_evidence)) == pytest.approx(look.p)
    assert [row.q for row in read.effects] == e_bh([row.effect.log_evidence for row in read.effects])
    assert [row.name for row in read.effects if row.discovery] == ["e0", "e1"]


def test_the_holdout_is_the_effect_against_people_who_saw_nothing(folder: dict[str, Release]) -> None:
    read = read_portfolio(folder, "spend", holdout="global", shipped=["e0", "e1"])
    row = next(row for row in kb.analyze(folder["global"], control="holdout").effects if row.effect.metric == "spend")
    assert read.holdout is not None
    assert (read.holdout.effect.estimate, read.holdout.effect.control) == (row.effect.estimate, "holdout")
    assert 2.5 < read.holdout.effect.estimate < 3.5
    first, second = (row.effect for row in read.effects[:2])
    assert read.raw_sum.estimate == pytest.approx(first.estimate + second.estimate)
    assert read.raw_sum.se == pytest.approx(math.hypot(first.se, second.se))
    assert (read.shrunk_sum.estimate, read.shrunk_sum.se) == read.shrinkage.sum_of([0, 1])
    assert "Against the holdout, all is +" in str(read)


def test_winners_are_shipped_unless_experiments_are_named(folder: dict[str, Release]) -> None:
    read = read_portfolio(folder, "spend", holdout="global")
    assert [row.shipped for row in read.effects] == [row.winner for row in read.effects]
    assert all(row.winner == (row.effect.interval[0] > 0) for row in read.effects)
    none = read_portfolio(folder, "spend", holdout="global", shipped=[])
    assert (none.raw_sum, none.shrunk_sum) == (None, None)
    assert "Nothing counts as shipped." in str(none)


def test_a_sum_that_the_holdout_contradicts_is_said(folder: dict[str, Release]) -> None:
    text = str(read_portfolio(folder, "spend", holdout="global", shipped=["e5"]))
    assert "This does not agree with the sum of single effects" in text
    agreeing = str(read_portfolio(folder, "spend", holdout="global", shipped=["e0", "e1"]))
    assert "This agrees with the sum of single effects" in agreeing


def test_plain_data_are_ready_for_json(folder: dict[str, Release]) -> None:
    data = json.loads(json.dumps(read_portfolio(folder, "spend", holdout="global").to_dict(), allow_nan=False))
    assert data["winners"]["count"] == sum(row["winner"] for row in data["effects"])
    assert data["winners"]["shrunk_mean"] < data["winners"]["mean"]
    assert data["holdout"]["experiment"] == "global"
    assert {"name", "estimate", "shrunk", "shrunk_interval", "kept", "e", "q", "discovery", "shipped"} <= {
        *data["effects"][0]
    }
    assert data["shipped"]["shrunk_sum"]["estimate"] < data["shipped"]["sum"]["estimate"]


def test_several_arms_and_releases_of_an_experiment_have_names_of_their_own(make_release) -> None:
    releases = {
        "a": make_release(1, 0, "e", ("A", "B", "C")),
        "b": make_release(2, 0, "f"),
        "c": make_release(3, 1, "f"),
    }
    names = [row.name for row in read_portfolio(releases, "bought").effects]
    assert names == ["e: B", "e: C", "f (b)", "f (c)"]


def test_few_experiments_are_cautioned_about_and_fewer_refused(folder: dict[str, Release]) -> None:
    three = {name: folder[name] for name in ("e0", "e1", "e2")}
    assert read_portfolio(three, "spend").notes == (
        "With fewer than 10 effects the spread of the prior is itself little more than a guess.",
    )
    assert "Without a holdout nothing measures all of them together" in str(read_portfolio(three, "spend"))
    with pytest.raises(AnalysisError, match="at least 3 estimates are needed"):
        read_portfolio({"e0": folder["e0"]}, "spend")


@pytest.mark.slow
def test_refusals_say_what_to_do(folder: dict[str, Release]) -> None:
    with pytest.raises(AnalysisError, match=r"several metrics, and none named\. Name one of: spend, bought\."):
        read_portfolio(folder)
    with pytest.raises(AnalysisError, match="no release has an effect on this metric"):
        read_portfolio(folder, "clicks")
    with pytest.raises(AnalysisError, match="the holdout has no effect on this metric"):
        read_portfolio(folder, "spend", holdout="nothing")
    with pytest.raises(LevelError, match="unknown arm"):
        read_portfolio(folder, "spend", holdout="e3")
    with pytest.raises(AnalysisError, match="unknown experiment among the shipped"):
        read_portfolio(folder, "spend", shipped=["nothing"])
    with pytest.raises(PrivacyError, match="only releases"):
        read_portfolio([])


def test_a_holdout_has_two_arms(folder: dict[str, Release], make_release) -> None:
    three_arms = folder | {"global": make_release(5, 1, "global", ("holdout", "x", "y"))}
    with pytest.raises(AnalysisError, match="a holdout has two arms"):
        read_portfolio(three_arms, "spend", holdout="global")


def test_lower_may_be_better() -> None:
    def falling(n: int) -> Release:
        rng = np.random.default_rng(n)
        arm = rng.choice(["A", "B"], 900)
        text = (
            f"k = 10\n[experiments.e{n}]\narms = {{ A = 1, B = 1 }}\n"
            "primary = ['errors']\nlower_is_better = ['errors']\n[metrics.errors]\nbounds = [0, 40]\n"
        )
        plan = kb.plan.parse_plan(text)
        rows = {f"e{n}": arm, "errors": rng.poisson(5 - (arm == "B"))}
        return kb.release(kb.count(rows, plan))

    read = read_portfolio([falling(1), falling(2), falling(3)])
    assert [row.winner for row in read.effects] == [True, True, True]
    assert read.to_dict()["better"] == "lower"
    assert "clearly better by themselves: −" in str(read)


def test_the_report_draws_shrinkage_and_everything_shipped(folder: dict[str, Release]) -> None:
    page = read_portfolio(folder, "spend", holdout="global").to_report()
    assert page.count("<svg") == 2
    assert "<title>Effects on spend, seen and after shrinkage</title>" in page
    assert "<title>Everything shipped, on spend</title>" in page
    alone = read_portfolio(folder, "spend", shipped=[], holdout="global").to_report()
    assert alone.count("<svg") == 1
