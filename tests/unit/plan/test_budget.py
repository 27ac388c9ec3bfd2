"""What is wrong with an ε, a δ or the weights of tables."""

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.approved import assert_approved

from kanab.plan.budget import budget_mistakes, epsilon_shares, table_names
from kanab.plan.file import plan_from_dict, plan_to_dict
from kanab.plan.model import Budget, ExperimentPlan, MetricPlan, Plan

SHOP = ExperimentPlan("checkout", adjust=("tier", "device"), quantiles={"spend": (0.5,)})
METRICS = (MetricPlan("spend", (0, 10), bins=4),)


def mistakes(**choices: Any) -> list[str]:
    return list(budget_mistakes(Plan(METRICS, (SHOP,), budget=Budget(**({"epsilon": 1.0} | choices)))))


WRONG: dict[str, list[Any]] = {
    "epsilon": [0, -1, math.inf, math.nan, "1", True, None, 1000, 1e-9],
    "delta": [0, -1e-6, math.nan, "1e-6", True, 0.01, 1.5e-4],
    "per_release": [2.0, -1],
    "weights": [{"tier": 2}, *({"checkout": weight} for weight in (0, -1, math.inf, math.nan, True, "2"))],
    "stores": [0, -1, 1.5, True, "2"],
}


def test_every_number_that_releases_may_spend_has_a_range() -> None:
    said = []
    for name, values in WRONG.items():
        said += [f"{name} = {value!r}: {mistakes(**{name: value})}" for value in values]
    assert_approved("plan/budget.txt", "\n".join(said) + "\n")
    tables = table_names(Plan(METRICS, (SHOP,)))
    assert tables == ("checkout", "checkout/tier", "checkout/device", "checkout/spend", "checkout/device/tier")
    assert mistakes(weights=dict.fromkeys(tables, 2), per_release=0.5) == []
    assert [*budget_mistakes(Plan(METRICS, (SHOP,)))] == []


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


def test_a_plan_comes_back_from_its_plain_data_with_shares_and_stores_and_what_older_ones_said() -> None:
    budget = Budget(1.0, shares={"checkout": 0.5}, stores=2, beside_exact="a pilot")
    plan = Plan(METRICS, (ExperimentPlan("checkout"),), budget=budget)
    assert plan_from_dict(plan_to_dict(plan)).budget == budget
    assert "shares" not in plan_to_dict(replace(plan, budget=Budget(1.0)))["privacy"]
