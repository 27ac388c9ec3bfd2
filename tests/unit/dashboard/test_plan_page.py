"""A plan in words and as a file that reads the same again."""

from dataclasses import replace
from typing import Any

import pytest
from tests.approved import assert_approved
from tests.unit.dashboard.shop_releases import PLAN

from kanab.dashboard.plan_page import (
    cohort_sentence,
    covariate_table,
    experiment_table,
    forecast_of,
    linkage_table,
    metric_table,
    plan_toml,
    rule_sentence,
)
from kanab.description import Mean, Number, Quantile, Ratio
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, Cohorts, CovariatePlan, Plan, make_plan
from kanab.planning.forecast import Baseline

RICH = """
k = 20
origins = ["https://shop.example"]
durability = "memory"
nonce_life = "12h"
[cohorts]
every = "7d"
window = "14d"
seal = "28d"
[covariates]
"the tier" = [1, 2, 3]
country = { top = 5 }
age = { bins = [17.5, 65] }
[metrics]
"bought \\"now\\"" = { kind = "binary", sensitive = true }
spend = { bounds = [0, 500.5], resolution = 0.01 }
visits = { bounds = [0, 90], missing = "exclude" }
per_visit = { ratio = ["spend", "visits"] }
[experiments."check out/ä"]
arms = { A = 1, "B ü" = 2 }
control = "A"
adjust = ["the tier"]
segments = ["country"]
holdout = 0.1
looks = 4
tolerance = { spend = 0.5 }
[experiments.levels]
arms = [[1, 1], [2, 1]]
control = 2
[experiments.levels.joint_shares]
"check out/ä" = [[1, "A", 0.2], [1, "B ü", 0.3], [2, "A", 0.1], [2, "B ü", 0.4]]
"""


def everything(*metrics: Ratio, **named: Any) -> Plan:
    quantiles = [Mean("spend", bounds=(0, 100)), Quantile("spend", at=0.5, bins=[0, 10, 50])]
    adjust = ["tier", Number("before", bounds=(0, 50))]
    means = [*quantiles, Mean("opened", bounds=(0, 1)), *metrics]
    return make_plan("variant", means, adjust=adjust, treatment_received="opened", k=20, **named)


LEVELS = replace(everything(arms={"A": 1, "B": 1}), covariates=(CovariatePlan("tier"),))
PLANS = {
    "everything that a collector takes": parse_plan(RICH),
    "what rows can be asked for, with levels and arms as found": everything(Ratio("spend", "visits")),
    "sealed at the end": replace(PLAN, cohorts=Cohorts("7d", "7d", "end")),
    "noise": replace(PLAN, budget=Budget(2.0)),
}


@pytest.mark.parametrize("text", [RICH, plan_toml(PLAN), plan_toml(LEVELS)])
def test_the_file_of_a_plan_reads_the_same_again(text: str) -> None:
    plan = parse_plan(text)
    assert parse_plan(plan_toml(plan)) == plan


def test_plans_are_described_as_approved() -> None:
    texts = []
    for about, plan in PLANS.items():
        tables = [experiment_table(plan), linkage_table(plan), metric_table(plan), covariate_table(plan)]
        rows = [" | ".join(row) for table in tables for row in (table.header, *table.rows)]
        texts += [about, "=" * 99, rule_sentence(plan), cohort_sentence(plan), *rows, ""]
    assert_approved("dashboard/plans.txt", "\n".join(texts))


@pytest.mark.parametrize(
    ("per_day", "days", "wrong"),
    [("500", "28", False), ("", "", False), ("x", "28", True), ("-1", "", True), ("nan", "", True), ("1e99", "", True)],
)  # fmt: skip
def test_a_forecast_is_given_whatever_was_asked(per_day: str, days: str, wrong: bool) -> None:
    other = Baseline(levels={"tier": {}})  # what is known of earlier people does not fit
    asked = forecast_of(PLAN, {"per_day": per_day, "days": days}, other)
    found, said = asked.forecast, asked.problem
    assert len(found.linkages) == 5
    assert bool(said) is wrong
    assert (found.linkages[0].days is not None) is (per_day == "500")


@pytest.mark.slow
def test_an_asked_epsilon_is_a_table_and_a_picture() -> None:
    asked = forecast_of(PLAN, {"per_day": "900", "days": "20", "epsilon": "0.5, 1"}, Baseline(rates={"bought": 0.1}))
    assert {row.epsilon for row in asked.forecast.epsilons} == {0.5, 1.0}
    assert asked.picture is not None
    assert "interval wider by" in asked.picture.to_html()
    assert asked.problem == ""


@pytest.mark.parametrize("text", ["x", "0", "-1", "nan", "1,,2", "1e9"])
def test_an_epsilon_that_promises_nothing_is_refused_in_a_sentence(text: str) -> None:
    asked = forecast_of(PLAN, {"per_day": "900", "days": "20", "epsilon": text}, Baseline(rates={"bought": 0.1}))
    assert asked.problem == "ε must be numbers from 0.001 to 100, for example 0.5,1,2."
    assert asked.forecast.epsilons == ()
    assert asked.picture is None
