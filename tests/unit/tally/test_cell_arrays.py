from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from kanab.errors import TallyError
from kanab.tally.cell_arrays import DROPPED, as_cells, fold, marginal, zeros

TABLE = as_cells([[1, 2, 3], [40, 50, 60]], (2, 3), "people")


def test_cells_hold_python_integers_of_any_size() -> None:
    cells = as_cells([2**200, np.int64(-3), np.uint8(4), 5.0, np.float64(1e20)], (5,), "sums")
    assert cells.tolist() == [2**200, -3, 4, 5, 10**20]
    assert {type(value) for value in cells.tolist()} == {int}


def test_cells_are_read_only_and_a_copy() -> None:
    given = np.array([1, 2])
    cells = as_cells(given, (2,), "people")
    given[0] = 9
    assert cells.tolist() == [1, 2]
    with pytest.raises(ValueError, match="read-only"):
        cells[0] = 9


@pytest.mark.parametrize(
    "values",
    [[1], [1, 2, 3], [[1, 2]], [[1], [2]], 5, None, "ab", [np.zeros((2, 2)), np.zeros((2, 3))]],
    ids=repr,
)
def test_cells_have_one_number_per_class(values: Any) -> None:
    with pytest.raises(TallyError, match=r"people must have one number per class. Give every class once"):
        as_cells(values, (2,), "people")


@pytest.mark.parametrize(
    "value",
    [1.5, float("nan"), float("inf"), True, None, "918273645", Decimal(1), np.bool_(True), [918273645]],
    ids=repr,
)
def test_cells_are_whole_numbers(value: Any) -> None:
    with pytest.raises(TallyError, match=r"people must be whole numbers. Counts, grid sums and squares") as caught:
        as_cells([1, value], (2,), "people")
    assert "918273645" not in str(caught.value)


def test_zeros_are_nobody_in_any_class() -> None:
    assert zeros((2, 2)).tolist() == [[0, 0], [0, 0]]


def test_a_fold_adds_each_level_into_its_new_place() -> None:
    assert fold(TABLE, 1, [0, 1, 1], 2).tolist() == [[1, 5], [40, 110]]
    assert fold(TABLE, 0, [0, 0], 1).tolist() == [[41, 52, 63]]


def test_a_fold_drops_levels_and_makes_room_for_new_ones() -> None:
    assert fold(TABLE, 1, [DROPPED, 2, 0], 4).tolist() == [[3, 0, 2, 0], [60, 0, 50, 0]]
    assert fold(as_cells([7, 8], (2,), "people"), 0, [1, DROPPED], 2).tolist() == [0, 7]


def test_a_margin_sums_over_the_axes_that_are_not_kept() -> None:
    assert marginal(TABLE, ("arm", "tier"), ("arm",)).tolist() == [6, 150]
    assert marginal(TABLE, ("arm", "tier"), ("tier",)).tolist() == [41, 52, 63]
    assert marginal(TABLE, ("arm", "tier"), ("arm", "tier")) is TABLE


def test_the_margin_of_nothing_is_the_total_as_an_array() -> None:
    total = marginal(TABLE, ("arm", "tier"), ())
    assert (total.shape, total.item()) == ((), 156)
    assert type(total.item()) is int
