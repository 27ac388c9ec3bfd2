from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import kanab as kb
from kanab.counting.columns import MetricSteps
from kanab.counting.unusual import REMAINDERS, count_unusual
from kanab.tally.metric import Metric

people = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(-(2**52) + 1, 2**52 - 1) | st.integers(-3, 3), st.booleans())
)


@given(people)
def test_people_off_the_commonest_values_are_those_of_counted_lists(rows: list[tuple[int, int, bool]]) -> None:
    arm, steps, has = (
        np.array([row[place] for row in rows], dtype=kind) for place, kind in enumerate((np.intp, np.int64, bool))
    )
    off = count_unusual(MetricSteps(Metric("y", 100), steps, has), arm, 3)
    assert off.shape == (3, 1 + len(REMAINDERS))
    for own in range(3):
        values = [step for place, step, there in rows if place == own and there]
        kinds = [values, *([step % rest for step in values] for rest in REMAINDERS)]
        alike = [max(Counter(kind).values(), default=0) for kind in kinds]
        assert off[own].tolist() == [len(values) - most for most in alike]


def test_odd_cents_among_whole_euros_are_unusual_though_all_amounts_differ() -> None:
    spend = np.arange(1.0, 401.0)
    spend[7] += 0.37
    rows = {"variant": ["A", "B"] * 200, "spend": spend}
    for bounds in ({}, {"spend": (0, 500)}):
        off = kb.count(rows, arm="variant", metrics=["spend"], bounds=bounds).unusual["variant"]["spend"]
        assert off[:, 0].tolist() == [199, 199]
        assert off[:, 1 + REMAINDERS.index(100)].tolist() == [0, 1]


def test_every_arm_has_a_commonest_value_of_its_own_and_people_without_a_value_do_not_count() -> None:
    rows = {"variant": ["A"] * 40 + ["B"] * 40, "price": [9.99] * 39 + [4.99] + [12.5] * 30 + [1] * 5 + [np.nan] * 5}
    counted = kb.count(rows, arm="variant", metrics=["price"])
    assert counted.unusual["variant"]["price"][:, 0].tolist() == [1, 5]
