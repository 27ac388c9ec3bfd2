"""The readout beyond plain effects: the same numbers as the pure functions, statsmodels and scipy."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.compare import MetricMeans, effect_rows
from kanab.analysis.metric_shapes import shapes_of
from kanab.analysis.options import ResolvedOptions
from kanab.choices import CORRECTIONS
from kanab.errors import AnalysisError, ArgumentError
from kanab.stats.arms import joint_contrasts, many_to_one, omnibus
from kanab.stats.margins import Margin, against_margin
from kanab.stats.multiplicity import excludes, simultaneous_intervals
from kanab.stats.posteriors import Prior, best_arm, posterior
from kanab.stats.relative import relative_delta
from kanab.stats.skewness import Shape

ROWS: dict[str, Any] = {}
CHOICES: dict[str, Any] = {
    "arm": "variant",
    "metrics": ["minutes", "bought"],
    "adjust": ["tier"],
    "bounds": {"minutes": (0, 200)},
    "resolution": {"minutes": 0.1},
    "control": "A",
}


def rows() -> dict[str, Any]:
    """Three arms, C better on minutes, counted once."""
    if not ROWS:
        rng = np.random.default_rng(11)
        variant, tier = rng.choice(["A", "B", "C"], 3_000), rng.integers(1, 4, 3_000)
        minutes = np.round(rng.gamma(2, 5, 3_000) + 2 * tier + 0.9 * (variant == "C"), 1)
        ROWS.update(variant=variant, tier=tier, minutes=minutes, bought=rng.random(3_000) < 0.2 + 0.02 * tier)
    return dict(ROWS)


def released() -> kb.Release:
    if "release" not in ROWS:
        counted = rows()
        ROWS["release"] = kb.release(count_of(counted, **CHOICES))
    found: kb.Release = ROWS["release"]
    return found


def plain(metric: str) -> kb.stats.ArmMeans:
    return replace(kb.stats.plain_means(released().tables["variant/tier"], metric), shape=shape(metric))


def adjusted(metric: str) -> kb.stats.ArmMeans:
    return replace(kb.stats.adjusted_means(released().tables["variant/tier"], metric), shape=shape(metric))


def shape(metric: str) -> Shape:
    return shapes_of(released(), "variant", released().tables)[metric]


def arm(name: str, metric: str = "minutes") -> Any:
    return rows()[metric][rows()["variant"] == name]


def of(found: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in found if all(row[name] == value for name, value in wanted.items())]


# ── intervals that go with corrected p-values ──────────────────────────────────────────────────


@pytest.mark.parametrize("correction", [one for one in CORRECTIONS if one != "dunnett"])
def test_every_effect_has_the_interval_of_its_family(correction: Any) -> None:
    plain_only = readout_of(rows(), **CHOICES | {"adjust": []}, correction=correction).to_dict()
    with_adjusted = kb.analyze(released(), reading=kb.Reading(correction=correction)).to_dict()
    for data, method, means in ((plain_only, "difference", plain), (with_adjusted, "adjusted", adjusted)):
        effects = [kb.stats.against_control(means(metric), name) for metric in ("minutes", "bought") for name in "BC"]
        family = simultaneous_intervals(effects, correction)
        for row, one in zip(of(data["effects"], method=method), family, strict=True):
            assert row["p_adjusted"] == one.p_adjusted
            assert row["level"] == one.level
            wide = None if one.level is None else list(one.effect.interval_at(1 - one.level))
            assert row["interval_adjusted"] == wide
            if wide is not None:
                assert row["agrees"] == (excludes(tuple(wide)) == (row["p_adjusted"] < 0.05))
        assert data["promise"] == family[0].meaning
    names = {"none": None, "sidak": "sidak", "holm": "holm", "bh": "fdr_bh", "by": "fdr_by"}
    if names.get(correction, correction):
        oracle = multipletests([one.p for one in effects], method=names.get(correction, correction))[1]
        assert [row["p_adjusted"] for row in of(data["effects"], method="adjusted")] == pytest.approx(oracle, rel=1e-12)


def test_plain_and_adjusted_rows_that_carry_verdicts_are_one_family() -> None:
    measured = [MetricMeans(means, 3_000) for means in (plain("minutes"), adjusted("minutes"), plain("bought"))]
    for correction in ("holm", "dunnett"):
        rows = effect_rows(measured, ResolvedOptions(control="A", correction=correction))
        carried = [row for row in rows if row.carries_verdict]
        assert [(row.effect.metric, row.effect.method) for row in carried] == [
            ("minutes", "adjusted"), ("minutes", "adjusted"), ("bought", "difference"), ("bought", "difference")
        ]  # fmt: skip
        if correction == "holm":
            assert [row.p_adjusted for row in carried] == kb.stats.correct([row.p for row in carried], "holm")
        else:
            joint = many_to_one(plain("bought"), confidence=0.975)
            assert carried[2].p_adjusted == min(1, 2 * joint[0].p_adjusted)  # type: ignore[operator]


def symmetric() -> dict[str, Any]:
    """The same people with values that no skewness is known of: Welch's t, as statsmodels has it."""
    return rows() | {"minutes": np.round(np.random.default_rng(5).normal(40, 5, 3_000), 1)}


