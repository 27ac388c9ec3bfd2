"""A folder of releases: effects as seen and after shrinkage."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.approved import assert_approved

import kanab as kb
from kanab.errors import AnalysisError, PrivacyError
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.portfolio import combine, meta_analysis, read_portfolio, shrink
from kanab.privacy.ledger import read_ledger
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


def test_parts_are_the_effects_of_their_readouts(regions: dict[str, Release]) -> None:
    (effect,) = combine(regions, metric="spend").effects
    for part in effect.parts:
        (row,) = [row for row in kb.analyze(regions[part.source]).effects if row.effect.metric == "spend"]
        assert (part.estimate, part.se, part.interval) == (
            row.effect.estimate, row.effect.se_population, row.effect.interval,
        )  # fmt: skip
        assert part.people == 2000
    expected = meta_analysis([part.estimate for part in effect.parts], [part.se for part in effect.parts])
    assert effect.together == expected


def test_the_adjusted_effect_is_combined_where_there_is_one() -> None:
    def adjusted(seed: int) -> Release:
        rng = np.random.default_rng(seed)
        tier = rng.choice(["x", "y"], 1500)
        rows = {"arm": rng.choice(["A", "B"], 1500), "tier": tier, "spend": rng.poisson(4 + 6 * (tier == "y"))}
        return kb.release(kb.count(rows, arm="arm", metrics=["spend"], adjust=["tier"]))

    releases = [adjusted(1), adjusted(2)]
    (effect,) = combine(releases).effects
    rows = [row for released in releases for row in kb.analyze(released).effects if row.effect.method == "adjusted"]
    assert [part.se for part in effect.parts] == [row.effect.se_population for row in rows]
    assert [part.source for part in effect.parts] == ["release 1", "release 2"]


def test_plain_data_are_ready_for_json_and_hold_every_number(regions: dict[str, Release]) -> None:
    combined = combine(regions, method="dl")
    data = json.loads(json.dumps(combined.to_dict(), allow_nan=False))
    assert [row["metric"] for row in data["effects"]] == ["spend", "bought"]
    assert (data["method"], data["knapp_hartung"], data["confidence"]) == ("dl", True, 0.95)
    first = data["effects"][0]
    assert [part["name"] for part in first["parts"]] == ["de", "fr", "nl", "es"]
    assert sum(part["weight"] for part in first["parts"]) == pytest.approx(1)
    assert {"estimate", "se", "df", "p", "interval", "tau2", "q", "q_df", "q_p", "i2", "prediction", "share"} <= {
        *first
    }
    assert (first["share"], data["effects"][1]["share"]) == (False, True)


def test_it_prints_every_effect_and_whether_releases_differ(regions: dict[str, Release]) -> None:
    assert_approved("portfolio/combined.txt", f"{combine(regions)}\n")
    assert "One effect for all does not describe them" in str(combine(regions, metric="spend", method="fixed"))


def test_a_sum_of_batches_is_combined_each_with_its_own_control() -> None:
    rng = np.random.default_rng(4)
    batches = []
    for week in (1, 2):  # everything doubles in the second week, also the control
        rows = {"arm": rng.choice(["A", "B"], 900), "spend": rng.poisson(5, 900) * week}
        batches.append(kb.release(kb.count(rows, kb.make_plan("arm", [kb.Mean("spend", bounds=(0, 60))]))))
    (effect,) = combine([kb.add_releases(batches)]).effects
    assert len(effect.parts) == 2
    assert effect == combine(batches).effects[0]


def test_further_refusals_say_what_to_do(regions: dict[str, Release], make_release) -> None:
    with pytest.raises(AnalysisError, match=r"no release has an effect on this metric\. Name one of: spend"):
        combine(regions, metric="sepnd")
    with pytest.raises(AnalysisError, match=r"no effect is in two of these releases\. .* share them\."):
        combine({"de": regions["de"], "other": make_release(9, 0, "checkout", ("x", "y"))})
    with pytest.raises(PrivacyError, match="only releases can be read together"):
        combine({"de": 5})
    with pytest.raises(AnalysisError, match="unknown method of meta-analysis"):
        combine(regions, method="best")


def test_what_is_in_one_release_alone_is_a_note(regions: dict[str, Release], make_release) -> None:
    combined = combine(
        {"de": regions["de"], "fr": regions["fr"], "three": make_release(8, 1, "checkout", ("A", "B", "C"))}
    )
    assert [len(effect.parts) for effect in combined.effects] == [3, 3]
    assert combined.notes == ("C against A on spend is in three alone.", "C against A on bought is in three alone.")
    assert "is in three alone" in str(combined)


def test_the_report_draws_a_forest_plot_of_every_effect(regions: dict[str, Release]) -> None:
    page = combine(regions).to_html()
    assert page.count("<svg") == 2
    assert "<title>B against A on spend</title>" in page
    assert "together" in page
    assert "<script" not in page


def visitors(seed: int, n: int = 3000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "checkout": rng.choice(["A", "B"], n),
        "bought": rng.random(n) < 0.3,
        "visited": rng.random(n) < 0.5,
        "tested": rng.random(n) < 0.4,
    }


def shop_plan(metrics: Sequence[str], *, noisy: bool) -> Plan:
    lines = [f'{metric} = {{ kind = "binary", missing = "zero" }}' for metric in metrics]
    privacy = ["[privacy]", "epsilon = 8.0", "delta = 1e-6", "per_release = 2.0"] if noisy else []
    return parse_plan("\n".join(["[metrics]", *lines, "[experiments.checkout]", "arms = { A = 1, B = 1 }", *privacy]))


@pytest.mark.parametrize("noisy", [False, True])
def test_releases_of_one_ledger_are_about_the_same_people_also_where_those_between_are_not_given(
    noisy: bool, tmp_path: Path
) -> None:
    if noisy:
        pytest.importorskip("opendp")
    rows, metrics = visitors(1), [["bought"], ["bought", "visited"], ["bought", "visited", "tested"]]
    ledger, made = tmp_path / "shop.ledger", []
    for some in metrics:
        earlier = read_ledger(ledger).plans if made else ()
        counted = kb.count(rows, shop_plan(some, noisy=noisy), earlier=earlier)
        made.append(kb.release(counted, ledger=ledger, new_ledger=not made))
    for given in (made[:2], made[1:], [made[0], made[2]], [made[2], made[0]]):
        with pytest.raises(PrivacyError, match="two of these releases are about the same people"):
            combine(given)
    (tmp_path / "fr").mkdir()
    other = kb.release(
        kb.count(visitors(2), shop_plan(["bought"], noisy=noisy)), ledger=tmp_path / "fr" / "shop.ledger",
        new_ledger=True,
    )  # fmt: skip
    (effect,) = combine([made[0], other]).effects  # two ledgers of one name: each begins with its release
    assert len(effect.parts) == 2


def test_effects_against_an_arm_that_is_merely_the_first_are_pointed_out() -> None:
    def released(seed: int) -> Release:
        rng = np.random.default_rng(seed)
        rows = {"colour": rng.choice(["blue", "green"], 400), "spend": rng.poisson(4, 400)}
        return kb.release(kb.count(rows, arm="colour", metrics=["spend"]))

    data = combine([released(1), released(2)]).to_dict()
    assert (data["effects"][0]["control"], data["effects"][0]["control_chosen"]) == ("blue", "unknown")
    assert data["notes"] == ["Which arm of colour is the control? Its effects are against blue."]
    named = combine([released(1), released(2)], control="green").to_dict()
    assert (named["effects"][0]["control_chosen"], named["notes"]) == ("named", [])
