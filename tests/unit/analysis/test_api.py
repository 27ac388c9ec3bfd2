from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.api import analyze
from kanab.analysis.from_source import readout
from kanab.counting.dispatch import count
from kanab.description import Ratio, Reading
from kanab.errors import AnalysisError, LevelError, PlanError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan
from kanab.privacy.gate import release


def shop(n: int = 4_000, seed: int = 1, arms: tuple[str, ...] = ("A", "B")) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    variant = rng.choice(arms, n)
    device = rng.choice(["phone", "desktop"], n)
    lift = 4.0 * ((variant == arms[-1]) & (device == "phone"))
    tier = rng.integers(1, 4, n)
    return {
        "variant": variant,
        "device": device,
        "tier": tier,
        "spend": np.round(rng.gamma(2, 5, n) + 3 * tier + lift, 2),
        "bought": rng.random(n) < 0.3,
    }


CHOICES: dict[str, Any] = {
    "arm": "variant",
    "metrics": ["spend", "bought"],
    "adjust": ["tier"],
    "segments": ["device"],
    "bounds": {"spend": (0, 500)},
    "resolution": {"spend": 0.01},
}


def test_the_readout_holds_the_numbers_of_the_functions() -> None:
    rows = shop()
    found = readout_of(rows, **CHOICES).to_dict()
    tally = kb.count_columns(
        rows, arm="variant", covariates=["tier"], metrics=["spend"], bounds={"spend": (0, 500)},
        resolution={"spend": 0.01}, squares="arm",
    )  # fmt: skip
    plain, adjusted = kb.stats.difference_in_means(tally), kb.stats.adjusted_effect(tally)
    by_method = {row["method"]: row for row in found["effects"] if row["metric"] == "spend"}
    assert by_method["difference"]["estimate"] == plain.estimate
    assert by_method["difference"]["se"] == by_method["difference"]["se_population"] == plain.se
    assert by_method["adjusted"]["estimate"] == adjusted.estimate
    assert by_method["adjusted"]["se"] == adjusted.se
    assert by_method["adjusted"]["se_population"] == adjusted.se_population
    assert by_method["adjusted"]["p_usual"] == adjusted.p
    assert by_method["difference"]["interval_welch"] == list(plain.interval)
    assert found["people"] == 4_000
    assert sum(found["arms"].values()) == 4_000


def test_the_robust_f_decides_and_follow_ups_explain() -> None:
    found = readout_of(shop(), **CHOICES).to_dict()
    kinds = [(row["metric"], row["variance"], row["decides"]) for row in found["segments"]]
    assert kinds == [
        ("spend", "pooled", False),
        ("spend", "two_marginals", True),
        ("bought", "pooled", False),
        ("bought", "score", True),
    ]
    decided = {row["metric"]: row for row in found["segments"] if row["decides"]}
    assert decided["spend"]["p_adjusted"] < 1e-6
    assert decided["bought"]["p_adjusted"] > 0.05
    assert [(one["metric"], one["covariate"], one["level"]) for one in found["follow_ups"]] == [
        ("spend", "device", "phone")
    ]
    assert found["follow_ups"][0]["difference"] == pytest.approx(4, abs=1)


def test_every_segment_has_effects_at_its_levels_whatever_its_f_says() -> None:
    rows = shop()
    found = readout_of(rows, **CHOICES)
    effects = found.to_dict()["segment_effects"]
    assert [(row["metric"], row["level"], row["exploratory"]) for row in effects] == [
        ("spend", "desktop", False),
        ("spend", "phone", False),
        ("bought", "desktop", True),
        ("bought", "phone", True),
    ]
    for row in effects:
        there = {name: np.asarray(column)[np.asarray(rows["device"]) == row["level"]] for name, column in rows.items()}
        high, low = (np.asarray(there[row["metric"]])[there["variant"] == arm] for arm in "BA")
        assert (row["people_control"], row["people_arm"]) == (len(low), len(high))
        assert (row["mean_control"], row["mean_arm"]) == pytest.approx((low.mean(), high.mean()), rel=1e-6)
        assert row["estimate"] == pytest.approx(high.mean() - low.mean(), abs=1e-5)
        assert row["interval_adjusted"][0] < row["interval"][0] < row["estimate"]
        assert row["p"] < row["p_adjusted"]