def test_bonferronis_interval_is_statsmodels_at_a_quarter_of_alpha() -> None:
    people = symmetric()
    data = readout_of(people, **CHOICES | {"adjust": []}, correction="bonferroni").to_dict()
    (row,) = of(data["effects"], metric="minutes", arm="C", method="difference")
    of_c, of_a = (DescrStatsW(people["minutes"][people["variant"] == name]) for name in "CA")
    oracle = CompareMeans(of_c, of_a).tconfint_diff(alpha=0.05 / 4, usevar="unequal")
    assert row["level"] == 1 - 0.05 / 4
    assert row["interval_adjusted"] == pytest.approx(list(oracle), rel=1e-9)


# ── arms ───────────────────────────────────────────────────────────────────────────────────────


def test_dunnett_is_the_joint_t_over_arms_and_bonferroni_over_metrics() -> None:
    plain_only = readout_of(rows(), **CHOICES | {"adjust": []}, correction="dunnett").to_dict()
    with_adjusted = kb.analyze(released(), reading=kb.Reading(correction="dunnett")).to_dict()
    assert with_adjusted["correction"] == "dunnett"
    for data, method, means in ((plain_only, "difference", plain), (with_adjusted, "adjusted", adjusted)):
        for metric in ("minutes", "bought"):
            joint = many_to_one(means(metric), confidence=0.975)
            own = of(data["effects"], method=method, metric=metric)
            for row, one in zip(own, joint, strict=True):
                assert row["p_adjusted"] == min(1, 2 * one.p_adjusted)  # type: ignore[operator]
                assert row["interval_adjusted"] == list(one.effect.interval_at(1 - one.level))  # type: ignore[operator]
                low, high = row["interval_adjusted"]
                assert (row["p_adjusted"] > 0.05) == (low < 0 < high)


def test_dunnett_of_one_metric_is_scipys_where_variances_are_alike() -> None:
    one = CHOICES | {"metrics": ["minutes"], "adjust": []}
    data = readout_of(rows(), correction="dunnett", **one).to_dict()
    oracle = stats.dunnett(arm("B"), arm("C"), control=arm("A"), rng=np.random.default_rng(1))
    assert [row["p_adjusted"] for row in data["effects"]] == pytest.approx(oracle.pvalue, abs=0.01)
    holm = readout_of(rows(), correction="bonferroni", **one).to_dict()
    assert all(a["p_adjusted"] < b["p_adjusted"] for a, b in zip(data["effects"], holm["effects"], strict=True))


def test_more_than_two_arms_have_one_test_for_all() -> None:
    data = kb.analyze(released()).to_dict()
    assert [(row["metric"], row["method"]) for row in data["omnibus"]] == [
        ("minutes", "difference"), ("minutes", "adjusted"), ("bought", "difference"), ("bought", "adjusted"),
    ]  # fmt: skip
    welch = stats.f_oneway(arm("A"), arm("B"), arm("C"), equal_var=False)
    assert data["omnibus"][0]["F"] == pytest.approx(welch.statistic, rel=1e-8)
    assert data["omnibus"][0]["p"] == pytest.approx(welch.pvalue, rel=1e-8)
    assert data["omnibus"][1]["F"] == omnibus(adjusted("minutes")).F
    two = rows()
    two["variant"] = np.where(two["variant"] == "C", "B", two["variant"])
    assert readout_of(two, **CHOICES).to_dict()["omnibus"] == []
    assert kb.analyze(released(), reading=kb.Reading(looks=kb.Looks("always-valid"))).to_dict()["omnibus"] == []


