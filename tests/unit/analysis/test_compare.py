"""The readout beyond plain effects: the same numbers as the pure functions, statsmodels and scipy."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import count_of, readout_of

import kanab as kb
from kanab.analysis.metric_shapes import shapes_of
from kanab.stats.margins import Margin
from kanab.stats.posteriors import Prior
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


def kinds(found: kb.Readout) -> list[tuple[str, Any]]:
    return [(one["kind"], one["metric"]) for one in found.to_dict()["cautions"]]


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


def with_covariates(**more: Any) -> dict[str, Any]:
    rng = np.random.default_rng(12)
    device, country = rng.choice(["phone", "desk"], 3_000), rng.choice(["NO", "SE"], 3_000)
    return rows() | {"device": device, "country": country} | more


def joint(people: dict[str, Any], *names: str, **choices: Any) -> kb.Release:
    return kb.release(count_of(people, **CHOICES | {"metrics": ["minutes"], "adjust": names} | choices))


def adjusted_for(found: kb.Readout, metric: str = "minutes") -> set[tuple[str, ...]]:
    effects = [row.effect for row in found.effects if row.effect.metric == metric]
    return {effect.covariates for effect in effects if effect.method == "adjusted"}


def without(made: kb.Release, *tables: str) -> kb.Release:
    return replace(made, tables={name: table for name, table in made.tables.items() if name not in tables})


def lone(made: kb.Release, bare: str = "") -> kb.Release:
    """A release without tables of pairs; one table without its metric."""
    singles = without(made, *(name for name in made.tables if name.count("/") > 1))
    changed = {name: replace(table, moments=()) for name, table in singles.tables.items() if name == bare}
    return replace(singles, tables=singles.tables | changed)


def with_missing() -> dict[str, Any]:
    people = with_covariates()
    return people | {"minutes": np.where(np.arange(3_000) % 10 == 0, np.nan, people["minutes"])}


def with_platform() -> dict[str, Any]:
    people = with_covariates()
    return people | {"platform": np.where(people["device"] == "phone", "mobile", "fixed")}


@pytest.mark.parametrize(
    ("made", "adjusted", "left", "why"),
    [
        (lambda: lone(joint(with_covariates(), "tier", "device")), "device", "tier",
         "there is no table of variant × device × tier."),
        (lambda: without(joint(with_covariates(), "tier", "device", "country"), "variant/country/device"),
         "country tier", "device", "there is no table of variant × country × device."),
        (lambda: lone(joint(with_covariates(), "tier", "device"), "variant/device"), "tier", "device",
         "there is no table of it."),
        (lambda: joint(with_platform(), "tier", "platform", "device"), "device tier", "platform",
         "in arm 'A' the classes cannot tell"),
        (lambda: joint(with_missing(), "tier", "device", missing={"minutes": "exclude"}), "device", "tier",
         "some people have no value of 'minutes', and by device × tier it is not known who."),
    ],
)  # fmt: skip
def test_what_cannot_be_adjusted_for_is_a_note_and_names_decide_what_is(
    made: Callable[[], kb.Release], adjusted: str, left: str, why: str
) -> None:
    found = kb.analyze(made())
    assert adjusted_for(found) == {tuple(adjusted.split())}
    (note,) = [note for note in found.notes if "not adjusted" in note]
    assert note.startswith(f"The effect on minutes is not adjusted for {left}: {why}")


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