def test_the_control_may_be_named_and_is_otherwise_said() -> None:
    rows = shop(arms=("new", "old"))
    chosen = readout_of(rows, **CHOICES)
    assert chosen.control == "old"
    assert "Control is old (not named; name another if that is wrong)." in chosen.notes
    named = readout_of(rows, control="new", **CHOICES)
    assert named.control == "new"
    assert not any("not named" in note for note in named.notes)
    assert named.effects[0].effect.estimate == -chosen.effects[0].effect.estimate
    with pytest.raises(LevelError, match="unknown arm"):
        analyze(release(count_of(rows, **CHOICES)), reading=Reading(control="nobody"))


def test_shares_are_those_of_the_plan() -> None:
    found = readout_of(shop(), shares={"A": 9, "B": 1}, **CHOICES).to_dict()["sample_ratio"]
    assert found["declared"] is True
    assert found["p"] < 1e-100
    assert found["shares"] == {"A": 0.9, "B": 0.1}


def test_bounds_from_the_data_are_said_of_a_release_and_concern_nobody_who_holds_the_rows() -> None:
    choices = {name: value for name, value in CHOICES.items() if name not in ("bounds", "resolution")}
    noted = kb.analyze(kb.release(count_of(shop(), **choices))).notes
    said = "Bounds were taken from the data, and nobody is beyond them; this can be read here but not saved."
    assert said in noted
    for answer in (kb.analyze(kb.release(count_of(shop(), **CHOICES))), readout_of(shop(), **choices)):
        assert not any("Bounds" in note for note in answer.notes)


def test_clamped_and_missing_people_are_exact_and_in_a_release_floored_to_multiples_of_k() -> None:
    rows = shop()
    rows["spend"] = rows["spend"].copy()
    rows["spend"][:37] = 900.0
    rows["spend"][40:63] = np.nan
    own = readout_of(rows, **CHOICES, missing={"spend": "zero"})
    assert "37 people were clamped to the bounds of spend." in own.notes
    assert "23 people have no value of spend, which counts as 0." in str(own)
    found = kb.analyze(kb.release(count_of(rows, **CHOICES, missing={"spend": "zero"})))
    assert "At least 30 people were clamped to the bounds of spend (in steps of 10)." in found.notes
    assert "At least 20 people have no value of spend, which counts as 0 (in steps of 10)." in str(found)


def test_people_without_a_value_are_left_out_of_a_metric_and_its_section_says_so() -> None:
    rows = shop()
    gone = np.arange(4_000) % 5 == 0
    rows["spend"] = np.where(gone, np.nan, rows["spend"])
    found = readout_of(rows, **CHOICES)
    row = next(row for row in found.to_dict()["effects"] if row["metric"] == "spend")
    arms = [rows["spend"][~gone & (rows["variant"] == arm)].clip(0, 500).mean() for arm in "AB"]
    assert (row["mean_control"], row["mean_arm"]) == pytest.approx(arms, rel=1e-9)
    assert (row["missing"], row["people_missing"]) == ("exclude", 800)
    sentence = "800 people have no value of spend and are left out of it."
    section = next(part for part in str(found).split("\n\n") if "have no value" in part)
    assert " ".join(section.split()).count(sentence) == 1
    assert sentence.replace("\n", " ") in " ".join(found._repr_html_().split())
    bought = next(row for row in found.to_dict()["effects"] if row["metric"] == "bought")
    assert (bought["missing"], bought["people_missing"]) == (None, 0)


@pytest.mark.slow
def test_a_metric_that_fewer_than_k_people_lack_is_withheld_in_a_release_with_the_ways_out() -> None:
    rows = shop()
    rows["spend"] = rows["spend"].copy()
    rows["spend"][:3] = np.nan
    assert "spend" in {row["metric"] for row in readout_of(rows, **CHOICES).to_dict()["effects"]}
    found = kb.analyze(kb.release(count_of(rows, **CHOICES)))
    assert "spend" not in {row["metric"] for row in found.to_dict()["effects"]}
    told = " ".join(str(found).split())
    assert "spend is withheld altogether: fewer than k people could be told by having a value" in told
    assert '(--missing spend=zero, missing = "zero" in a plan)' in told
    assert "(--where 'spend is not null')" in told
    for choices in ({"missing": {"spend": "zero"}}, {"where": "spend is not null"}):
        released = kb.release(count_of(rows, **CHOICES, **choices))
        assert "spend" in {row["metric"] for row in kb.analyze(released).to_dict()["effects"]}


