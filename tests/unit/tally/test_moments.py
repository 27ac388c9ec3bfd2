from __future__ import annotations

import operator

import pytest

from kanab import Metric
from kanab.errors import TallyError
from kanab.tally.cell_arrays import DROPPED, Cells, as_cells
from kanab.tally.moments import By, Cross, Moments

AXES = ("arm", "tier")


def table(*rows: list[int]) -> Cells:
    return as_cells(rows, (len(rows), len(rows[0])), "cells")


def line(*values: int) -> Cells:
    return as_cells(values, (len(values),), "cells")


def spend(metric: Metric, squares: dict[By, Cells]) -> Moments:
    return Moments(metric, table([3, 2], [1, 4]), table([30, 20], [10, 60]), squares)


BY_CLASS = spend(Metric("spend"), {AXES: table([310, 210], [100, 1000])})
BY_MARGIN = spend(Metric("spend"), {("arm",): line(520, 1100), ("tier",): line(410, 1210)})
BINARY = Moments(Metric("paid", 1, (0, 1)), table([3, 2], [1, 4]), table([1, 0], [1, 2]), {})
PRODUCTS = Cross(("y", "z"), ("arm",), line(2, 3), (line(4, 5), line(6, 7)), (line(8, 9), line(18, 17)), line(12, 11))


def plain(squares: dict[By, Cells]) -> dict[By, list[object]]:
    return {by: cells.tolist() for by, cells in squares.items()}


def test_squares_of_a_coarser_margin_are_added_up_from_a_finer_one() -> None:
    assert BY_CLASS.squares_by(("arm",), AXES).tolist() == [520, 1100]
    assert BY_CLASS.squares_by(("tier",), AXES).tolist() == [410, 1210]
    assert BY_CLASS.squares_by((), AXES).item() == 1620


def test_squares_of_a_finer_margin_are_not_to_be_had() -> None:
    assert BY_MARGIN.squares_by(("tier",), AXES).tolist() == [410, 1210]
    assert BY_MARGIN.squares_by(AXES, AXES) is None
    assert spend(Metric("spend"), {}).squares_by(("arm",), AXES) is None


def test_squares_of_a_0_1_metric_are_its_sums() -> None:
    assert BINARY.squares_by(AXES, AXES).tolist() == [[1, 0], [1, 2]]
    assert BINARY.squares_by(("arm",), AXES).tolist() == [1, 3]


def test_folding_moves_counts_sums_and_the_squares_that_know_the_factor() -> None:
    folded = BY_MARGIN.fold(AXES, "tier", [0, 0], 1)
    assert folded.counts.tolist() == [[5], [5]]
    assert folded.sums.tolist() == [[50], [70]]
    assert plain(folded.squares) == {("arm",): [520, 1100], ("tier",): [1620]}


def test_dropping_a_level_takes_squares_that_cannot_tell_it_apart() -> None:
    folded = BY_MARGIN.fold(AXES, "arm", [0, DROPPED], 1)
    assert folded.counts.tolist() == [[3, 2]]
    assert plain(folded.squares) == {("arm",): [520]}
    assert plain(BY_CLASS.fold(AXES, "arm", [0, DROPPED], 1).squares) == {AXES: [[310, 210]]}


def test_collapsing_sums_over_the_factor_and_drops_its_own_margin() -> None:
    collapsed = BY_MARGIN.collapse(AXES, "tier")
    assert collapsed.counts.tolist() == [5, 5]
    assert collapsed.sums.tolist() == [50, 70]
    assert plain(collapsed.squares) == {("arm",): [520, 1100]}
    assert plain(BY_CLASS.collapse(AXES, "tier").squares) == {("arm",): [520, 1100]}


def test_collapsing_keeps_one_copy_of_a_margin_that_two_imply() -> None:
    both = spend(Metric("spend"), {("arm",): line(520, 1100), AXES: table([310, 210], [100, 1000])})
    assert plain(both.collapse(AXES, "tier").squares) == {("arm",): [520, 1100]}


def test_refining_multiplies_sums_by_m_and_squares_by_m_squared() -> None:
    fine = BY_MARGIN.refine(4, AXES)
    assert fine.metric == Metric("spend", 4)
    assert fine.sums.tolist() == [[120, 80], [40, 240]]
    assert plain(fine.squares) == {("arm",): [520 * 16, 1100 * 16], ("tier",): [410 * 16, 1210 * 16]}
    assert fine.counts.tolist() == [[3, 2], [1, 4]]


