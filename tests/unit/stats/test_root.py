"""Where a function crosses zero."""

import math

import pytest

from kanab.errors import AnalysisError
from kanab.stats.root import crossing


def test_a_crossing_is_found_to_the_last_digits():
    assert crossing(lambda x: x * x - 2, 0, 2) == pytest.approx(math.sqrt(2), rel=1e-14)
    assert crossing(lambda x: math.tanh(50 * (x - 0.9)), 0, 1) == pytest.approx(0.9, rel=1e-13)


def test_few_steps_are_enough():
    steps = []
    crossing(lambda x: steps.append(x) or math.exp(x) - 7, 0, 5, enough=1e-10)
    assert len(steps) <= 16


def test_an_end_may_be_the_crossing():
    assert crossing(lambda x: x, 0, 1) == 0
    assert crossing(lambda x: x - 1, 0, 1) == 1


def test_no_change_of_sign_is_an_error():
    with pytest.raises(AnalysisError, match="no solution"):
        crossing(lambda x: x + 1, 0, 1)
