"""Forecasts of effective k, against the gate on populations that were drawn elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import kanab as kb
from kanab.cli.plan import plan_command
from kanab.plan.file import parse_plan
from kanab.plan.model import Plan
from kanab.planning.forecast import Baseline, forecast_plan
from kanab.planning.overlap import DRAWS, forecast_overlap
from kanab.privacy.leverage import leverage
from kanab.tally.factor import Level

TEXT = """
covariates.device = ["phone", "tablet", "desktop"]
covariates.tier = [1, 2, 3, 4]
covariates.town = ["a", "b"]
metrics.bought = { kind = "binary" }
experiments.checkout = { arms = { A = 1, B = 1 }, adjust = ["device", "tier"], segments = ["town"] }
experiments.banner = { arms = { off = 1, on = 1 }, adjust = ["tier"] }
"""
PLAN = parse_plan(TEXT)
DEVICES: dict[Level, float] = {"phone": 0.6, "tablet": 0.1, "desktop": 0.3}
ARMS: dict[Level, float] = {"A": 0.5, "B": 0.5}
LEVELS: dict[str, dict[Level, float]] = {
    "device": DEVICES,
    "tier": {1: 0.25, 2: 0.25, 3: 0.25, 4: 0.25},
    "town": {"a": 0.5, "b": 0.5},
}


def drawn(people: int, seed: int) -> dict[str, object]:
    rng = np.random.default_rng(seed)
    return {
        "checkout": rng.choice(["A", "B"], people),
        "device": rng.choice([str(name) for name in DEVICES], people, p=list(DEVICES.values())),
        "tier": rng.choice([1, 2, 3, 4], people),
        "town": rng.choice(["a", "b"], people),
        "bought": rng.random(people) < 0.3,
    }


@pytest.mark.slow
def test_effective_k_is_forecast_as_populations_that_are_counted_have_it() -> None:
    (checkout,) = forecast_plan(PLAN, per_day=100, days=20, baseline=Baseline(levels={"device": DEVICES})).overlaps
    assert (checkout.experiment, checkout.people) == ("checkout", 2_000)
    alone = Plan(PLAN.metrics, PLAN.experiments[:1], PLAN.covariates)
    as_planned, released = [], []
    for seed in range(DRAWS):
        counted = kb.count(drawn(2_000, seed), plan=alone)
        assert counted.signatures is not None
        as_planned.append(leverage(counted.signatures.cells, counted.signatures.people).effective_k)
        released.append(kb.release(counted).receipt.effective_k or 0)
    assert checkout.unmerged is not None
    assert abs(checkout.unmerged - min(as_planned)) <= 15
    assert checkout.effective_k == min(released)
    assert (checkout.levels_kept, checkout.left_out) == ({"device": 3, "tier": 4, "town": 2}, ())
    assert (checkout.crossed, checkout.pairs) == (("checkout/device/tier",), 1)


def test_too_few_people_are_warned_of_with_what_will_merge() -> None:
    forecast = forecast_plan(PLAN, per_day=10, days=20, baseline=Baseline(levels={"device": DEVICES}))
    (checkout,) = forecast.overlaps
    assert checkout.unmerged == 0  # fewer than k
    assert checkout.levels_kept["device"] == 2
    assert checkout.left_out == ("checkout/device/tier",)
    assert (
        "checkout, 200 people: as planned, all tables together would single out fewer than k = 10 people; expect "
        "device with 2 of 3 levels, and no table of checkout/device/tier."
    ) in forecast.notes
    assert "below 10" in str(forecast)
    assert "covariates taken to be independent" in str(forecast)


def test_one_covariate_unknown_levels_or_no_traffic_forecast_no_effective_k() -> None:
    assert forecast_plan(PLAN).overlaps == ()
    assert forecast_plan(PLAN, per_day=100, days=20, overlap=False).overlaps == ()
    covariates = (replace(PLAN.covariates[0], levels=None), *PLAN.covariates[1:])
    open_plan = replace(PLAN, covariates=covariates)
    assert forecast_plan(open_plan, per_day=100, days=20).overlaps == ()


def test_an_arm_that_stays_below_k_leaves_nothing() -> None:
    few = forecast_overlap(PLAN, "checkout", ARMS, LEVELS, 12)
    assert (few.effective_k, few.levels_kept) == (None, {})
    assert set(few.left_out) >= {"checkout/device", "checkout/tier", "checkout/town"}


@pytest.mark.slow
def test_many_classes_are_forecast_without_tables_of_two_covariates() -> None:
    text = TEXT.replace("covariates.tier = [1, 2, 3, 4]", f"covariates.tier = {list(range(80))}")
    many = LEVELS | {"tier": dict.fromkeys(range(80), 1 / 80)}
    forecast = forecast_overlap(parse_plan(text), "checkout", ARMS, many, 20_000)
    assert (forecast.pairs, forecast.crossed) == (None, ())
    assert forecast.effective_k is not None


@pytest.mark.slow
def test_the_command_prints_and_writes_effective_k(tmp_path: Path) -> None:
    (tmp_path / "kanab.toml").write_text(TEXT)
    words = [str(tmp_path / "kanab.toml"), "--per-day", "100", "--days", "20"]
    printed = CliRunner().invoke(plan_command, words).output
    assert "effective k as planned" in printed
    assert "1 of 1" in printed
    data = json.loads(CliRunner().invoke(plan_command, [*words, "--json"]).output)
    assert data["overlaps"][0].keys() >= {"experiment", "people", "unmerged", "effective_k", "levels_kept", "left_out"}
    page = tmp_path / "plan.html"
    assert CliRunner().invoke(plan_command, [*words, "--html", str(page)]).exit_code == 0
    assert "effective k as planned" in page.read_text()