def test_refining_to_the_same_grid_changes_nothing() -> None:
    assert BY_MARGIN.refine(1, AXES) is BY_MARGIN


def test_refining_a_0_1_metric_writes_its_squares_down() -> None:
    fine = BINARY.refine(2, AXES)
    assert not fine.metric.binary
    assert plain(fine.squares) == {AXES: [[4, 0], [4, 8]]}


def test_grids_that_do_not_contain_each_other_are_refused() -> None:
    with pytest.raises(TallyError, match=r"the grids of 'spend' do not fit into each other. Count both with the same"):
        spend(Metric("spend", 2), {}).combine(spend(Metric("spend", 3), {}), operator.add, AXES)


def test_combining_keeps_the_margins_that_both_know() -> None:
    both = BY_CLASS.combine(BY_MARGIN, operator.add, AXES)
    assert both.counts.tolist() == [[6, 4], [2, 8]]
    assert both.sums.tolist() == [[60, 40], [20, 120]]
    assert plain(both.squares) == {("arm",): [1040, 2200], ("tier",): [820, 2420]}


def test_combining_margins_that_share_nothing_keeps_no_squares() -> None:
    one = spend(Metric("spend"), {("arm",): line(520, 1100)})
    two = spend(Metric("spend"), {("tier",): line(410, 1210)})
    assert one.combine(two, operator.add, AXES).squares == {}


def test_combining_a_coarse_and_a_fine_grid_happens_on_the_fine_one() -> None:
    fine = spend(Metric("spend", 10), {AXES: table([310, 210], [100, 1000])})
    for both in (BY_CLASS.combine(fine, operator.add, AXES), fine.combine(BY_CLASS, operator.add, AXES)):
        assert both.metric.scale == 10
        assert both.sums.tolist() == [[330, 220], [110, 660]]
        assert plain(both.squares) == {AXES: [[31310, 21210], [10100, 101000]]}


@pytest.mark.parametrize("other", [Metric("spend", 1, (0, 99)), Metric("spend", 1, None, "exclude")])
def test_other_bounds_or_missing_rules_are_refused(other: Metric) -> None:
    with pytest.raises(TallyError, match=r"'spend' has other bounds or another rule for missing values there. Declare"):
        BY_CLASS.combine(spend(other, {}), operator.add, AXES)


def test_only_the_finest_squares_are_kept() -> None:
    both = spend(Metric("spend"), {("arm",): line(520, 1100), AXES: table([310, 210], [100, 1000])})
    assert plain(both.finest().squares) == {AXES: [[310, 210], [100, 1000]]}
    assert BY_MARGIN.finest() is BY_MARGIN
    binary = Moments(BINARY.metric, BINARY.counts, BINARY.sums, {("arm",): line(1, 3)})
    assert binary.finest().squares == {}


def test_a_change_reaches_every_array_of_a_cross_product() -> None:
    changed = PRODUCTS.map(lambda cells: cells * 10)
    assert changed.counts.tolist() == [20, 30]
    assert [cells.tolist() for cells in changed.sums] == [[40, 50], [60, 70]]
    assert [cells.tolist() for cells in changed.squares] == [[80, 90], [180, 170]]
    assert changed.products.tolist() == [120, 110]


def test_refining_cross_products_multiplies_by_both_factors() -> None:
    fine = PRODUCTS.refine((2, 5))
    assert fine.counts.tolist() == [2, 3]
    assert [cells.tolist() for cells in fine.sums] == [[8, 10], [30, 35]]
    assert [cells.tolist() for cells in fine.squares] == [[32, 36], [450, 425]]
    assert fine.products.tolist() == [120, 110]


def test_combining_cross_products_adds_every_array() -> None:
    twice = PRODUCTS.combine(PRODUCTS, operator.add)
    assert twice.counts.tolist() == [4, 6]
    assert [cells.tolist() for cells in twice.sums] == [[8, 10], [12, 14]]
    assert [cells.tolist() for cells in twice.squares] == [[16, 18], [36, 34]]
    assert twice.products.tolist() == [24, 22]
    assert twice.combine(PRODUCTS, operator.sub).products.tolist() == [12, 11]


def test_squares_are_kept_at_some_margins_as_far_as_they_are_known() -> None:
    assert plain(BY_CLASS.with_squares_at([("arm",)], AXES).squares) == {("arm",): [520, 1100]}
    assert plain(BY_MARGIN.with_squares_at([("arm",), AXES], AXES).squares) == {("arm",): [520, 1100]}
    assert plain(BINARY.with_squares_at([("arm",)], AXES).squares) == {}