def test_arms_taken_as_one_are_as_if_they_had_been_counted_so() -> None:
    found = kb.analyze(released(), reading=kb.Reading(pool={"any": ["B", "C"]})).to_dict()
    recoded = rows()
    recoded["variant"] = np.where(recoded["variant"] == "A", "A", "any")
    oracle = readout_of(recoded, **CHOICES).to_dict()
    assert found["effects"] == oracle["effects"]
    assert found["arms"] == oracle["arms"]
    assert found["pooled"] == {"any": ["B", "C"]}
    assert "any: arms B, C taken as one." in found["notes"]


def test_a_pool_has_the_sum_of_the_shares() -> None:
    ratio = kb.analyze(released(), reading=kb.Reading(pool={"any": ["B", "C"]})).to_dict()["sample_ratio"]
    assert ratio["shares"] == pytest.approx({"A": 1 / 3, "any": 2 / 3})
    assert ratio["declared"] is False
    assert ratio["p"] > 0.01
    planned = readout_of(rows(), shares={"A": 2, "B": 1, "C": 1}, pool={"any": ["B", "C"]}, **CHOICES).to_dict()
    assert planned["sample_ratio"]["shares"] == {"A": 0.5, "any": 0.5}
    assert planned["sample_ratio"]["declared"] is True


def test_a_control_that_is_pooled_is_the_pool() -> None:
    assert kb.analyze(released(), reading=kb.Reading(pool={"old": ["A", "B"]})).control == "old"
    assert kb.analyze(released(), reading=kb.Reading(control="B", pool={"old": ["A", "B"]})).control == "old"


def test_any_contrast_is_read_plain_and_adjusted() -> None:
    asked = ["C - B", {"B": 0.5, "C": 0.5, "A": -1}]
    data = kb.analyze(released(), reading=kb.Reading(contrasts=asked)).to_dict()
    first, second, *_ = data["contrasts"]
    pair = kb.stats.contrast(plain("minutes"), {"C": 1, "B": -1})
    assert (first["contrast"], first["arm"], first["control"]) == ({"C": 1, "B": -1}, "C", "B")
    assert (first["estimate"], first["p"], first["interval"]) == (pair.estimate, pair.p, list(pair.interval or ()))
    welch = stats.ttest_ind(arm("C"), arm("B"), equal_var=False)
    assert (first["t"], first["p_usual"]) == pytest.approx((welch.statistic, welch.pvalue), rel=1e-8)
    assert first["relative"] == pytest.approx(arm("C").mean() / arm("B").mean() - 1, rel=1e-9)
    assert (second["arm"], second["control"], second["relative"]) == (None, None, None)
    weighed = kb.stats.contrast(plain("minutes"), asked[1])  # type: ignore[arg-type]
    assert (second["estimate"], second["se"]) == (weighed.estimate, weighed.se)
    own = of(data["contrasts"], method="adjusted")
    assert [row["p_adjusted"] for row in own] == kb.stats.correct([row["p"] for row in own], "holm")


@pytest.mark.slow
def test_contrasts_are_joined_by_dunnett_unless_one_follows_from_the_others() -> None:
    asked = ["B-A", "C-B"]
    data = readout_of(rows(), correction="dunnett", contrasts=asked, **CHOICES | {"metrics": ["minutes"], "adjust": []})
    joint = joint_contrasts(plain("minutes"), [{"B": 1, "A": -1}, {"C": 1, "B": -1}])
    assert [row["p_adjusted"] for row in data.to_dict()["contrasts"]] == [one.p_adjusted for one in joint]
    with pytest.raises(kb.errors.AnalysisError, match="follows from the others"):
        kb.analyze(released(), reading=kb.Reading(correction="dunnett", contrasts=["B-A", "C-A", "C-B"]))


