import math
from dataclasses import replace

import numpy as np
import pytest

import kanab as kb
from kanab.errors import PrivacyError
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, Plan
from kanab.planning.epsilon import EpsilonForecast, check_budgets, epsilon_range, forecast_epsilon, person_account
from kanab.planning.forecast import Baseline, forecast_plan
from kanab.planning.planning_pages import plan_report
from kanab.planning.spread import spread_of_amounts, spread_of_rate
from kanab.privacy.epsilon.rho import epsilon_of, rho_of

PLAN = parse_plan("""
[metrics]
spend = { bounds = [0, 100], resolution = 0.01, missing = "zero" }
bought = { kind = "binary", missing = "zero" }
orders = { bounds = [0, 5], resolution = 1, missing = "zero" }
per_order = { ratio = ["spend", "orders"] }
[covariates]
tier = { levels = [1, 2, 3] }
[experiments.checkout]
arms = { A = 1, B = 1 }
adjust = ["tier"]
""")
SHARES = {"A": 1, "B": 1}


def rows(plan: Plan = PLAN, **asked: object) -> list[EpsilonForecast]:
    known = Baseline(rates={"bought": 0.1}, sds={"spend": 15.0}, means={"spend": 12.0})
    return [*forecast_plan(plan, per_day=1_000, days=20, baseline=known, **asked).epsilons]  # type: ignore[arg-type]


def test_so_many_people_make_the_interval_as_wide_as_without_noise() -> None:
    row = next(row for row in rows(epsilons=[1]) if row.metric == "spend")
    varies = spread_of_amounts(15.0, mean=12.0, shares=SHARES)
    without, _ = varies.error("B", row.people, 0.0)
    there = forecast_epsilon(PLAN, Budget(1.0), ("checkout", "spend"), varies, row.people_needed)
    assert there is not None
    again, _ = varies.error("B", row.people_needed, 0.0)
    assert again * (1 + there.wider) == pytest.approx(without, rel=1e-3)


def test_the_forecast_is_what_a_release_has() -> None:
    plan = replace(PLAN, budget=Budget(1.0))
    people, generator = 20_000, np.random.default_rng(7)
    data = {
        "checkout": np.repeat(["A", "B"], people // 2),
        "tier": generator.integers(1, 4, people),
        "spend": np.clip(generator.normal(12, 15, people), 0, 100).round(2),
        "bought": (generator.random(people) < 0.1).astype(int),
        "orders": generator.integers(0, 3, people),
    }
    released = kb.release(kb.count(data, plan))
    effect = kb.stats.difference_in_means(released.totals("checkout"), "bought")
    noise = effect.se_noise / math.sqrt(effect.se_population**2 - effect.se_noise**2)
    row = next(row for row in rows(epsilons=[1]) if row.metric == "bought")
    assert row.wider == pytest.approx(math.sqrt(1 + noise**2) - 1, rel=0.15)


def test_without_asking_the_budget_of_the_plan_is_forecast() -> None:
    planned = replace(PLAN, budget=Budget(2.0, 1e-5, per_release=0.5))
    assert {row.epsilon for row in rows(planned)} == {0.5}
    assert check_budgets(planned, [], None)[0].delta == 1e-5
    assert rows() == []


def test_an_unknown_mean_is_taken_to_be_the_worst() -> None:
    known, unknown = (
        forecast_epsilon(PLAN, Budget(1.0), ("checkout", "spend"), varies, 20_000)
        for varies in (spread_of_amounts(15.0, mean=12.0, shares=SHARES), spread_of_amounts(15.0, shares=SHARES))
    )
    assert known is not None
    assert unknown is not None
    assert unknown.wider > known.wider


def test_ratios_and_metrics_without_bounds_have_no_forecast() -> None:
    varies = spread_of_rate(0.1, shares=SHARES)
    unbounded = kb.make_plan("checkout", ["visits"], arms={"A": 1, "B": 1})
    assert forecast_epsilon(PLAN, Budget(1.0), ("checkout", "per_order"), varies, 20_000) is None
    assert forecast_epsilon(unbounded, Budget(1.0), ("checkout", "visits"), varies, 20_000) is None
    assert forecast_epsilon(PLAN, Budget(1.0), ("checkout", "bought"), varies, 2) is None


@pytest.mark.parametrize("epsilon", [0, -1, math.inf, math.nan, 1e4, True])
def test_what_is_no_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(PrivacyError, match="epsilon must"):
        rows(epsilons=[epsilon])


def test_a_picture_reaches_from_half_the_smallest_to_twice_the_largest() -> None:
    values = epsilon_range([0.5, 2.0])
    assert (values[0], values[-1], len(values)) == (0.25, 4.0, 25)
    assert epsilon_range([0.001, 100.0])[0] == 0.001


SEVERAL = parse_plan("""
[metrics]
bought = { kind = "binary" }
[experiments.checkout]
arms = { A = 1, B = 1 }
interactions = ["banner"]
[experiments.prices]
arms = { low = 1, high = 1 }
exclude_with = ["checkout"]
[experiments.banner]
arms = { off = 1, on = 1 }
[privacy]
epsilon = 1
shares = { checkout = 0.5, "checkout/banner" = 0.1 }
""")


def test_the_account_says_what_each_experiment_has_and_what_one_person_spends() -> None:
    account = person_account(SEVERAL)
    assert account is not None
    assert {part.name: part.share for part in account.parts} == pytest.approx(
        {"checkout": 0.5, "prices": 0.5, "banner": 0.4, "checkout/banner": 0.1}
    )
    assert account.parts[0].epsilon == pytest.approx(epsilon_of(rho_of(1, 1e-6) / 2, 1e-6))
    assert account.epsilon == pytest.approx(1)
    assert account.sentence.startswith("Whoever takes part in everything spends ε = 1 of 1 at δ = 1e-06. What is spent")
    assert account.table.rows[0] == ("checkout", "50 %", "0.691")
    assert person_account(PLAN) is None


def test_the_forecast_prints_the_account_and_has_it_as_plain_data() -> None:
    forecast = forecast_plan(SEVERAL)
    assert ["prices", "50", "%", "0.691"] in [line.split() for line in str(forecast).splitlines()]
    assert "Whoever takes part in everything spends ε = 1 of 1" in str(forecast)
    assert forecast.to_dict()["account"]["parts"][1]["name"] == "prices"
    page = plan_report(forecast.to_dict(), "kanab.toml", "", forecast.tables(), account=forecast.account)
    assert "What does one person spend?" in page
    assert "Whoever takes part in everything spends" in page
