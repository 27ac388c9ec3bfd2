"""A folder of releases: effects as seen and after shrinkage."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.approved import assert_approved

import kanab as kb
from kanab.errors import AnalysisError, PrivacyError
from kanab.portfolio import read_portfolio, shrink
from kanab.privacy.release import Release


def test_every_experiment_is_shrunk(folder: dict[str, Release]) -> None:
    read = read_portfolio(folder, "spend")
    assert [row.name for row in read.effects] == [f"e{n}" for n in range(12)]
    drawn = shrink([row.effect.estimate for row in read.effects], [row.effect.se for row in read.effects])
    assert read.shrinkage == drawn
    assert [row.drawn for row in read.effects] == list(drawn.effects)
    assert [row.name for row in read.effects if row.winner] == ["e0", "e1"]
    assert_approved("portfolio/portfolio.txt", f"{read}\n")


def test_plain_data_are_ready_for_json(folder: dict[str, Release]) -> None:
    data = json.loads(json.dumps(read_portfolio(folder, "spend").to_dict(), allow_nan=False))
    assert data["winners"]["count"] == sum(row["winner"] for row in data["effects"])
    assert data["winners"]["shrunk_mean"] < data["winners"]["mean"]
    assert {"name", "estimate", "shrunk", "shrunk_interval", "kept"} <= {*data["effects"][0]}


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
    with pytest.raises(AnalysisError, match="at least 3 estimates are needed"):
        read_portfolio({"e0": folder["e0"]}, "spend")


@pytest.mark.slow
def test_refusals_say_what_to_do(folder: dict[str, Release]) -> None:
    with pytest.raises(AnalysisError, match=r"several metrics, and none named\. Name one of: spend, bought\."):
        read_portfolio(folder)
    with pytest.raises(AnalysisError, match="no release has an effect on this metric"):
        read_portfolio(folder, "clicks")
    with pytest.raises(PrivacyError, match="only releases"):
        read_portfolio([])


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
