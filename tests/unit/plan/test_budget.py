"""What is wrong with an ε, a δ or the weights of tables."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kanab.plan.budget import budget_mistakes, delta_problem, epsilon_problem, epsilon_shares, table_names
from kanab.plan.check import find_mistakes
from kanab.plan.file import plan_from_dict, plan_to_dict
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


def shares(*experiments: ExperimentPlan, **declared: float) -> dict[str, float]:
    return epsilon_shares(Plan(METRICS, experiments, budget=Budget(1.0, shares=declared)))


def test_what_is_not_declared_shares_what_is_left_equally() -> None:
    a, b, c = (ExperimentPlan(name) for name in "abc")
    assert shares(a, b, c) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3})
    assert shares(a, b, c, a=0.5) == {"a": 0.5, "b": 0.25, "c": 0.25}
    assert shares(a, b, a=0.2, b=0.3) == {"a": 0.2, "b": 0.3}
    assert shares(replace(a, interactions=("b",)), b) == pytest.approx({"a": 1 / 3, "b": 1 / 3, "a/b": 1 / 3})


def test_experiments_that_exclude_each_other_have_the_share_of_their_group_each() -> None:
    a, b, c = ExperimentPlan("a", exclude_with=("b",)), ExperimentPlan("b"), ExperimentPlan("c")
    assert shares(a, b, c) == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert shares(a, b, c, b=0.7) == pytest.approx({"a": 0.7, "b": 0.7, "c": 0.3})
    chain = ExperimentPlan("b", exclude_with=("c",))
    assert shares(a, chain, c) == {"a": 0.5, "b": 0.5, "c": 0.5}  # a and c do not exclude each other


def test_shares_name_experiments_and_tables_of_two_and_add_up_to_1_at_most() -> None:
    a, b = ExperimentPlan("a", interactions=("b",)), ExperimentPlan("b")

    def wrong(plan: tuple[ExperimentPlan, ...] = (a, b), **declared: Any) -> list[str]:
        return list(budget_mistakes(Plan(METRICS, plan, budget=Budget(1.0, shares=declared))))

    assert wrong(**{"a": 0.4, "b": 0.4, "a/b": 0.2}) == []
    assert wrong(c=0.1) == ["privacy.shares names an unknown experiment, 'c'; known: a, b, a/b"]
    assert wrong(a=0.6, b=0.6) == ["privacy.shares add up to more than 1, and one person may take part in everything"]
    assert wrong(a=0.6, b=0.4) == ["privacy.shares leave nothing for a/b: declare smaller ones, or one for each"]
    apart = (replace(a, interactions=(), exclude_with=("b",)), b)
    assert wrong(apart, a=0.9, b=0.9) == []
    for share in (0, -1, 1.5, math.nan, True, "0.5"):
        assert wrong(a=share) == ["privacy.shares: that of 'a' must be a part of the total, from 0.001 to 1"]


@pytest.mark.parametrize("stores", [0, -1, 1.5, True, "2"])
def test_stores_are_counted_in_whole_numbers(stores: Any) -> None:
    assert mistakes(stores=stores)[0].startswith("privacy.stores must be a whole number")


def test_a_plan_comes_back_from_its_plain_data_with_shares_and_stores_and_what_older_ones_said() -> None:
    budget = Budget(1.0, shares={"checkout": 0.5}, stores=2, beside_exact="a pilot")
    plan = Plan(METRICS, (ExperimentPlan("checkout"),), budget=budget)
    assert plan_from_dict(plan_to_dict(plan)).budget == budget
    assert "shares" not in plan_to_dict(replace(plan, budget=Budget(1.0)))["privacy"]


def test_a_plan_without_epsilon_has_no_such_mistakes() -> None:
    assert [*budget_mistakes(Plan(METRICS, (SHOP,)))] == []
    assert not any("privacy" in mistake for mistake in find_mistakes(Plan(METRICS, (SHOP,))))
