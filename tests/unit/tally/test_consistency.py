from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from kanab import Metric, Tally
from kanab.errors import LevelError, TallyError
from kanab.tally import Factor
from kanab.tally.cell_arrays import as_cells
from kanab.tally.moments import By, Cross, Moments, least_squares

ARM = Factor("arm", ("A", "B"), "arm")
TIER = Factor("tier", (1, 2))


def tally(
    people: Any,
    sums: Any,
    squares: dict[By, Any] | None = None,
    *,
    metric: Metric | None = None,
    counts: Any = None,
    factors: tuple[Factor, ...] = (ARM,),
) -> Tally:
    part = Moments(metric or Metric("spend"), people if counts is None else counts, sums, squares or {})
    return Tally(factors, people, (part,))


def crossed(counts: Any, sums: Any, squares: Any, products: Any, pair: tuple[str, str] = ("y", "z")) -> Tally:
    metrics = tuple(
        Moments(Metric(name), [3, 3], total, {("arm",): [99, 99]}) for name, total in zip("yz", sums, strict=True)
    )
    return Tally((ARM,), [3, 3], metrics, (Cross(pair, ("arm",), counts, sums, squares, products),))


def test_nobody_is_counted_less_than_zero_times() -> None:
    with pytest.raises(TallyError, match=r"a class has a negative count. Subtract only people who were added before"):
        Tally((ARM,), [3, -918273645])


@pytest.mark.parametrize("counts", [[4, 3], [-1, 3]])
def test_no_more_people_have_a_value_than_there_are(counts: list[int]) -> None:
    with pytest.raises(TallyError, match=r"more people have a value of 'spend' than there are in the class. Count"):
        tally([3, 3], [1, 1], counts=counts, metric=Metric("spend", missing="exclude"))


def test_where_missing_means_zero_everybody_has_a_value() -> None:
    with pytest.raises(TallyError, match=r"'spend' has fewer values than people. Declare missing='exclude'"):
        tally([3, 3], [1, 1], counts=[3, 2])
    assert tally([3, 3], [1, 1], counts=[3, 2], metric=Metric("spend", missing="exclude")).total == 6


def test_nobody_spends_nothing() -> None:
    with pytest.raises(TallyError, match=r"a class without values of 'spend' has a sum. Check the class's count"):
        tally([3, 0], [1, 918273645])


@pytest.mark.parametrize("sums", [[31, 0], [-1, 0], [0, -1], [0, 21]])
def test_a_sum_lies_within_bounds_times_count(sums: list[int]) -> None:
    with pytest.raises(TallyError, match=r"a sum of 'spend' lies outside what its bounds and counts allow. Check"):
        tally([3, 2], sums, metric=Metric("spend", 1, (0, 10)))
    assert tally([3, 2], [30, 0], metric=Metric("spend", 1, (0, 10))).total == 5


def test_sums_of_a_metric_that_may_be_missing_are_bounded_by_its_own_count() -> None:
    with pytest.raises(TallyError, match="lies outside"):
        tally([3, 2], [20, 0], counts=[1, 0], metric=Metric("spend", 1, (0, 10), "exclude"))


def test_squares_are_at_least_what_equal_values_give() -> None:
    assert tally([3, 2], [6, 5], {("arm",): [12, 13]}).total == 5
    with pytest.raises(TallyError, match=r"squares of 'spend' are below Σ S²/n: no such people exist. Check that"):
        tally([3, 2], [6, 5], {("arm",): [11, 13]})


def test_whole_numbers_that_cannot_be_equal_need_a_little_more() -> None:
    with pytest.raises(TallyError, match="below"):
        tally([3, 2], [6, 5], {("arm",): [12, 12]})  # 2 + 3 = 5, squares 4 + 9; 12.5 is the mean's


def test_squares_of_a_margin_are_at_least_those_of_its_classes() -> None:
    people, sums = [[1, 1], [1, 1]], [[1, 9], [5, 5]]
    assert tally(people, sums, {("arm",): [82, 50]}, factors=(ARM, TIER)).total == 4
    with pytest.raises(TallyError, match="below"):
        tally(people, sums, {("arm",): [81, 50]}, factors=(ARM, TIER))


def test_squares_are_at_most_what_the_bounds_allow() -> None:
    metric = Metric("spend", 1, (0, 10))
    assert tally([3, 2], [20, 0], {("arm",): [200, 0]}, metric=metric).total == 5  # 10, 10, 0
    with pytest.raises(TallyError, match=r"squares of 'spend' are above what its bounds allow. Check the bounds"):
        tally([3, 2], [20, 0], {("arm",): [201, 0]}, metric=metric)


def test_squares_are_bounded_from_below_zero_too() -> None:
    metric = Metric("spend", 1, (-2, 3))
    assert tally([2, 1], [1, 0], {("arm",): [13, 0]}, metric=metric).total == 3  # -2 and 3
    with pytest.raises(TallyError, match="above"):
        tally([2, 1], [1, 0], {("arm",): [14, 0]}, metric=metric)


def test_margins_of_squares_add_up_to_one_total() -> None:
    people, sums = [[1, 1], [1, 1]], [[1, 2], [3, 4]]
    assert tally(people, sums, {("arm",): [5, 25], ("tier",): [10, 20]}, factors=(ARM, TIER)).total == 4
    with pytest.raises(
        TallyError, match=r"the marginals of squares of 'spend' do not add up to one total. Count every"
    ):
        tally(people, sums, {("arm",): [5, 25], ("tier",): [10, 21]}, factors=(ARM, TIER))


