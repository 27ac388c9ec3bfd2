from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.described import as_values

import kanab as kb
from kanab.analysis.api import analyze
from kanab.errors import ArgumentError, PlanError, PrivacyError
from kanab.plan.model import ExperimentPlan, MetricPlan, Plan, make_plan
from kanab.privacy.gate import release

Counting = Callable[..., Any]
BOUNDS = {"y": (-50, 50)}
RESOLUTION = {"y": 0.01}


def people(seed: int = 1, n: int = 600, levels: int = 8, share: float = 0.5) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    weights = 0.6 ** np.arange(levels)
    return {
        "arm": np.where(rng.random(n) < share, "B", "A"),
        "x": rng.choice([f"level {i}" for i in range(levels)], n, p=weights / weights.sum()),
        "z": rng.integers(0, levels, n),
        "y": np.round(rng.normal(10, 3, n), 2),
    }


def choices(**more: Any) -> dict[str, Any]:
    return {"bounds": BOUNDS, "resolution": RESOLUTION, **more}


def test_the_map_is_the_same_for_all_arms_and_uses_planned_shares(counting: Counting) -> None:
    rows = people(n=400, levels=4, share=0.15)
    equal = release(counting(rows, **choices(adjust=["x"])), 5)
    planned = release(counting(rows, **choices(adjust=["x"], shares={"A": 0.95, "B": 0.05})), 5)
    assert len(planned.tables["arm/x"].factor("x").levels) < len(equal.tables["arm/x"].factor("x").levels)


def test_a_covariate_that_would_be_one_level_is_left_out_and_the_effect_still_given(counting: Counting) -> None:
    rows = people(n=40, levels=6)
    found = release(counting(rows, **choices(adjust=["x"])))
    assert list(found.tables) == ["arm"]
    assert found.receipt.left_out == {"arm/x": "x is left out: its levels are too sparse, merged they would be one"}
    readout = analyze(found)
    assert [row.effect.method for row in readout.effects] == ["difference"]
    assert "x is left out: its levels are too sparse, merged they would be one." in readout.notes


@pytest.mark.parametrize("others", [0, 1, 9])
def test_a_covariate_in_which_nearly_all_are_alike_says_so_however_few_are_not(counting: Counting, others: int) -> None:
    rows = people(n=400)
    rows["x"] = np.array(["NO"] * (400 - others) + ["SE"] * others)
    released = release(counting(rows, **choices(adjust=["x"])))
    assert released.receipt.left_out == {
        "arm/x": "x is left out: all but fewer than k people are alike in it, "
        "so that there is nothing to adjust for or to compare"
    }


def test_a_metric_with_few_missing_values_in_a_class_is_withheld_there(counting: Counting) -> None:
    rows = people(n=400, levels=2)
    rows["y"] = rows["y"].copy()
    rows["y"][:3] = np.nan
    plan = make_plan("arm", **as_values("make_plan", metrics=["y"], adjust=["x"], **choices(missing={"y": "exclude"})))
    found = release(counting(rows, plan))
    assert [metric.name for metric in found.tables["arm/x"].metrics] == []
    assert "arm" not in found.tables
    assert list(found.receipt.left_out) == ["arm: y"]
    assert found.receipt.left_out["arm: y"].startswith("y is withheld altogether: fewer than k people could be told")


def test_a_metric_withheld_from_classes_still_has_its_arm_totals(counting: Counting) -> None:
    rng = np.random.default_rng(5)
    rows = people(n=2000, levels=2)
    gone = (rows["x"] == "level 0") & (rng.random(2000) < 0.5)
    gone |= np.arange(2000) == np.flatnonzero((rows["x"] == "level 1") & (rows["arm"] == "A"))[0]
    rows["y"] = np.where(gone, np.nan, rows["y"])
    plan = make_plan("arm", **as_values("make_plan", metrics=["y"], adjust=["x"], **choices(missing={"y": "exclude"})))
    found = release(counting(rows, plan))
    assert found.tables["arm/x"].metrics == ()
    assert [metric.name for metric in found.tables["arm"].metrics] == ["y"]
    assert analyze(found).effects[0].effect.metric == "y"


@pytest.mark.parametrize("k", [0, 1, -3, 2.5, "10", None, True])
def test_k_must_be_a_whole_number_of_at_least_2(counting: Counting, k: Any) -> None:
    counted = counting(people(), **choices(k=k))
    with pytest.raises(PrivacyError, match="k must be a whole number"):
        release(counted)


