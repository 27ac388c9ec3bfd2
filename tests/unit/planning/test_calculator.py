"""kb.power: its answer as data and frames; what it answers and refuses, the tests of `kanab power` prove."""

import pytest

import kanab as kb
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError, PlanError

ROWS = shop_rows(20_000)


def test_it_is_plain_data_and_frames():
    found = kb.power(ROWS, "bought", people=20_000)
    data = found.to_dict()
    assert data["scope"] == "own-rows"
    assert (data["solved"], data["effect"], data["arms"]) == ("effect", found.effect, {"A": 10_000, "B": 10_000})
    assert found.to_pandas().loc[0, "effect"] == found.effect
    assert found.to_polars("arms")["people"].to_list() == [10_000, 10_000]


def test_what_no_command_can_ask_is_refused_too():
    released = kb.release(kb.count(ROWS, arm="variant", metrics=["spend"]), 10)
    for wrong, fact in (
        ({"source": ROWS}, "missing metric"),
        ({"sd": 1, "effect": "five"}, "a number, or a percentage"),
        ({"source": released, "metric": "spend", "rows": kb.Rows(where="tier = 1")}, "rows does not go with source"),
    ):
        with pytest.raises((PlanError, AnalysisError), match=fact):
            kb.power(**{"effect": 0.1, **wrong})