# ── margins ────────────────────────────────────────────────────────────────────────────────────


def test_claims_are_tested_for_every_arm_and_method() -> None:
    margins = {"minutes": [Margin("non-inferiority", 0.5), Margin("equivalence", 0.05, relative=True)]}
    data = kb.analyze(released(), reading=kb.Reading(margins=margins)).to_dict()
    assert len(data["margins"]) == 8
    for row in data["margins"]:
        means = plain("minutes") if row["method"] == "difference" else adjusted("minutes")
        margin = margins["minutes"][row["claim"] == "equivalence"]
        one = against_margin(kb.stats.against_control(means, row["arm"]), margin, means=means)
        assert (row["p"], row["t"], row["shown"], row["estimate"]) == (one.p, one.t, one.shown, one.estimate)
        assert row["limits"] == ([-0.5, None] if row["claim"] == "non-inferiority" else [-0.05, 0.05])
    json.dumps(data, allow_nan=False)


def test_non_inferiority_is_a_one_sided_welch_test_of_a_shifted_arm() -> None:
    people = symmetric()
    data = readout_of(people, **CHOICES, margins={"minutes": Margin("non-inferiority", 0.5)}).to_dict()
    (row,) = of(data["margins"], arm="B", method="difference")
    of_a, of_b = (people["minutes"][people["variant"] == name] for name in "AB")
    oracle = stats.ttest_ind(of_b + 0.5, of_a, equal_var=False, alternative="greater")
    assert row["p"] == pytest.approx(oracle.pvalue, rel=1e-8)
    assert row["interval"] == [pytest.approx(oracle.confidence_interval(0.95).low - 0.5, rel=1e-7), None]


def test_equivalence_is_statsmodels_two_one_sided_tests() -> None:
    people = symmetric()
    data = readout_of(people, **CHOICES, margins={"minutes": Margin("equivalence", (-0.8, 0.6))}).to_dict()
    (row,) = of(data["margins"], arm="B", method="difference")
    compared = CompareMeans(*(DescrStatsW(people["minutes"][people["variant"] == name]) for name in "BA"))
    assert row["p"] == pytest.approx(compared.ttost_ind(-0.8, 0.6, usevar="unequal")[0], rel=1e-8)


def test_a_relative_margin_of_a_mean_near_zero_is_a_note() -> None:
    counted = rows()
    counted["minutes"] = np.round(np.random.default_rng(1).normal(0, 3, 3_000), 1)
    choices = CHOICES | {"bounds": {"minutes": (-50, 50)}}
    found = readout_of(counted, margins={"minutes": Margin("superiority", 0.1, relative=True)}, **choices).to_dict()
    assert found["margins"] == []
    assert any(
        note == "The superiority of minutes is not tested: the control's mean cannot be told from 0. "
        "Give a margin in units of the metric."
        for note in found["notes"]
    )


# ── relative effects ───────────────────────────────────────────────────────────────────────────


def test_the_delta_methods_interval_stands_beside_fiellers() -> None:
    for row in kb.analyze(released()).to_dict()["effects"]:
        means = (plain if row["method"] == "difference" else adjusted)(row["metric"])
        effect = kb.stats.against_control(means, row["arm"])
        assert row["relative_interval"] == list(kb.stats.relative_effect(means, effect).interval or ())
        assert row["relative_interval_delta"] == list(relative_delta(means, effect).interval or ())


def test_a_raise_is_a_plus_where_the_control_loses_money() -> None:
    rng = np.random.default_rng(1)
    profit = np.round(np.concatenate([rng.normal(-10, 3, 400), rng.normal(-5, 3, 400)]), 2)
    rows = {"variant": np.repeat(["A", "B"], 400), "profit": profit}
    found = kb.readout(rows, arm="variant", metrics=["profit"])
    (effect,) = found.to_dict()["effects"]
    assert effect["relative"] == pytest.approx(effect["estimate"] / abs(effect["mean_control"]))
    assert 0 < effect["relative_interval"][0] < effect["relative"] < effect["relative_interval"][1]
    assert re.search(r"B raises profit by \d\.\d+ \(\+49\.6 %\)", str(found))


