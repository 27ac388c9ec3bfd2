"""Over random plans nobody with a rare value is named: several arms and experiments, any commonest value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.errors import PrivacyError
from kanab.inspection.attack.background import place_people
from kanab.inspection.attack.published import published_from_dict
from kanab.inspection.attack.reconstruct import find_sparse_values
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.release_json import release_to_dict

METRICS = (
    MetricPlan("bought", binary=True),
    MetricPlan("stayed", binary=True),
    MetricPlan("price", (0, 50), 0.01),
    MetricPlan("seats", (0, 20), 1),
    MetricPlan("thumbs", (-1, 1), 1),
    MetricPlan("fee", (0, 500), 0.01),
)


def crowd(rng: np.random.Generator, n: int, experiments: int, covariates: int) -> dict[str, Any]:
    """People in experiments of two to four arms, with rare values that lie in one arm more than in others."""
    people: dict[str, Any] = {}
    for i in range(experiments):
        arms = list("ABCD"[: int(rng.integers(2, 5))])
        people[f"e{i}"] = rng.choice(arms, n)
    for i in range(covariates):
        people[f"c{i}"] = rng.integers(0, int(rng.integers(2, 5)), n)
    rare = {name: _rare(rng, people["e0"], n) for name in ("bought", "stayed", "price", "seats", "thumbs", "fee")}
    people["bought"] = rare["bought"].astype(int)
    people["stayed"] = 1 - rare["stayed"].astype(int)
    people["price"] = np.where(rare["price"], rng.choice([4.99, 14.5, 30.0], n), 9.99)
    people["seats"] = np.where(rare["seats"], rng.integers(2, 9, n), 1)
    people["thumbs"] = np.where(rare["thumbs"], rng.choice([-1, 1], n), 0)
    people["fee"] = rng.integers(1, 400, n) + np.where(rare["fee"], 0.37, 0)
    return people


def _rare(rng: np.random.Generator, arm: Any, n: int) -> Any:
    rate = 10 ** rng.uniform(-3, -0.3)
    return rng.random(n) < np.where(arm == "A", rate * rng.choice([0.02, 1]), rate)


@pytest.mark.slow
@given(st.integers(0, 10**6), st.integers(200, 900), st.integers(1, 6), st.integers(0, 5))
@settings(max_examples=40)
def test_nobody_with_a_rare_value_is_named(seed: int, n: int, experiments: int, covariates: int) -> None:
    rng = np.random.default_rng(seed)
    people = crowd(rng, n, experiments, covariates)
    names = tuple(f"c{i}" for i in range(covariates))
    plans = tuple(
        ExperimentPlan(f"e{i}", segments=tuple(name for name in names if i == 0 or rng.random() < 0.3))
        for i in range(experiments)
    )
    plan = Plan(METRICS, plans, tuple(CovariatePlan(name) for name in names))
    try:
        made = kb.release(kb.count(people, plan))
    except PrivacyError:
        return
    release = published_from_dict(release_to_dict(made), "release")
    axes = {name: people[name] for name in (*plan.experiment_names, *names)}
    findings = [finding for finding in find_sparse_values(place_people(axes, [release]), plan.k) if finding.people < 10]
    assert not findings, findings
