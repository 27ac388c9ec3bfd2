"""Numbers that no people could have produced are refused; those on the edge of what people can do are not."""

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
PLAN = Factor("plan", ("x", "y"))
TEN, PAID = Metric("spend", 1, (0, 10)), Metric("paid", 1, (0, 1))


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


def tiers(sums: Any, squares: dict[By, Any]) -> Tally:
    """A table with one person in each class."""
    return tally([[1, 1], [1, 1]], sums, squares, factors=(ARM, TIER))


def crossed(counts: Any, sums: Any, squares: Any, products: Any, pair: tuple[str, str] = ("y", "z")) -> Tally:
    metrics = tuple(
        Moments(Metric(name), [3, 3], total, {("arm",): [99, 99]}) for name, total in zip("yz", sums, strict=True)
    )
    return Tally((ARM,), [3, 3], metrics, (Cross(pair, ("arm",), counts, sums, squares, products),))


SUMS, SQUARES = ([6, 3], [3, 4]), ([14, 5], [5, 8])
EXCLUDED = Metric("spend", missing="exclude")
EIGHT = [[[2, 0], [0, 2]], [[2, 0], [0, 2]]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: tally([3, 3], [1, 1], counts=[3, 2], metric=EXCLUDED),
        lambda: tally([3, 2], [30, 0], metric=TEN),
        lambda: tally([3, 2], [6, 5], {("arm",): [12, 13]}),
        lambda: tiers([[1, 9], [5, 5]], {("arm",): [82, 50]}),
        lambda: tally([3, 2], [20, 0], {("arm",): [200, 0]}, metric=TEN),  # 10, 10, 0
        lambda: tally([2, 1], [1, 0], {("arm",): [13, 0]}, metric=Metric("spend", 1, (-2, 3))),  # -2 and 3
        lambda: tiers([[1, 2], [3, 4]], {("arm",): [5, 25], ("tier",): [10, 20]}),
        lambda: tally([3, 3], [1, 2], {("arm",): [1, 2]}, metric=PAID),
        lambda: crossed([3, 2], SUMS, SQUARES, [8, 6]),
    ],
)
def test_what_people_can_produce_is_accepted(made: Any) -> None:
    assert made().total > 0


FEW, ABOVE, BELOW, TOTAL = "more people have a value of 'spend' than", "above what its bounds", "below Σ S²/n", "add up"
ALLOWED, OUTSIDE = "are larger than their squares allow. Count", "lies outside what its bounds and counts allow. Check"


