"""The power of the F tests: interference of two experiments, differences between segments."""

import numpy as np
import pytest

from kanab import Metric, count_columns
from kanab.datasets import eighteen
from kanab.errors import AnalysisError
from kanab.planning.interactions import crossed_spread, crossed_spread_of, interaction_power
from kanab.planning.power import solve_power
from kanab.planning.spread import spread_of_amounts

EVEN = {"A": 1, "B": 1}


def test_a_two_by_two_interaction_is_a_t_test_of_four_cells():
    solved = interaction_power(crossed_spread(EVEN, EVEN, sd=10), effect=1, power=0.8)
    one = solve_power(spread_of_amounts(10), effect=0.5, power=0.8).people
    assert solved.people == pytest.approx(one, abs=3)  # the variance of four cell means is 16 σ²/N, of two arms 4 σ²/N
    assert solved.df == pytest.approx((1.0, solved.people - 4), rel=1e-3)
    assert str(solved).startswith(f"{solved.people:,} people see an interaction of 1.000 (row B, column A)")
    assert "with power 80 %; 95% confidence, F(1, " in str(solved)


def test_effect_people_and_power_give_each_other():
    cells = crossed_spread({"A": 9, "B": 1}, {"x": 5, "y": 3, "z": 2}, sd=[[0.14, 0.22, 0.46]] * 2)
    first = interaction_power(cells, effect=0.02, power=0.8)
    second = interaction_power(cells, people=first.people, power=first.power)
    assert second.effect == pytest.approx(0.02, rel=1e-9)
    assert first.where == "row B, column z"
    assert interaction_power(cells, people=first.people - 1, effect=0.02).power < 0.8 <= first.power


def test_cells_of_a_finished_experiment_keep_their_variances():
    cells = crossed_spread_of(eighteen())
    assert cells.rows == ("A", "B")
    assert cells.columns == (1, 2, 3)
    assert cells.shares == pytest.approx(np.full((2, 3), 1 / 6))
    assert cells.variances[0] == pytest.approx(np.full(3, cells.variances[0, 0]))  # squares by arm


def test_an_empty_combination_cannot_be_planned_with():
    rows = {"arm": ["A", "A", "B", "B"], "x": [1, 2, 1, 1], "y": [0, 1, 2, 3]}
    table = count_columns(rows, arm="arm", covariates=["x"], metrics={"y": Metric("y")})
    with pytest.raises(AnalysisError, match="holds nobody"):
        crossed_spread_of(table)
    flat = count_columns(rows | {"x": [1, 2, 1, 2]}, arm="arm", covariates=["x"], metrics={"y": Metric("y")})
    with pytest.raises(AnalysisError, match="cannot be planned with"):
        crossed_spread_of(flat)


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda: crossed_spread(EVEN, EVEN, sd=0), "must be positive"),
        (lambda: crossed_spread(EVEN, {"x": 1}, sd=1), "shares need"),
        (lambda: crossed_spread(EVEN, EVEN, sd=[1, 2, 3]), "one per cell"),
    ],
)
def test_impossible_cells_are_refused(make, fact):
    with pytest.raises(AnalysisError, match=fact):
        make()


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ({"people": 100}, "exactly one"),
        ({"people": 5, "effect": 1}, "cannot be planned with"),
        ({"people": 100, "power": 0.01}, "power must lie"),
        ({"power": 0.8, "effect": 0}, "other than 0"),
        ({"power": 0.8, "effect": 1e-8}, "would be enough"),
    ],
)
def test_impossible_questions_are_refused(wrong, fact):
    with pytest.raises(AnalysisError, match=fact):
        interaction_power(crossed_spread(EVEN, EVEN, sd=1), **wrong)
