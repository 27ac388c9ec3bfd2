"""A plan in words and as a file that reads the same again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.dashboard.shop_releases import PLAN

from kanab.dashboard.plan_page import (
    cohort_sentence,
    covariate_table,
    experiment_table,
    forecast_of,
    linkage_rows,
    linkage_table,
    metric_table,
    plan_toml,
    rule_sentence,
)
from kanab.description import Mean, Number, Quantile, Ratio
from kanab.plan.file import parse_plan
from kanab.plan.model import Budget, CovariatePlan, make_plan
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


@pytest.mark.parametrize("text", [RICH, plan_toml(PLAN)], ids=["rich", "shop"])
def test_the_file_of_a_plan_reads_the_same_again(text: str) -> None:
    plan = parse_plan(text)
    assert parse_plan(plan_toml(plan)) == plan


def test_tables_say_what_is_kept_and_why() -> None:
    rows = {one["table"]: one for one in linkage_rows(PLAN)}
    assert rows["checkout/tier"]["why"] == ["adjustment: a more precise effect, comparing people who are alike in tier"]
    assert (rows["checkout/tier"]["squares"], rows["checkout/device"]["squares"]) == ("arm", "arm and level")
    assert metric_table(PLAN).rows == (
        ("bought", "yes or no", "0 or 1", "counts as 0"), ("spend", "a number", "0 to 200", "counts as 0")
    )  # fmt: skip
    assert covariate_table(PLAN).rows[1] == ("device", "phone, desktop, tablet", "declared in the plan")
    assert experiment_table(PLAN).rows[0] == (
        "checkout", "A 1, B 1", "adjusted for tier; by device; with banner; 3 looks"
    )  # fmt: skip


def test_people_by_bins_have_no_squares() -> None:
    metrics = tuple(replace(metric, bins=4) if metric.name == "spend" else metric for metric in PLAN.metrics)
    first, *others = PLAN.experiments
    plan = replace(PLAN, metrics=metrics, experiments=(replace(first, quantiles={"spend": (0.5,)}), *others))
    row = next(row for row in linkage_table(plan).rows if row[0] == "checkout/spend")
    assert row[1:] == ("quantiles: do those of spend differ? People by its bins; no metric", "none")


def test_numbers_receiving_and_quantiles_are_asked_for_and_survive_the_download() -> None:
    plan = make_plan(
        "variant",
        [Mean("spend", bounds=(0, 100)), Mean("opened", bounds=(0, 1)), Quantile("spend", at=0.5, bins=[0, 10, 50])],
        adjust=["tier", Number("before", bounds=(0, 50))],
        treatment_received="opened",
        k=20,
        arms={"A": 1, "B": 1},
    )
    assert experiment_table(plan).rows[0][2] == (
        "adjusted for before, tier; effect of receiving (opened); quantiles of spend"
    )
    assert ("before", "a number, from before: adjusted for", "0 to 50", "counts as 0") in metric_table(plan).rows
    read = parse_plan(plan_toml(replace(plan, covariates=(CovariatePlan("tier"),)))).experiment()
    assert (read.numbers, read.adjust, read.received, read.quantiles) == (
        ("before",), ("tier",), "opened", {"spend": (0.5,)}
    )  # fmt: skip


def test_experiments_that_are_assigned_together_are_named() -> None:
    assert experiment_table(parse_plan(RICH)).rows[1][2] == "assigned together with check out/ä"


def test_what_a_plan_leaves_to_the_data_is_said() -> None:
    plan = replace(
        make_plan("variant", ["spend", Ratio("spend", "visits")], adjust=["tier"]), covariates=(CovariatePlan("tier"),)
    )
    assert metric_table(plan).rows == (
        ("spend", "a number", "from the data", "counts as 0"), ("visits", "a number", "from the data", "counts as 0"),
        ("spend/visits", "spend per visits", "–", "–"),
    )  # fmt: skip
    assert covariate_table(plan).rows[0][1] == "as found"
    assert experiment_table(plan).rows[0] == ("variant", "as found", "adjusted for tier")


def test_when_people_are_sealed_is_said() -> None:
    assert cohort_sentence(PLAN).endswith("Ripe cohorts are sealed every 7d.")
    assert PLAN.cohorts is not None
    once = replace(PLAN, cohorts=replace(PLAN.cohorts, seal="end"))
    assert cohort_sentence(once).endswith("Ripe cohorts are sealed once, at the end (kanab seal).")
    assert cohort_sentence(replace(PLAN, cohorts=None)).startswith("Everybody is one batch")


@pytest.mark.parametrize(
    ("per_day", "days", "wrong"),
    [("500", "28", False), ("", "", False), ("x", "28", True), ("-1", "", True), ("nan", "", True), ("1e99", "", True)],
)  # fmt: skip
def test_a_forecast_is_given_whatever_was_asked(per_day: str, days: str, wrong: bool) -> None:
    asked = forecast_of(PLAN, {"per_day": per_day, "days": days}, None)
    found, said = asked.forecast, asked.problem
    assert len(found.linkages) == 5
    assert bool(said) is wrong
    assert (found.linkages[0].days is not None) is (per_day == "500")


def test_what_is_known_of_other_people_does_not_spoil_the_forecast() -> None:
    asked = forecast_of(PLAN, {}, Baseline(levels={"tier": {}}))
    found, said = asked.forecast, asked.problem
    assert (len(found.linkages), said) == (5, "")


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


def test_the_rule_of_a_plan_is_k_or_epsilon() -> None:
    assert rule_sentence(PLAN) == f"Every class of every table holds nobody or at least k = {PLAN.k} people."
    assert rule_sentence(replace(PLAN, budget=Budget(2.0))) == (
        "Every number is released with noise: all releases together keep to ε = 2 per person, at δ = 1e-06."
    )
