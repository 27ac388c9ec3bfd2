"""The two largest values of every class, whatever the rows are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.columns import MetricSteps
from kanab.counting.largest import find_largest
from kanab.tally.metric import Metric

people = st.lists(
    st.tuples(st.integers(-1, 5), st.integers(-(2**52) + 1, 2**52 - 1) | st.integers(-3, 3), st.booleans())
)


@given(people)
def test_the_largest_values_of_rows_are_those_of_sorted_lists(rows: list[tuple[int, int, bool]]) -> None:
    cell, steps, has = (
        np.array([row[place] for row in rows], dtype=kind) for place, kind in enumerate((np.intp, np.int64, bool))
    )
    values = find_largest(MetricSteps(Metric("y"), steps, has), cell, (2, 3))
    for place in range(6):
        largest = sorted((abs(step) for own, step, there in rows if own == place and there), reverse=True)
        spot = divmod(place, 3)
        assert [values.largest[spot], values.second[spot]] == [*largest, 0, 0][:2]
        assert values.total[spot] == sum(largest)