@pytest.mark.parametrize("shift", [0.0, 0.01])
@pytest.mark.slow
def test_a_control_mean_near_zero_crashes_nothing(shift: float) -> None:
    value = np.tile([-1.0, 1.0], 300) + shift
    counted = {"variant": np.repeat(["A", "B", "C"], 200), "y": value}
    asked: dict[str, Any] = {"margins": {"y": Margin("equivalence", 0.1, relative=True)}, "prior": Prior(0, 1)}
    found = readout_of(counted, arm="variant", metrics=["y"], contrasts=["C-B"], correction="dunnett", **asked)
    data = found.to_dict()
    assert all(row["relative"] is row["relative_interval"] is None for row in data["effects"])
    assert all(row["relative_interval_delta"] is None for row in data["effects"])
    for shown in (
        str(found),
        found.to_markdown(),
        found._repr_html_(),
        found.to_html(),
        json.dumps(data, allow_nan=False),
    ):
        assert "y" in shown


# ── beliefs ────────────────────────────────────────────────────────────────────────────────────


def test_with_a_prior_the_same_estimates_are_beliefs() -> None:
    prior = Prior(0, 0.5)
    data = kb.analyze(released(), reading=kb.Reading(prior=prior)).to_dict()
    assert [(one["metric"], one["method"]) for one in data["bayes"]] == [
        ("minutes", "difference"), ("minutes", "adjusted"), ("bought", "difference"), ("bought", "adjusted"),
    ]  # fmt: skip
    for one in data["bayes"]:
        means = (plain if one["method"] == "difference" else adjusted)(one["metric"])
        for row in one["effects"]:
            believed = posterior(kb.stats.against_control(means, row["arm"]), prior)
            assert (row["mean"], row["sd"], row["positive"]) == (believed.mean, believed.sd, believed.positive)
            assert row["interval"] == list(believed.interval)
        expected = [(str(c.arm), c.best, c.loss) for c in best_arm(means, prior)]
        assert [(row["arm"], row["best"], row["loss"]) for row in one["arms"]] == expected
        assert sum(row["best"] for row in one["arms"]) == pytest.approx(1, abs=1e-3)
        assert one["prior"] == {"mean": 0, "sd": 0.5, "relative": False}


def test_a_relative_prior_is_a_share_of_the_controls_mean() -> None:
    plain = kb.analyze(released()).to_dict()
    control = next(row["mean_control"] for row in plain["effects"] if row["method"] == "difference")
    rows = [
        kb.analyze(released(), reading=kb.Reading(prior=prior)).to_dict()["bayes"]
        for prior in (Prior(0.02, 0.05, relative=True), Prior(0.02 * control, 0.05 * control))
    ]
    assert [row["effects"] for row in rows[0]] != []
    for relative, units in zip(rows[0][:1], rows[1][:1], strict=True):
        for one, other in zip(relative["effects"] + relative["arms"], units["effects"] + units["arms"], strict=True):
            assert [x for x in one.values() if isinstance(x, float)] == pytest.approx(
                [x for x in other.values() if isinstance(x, float)]
            )
        assert relative["prior"] == {"mean": 0.02, "sd": 0.05, "relative": True}
    text = str(kb.analyze(released(), reading=kb.Reading(prior=Prior(0, 0.05, relative=True))))
    assert "0 ± 5 % of the mean of A (one standard deviation)" in text
    effect = kb.stats.against_control(kb.stats.plain_means(kb.datasets.eighteen()), "B")
    with pytest.raises(AnalysisError, match="a relative prior needs a control mean"):
        posterior(effect, Prior(0, 0.05, relative=True))


def test_a_prior_of_nothing_gives_the_confidence_interval_and_no_sd() -> None:
    data = kb.analyze(released(), reading=kb.Reading(prior={"minutes": Prior()})).to_dict()
    assert {one["metric"] for one in data["bayes"]} == {"minutes"}
    assert data["bayes"][0]["prior"]["sd"] is None
    (row, _), (own, _) = data["bayes"][0]["effects"], of(data["effects"], metric="minutes", method="difference")
    assert row["interval"] == pytest.approx(own["interval_welch"], rel=2e-3)


