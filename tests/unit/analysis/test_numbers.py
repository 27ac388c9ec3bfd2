"""A readout adjusted for numbers as they are: one row for all together, no results of the numbers themselves."""

import re

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.errors import AnalysisError


def shop(n=6_000, seed=1, effect=0.4):
    rng = np.random.default_rng(seed)
    before = np.round(np.minimum(rng.lognormal(2, 1, n), 200), 2)
    tier, device = rng.choice(["basic", "silver", "gold"], n), rng.choice(["phone", "desktop"], n)
    variant = rng.choice(["A", "B"], n)
    spend = (
        0.6 * before + 3 * (tier == "gold") + 2 * (device == "phone") + rng.gamma(2, 3, n) + effect * (variant == "B")
    )
    return {
        "variant": variant, "tier": tier, "device": device, "before": before, "spend": np.round(spend, 2),
        "orders": rng.poisson(1 + before / 20),
    }  # fmt: skip


BOUNDS = {"spend": (0, 500), "before": (0, 200)}


def chosen(adjust, **choices):
    bounds = {name: at for name, at in BOUNDS.items() if name == "spend" or name in adjust}
    named = {"metrics": ["spend"], "bounds": bounds, "resolution": dict.fromkeys(bounds, 0.01)}
    return {"arm": "variant", "adjust": adjust} | named | choices


def read(rows, adjust, **choices):
    return readout_of(rows, **chosen(adjust, **choices))


def test_numbers_are_no_results():
    answer = read(shop(), ["before", "tier"], segments=["tier"])
    data = answer.to_dict()
    for kind in ("effects", "segments", "segment_effects", "omnibus", "follow_ups"):
        assert {row["metric"] for row in data[kind]} <= {"spend"}, kind
    assert not [row for row in data["cautions"] if row["metric"] == "before"]
    assert "── before" not in str(answer)
    for question in (
        {"primary": ["before"]}, {"guardrails": "before"}, {"lower_is_better": ["before"]},
        {"margins": {"before": kb.Margin("superiority", 1)}}, {"prior": {"before": kb.Prior(0, 1)}},
    ):  # fmt: skip
        with pytest.raises(AnalysisError, match=r"before was measured before the experiment .* Name a metric: spend\."):
            read(shop(600), ["before", "tier"], **question)


@pytest.mark.slow
def test_the_arms_means_of_numbers_are_checked():
    rows = shop()
    assert "2 covariates are alike across arms" in str(read(rows, ["before", "tier"]))
    later = rows | {"before": np.round(np.minimum(rows["before"] + 3 * (rows["variant"] == "B"), 200), 2)}
    answer = read(later, ["before", "tier"])
    text = " ".join(str(answer).split())
    assert re.search(r"Balance: ALARM\. before is spread unevenly over the arms \(χ²\(1\) = .*: its mean is 15", text)
    assert "Perhaps before was measured after the assignment" in text
    assert "Decision: broken" in text
    row = next(row for row in answer.to_dict()["balance"]["rows"] if row["name"] == "before")
    assert (row["about"], row["alarm"], row["level"]) == ("number", True, None)
    assert "furthest off" in answer.to_html()
    looks = kb.Looks("always-valid", optimal_at=6_000)
    assert "however often you look" in " ".join(str(read(later, ["before", "tier"], looks=looks)).split())


def test_a_number_that_cannot_be_used_is_a_note_and_the_rest_is_adjusted_for():
    rows = shop() | {"before": np.full(6_000, 7.5)}
    answer = read(rows, ["before", "tier"])
    assert answer.effects[1].effect.covariates == ("tier",)
    reason = "The effect on spend is not adjusted for before: before is the same for everybody."
    assert reason in answer.notes
    alone = read(rows, ["before"])
    assert [row.effect.method for row in alone.effects] == ["difference"]
    assert reason in alone.notes
    twice = shop() | {"again": 2 * shop()["before"]}
    answer = read(twice, ["again", "before"], bounds=BOUNDS | {"again": (0, 400)})
    assert answer.effects[1].effect.covariates == ("again",)
    assert any(note.startswith("The effect on spend is not adjusted for before: ") for note in answer.notes)


def test_products_that_the_gate_withholds_leave_the_other_covariates_and_a_remedy():
    answer = kb.analyze(kb.release(count_of(shop(2_000), **chosen(["before", "tier"]))))
    assert answer.effects[1].effect.covariates == ("tier",)
    assert any("declare tighter bounds" in note and "before" in note for note in answer.notes)
    reason = "The effect on spend is not adjusted for before: the products of before and spend are not in the tables."
    assert reason in answer.notes
    clamped = count_of(shop(2_000), **chosen(["before", "tier"], bounds=BOUNDS | {"before": (0, 40)}))
    for each in (kb.analyze(kb.release(clamped)), read(shop(2_000), ["before", "tier"])):
        assert each.effects[1].effect.covariates == ("before", "tier")


def test_a_withheld_number_is_no_lost_effect():
    counted = count_of(shop() | {"before": np.full(6_000, 7.5)}, **chosen(["before", "tier"]))
    answer = kb.analyze(kb.release(counted))
    assert not [sentence for sentence in answer.to_dict()["privacy"]["costs"] if "effect on before" in sentence]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"slopes": "one"},
            r"slopes are of adjusted effects, and variant is adjusted for nothing\. Name .* \(--adjust\)",
        ),
        ({"variance": "paper"}, r"the paper's variance is of adjusted effects, and variant is adjusted for nothing"),
    ],
)
def test_how_to_adjust_is_refused_where_nothing_is_adjusted_for(asked, said):
    with pytest.raises(AnalysisError, match=said):
        read(shop(600), [], **asked)


def test_one_slope_for_all_arms_is_called_cuped():
    text = " ".join(str(read(shop(600), ["tier"], slopes="one")).split())
    assert "one regression for all arms (CUPED), and Welch's variance of what it leaves" in text


def test_one_slope_for_all_arms_has_no_variance_of_the_paper():
    with pytest.raises(
        AnalysisError, match=r"one slope for all arms has Welch's variance, not the paper's\. Leave out"
    ):
        read(shop(600), ["tier"], slopes="one", variance="paper")
