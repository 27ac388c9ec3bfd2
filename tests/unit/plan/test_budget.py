"""What is wrong with an ε, a δ or the weights of tables."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kanab.errors import PlanError
from kanab.plan.budget import budget_mistakes, delta_problem, epsilon_problem, table_names
from kanab.plan.check import find_mistakes
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, ExperimentPlan, MetricPlan, Plan

SHOP = ExperimentPlan("checkout", adjust=("tier", "device"), quantiles={"spend": (0.5,)})
METRICS = (MetricPlan("spend", (0, 10), bins=4),)


def mistakes(**choices: Any) -> list[str]:
    return list(budget_mistakes(Plan(METRICS, (SHOP,), budget=Budget(**({"epsilon": 1.0} | choices)))))


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, "1", True, None, 1000, 1e-9])
def test_no_epsilon_is_a_text_a_truth_infinite_or_not_positive(epsilon: Any) -> None:
    assert epsilon_problem(epsilon)
    assert mistakes(epsilon=epsilon)[0].startswith("privacy.epsilon must ")


@pytest.mark.parametrize("delta", [0, -1e-6, math.nan, "1e-6", True, 0.01, 1.5e-4])
def test_delta_is_a_small_probability(delta: Any) -> None:
    assert delta_problem(delta)
    assert mistakes(delta=delta) == ["privacy.delta must be a small probability, at most 0.0001"]


def test_a_release_may_not_spend_more_than_all_together() -> None:
    assert mistakes(per_release=0.5) == []
    assert mistakes(per_release=2.0) == ["privacy.per_release must not be more than epsilon, which all releases share"]
    assert mistakes(per_release=-1) == ["privacy.per_release must lie between 0.001 and 100"]


def test_weights_name_tables_and_are_positive() -> None:
    tables = "checkout, checkout/tier, checkout/device, checkout/spend, checkout/device/tier"
    assert ", ".join(table_names(Plan(METRICS, (SHOP,)))) == tables
    assert mistakes(weights=dict.fromkeys(tables.split(", "), 2)) == []
    assert mistakes(weights={"tier": 2}) == [f"privacy.weights names an unknown table, 'tier'; tables: {tables}"]
    for weight in (0, -1, math.inf, math.nan, True, "2"):
        assert mistakes(weights={"checkout": weight}) == [
            "privacy.weights: that of 'checkout' must be a number from 0.001 to 1,000"
        ]


def test_a_plan_without_epsilon_has_no_such_mistakes() -> None:
    assert [*budget_mistakes(Plan(METRICS, (SHOP,)))] == []
    assert not any("privacy" in mistake for mistake in find_mistakes(Plan(METRICS, (SHOP,))))


def test_a_plan_file_says_what_is_wrong_with_its_privacy() -> None:
    text = "[privacy]\nepsilon = 0\ndelta = 0.5\n[privacy.weights]\nshop = 1\n[metrics.spend]\nbounds = [0, 1]\n"
    with pytest.raises(PlanError) as problem:
        parse_plan(text + "[experiments.checkout]\narms = { A = 1, B = 1 }\n")
    for part in ("privacy.epsilon must lie between", "privacy.delta must be", "unknown table, 'shop'"):
        assert part in str(problem.value)
