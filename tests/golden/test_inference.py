"""The audit on real tables: those that are published pass, those that would give people away do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.privacy.closed_forms import largest

import kanab as kb
from kanab.counted import LargestValues
from kanab.datasets import count_eighteen, eighteen_rows
from kanab.inspection.auditor import list_few_events
from kanab.plan.model import MetricPlan
from kanab.privacy.audit import Audit, audit_table

SIX = ["newbie", "channel", "zip_code", "history_segment", "womens", "mens"]
PLANS = {
    "spend": MetricPlan("spend", (0, 500), 0.01, of="conversion"),
    "visit": MetricPlan("visit", binary=True),
    "conversion": MetricPlan("conversion", binary=True),
}


@pytest.fixture(scope="module")
def rows(shared: Path) -> pd.DataFrame:
    return pd.read_csv(shared / "hillstrom_email.csv.gz")


def counted(rows: pd.DataFrame, covariates: list[str], squares: str) -> tuple[kb.Tally, dict[str, LargestValues]]:
    """A table, and the largest values of its classes."""
    metrics = {name: plan.metric() for name, plan in PLANS.items()}
    tally = kb.count_columns(rows, arm="segment", covariates=covariates, metrics=metrics, squares=squares)
    cents = pd.Series(metrics["spend"].to_grid(rows["spend"].to_numpy(float)), index=rows.index)
    largest: list[Any] = [np.full(tally.shape, 0, dtype=object) for _ in range(3)]
    for key, values in cents.groupby([rows[name] for name in ("segment", *covariates)]):
        place = tuple(factor.levels.index(level) for factor, level in zip(tally.factors, key, strict=True))
        first, second = sorted([*values.tolist(), 0])[:-3:-1]
        for cells, value in zip(largest, (first, second, sum(values.tolist())), strict=True):
            cells[place] = value
    return tally, {"spend": LargestValues(*largest)}


def audited(rows: pd.DataFrame, covariates: list[str], squares: str) -> Audit:
    tally, largest = counted(rows, covariates, squares)
    return audit_table("/".join(["segment", *covariates]), tally, PLANS, largest=largest)


@pytest.mark.parametrize("covariate", SIX)
@pytest.mark.parametrize("squares", ["arm", "marginals"])
def test_hillstroms_one_covariate_tables_pass(rows, covariate, squares) -> None:
    found = audited(rows, [covariate], squares)
    assert found.broken == ()
    assert found.homogeneous == 0
    assert found.worst is not None
    assert found.worst.metric == "spend"
    assert found.worst.ratio > 0.36


@pytest.mark.parametrize("squares", ["arm", "marginals"])
def test_hillstroms_spend_is_withheld_where_history_and_channel_are_crossed(rows, squares) -> None:
    found = audited(rows, ["history_segment", "channel"], squares)
    assert {(one.metric, one.rule, one.classes) for one in found.broken} == {
        ("spend", "contributors", 6),
        ("spend", "dominance", 7),
    }


def test_squares_by_class_would_give_a_buyer_away_in_the_smallest_segment(rows) -> None:
    found = audited(rows, ["history_segment"], "class")
    assert [(one.metric, one.rule) for one in found.broken] == [("spend", "interval")]


def test_the_papers_hypothetical_squares_give_the_value_away_and_its_real_ones_do_not() -> None:
    """Section 5: 4.7089 as the squares of three people with 2.17 in all."""
    assert [end / 100 for end in largest(3, 217, 47089, 0, None)] == [2.17, 2.17]
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
    assert [(one.rule, one.classes) for one in by_arm.broken] == [("interval", 2)]  # the class, and its arm


def test_the_audit_lists_where_fewer_than_ten_of_2000_customers_bought(rows: pd.DataFrame) -> None:
    sample = rows.sample(2000, random_state=1)
    choices: dict[str, Any] = {"arm": "segment", "metrics": ["visit", "conversion"], "covariates": ["channel"]}
    listed = list_few_events(kb.release(kb.count(sample, **choices)))
    assert [(few.table, few.metric, few.few, few.classes) for few in listed] == [
        ("segment/channel", "conversion", 8, 9)
    ]
    asked = kb.release(kb.count(sample, **choices, least_events={"conversion": 10}))
    assert list_few_events(asked) == ()