def test_where_less_is_better_the_best_arm_is_the_lowest() -> None:
    higher, lower = (
        kb.analyze(released(), reading=kb.Reading(prior={"minutes": Prior(0, 5)}, lower_is_better=less)).to_dict()[
            "bayes"
        ][0]
        for less in ([], ["minutes"])
    )
    assert (higher["better"], lower["better"]) == ("higher", "lower")
    assert higher["arms"][0]["arm"] == "C"
    assert lower["arms"][-1]["arm"] == "C"


def test_an_effect_that_cannot_be_had_is_a_note_and_the_others_are_given() -> None:
    counted = rows()
    counted["orders"] = np.where(np.arange(3_000) % 3 == 0, np.nan, np.arange(3_000) % 4 + 1)
    found = kb.readout(
        counted,
        arm="variant",
        metrics=[
            kb.Mean("minutes", bounds=(0, 200), resolution=0.1),
            kb.Mean("orders", bounds=(0, 10), resolution=1, missing="exclude"),
            kb.Ratio("minutes", "orders"),
        ],
        adjust=["tier"],
        reading=kb.Reading(contrasts=["C-B"]),
    ).to_dict()
    assert [row["method"] for row in of(found["effects"], metric="minutes/orders")] == ["difference"] * 2
    assert len(of(found["contrasts"], metric="minutes/orders")) == 1
    assert any(note.startswith("An effect on minutes/orders is not given: ") for note in found["notes"])


# ── cautions ───────────────────────────────────────────────────────────────────────────────────


def batch(share: float, seed: int) -> kb.Release:
    rng = np.random.default_rng(seed)
    variant = rng.choice(["A", "B"], 2_000, p=[1 - share, share])
    counted = {"variant": variant, "bought": rng.random(2_000) < 0.2}
    return kb.release(kb.count(counted, arm="variant", metrics=["bought"], control="A"))


def kinds(found: kb.Readout) -> list[tuple[str, Any]]:
    return [(one["kind"], one["metric"]) for one in found.to_dict()["cautions"]]


def test_batches_whose_shares_changed_are_cautioned_about() -> None:
    changed = kb.add_releases([batch(0.5, 1), batch(0.8, 2)])
    assert kinds(kb.analyze(changed)) == [("shares-changed", None), ("looked-early", None)]
    sentences = [one.sentence for one in kb.analyze(changed).cautions]
    assert sentences[0].startswith("The arms' shares changed between batches (p = ")
    assert sentences[1].startswith("2 batches are added here. If results were looked at before the last of them")
    assert kinds(kb.analyze(kb.add_releases([batch(0.5, 1), batch(0.5, 2)]))) == [("looked-early", None)]
    assert kinds(kb.analyze(batch(0.8, 2))) == []


def test_batches_are_the_earlier_looks() -> None:
    found = kb.add_releases([batch(0.5, 1), batch(0.5, 2), batch(0.5, 3)])
    by_batches = kb.analyze(found, reading=kb.Reading(looks=kb.Looks("spending", looks=5)))
    said = kb.analyze(found, reading=kb.Reading(looks=kb.Looks("spending", looks=5, earlier=(2_000, 4_000))))
    assert by_batches.to_dict() == said.to_dict()
    assert by_batches.to_dict()["effects"][0]["sequential"]["look"] == 3
    assert kinds(by_batches) == []


def test_clamped_values_metrics_that_stand_still_and_tiny_arms_are_cautioned_about() -> None:
    rng = np.random.default_rng(3)
    n = 3_000
    counted = {
        "variant": np.where(np.arange(n) % 60 == 0, "B", "A"),
        "rare": (np.arange(n) % 600 == 0) | (np.arange(n) % 7 == 1),
        "flat": np.ones(n, dtype=int),
        "amount": np.where(np.arange(n) < 200, 900.0, rng.gamma(9, 5, n)),
    }
    metrics = ["rare", "flat", "amount"]
    found = readout_of(counted, arm="variant", metrics=metrics, bounds={"amount": (0, 200)}, shares={"A": 59, "B": 1})
    assert ("clamped", "amount") in kinds(found)
    assert ("nothing-varies", "flat") in kinds(found)
    assert ("few-events", "rare") in kinds(found)
    clamped = next(one for one in found.cautions if one.code == "clamped")
    assert clamped.sentence.startswith("At least 6.6 % of people had values of amount beyond its bounds")