@pytest.mark.parametrize(
    ("made", "fact"),
    [
        (lambda: Tally((ARM,), [3, -918273645]), "a class has a negative count. Subtract only people who were added"),
        (lambda: tally([3, 3], [1, 1], counts=[4, 3], metric=EXCLUDED), FEW),
        (lambda: tally([3, 3], [1, 1], counts=[-1, 3], metric=EXCLUDED), FEW),
        (lambda: tally([3, 3], [1, 1], counts=[3, 2]), "'spend' has fewer values than people. Declare missing='exclud"),
        (lambda: tally([3, 0], [1, 918273645]), "a class without values of 'spend' has a sum. Check the class's count"),
        (lambda: tally([3, 2], [31, 0], metric=TEN), OUTSIDE),
        (lambda: tally([3, 2], [-1, 0], metric=TEN), OUTSIDE),
        (lambda: tally([3, 2], [0, -1], metric=TEN), OUTSIDE),
        (lambda: tally([3, 2], [0, 21], metric=TEN), OUTSIDE),
        (lambda: tally([3, 2], [20, 0], counts=[1, 0], metric=Metric("spend", 1, (0, 10), "exclude")), OUTSIDE),
        (lambda: tally([3, 2], [6, 5], {("arm",): [11, 13]}), f"{BELOW}: no such people exist. Check that"),
        (lambda: tally([3, 2], [6, 5], {("arm",): [12, 12]}), BELOW),  # 2 + 3 = 5, 4 + 9; 12.5 is the mean's
        (lambda: tiers([[1, 9], [5, 5]], {("arm",): [81, 50]}), BELOW),
        (lambda: tally([3, 2], [20, 0], {("arm",): [201, 0]}, metric=TEN), f"{ABOVE} allow. Check the bounds"),
        (lambda: tally([2, 1], [1, 0], {("arm",): [14, 0]}, metric=Metric("spend", 1, (-2, 3))), ABOVE),
        (lambda: tiers([[1, 2], [3, 4]], {("arm",): [5, 25], ("tier",): [10, 21]}), f"'spend' do not {TOTAL} to one"),
        (lambda: tiers([[1, 2], [3, 4]], {("arm",): [99, 99], ("arm", "tier"): [[1, 4], [9, 16]]}), TOTAL),
        (
            lambda: tally(
                EIGHT,
                [[[0, 0], [0, 0]], [[0, 0], [0, 0]]],
                {("arm", "tier"): [[10, 10], [10, 10]], ("arm", "plan"): [[12, 12], [8, 8]]},
                factors=(ARM, TIER, PLAN),
            ),
            TOTAL,
        ),
        (lambda: tally([3, 3], [1, 2], {("arm",): [1, 3]}, metric=PAID), "squares of 'paid'"),
        (lambda: crossed([3, 2], SUMS, SQUARES, [14, 5], ("y", "y")), "'y' and 'y' are squares. Declare two different"),
        (lambda: crossed([4, 2], SUMS, SQUARES, [8, 6]), "'y' and 'z' count more people than have the values"),
        (lambda: crossed([-1, 2], SUMS, SQUARES, [8, 6]), "'y' and 'z' count more people than have the values"),
        (lambda: crossed([3, 2], SUMS, ([11, 5], [5, 8]), [8, 6]), f"have squares {BELOW}. Count the same"),
        (lambda: crossed([3, 2], SUMS, ([14, 5], [5, 7]), [8, 6]), "squares below"),
        (lambda: crossed([3, 2], SUMS, SQUARES, [9, 6]), ALLOWED),
        (lambda: crossed([3, 2], SUMS, SQUARES, [-9, 6]), ALLOWED),
        (lambda: crossed([2, 0], ([2, 0], [2, 0]), ([2, 0], [2, 0]), [1, 0]), ALLOWED),  # all ones: it can only be 2
        (lambda: crossed([3, 0], SUMS, ([14, 0], [5, 0]), [8, 0]), "cross-products"),
    ],
)
def test_what_no_people_can_produce_is_refused_without_a_number(made: Any, fact: str) -> None:
    with pytest.raises(TallyError, match=fact) as caught:
        made()
    assert "918273645" not in str(caught.value)


def test_cross_products_of_an_unknown_metric_are_refused() -> None:
    with pytest.raises(LevelError, match=r"unknown metric. This tally has: y, z\."):
        crossed([3, 2], SUMS, SQUARES, [8, 6], ("y", "clicks"))


@pytest.mark.parametrize(("count", "total"), list(product(range(1, 5), range(-7, 8))))
def test_the_least_squares_are_those_of_the_flattest_whole_numbers(count: int, total: int) -> None:
    brute = min(
        sum(value**2 for value in values) for values in product(range(-8, 9), repeat=count) if sum(values) == total
    )
    found = least_squares(as_cells([count], (1,), "counts"), as_cells([total], (1,), "sums"))
    assert found.tolist() == [brute]


@pytest.mark.parametrize(("count", "total", "least"), [(0, 0, 0), (3, 3 * 2**200 + 1, 2 * 2**400 + (2**200 + 1) ** 2)])
def test_the_least_squares_of_nobody_are_zero_and_they_are_exact_far_beyond_64_bits(
    count: int, total: int, least: int
) -> None:
    assert least_squares(as_cells([count], (1,), "counts"), as_cells([total], (1,), "sums")).tolist() == [least]