def test_a_rate_of_nobody_has_an_interval_and_no_effect() -> None:
    rows = shop()
    rows["bought"] = np.zeros(4_000, dtype=int)
    found = readout_of(rows, **CHOICES).to_dict()
    row = next(row for row in found["effects"] if row["metric"] == "bought")
    assert (row["estimate"], row["test"], row["df"], row["p"]) == (0.0, "score", None, 1.0)
    low, high = row["interval"]
    assert -0.003 < low < 0 < high < 0.003
    assert (row["relative"], row["odds_ratio"], row["odds_ratio_interval"]) == (None, None, None)
    assert any("bought by device is not testable" in note for note in found["notes"])
    assert "bought" in str(readout_of(rows, **CHOICES))


def test_several_experiments_are_read_by_name() -> None:
    rows = shop()
    rows["banner"] = np.random.default_rng(5).choice(["off", "on"], 4_000)
    plan = Plan(
        (MetricPlan("spend", (0, 500), 0.01),),
        (ExperimentPlan("variant", interactions=("banner",)), ExperimentPlan("banner")),
    )
    found = release(count(rows, plan))
    assert set(found.tables) == {"variant", "variant/banner", "banner"}
    assert analyze(found, "banner").arms.keys() == {"off", "on"}
    with pytest.raises(PlanError, match="several experiments, and none named"):
        analyze(found)
    with pytest.raises(PlanError, match="unknown experiment"):
        analyze(found, "nothing")


def test_a_release_without_the_experiments_tables_is_an_error() -> None:
    found = release(count_of(shop(), **CHOICES))
    bare = type(found)(found.plan, {}, found.receipt)
    with pytest.raises(AnalysisError, match="holds no table of variant"):
        analyze(bare)


def test_a_ratio_is_read_plain_and_adjusted_through_the_gate() -> None:
    rows = shop()
    rng = np.random.default_rng(9)
    rows["orders"] = rng.poisson(1.5, 4_000)
    rows["revenue"] = np.round(rows["orders"] * rng.gamma(2, 5, 4_000), 2)
    found = readout(rows, arm="variant", metrics=[Ratio("revenue", "orders")], adjust=["tier"]).to_dict()
    own = [row for row in found["effects"] if row["metric"] == "revenue/orders"]
    assert [row["method"] for row in own] == ["difference", "adjusted"]
    arms = {arm: rows["variant"] == arm for arm in ("A", "B")}
    truth = {arm: rows["revenue"][own].sum() / rows["orders"][own].sum() for arm, own in arms.items()}
    assert own[0]["estimate"] == pytest.approx(truth["B"] - truth["A"], rel=1e-9)
    noise = 0.0
    for arm, inside in arms.items():
        y, z = rows["revenue"][inside], rows["orders"][inside]
        u = (y - truth[arm] * z) / z.mean()
        noise += u.var(ddof=1) / inside.sum()
    assert own[0]["se"] == pytest.approx(noise**0.5, rel=1e-9)


def test_a_ratio_whose_products_were_withheld_is_a_note() -> None:
    rows = shop()
    rows["orders"] = (np.arange(4_000) < 3).astype(int) * 2
    counted = kb.count(rows, arm="variant", metrics=["spend", kb.Ratio("spend", "orders")])
    found = kb.analyze(kb.release(counted)).to_dict()
    assert all(row["metric"] != "spend/orders" for row in found["effects"])
    assert any(note.startswith("spend/orders is not given") for note in found["notes"])


def test_planned_looks_without_a_plan_are_refused() -> None:
    with pytest.raises(AnalysisError, match="how many looks are planned is not said"):
        readout_of(shop(), **CHOICES, looks=kb.Looks("spending"))