# ── an arm without events ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("looks", "verdict"),
    [
        (kb.Looks("spending", looks=5, earlier=()), "keep going"),
        (kb.Looks("spending", looks=5, earlier=(), last=True), "may stop"),
    ],
)
def test_nobody_stops_early_because_an_arm_has_had_no_event_yet(looks: kb.Looks, verdict: str) -> None:
    """36 of 3,600 against 0 of 400: p is 2e-9 by the variance of one arm alone, and .045 by the score test."""
    people = {"variant": ["A"] * 3_600 + ["B"] * 400, "bought": [1] * 36 + [0] * 3_964}
    found = kb.readout(
        people, arm="variant", metrics=["bought"], arms={"A": 9, "B": 1}, reading=kb.Reading(looks=looks)
    )
    (row,) = found.effects
    assert row.look is not None
    assert row.look.verdict == verdict
    assert row.effect.p == pytest.approx(0.0449, abs=1e-3)
    welch = kb.readout(
        people, arm="variant", metrics=["bought"], arms={"A": 9, "B": 1}, reading=kb.Reading(looks=looks, test="welch")
    )
    assert welch.effects[0].effect.p_usual == pytest.approx(2e-9, rel=0.2)
    assert welch.effects[0].effect.p > 1e-3  # by what is known of the rate's skewness
    assert welch.effects[0].look is not None
    assert welch.effects[0].look.verdict != "may stop"


# ── several covariates ─────────────────────────────────────────────────────────────────────────


