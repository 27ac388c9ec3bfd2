"""kb.power: people, effect or power from numbers, rows or a release."""

import pytest

import kanab as kb
from kanab.datasets import shop_rows
from kanab.errors import AnalysisError, PlanError
from kanab.planning import PlannedTest, solve_power, spread_of_amounts, spread_of_means, spread_of_rate, spread_of_rows

ROWS = shop_rows(20_000)
SHARES = {"A": 3, "B": 1}


@pytest.fixture(scope="module")
def released():
    return kb.release(kb.count(ROWS, arm="variant", metrics=["bought", "spend"], adjust=["tier"]), 10)


def test_it_is_what_solve_power_says_of_the_same_spread():
    amounts = spread_of_amounts(30, mean=12, shares=SHARES, grows=True)
    test = PlannedTest(alternative="greater")
    assert kb.power(sd=30, mean=12, shares=SHARES, grows=True, people=9_000, power=0.9, test=test) == solve_power(
        amounts, people=9_000, power=0.9, test=test
    )
    assert kb.power(rate=0.1, effect="5%") == solve_power(spread_of_rate(0.1), effect=0.05, relative=True, power=0.8)
    of_rows = solve_power(spread_of_rows(ROWS, "spend", adjust=["tier"]), people=5_000, effect=0.5)
    assert kb.power(ROWS, "spend", adjust=["tier"], people=5_000, effect=0.5) == of_rows


def test_a_release_lends_its_variances_and_shares(released):
    means = kb.stats.plain_means(released.totals("variant"), "bought")
    expected = solve_power(spread_of_means(means, rate=True), effect=0.01, power=0.8)
    found = kb.power(released, kb.Mean("bought"), effect=0.01)
    assert (found.people, found.own_rows) == (expected.people, False)
    adjusted = kb.power(released, "spend", adjust=[kb.Covariate("tier")], effect=0.2, shares=SHARES)
    assert adjusted.people < kb.power(released, "spend", effect=0.2, shares=SHARES).people


def test_it_is_plain_data_and_frames():
    found = kb.power(ROWS, "bought", people=20_000)
    data = found.to_dict()
    assert data["scope"] == "own-rows"
    assert (data["solved"], data["effect"], data["arms"]) == ("effect", found.effect, {"A": 10_000, "B": 10_000})
    assert found.to_pandas().loc[0, "effect"] == found.effect
    assert found.to_polars("arms")["people"].to_list() == [10_000, 10_000]


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({}, "how the metric varies is not said"),
        ({"rate": 0.1, "sd": 3}, "rate and sd contradict each other"),
        ({"rate": 0.1, "mean": 3}, "mean does not go with rate"),
        ({"rate": 0.1, "grows": True}, r"grows \(--multiplies\) does not go with rate"),
        ({"sd": 1, "adjust": ["tier"]}, "adjust does not go with sd"),
        ({"source": ROWS}, "missing metric"),
        ({"source": ROWS, "metric": "spend", "mean": 3}, "mean does not go with source"),
        ({"sd": 1, "effect": "five"}, "a number, or a percentage"),
        ({"sd": 1, "effect": None}, "exactly one of people, effect and power"),
    ],
)
def test_what_cannot_be_asked_is_said(wrong, fact):
    with pytest.raises((PlanError, AnalysisError), match=fact):
        kb.power(**{"effect": 0.1, **wrong})


def test_rows_of_a_release_are_not_chosen_again(released):
    with pytest.raises(PlanError, match="rows does not go with source"):
        kb.power(released, "spend", effect=1.0, rows=kb.Rows(where="tier = 1"))