def test_a_margin_that_contradicts_a_finer_one_is_refused() -> None:
    people, sums = [[1, 1], [1, 1]], [[1, 2], [3, 4]]
    with pytest.raises(TallyError, match="add up"):
        tally(people, sums, {("arm",): [99, 99], ("arm", "tier"): [[1, 4], [9, 16]]}, factors=(ARM, TIER))


def test_margins_that_share_a_factor_agree_on_it() -> None:
    plan = Factor("plan", ("x", "y"))
    people = [[[2, 0], [0, 2]], [[2, 0], [0, 2]]]
    sums = [[[0, 0], [0, 0]], [[0, 0], [0, 0]]]
    with pytest.raises(TallyError, match="add up"):
        tally(
            people,
            sums,
            {("arm", "tier"): [[10, 10], [10, 10]], ("arm", "plan"): [[12, 12], [8, 8]]},
            factors=(ARM, TIER, plan),
        )


def test_squares_of_a_0_1_metric_that_are_not_its_sums_are_refused() -> None:
    metric = Metric("paid", 1, (0, 1))
    assert tally([3, 3], [1, 2], {("arm",): [1, 2]}, metric=metric).squares() is not None
    with pytest.raises(TallyError, match="squares of 'paid'"):
        tally([3, 3], [1, 2], {("arm",): [1, 3]}, metric=metric)


@pytest.mark.parametrize(("count", "total"), list(product(range(1, 5), range(-7, 8))))
def test_the_least_squares_are_those_of_the_flattest_whole_numbers(count: int, total: int) -> None:
    brute = min(
        sum(value**2 for value in values) for values in product(range(-8, 9), repeat=count) if sum(values) == total
    )
    found = least_squares(as_cells([count], (1,), "counts"), as_cells([total], (1,), "sums"))
    assert found.tolist() == [brute]


def test_the_least_squares_of_nobody_are_zero() -> None:
    assert least_squares(as_cells([0], (1,), "counts"), as_cells([0], (1,), "sums")).tolist() == [0]


def test_the_least_squares_are_exact_far_beyond_64_bits() -> None:
    counts, sums = as_cells([3], (1,), "counts"), as_cells([3 * 2**200 + 1], (1,), "sums")
    assert least_squares(counts, sums).tolist() == [2 * (2**200) ** 2 + (2**200 + 1) ** 2]


def test_cross_products_of_real_people_are_accepted() -> None:
    made = crossed([3, 2], ([6, 3], [3, 4]), ([14, 5], [5, 8]), [8, 6])
    assert made.cross("y", "z").products.tolist() == [8, 6]


def test_a_metric_crossed_with_itself_is_refused() -> None:
    with pytest.raises(TallyError, match=r"the cross-products of 'y' and 'y' are squares. Declare two different"):
        crossed([3, 2], ([6, 3], [6, 3]), ([14, 5], [14, 5]), [14, 5], ("y", "y"))


@pytest.mark.parametrize("counts", [[4, 2], [-1, 2]])
def test_cross_products_count_no_more_people_than_have_both(counts: list[int]) -> None:
    with pytest.raises(TallyError, match=r"cross-products of 'y' and 'z' count more people than have the values"):
        crossed(counts, ([6, 3], [3, 4]), ([14, 5], [5, 8]), [8, 6])


def test_cross_products_come_with_squares_that_their_sums_allow() -> None:
    with pytest.raises(TallyError, match=r"cross-products of 'y' and 'z' have squares below Σ S²/n. Count the same"):
        crossed([3, 2], ([6, 3], [3, 4]), ([11, 5], [5, 8]), [8, 6])
    with pytest.raises(TallyError, match="squares below"):
        crossed([3, 2], ([6, 3], [3, 4]), ([14, 5], [5, 7]), [8, 6])


@pytest.mark.parametrize("products", [[9, 6], [-9, 6]])
def test_cross_products_obey_cauchy_and_schwarz(products: list[int]) -> None:
    assert crossed([3, 2], ([6, 3], [3, 4]), ([14, 5], [5, 8]), [8, 6]).total == 6
    with pytest.raises(TallyError, match=r"cross-products of 'y' and 'z' are larger than their squares allow. Count"):
        crossed([3, 2], ([6, 3], [3, 4]), ([14, 5], [5, 8]), products)


def test_cross_products_obey_cauchy_and_schwarz_about_the_means() -> None:
    with pytest.raises(TallyError, match="allow"):
        crossed([2, 0], ([2, 0], [2, 0]), ([2, 0], [2, 0]), [1, 0])  # all ones: their product can only be 2


def test_nobody_has_no_cross_products() -> None:
    with pytest.raises(TallyError, match="cross-products"):
        crossed([3, 0], ([6, 3], [3, 4]), ([14, 0], [5, 0]), [8, 0])


def test_cross_products_of_an_unknown_metric_are_refused() -> None:
    with pytest.raises(LevelError, match=r"unknown metric. This tally has: y, z\."):
        crossed([3, 2], ([6, 3], [3, 4]), ([14, 5], [5, 8]), [8, 6], ("y", "clicks"))