def with_covariates(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(12)
    device, country = rng.choice(["phone", "desk"], 3_000), rng.choice(["NO", "SE"], 3_000)
    return rows() | {"device": device, "country": country} | more


def joint(people: dict[str, Any], *names: str, **choices: Any) -> kb.Release:
    return kb.release(count_of(people, **CHOICES | {"metrics": ["minutes"], "adjust": names} | choices))


def adjusted_for(found: kb.Readout, metric: str = "minutes") -> set[tuple[str, ...]]:
    effects = [row.effect for row in found.effects if row.effect.metric == metric]
    return {effect.covariates for effect in effects if effect.method == "adjusted"}


def test_a_release_without_pairs_is_adjusted_for_the_covariate_whose_name_comes_first() -> None:
    made = joint(with_covariates(), "tier", "device")
    older = replace(made, tables={name: table for name, table in made.tables.items() if name.count("/") < 2})
    found = kb.analyze(older)
    assert adjusted_for(found) == {("device",)}
    alone = kb.analyze(joint(with_covariates(), "device"))
    assert found.effects[-1].effect == alone.effects[-1].effect
    assert (
        "The effect on minutes is not adjusted for tier: there is no table of variant × device × tier." in found.notes
    )


def test_a_missing_pair_costs_the_later_name_only() -> None:
    made = joint(with_covariates(), "tier", "device", "country")
    fewer = replace(
        made, tables={name: table for name, table in made.tables.items() if name != "variant/country/device"}
    )
    found = kb.analyze(fewer)
    assert adjusted_for(found) == {("country", "tier")}
    (note,) = [note for note in found.notes if "not adjusted" in note]
    assert note == (
        "The effect on minutes is not adjusted for device: there is no table of variant × country × device."
    )


def test_covariates_that_say_the_same_are_not_adjusted_for_twice() -> None:
    people = with_covariates()
    people["platform"] = np.where(people["device"] == "phone", "mobile", "fixed")
    found = kb.analyze(joint(people, "tier", "platform", "device"))
    assert adjusted_for(found) == {("device", "tier")}
    (note,) = [note for note in found.notes if "not adjusted" in note]
    assert note.startswith("The effect on minutes is not adjusted for platform: in arm 'A' the classes cannot tell")


def test_where_values_are_missing_one_covariate_is_adjusted_for_and_the_note_says_why() -> None:
    people = with_covariates()
    people["minutes"] = np.where(np.arange(3_000) % 10 == 0, np.nan, people["minutes"])
    found = kb.analyze(joint(people, "tier", "device", missing={"minutes": "exclude"}))
    assert adjusted_for(found) == {("device",)}
    assert (
        "The effect on minutes is not adjusted for tier: some people have no value of 'minutes', and by device × tier "
        "it is not known who."
    ) in found.notes


def test_a_covariate_whose_table_lacks_the_metric_is_not_adjusted_for() -> None:
    made = joint(with_covariates(), "tier", "device")
    bare = replace(
        made, tables={name: table for name, table in made.tables.items() if name.count("/") < 2} | {
            name: replace(made.tables[name], moments=()) for name in ("variant/device",)
        },
    )  # fmt: skip
    found = kb.analyze(bare)
    assert adjusted_for(found) == {("tier",)}
    assert "The effect on minutes is not adjusted for device: there is no table of it." in found.notes


# ── 0/1 metrics ────────────────────────────────────────────────────────────────────────────────


def test_an_arm_without_events_gets_one_answer() -> None:
    """18 of 1,800 against none of 200: "not testable" and "clear effect, p = 2e-05" in one report until lately."""
    people = {"variant": ["A"] * 1_800 + ["B"] * 200, "bought": [1] * 18 + [0] * 1_982}
    found = kb.readout(people, arm="variant", metrics=["bought"], arms={"A": 9, "B": 1})
    (row,) = found.to_dict()["effects"]
    assert (row["test"], row["verdict"]) == ("score", "unclear")
    assert row["p"] == pytest.approx(0.1556, abs=1e-3)
    assert row["odds_ratio"] == 0.0
    assert kinds(found) == [("few-events", "bought")]
    text = str(found)
    assert "not testable" not in text
    assert "score test and interval of Miettinen and Nurminen" in text
    assert "a clear effect needs Fisher's exact test to agree" in " ".join(text.split())


def test_rates_of_few_events_are_decided_by_the_plain_effect_although_an_adjustment_was_asked_for() -> None:
    rng = np.random.default_rng(7)
    for rate, carrier in ((0.004, "difference"), (0.2, "adjusted")):
        people = {
            "variant": np.repeat(["A", "B"], 1_500),
            "device": rng.choice(["phone", "desk"], 3_000),
            "bought": rng.random(3_000) < rate,
        }
        found = kb.readout(people, arm="variant", metrics=["bought"], adjust=["device"])
        assert [row.effect.method for row in found.effects if row.carries_verdict] == [carrier]
        assert (("few-events", "bought") in kinds(found)) == (carrier == "difference")


def test_welch_can_be_asked_for_and_json_says_which_test_was_used() -> None:
    rng = np.random.default_rng(7)
    people = {
        "variant": rng.choice(["A", "B", "C"], 3_000),
        "bought": rng.random(3_000) < 0.2,
        "spend": rng.gamma(2, 3, 3_000).round(2),
        "device": rng.choice(["phone", "desk"], 3_000),
    }
    choices = {"arm": "variant", "metrics": ["bought", "spend"], "adjust": ["device"], "contrasts": ["B - C"]}
    data = readout_of(people, **choices).to_dict()
    tests = {(row["metric"], row["method"], row["test"], row["df"] is None) for row in data["effects"]}
    assert tests == {
        ("bought", "difference", "score", True),
        ("bought", "adjusted", "regression", False),
        ("spend", "difference", "welch", False),
        ("spend", "adjusted", "regression", False),
    }
    assert data["contrasts"][0]["test"] == "score"
    mixed = readout_of(people, **choices | {"contrasts": ["B=0.5,C=0.5,A=-1"]})
    assert {row["test"] for row in mixed.to_dict()["contrasts"]} == {"welch", "regression"}
    assert "Contrasts of more than two arms of 0/1 metrics: each arm with its own variance (Welch)." in str(mixed)
    (omnibus,) = (row for row in data["omnibus"] if row["metric"] == "bought" and row["method"] == "difference")
    assert omnibus["df"] == [2.0, None]
    welch = readout_of(people, **choices, test="welch").to_dict()
    assert {row["test"] for row in welch["effects"]} == {"welch", "regression"}
    with pytest.raises(ArgumentError, match="test must be 'score' or 'welch'"):
        readout_of(people, **choices, test="fisher")
