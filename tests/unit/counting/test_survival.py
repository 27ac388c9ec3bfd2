"""Days until an event: what cannot be days or an event is refused where people are counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kanab as kb
from kanab.errors import PlanError, SourceError

ASKED: dict[str, Any] = {"arm": "variant", "metrics": [], "survival": {"left": "days"}}


def rows(**columns: Any) -> dict[str, Any]:
    return {"variant": ["A", "B"] * 20, "days": [1, 2, 3, 4] * 10, "left": [0, 1, 1, 1] * 10} | columns


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"left": [0, 1, 2, 1] * 10}, "'left' is an event, and its column holds more than 0 and 1"),
        ({"days": [1.0, None, 3.0, 4.0] * 10}, "some people have no 'days'"),
        ({"days": ["mon", "tue"] * 20}, "'days' does not hold days as numbers"),
        ({"days": [-1, 2, 3, 4] * 10}, "'days' has days below 0"),
        ({"days": [0.5, 2, 3, 4] * 10}, r"'days' holds parts of days\. Round them up, or give edges"),
    ],
)
def test_what_is_no_day_or_no_event_is_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(SourceError, match=said):
        kb.count(rows(**columns), **ASKED)


def test_parts_of_days_are_counted_between_edges() -> None:
    counted = kb.count(rows(days=[0.5, 2, 3, 4] * 10), **ASKED, bins={"days": [1, 3, 5]})
    assert counted.tallies["variant/days"].factors[1].levels == ("< 1", "1 – 3", "3 – 5")


def test_survival_is_of_people_not_of_groups_that_arms_were_assigned_to() -> None:
    with pytest.raises(PlanError, match="survival is of people, and clusters were assigned; leave it out"):
        kb.count(rows(shop=np.repeat(np.arange(20), 2)), **ASKED, assigned_by="shop")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"segments": ["days"]}, "names 'days', which is adjusted for or a segment; days come after the assignment"),
        ({"survival": {"left": "days", "paid": "days"}}, "and so does another event; each has days of its own"),
        ({"bins": {"days": 4}}, "whose bins need edges"),
        ({"bounds": {"left": (0, 9)}}, "an event is a 0/1 metric"),
        ({"survival": {"left": ""}}, "must name the column of days"),
        ({"adjust": ["left"], "numbers": ["left"]}, "'left' is a metric to compare, and adjusted for as a number"),
        ({"metrics": ["days"]}, "a column has one role"),
    ],
)
def test_plans_that_contradict_survival_are_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        kb.count(rows(paid=[0, 1] * 20), **{**ASKED, **asked})


def test_too_many_days_are_refused_with_what_days_can_have() -> None:
    many = {"variant": ["A", "B"] * 600, "left": [0, 1] * 600, "days": [*range(1200)], "tier": [*range(1200)]}
    with pytest.raises(SourceError, match=r"'days' has more than 1,000 levels\. Give edges: --bin days=7:14:21:28\.$"):
        kb.count(many, **ASKED)
    with pytest.raises(
        SourceError, match=r"levels\. Cut a number into bins \(--bin tier=5\), or keep the most frequent"
    ):
        kb.count(many, arm="variant", metrics=["left"], segments=["tier"])
    dates = np.datetime64("2026-01-01") + np.arange(1200)
    with pytest.raises(SourceError, match=r"'days' holds dates.* Of survival, count days from when a person came in"):
        kb.count(many | {"days": dates.astype(str)}, **ASKED)
