"""How ε is shared out: among tables by weight, in a table for the shortest interval of the plain effect."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.privacy.epsilon.shop import SHOP, SMALL

from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.epsilon.rho import SpentRho, epsilon_of, release_rho, rho_of, rho_per_person
from kanab.privacy.epsilon.split import Statistic, spent_by, split_budget, split_by_tables

PLAN = parse_plan(SHOP)


def cost(plan: Plan, rho: float = 0.3) -> dict[str, float]:
    return {name: sum(scale.rho for scale in table.values()) for name, table in split_budget(plan, rho).items()}


PAIRS = ("checkout/age/device", "checkout/age/tier", "checkout/device/tier")


def test_experiments_have_equal_shares_and_so_have_the_tables_of_each() -> None:
    shares = cost(PLAN)
    assert sum(shares.values()) == pytest.approx(0.3)
    assert shares["banner"] == pytest.approx(shares["checkout/banner"]) == pytest.approx(0.1)
    assert sum(shares[name] for name in PAIRS) == pytest.approx(shares["checkout"])
    own = {name: share for name, share in shares.items() if name.startswith("checkout") and name not in PAIRS}
    assert {round(share, 9) for name, share in own.items() if name != "checkout/banner"} == {round(0.1 / 6, 9)}
    assert spent_by(PLAN, split_budget(PLAN, 0.3)).costs == pytest.approx(
        {"checkout": 0.1, "banner": 0.1, "checkout/banner": 0.1}
    )


def test_declared_shares_go_first_and_the_others_have_what_is_left() -> None:
    budget = Budget(1.0, shares={"checkout": 0.5, "checkout/banner": 0.1})
    costs = spent_by(plan := replace(PLAN, budget=budget), split_budget(plan, 0.3)).costs
    assert costs == pytest.approx({"checkout": 0.15, "checkout/banner": 0.03, "banner": 0.12})


def test_releases_of_before_shared_it_among_all_tables_alike() -> None:
    shares = {n: sum(scale.rho for scale in table.values()) for n, table in split_by_tables(PLAN, 0.3).items()}
    assert {round(share, 9) for name, share in shares.items() if name not in PAIRS} == {round(0.3 / 8, 9)}


def test_weights_of_the_plan_share_out_what_there_is() -> None:
    budget = Budget(1.0, weights={"checkout": 3.0, "checkout/age/tier": 1.0})
    shares = cost(replace(PLAN, budget=budget))
    assert sum(shares.values()) == pytest.approx(0.3)
    assert shares["checkout"] == pytest.approx(3 * shares["checkout/tier"])
    assert shares["checkout/age/tier"] == pytest.approx(shares["checkout/tier"])
    assert shares["banner"] == pytest.approx(0.1)


def test_one_person_moves_no_statistic_further_than_it_pays_for() -> None:
    """Counted out on the extremes of every metric, about the middle of its bounds in half steps."""
    plan = parse_plan(SMALL)
    metric = plan.metrics[0].metric()
    low, high = metric.grid_bounds
    moved = max(abs(2 * y - (low + high)) for y in (low, high))
    scales = split_budget(plan, 1.0)["variant"]
    assert scales[Statistic("people", by=("variant",))].influence == 1
    assert scales[Statistic("sums", ("spend",), ("variant",))].influence == moved == 7
    assert scales[Statistic("squares", ("spend",), ("variant",))].influence == moved**2
    shop = split_budget(PLAN, 1.0)["checkout"]
    assert shop[Statistic("products", ("before", "spend"), ("checkout",))].influence == 70 * 200


def test_a_grid_that_is_coarser_than_its_bounds_still_has_noise() -> None:
    plan = Plan((MetricPlan("y", (0, 0.4), 1.0, missing="zero"),), (ExperimentPlan("x", (("A", 1), ("B", 1))),))
    assert split_budget(plan, 1.0)["x"][Statistic("sums", ("y",), ("x",))].deviation > 0


def test_squares_of_every_class_are_measured_where_a_plan_asks_for_them() -> None:
    plan = parse_plan(SMALL.replace("bounds = [0, 7]", 'bounds = [0, 7]\nsquares = "class"'))
    assert Statistic("squares", ("spend",), ("variant", "tier")) in split_budget(plan, 1.0)["variant/tier"]


def width(people: float, squares: float, *, n: int, mean: float, deviation: float, rho: float) -> float:
    """How long the interval of a plain effect is, for values between 0 and 1 and two arms of n people."""
    from scipy.stats import t  # noqa: PLC0415

    shares = np.array([people, 1.0, squares]) / (people + 1 + squares)
    of_people, of_sums, of_squares = np.array([1.0, 0.25, 1 / 16]) / (2 * rho * shares)
    off = mean - 0.5
    noise = (of_sums + off**2 * of_people) / n**2
    rss = n * deviation**2
    df = 2 * rss**2 / (2 * rss**2 / (n - 1) + of_squares + 4 * off**2 * of_sums + off**4 * of_people)
    return float(t.ppf(0.975, 2 * df) * np.sqrt(2 * (deviation**2 / n + noise)))


@pytest.mark.parametrize(("mean", "deviation"), [(0.1, 0.1), (0.1, 0.2), (0.05, 0.2)])
@pytest.mark.parametrize("n", [5_000, 25_000])
def test_the_shares_make_the_interval_nearly_as_short_as_any(n: int, mean: float, deviation: float) -> None:
    scales = split_budget(parse_plan(SMALL), 1.0)["variant"]
    costs = {statistic.kind: scale.rho for statistic, scale in scales.items()}
    people, squares = costs["people"] / costs["sums"], costs["squares"] / costs["sums"]
    case = {"n": n, "mean": mean, "deviation": deviation, "rho": 0.0244}
    tried = [width(p, s, **case) for p in np.geomspace(0.3, 3, 25) for s in np.geomspace(0.005, 2, 40)]
    assert width(people, squares, **case) < 1.02 * min(tried)


TWO_OF_THREE = frozenset({frozenset("ab"), frozenset("bc")})
BATCHES = [SpentRho({"a": 0.1}, 0, 2), SpentRho({"a": 0.3}, 1, 3), SpentRho({"a": 0.2}, 3, 4)]


@pytest.mark.parametrize(
    ("releases", "rho"),
    [
        # of one experiment the cohort counts that costs most, and one of two batches pays for both
        ([SpentRho({"a": 0.1}, 0, 1), SpentRho({"a": 0.3}, 1, 2), SpentRho({"a": 0.2}, 2, 3)], 0.3),
        (BATCHES, 0.4),
        ([*BATCHES, SpentRho({"a": 0.05})], 0.45),  # about everybody
        # experiments and tables of two add up over other cohorts
        ([SpentRho({"a": 0.1, "b": 0.2, "a/b": 0.05}, 0, 1), SpentRho({"a": 0.2, "b": 0.1, "a/b": 0.05}, 1, 2)], 0.45),
        # of experiments that exclude each other the largest counts
        ([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=TWO_OF_THREE)], 0.5),
        ([SpentRho({"a": 0.1, "b": 0.3, "c": 0.2}, apart=TWO_OF_THREE | {frozenset("ac")})], 0.3),
        # what ended and began again adds up
        ([SpentRho({"a": 0.1}, 0, 1), SpentRho({"b": 0.1}, 1, 2), SpentRho({"a": 0.1}, 2, 3)], 0.3),
        # exact numbers of the same people cost everything
        ([SpentRho({"a": math.inf}), SpentRho({"a": 0.1})], math.inf),
    ],
)
def test_what_releases_cost_one_person(releases: list[SpentRho], rho: float) -> None:
    assert rho_per_person(releases) == pytest.approx(rho)


def test_ten_experiments_of_epsilon_1_are_3_point_5_to_whoever_is_in_all_of_them() -> None:
    rho = rho_of(1, 1e-6)
    weekly = [SpentRho({f"week{week}": rho}, week - 1, week) for week in range(10)]
    assert epsilon_of(rho_per_person(weekly), 1e-6) == pytest.approx(3.49, abs=0.01)
    assert epsilon_of(math.inf, 1e-6) == math.inf


def test_stores_share_the_total_and_a_release_may_have_less_of_it() -> None:
    assert release_rho(Budget(1.0, stores=4)) == pytest.approx(rho_of(1, 1e-6) / 4)
    assert release_rho(Budget(1.0, per_release=0.5)) == rho_of(0.5, 1e-6)
