from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of
from tests.shop import shop_plan, shop_release

import kanab as kb
from kanab.analysis.api import analyze
from kanab.analysis.from_source import readout
from kanab.counting.dispatch import count
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError, PlanError, PrivacyError
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


def test_a_ratio_whose_products_were_withheld_is_a_note() -> None:
    rows = shop()
    rows["orders"] = (np.arange(4_000) < 3).astype(int) * 2
    counted = kb.count(rows, arm="variant", metrics=["spend", kb.Ratio("spend", "orders")])
    found = kb.analyze(kb.release(counted)).to_dict()
    assert all(row["metric"] != "spend/orders" for row in found["effects"])
    assert any(note.startswith("spend/orders is not given") for note in found["notes"])


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


FITTED = shop_rows(4000)
COUNTED = kb.count(FITTED, arm="variant", metrics=["bought", "spend"], segments=["device", "tier"])
FITTED_RELEASE = kb.release(COUNTED)


def test_a_release_is_fitted_by_its_table_of_what_the_formula_names():
    table = FITTED_RELEASE.tables["variant/device"]
    fitted = kb.fit(FITTED_RELEASE, "arm * device", "bought")
    assert np.array_equal(fitted.b, kb.stats.fit(table, "arm * device", "bought").b)
    assert np.array_equal(fitted.se, kb.fit(table, "variant * device", "bought").se)


def test_without_covariates_the_smallest_table_is_taken():
    assert kb.fit(FITTED_RELEASE, "arm", "spend", experiment="variant").n == 4000


def test_a_cross_that_no_table_holds_is_refused_with_the_tables_that_there_are():
    with pytest.raises(AnalysisError, match=r"crosses what the formula names\. Its tables: variant/device"):
        kb.fit(FITTED_RELEASE, "arm + device + country", "bought")


def test_what_was_counted_but_not_released_is_refused():
    for source in (COUNTED, FITTED):
        with pytest.raises(PrivacyError, match=r"only a Tally or a Release can be fitted\. Call release\(\)"):
            kb.fit(source, "arm", "bought")
        with pytest.raises(PrivacyError, match=r"only a Release can be analyzed\. Call release\(\)"):
            kb.analyze(source)


def test_a_formula_is_not_fitted_to_numbers_with_noise():
    pytest.importorskip("opendp")
    plan = shop_plan("privacy = { epsilon = 8 }", segments=["tier"])
    with pytest.raises(AnalysisError, match="a fit of a formula cannot be had from numbers with noise"):
        kb.fit(shop_release(plan=plan), "arm + tier", "spend")
