"""Metrics that follow from others for most people are found, with their weights; unrelated ones never."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.counted import Relation
from kanab.counting.columns import MetricSteps
from kanab.counting.relations import find_relations, residual_values
from kanab.tally.metric import Metric, grid_steps

CENTS, WHOLE = 100, 1
Columns = Mapping[str, tuple[Any, int]]


def shop(columns: Columns) -> dict[str, MetricSteps]:
    """Everybody's steps of columns, given with the steps in a unit."""
    return {
        name: MetricSteps(Metric(name, scale), grid_steps(values, scale).astype(np.int64), np.ones(len(values), bool))
        for name, (values, scale) in columns.items()
    }


def relations(columns: Columns) -> dict[str, dict[str, float]]:
    found = find_relations([*shop(columns).values()])
    return {relation.target: dict(relation.weights) for relation in found}


def amounts(rng: np.random.Generator, people: int = 3_000, buyers: float = 0.2) -> Any:
    """What people spent; most nothing."""
    return np.where(rng.random(people) < buyers, np.round(rng.gamma(2, 30, people), 2), 0.0)


def some(rng: np.random.Generator, share: float, people: int = 3_000) -> Any:
    return rng.random(people) < share


def gross_and_net(rng: np.random.Generator) -> Columns:
    gross = amounts(rng)
    return {"gross": (gross, CENTS), "net": (np.where(some(rng, 0.05), 0.0, gross), CENTS)}


def capped(rng: np.random.Generator) -> Columns:
    revenue = amounts(rng)
    return {"revenue": (revenue, CENTS), "capped": (np.minimum(revenue, 150), CENTS)}


def with_tax_rounded(rng: np.random.Generator) -> Columns:
    net = amounts(rng)
    return {"net": (net, CENTS), "gross": (np.round(net * 1.19, 2), CENTS)}


def of_one_price(rng: np.random.Generator) -> Columns:
    orders = rng.poisson(0.4, 3_000)
    voucher = np.where(some(rng, 0.02), 5.0, 0.0)
    return {"revenue": (np.maximum(np.round(orders * 9.99, 2) - voucher, 0), CENTS), "orders": (orders, WHOLE)}


def a_total_of_two_parts(rng: np.random.Generator) -> Columns:
    books, food = amounts(rng), amounts(rng)
    shipping = np.where(some(rng, 0.03), 4.9, 0.0)
    return {"total": (books + food + shipping, CENTS), "books": (books, CENTS), "food": (food, CENTS)}


def of_7_and_14_days(rng: np.random.Generator) -> Columns:
    first, later = amounts(rng), amounts(rng, buyers=0.03)
    return {"days7": (first, CENTS), "days14": (first + later, CENTS)}


@pytest.mark.parametrize(
    ("make", "target", "weights"),
    [
        (gross_and_net, "gross", {"net": 1}),
        (capped, "revenue", {"capped": 1}),
        (with_tax_rounded, "net", {"gross": 1 / 1.19}),
        (of_one_price, "revenue", {"orders": 9.99}),
        (a_total_of_two_parts, "total", {"books": 1, "food": 1}),
        (of_7_and_14_days, "days7", {"days14": 1}),
    ],
)
def test_what_follows_from_others_is_found(
    make: Callable[[np.random.Generator], Columns], target: str, weights: dict[str, float]
) -> None:
    for seed in range(20):
        found = relations(make(np.random.default_rng(seed)))
        assert found.keys() == {target}
        assert found[target] == pytest.approx(weights, rel=1e-4)


def test_unrelated_metrics_of_two_hundred_shops_have_no_relation() -> None:
    for seed in range(200):
        rng = np.random.default_rng(seed)
        people = int(rng.choice([300, 1_000, 3_000]))
        bought = rng.random(people) < rng.uniform(0.02, 0.5)
        orders = np.where(bought, 1 + rng.poisson(rng.uniform(0.1, 1), people), 0)
        spent = orders * rng.lognormal(3.5, rng.uniform(0.3, 1.2), people)
        columns = {
            "revenue": (np.round(spent, 2), CENTS),
            "latency": (np.round(rng.lognormal(5, 0.6, people)), WHOLE),
            "sessions": (1 + rng.poisson(rng.uniform(1, 5), people), WHOLE),
            "orders": (orders, WHOLE),
            "bought": (bought.astype(int), WHOLE),
        }
        assert relations(columns) == {}, seed


def test_a_price_that_nine_in_ten_pay_is_a_relation_to_orders_and_one_that_half_pay_is_none() -> None:
    rng = np.random.default_rng(3)
    orders = rng.integers(0, 3, 2_000)
    for share, found in ((0.95, {"revenue": {"orders": 9.99}}), (0.6, {})):
        other = np.round(orders * rng.uniform(5, 50, 2_000), 2)
        revenue = np.where(rng.random(2_000) < share, orders * 9.99, other)
        assert relations({"revenue": (revenue, CENTS), "orders": (orders, WHOLE)}) == found


def test_what_is_left_is_what_people_returned_and_rounding_leaves_nothing() -> None:
    net = np.array([10.01, 20.03, 7.77, 55.55, 3.33, 12.34, 80.1, 0.0])
    gross = np.round(net * 1.19, 2)
    gross[3] += 8
    metrics = shop({"net": (net, CENTS), "gross": (gross, CENTS)})
    relation = Relation("gross", (("net", 1.19),), 0.011)
    ((_, left),) = residual_values([relation], metrics)
    assert left.off.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert left.largest[3] == pytest.approx(8, abs=0.011)
    assert left.squares[3] == left.largest[3] ** 2


def test_people_without_a_value_have_nothing_of_it() -> None:
    total, parts = Metric("total", missing="exclude"), Metric("parts")
    steps = np.array([30, 40, 50, 60]), np.array([30, 40, 50, 60])
    has = np.array([True, True, True, False])
    metrics = {"total": MetricSteps(total, steps[0], has), "parts": MetricSteps(parts, steps[1], np.ones(4, bool))}
    ((relation, left),) = residual_values(find_relations([*metrics.values()]), metrics)
    assert (relation.target, relation.weights) == ("total", (("parts", 1.0),))
    assert left.largest.tolist() == [0, 0, 0, 60]


def test_the_rows_of_a_shop_know_their_relations_and_signatures_add_up_what_is_left() -> None:
    rng = np.random.default_rng(5)
    gross = amounts(rng, buyers=0.5)
    returned = some(rng, 0.02) & (gross > 0)
    rows = {"arm": np.where(some(rng, 0.5), "A", "B"), "gross": gross, "net": np.where(returned, 0.0, gross)}
    ((relation, left),) = kb.count(rows, arm="arm", metrics=["gross", "net"]).signatures.left.items()
    assert relation.metrics == {"gross", "net"}
    assert left.off.tolist() == [int((returned & (rows["arm"] == arm)).sum()) for arm in "AB"]
    assert left.largest.tolist() == [float(gross[returned & (rows["arm"] == arm)].max()) for arm in "AB"]