def test_k_below_5_needs_a_reason_that_is_recorded(counting: Counting) -> None:
    counted = counting(people(), **choices())
    with pytest.raises(PrivacyError, match="below 5"):
        release(counted, 3)
    found = release(counted, 3, override="a rehearsal with made-up people")
    assert found.receipt.deviations == ("k = 3: a rehearsal with made-up people",)
    assert "k = 3: a rehearsal with made-up people" in analyze(found).notes


def patients(n: int = 1200, seed: int = 5, share: float = 0.06) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    ill = rng.random(n) < share
    return {
        "trial": rng.choice(["A", "B"], n),
        "region": rng.integers(0, 6, n),
        "ill": ill,
        "cost": np.where(ill, np.round(rng.gamma(2, 20, n), 2), 0),
    }


def trial(*metrics: MetricPlan) -> Plan:
    return Plan(metrics, (ExperimentPlan("trial", (("A", 1), ("B", 1)), segments=("region",)),))


def small_numerators(made: kb.Release, metric: str = "ill") -> int:
    """The attack: read off every class how many people have a value, and count those where they are a few."""
    tables = [table for table in made.tables.values() if metric in table.metric_names]
    return sum(
        int(np.sum((part.sums > 0) & (part.sums < 10))) for table in tables for part in [table.moments_of(metric)]
    )


def test_a_sensitive_metric_has_nowhere_1_to_9_people_with_it() -> None:
    plain = release(kb.count(patients(), trial(MetricPlan("ill", binary=True))))
    assert small_numerators(plain) == 9
    made = release(kb.count(patients(), trial(MetricPlan("ill", binary=True, sensitive="yes"))))
    assert small_numerators(made) == 0
    assert made.receipt.left_out["trial/region: ill"] == (
        "ill is withheld in trial/region: a class has fewer than 10 people with it, or without it"
    )
    assert (
        made.tables["trial"].moments_of("ill").sums.tolist()
        == plain.tables["trial/region"].keep().moments_of("ill").sums.tolist()
    )


def test_a_sensitive_metric_with_few_people_in_an_arm_is_withheld_altogether() -> None:
    made = release(kb.count(patients(share=0.01), trial(MetricPlan("ill", binary=True, sensitive="yes"))))
    assert made.receipt.left_out["trial: ill"].startswith(
        "ill is withheld altogether: a class has fewer than 10 people"
    )
    assert not any("ill" in table.metric_names for table in made.tables.values())


def test_amounts_follow_the_0_1_metric_that_they_are_of() -> None:
    ill, cost = MetricPlan("ill", binary=True, sensitive="yes"), MetricPlan("cost", (0, 500), 0.01, of="ill")
    rows = patients(2400)
    assert "cost" in release(kb.count(rows, trial(ill, cost))).tables["trial/region"].metric_names
    made = release(kb.count(rows, trial(ill, replace(cost, min_events=10))))
    assert made.receipt.left_out["trial/region: cost"] == (
        "cost is withheld in trial/region: a class has fewer than 10 people with it, or without it"
    )


def test_a_shape_is_told_of_what_is_published_alone() -> None:
    ill, cost = MetricPlan("ill", binary=True, sensitive="yes"), MetricPlan("cost", (0, 500), 0.01, of="ill")
    counted = kb.count(patients(2400), trial(ill, cost))
    assert list(counted.shapes["trial"]) == ["cost"]
    assert list(release(counted).receipt.shapes["trial"]) == ["cost"]
    rare = kb.count(patients(share=0.01), trial(ill, replace(cost, min_events=10)))
    assert list(rare.shapes["trial"]) == ["cost"]
    made = release(rare)
    assert not any("cost" in table.metric_names for table in made.tables.values())
    assert made.receipt.shapes == {}


def test_least_events_of_an_amount_is_refused() -> None:
    rows = patients()
    with pytest.raises(
        PlanError, match=r"^least_events of 'cost': that is not a 0/1 metric. Ask for it of a 0/1 metric"
    ):
        release(kb.count(rows, arm="trial", metrics=[kb.Mean("cost", min_events=5)]))
    for wrong in (0, 2.5, True):
        with pytest.raises(ArgumentError, match="min_events must be a"):
            kb.count(rows, arm="trial", metrics=[kb.Mean("ill", min_events=wrong)])
