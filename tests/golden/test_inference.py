"""The audit on real tables: those that are published pass, those that would give people away do not."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.described import as_values

import kanab as kb
from kanab.datasets import count_eighteen, eighteen_rows
from kanab.inspection.auditor import list_few_events
from kanab.plan.model import CovariatePlan, ExperimentPlan, MetricPlan, Plan
from kanab.privacy.audit import Audit, audit_table, extremes_on_grid

SIX = ["newbie", "channel", "zip_code", "history_segment", "womens", "mens"]
PLANS = {
    "spend": MetricPlan("spend", (0, 500), 0.01, of="conversion"),
    "visit": MetricPlan("visit", binary=True),
    "conversion": MetricPlan("conversion", binary=True),
}


@pytest.fixture(scope="module")
def rows(shared: Path) -> pd.DataFrame:
    return pd.read_csv(shared / "hillstrom_email.csv.gz")


def audited(rows: pd.DataFrame, covariates: list[str], squares: str) -> Audit:
    metrics = {name: plan.metric() for name, plan in PLANS.items()}
    tally = kb.count_columns(rows, arm="segment", covariates=covariates, metrics=metrics, squares=squares)
    return audit_table("/".join(["segment", *covariates]), tally, PLANS)


@pytest.mark.parametrize("covariate", SIX)
@pytest.mark.parametrize("squares", ["arm", "marginals"])
def test_hillstroms_one_covariate_tables_pass(rows, covariate, squares) -> None:
    found = audited(rows, [covariate], squares)
    assert found.broken == ()
    assert found.homogeneous == 0
    assert found.worst is not None
    assert found.worst.metric == "spend"
    assert found.worst.ratio > 0.36


def test_hillstroms_spend_leaves_by_every_covariate_and_merges_what_few_buyers_share(rows) -> None:
    plan = Plan(tuple(PLANS.values()), (ExperimentPlan("segment", adjust=tuple(SIX)),), tuple(map(CovariatePlan, SIX)))
    made = kb.release(kb.count(rows, plan))
    assert {name: "spend" in made.tables[f"segment/{name}"].metric_names for name in SIX} == dict.fromkeys(SIX, True)
    assert made.receipt.left_out == {}
    assert [*made.receipt.maps] == ["segment/history_segment"]


def test_squares_by_class_would_give_a_buyer_away_in_the_smallest_segment(rows) -> None:
    found = audited(rows, ["history_segment"], "class")
    assert [(one.metric, one.rule) for one in found.broken] == [("spend", "interval")]


def test_the_papers_hypothetical_squares_give_the_value_away_and_its_real_ones_do_not() -> None:
    """Section 5: 4.7089 as the squares of three people with 2.17 in all."""
    n, s, q = (np.array([number], dtype=object) for number in (3, 217, 47089))
    assert extremes_on_grid(n, s, (q, q), 0, None) == (([0], [0]), ([217], [217]))
    for squares in ("arm", "marginals", "class"):
        assert audit_table("treatment/tier", count_eighteen(eighteen_rows(), squares=squares), {}).passed


def test_the_papers_people_are_given_away_if_only_one_of_three_has_minutes() -> None:
    rows = eighteen_rows()
    first = [i for i, arm in enumerate(rows["treatment"]) if arm == "A" and rows["tier"][i] == 1]
    for i, minutes in zip(first, (2.17, 0.0, 0.0), strict=True):
        rows["minutes"][i] = minutes
    by_class = audit_table("treatment/tier", count_eighteen(rows, squares="class"), {})
    assert [(one.rule, one.classes) for one in by_class.broken] == [("interval", 1)]
    assert audit_table("treatment/tier", count_eighteen(rows), {}).passed
    for i, arm in enumerate(rows["treatment"]):
        if arm == "A" and i not in first:
            rows["minutes"][i] = 0.0
    by_arm = audit_table("treatment/tier", count_eighteen(rows), {})
    assert by_arm.worst is not None
    assert by_arm.worst.ratio == 0  # told as information: rule 3 is asked of the rows


def test_the_audit_lists_where_fewer_than_ten_of_2000_customers_bought(rows: pd.DataFrame) -> None:
    sample = rows.sample(2000, random_state=1)
    choices: dict[str, Any] = {"arm": "segment", "metrics": ["visit", "conversion"], "covariates": ["channel"]}
    listed = list_few_events(kb.release(kb.count(sample, **as_values("count", **choices))))
    assert [(few.table, few.metric, few.few, few.classes) for few in listed] == [
        ("segment/channel", "conversion", 8, 9)
    ]
    asked = kb.release(kb.count(sample, **as_values("count", **choices, min_events={"conversion": 10})))
    assert list_few_events(asked) == ()