def unfair(n: int = 20_000) -> dict[str, Any]:
    """Return people of whom more of B are in tier 3, and fewer of B have a value of spend."""
    rng = np.random.default_rng(3)
    variant = rng.choice(["A", "B"], n)
    odds = {"A": [0.4, 0.3, 0.3], "B": [0.2, 0.3, 0.5]}
    tier = np.where(variant == "B", rng.choice([1, 2, 3], n, p=odds["B"]), rng.choice([1, 2, 3], n, p=odds["A"]))
    lost = rng.random(n) < np.where(variant == "B", 0.25, 0.1)
    spend = np.where(lost, np.nan, np.round(rng.gamma(2, 5, n) + tier, 2))
    return {"variant": variant, "device": rng.choice(["phone", "desktop"], n), "tier": tier, "spend": spend}


UNFAIR: dict[str, Any] = CHOICES | {"metrics": ["spend"], "missing": {"spend": "exclude"}}


def test_an_uneven_covariate_and_attrition_ring_though_the_sample_ratio_is_fine() -> None:
    found = readout_of(unfair(), **UNFAIR)
    balance = found.to_dict()["balance"]
    assert (balance["alarm"], balance["limit"]) == (True, 0.001)
    assert [(row["about"], row["name"], row["alarm"]) for row in balance["rows"]] == [
        ("covariate", "tier", True), ("values", "spend", True), ("covariate", "device", False),
    ]  # fmt: skip
    tier, spend, _ = balance["rows"]
    rows = pd.DataFrame(unfair())
    expected = chi2_contingency(pd.crosstab(rows["variant"], rows["tier"]), correction=False)
    assert tier["p"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert spend["p"] == pytest.approx(
        chi2_contingency(pd.crosstab(rows["variant"], rows["spend"].isna()), correction=False).pvalue, rel=1e-9
    )
    assert (tier["arm"], spend["arm"], spend["level"]) == ("B", "B", None)
    assert tier["differences"]["B"] == pytest.approx(0.49, abs=0.02)
    text = " ".join(str(found).split())
    assert "Sample ratio: fine." in text
    assert (
        "Find the cause first: tier is spread unevenly over the arms, and people of B have a value of spend less"
        in text
    )


def test_few_people_who_carry_a_mean_are_cautioned_about_where_nobody_declared_bounds():
    rng = np.random.default_rng(3)
    arm = np.array(["A"] * 1_800 + ["B"] * 200)
    spend = np.round(np.exp(rng.standard_normal(2_000)), 2)
    readout = kb.readout({"arm": arm, "spend": spend}, arm="arm", metrics=["spend"], arms={"A": 9, "B": 1})
    assert readout.cautions == ()
    spend[1_800:] = np.where(np.arange(200) < 190, 0.0, spend[1_800:])
    readout = kb.readout({"arm": arm, "spend": spend}, arm="arm", metrics=["spend"], arms={"A": 9, "B": 1})
    assert [(caution.code, caution.metric) for caution in readout.cautions] == [("few-carry-the-mean", "spend")]


def test_pooled_arms_are_checked_for_balance_as_one() -> None:
    rows = shop(6_000, arms=("A", "B", "C"))
    balance = readout_of(rows, **CHOICES, pool={"any": ["B", "C"]}, control="A").to_dict()["balance"]
    expected = chi2_contingency(pd.crosstab(rows["variant"] != "A", rows["device"]), correction=False)
    device = next(row for row in balance["rows"] if row["name"] == "device")
    assert device["p"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert device["arm"] == "any"


def test_levels_that_are_taken_as_one_are_named_and_the_test_is_called_what_it_is() -> None:
    rng = np.random.default_rng(1)
    arms, device = (
        np.repeat(["A", "B"], 3_000),
        rng.choice(["phone", "pc", "watch", "car"], 6_000, p=[0.5, 0.48, 0.01, 0.01]),
    )
    rates = np.where((arms == "B") & (device == "pc"), 0.17, 0.1)
    rows = {"arm": arms, "device": device, "y": rng.random(6_000) < rates, "x": rng.normal(size=6_000).round(2)}
    found = readout(rows, arm="arm", metrics=["y", "x"], adjust=["device"], segments=["device"])
    for output in (found.to_text(), found.to_html()):
        words = " ".join(output.replace("\N{NO-BREAK SPACE}", " ").split())
        assert "; car, watch taken as one level)" in words
        assert "The χ² test says that the effect differs." in words
        assert "Exploratory: the F test does not say" in words
        assert "The F test" not in words
