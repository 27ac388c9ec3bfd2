from __future__ import annotations

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counted import Derived
from kanab.counting.columns import MetricSteps
from kanab.counting.derived import _commonest_ratio, choose_derived, count_derived, derive, simplest_fraction
from kanab.counting.rows import count_rows
from kanab.plan.model import make_plan
from kanab.tally.metric import Metric


def steps(name: str, values: list[int], scale: int = 1, *, binary: bool = False) -> MetricSteps:
    metric = Metric(name, 1, (0.0, 1.0)) if binary else Metric(name, scale)
    return MetricSteps(metric, np.array(values, dtype=np.int64), np.ones(len(values), dtype=bool))


def test_two_amounts_are_compared_as_they_are_on_their_common_grid() -> None:
    euros, cents = steps("euros", [1, 2, 0, 7]), steps("cents", [100, 200, 0, 650], 100)
    assert choose_derived([euros, cents]) == (Derived("euros", "cents", (100, 1)),)


def test_an_amount_and_a_0_1_metric_are_compared_by_the_price_that_most_people_pay() -> None:
    paid, ordered = steps("paid", [999, 999, 0, 1250], 100), steps("ordered", [1, 1, 0, 1], binary=True)
    assert choose_derived([ordered, paid]) == (Derived("paid", "ordered", (1, 999)),)


def test_a_price_that_fewer_than_half_pay_is_not_subtracted() -> None:
    paid, ordered = steps("paid", [999, 999, 1_250, 1_400, 750], 100), steps("ordered", [1] * 5, binary=True)
    assert choose_derived([paid, ordered]) == ()


def test_metrics_of_which_no_two_values_agree_have_no_difference_to_look_at() -> None:
    assert choose_derived([steps("spend", [3, 5, 0, 0]), steps("visits", [1, 2, 4, 0])]) == ()


def test_two_0_1_metrics_are_always_compared() -> None:
    seen, bought = steps("seen", [1, 0, 1], binary=True), steps("bought", [0, 1, 0], binary=True)
    assert choose_derived([seen, bought]) == (Derived("seen", "bought"),)


def test_in_a_sample_a_few_who_agree_by_chance_are_not_enough() -> None:
    rng = np.random.default_rng(1)
    first, second = (steps(name, rng.integers(1, 10_000, 1_000).tolist()) for name in ("first", "second"))
    agreeing = MetricSteps(second.metric, np.where(np.arange(1_000) < 5, first.steps, second.steps), second.has)
    assert choose_derived([first, agreeing]) == (Derived("first", "second"),)
    assert choose_derived([first, agreeing], sampled=True) == ()


def test_in_a_sample_0_1_metrics_that_differ_for_a_tenth_need_no_second_look() -> None:
    seen = steps("seen", [1] * 500 + [0] * 500, binary=True)
    few, many = (steps("bought", [1] * (500 - number) + [0] * (500 + number), binary=True) for number in (50, 150))
    assert choose_derived([seen, few], sampled=True) == (Derived("seen", "bought"),)
    assert choose_derived([seen, many], sampled=True) == ()


def test_products_with_a_0_1_metric_have_two_sides() -> None:
    revenue, ordered = steps("revenue", [7, 5, 0]), steps("ordered", [1, 0, 0], binary=True)
    chosen = choose_derived([revenue, ordered], [("ordered", "revenue")])
    assert chosen == (Derived("revenue", "ordered", side=1), Derived("revenue", "ordered", side=0))
    by_name = {"revenue": revenue, "ordered": ordered}
    assert [derive(each, by_name).tolist() for each in chosen] == [[7, 0, 0], [0, 5, 0]]


def test_people_without_a_value_add_nothing_to_a_difference() -> None:
    gross = MetricSteps(Metric("gross", missing="exclude"), np.array([9, 4, 4]), np.array([False, True, True]))
    net = steps("net", [3, 4, 1])
    assert derive(Derived("gross", "net"), {"gross": gross, "net": net}).tolist() == [-3, 0, 3]


def test_differences_that_would_not_fit_64_bits_are_left_alone() -> None:
    fine, coarse = steps("fine", [2**51, 0], 2**51), steps("coarse", [2**40, 0])
    assert choose_derived([fine, coarse]) == ()


@pytest.mark.parametrize(("y", "z"), [(999, 100), (1, 3), (7, 1), (355, 113)])
def test_a_ratio_of_whole_numbers_is_read_back_exactly(y: int, z: int) -> None:
    assert simplest_fraction(y / z) == Fraction(y, z)


def test_a_ratio_without_a_small_denominator_is_none() -> None:
    assert simplest_fraction(2**0.5) is None


def test_people_who_differ_are_counted_by_class_with_the_largest_differences() -> None:
    metrics = {"gross": steps("gross", [9, 8, 7, 6, 5]), "net": steps("net", [9, 3, 7, 5, 9])}
    cell = np.array([0, 0, 1, 1, -1])
    cells = count_derived([Derived("gross", "net")], metrics, {"arm": cell}, {"arm": (2,)})["arm"]
    values = cells[Derived("gross", "net")]
    assert values.people.tolist() == [1, 1]
    assert values.largest is not None
    assert (values.largest.largest.tolist(), values.largest.second.tolist()) == ([5, 1], [0, 0])


def test_metrics_of_earlier_plans_are_compared_with_those_of_this_one() -> None:
    rows = {"arm": ["A", "B", "A", "B"], "gross": [5, 6, 7, 8], "net": [5, 6, 7, 1]}
    bounds = {"gross": (0, 9)}
    earlier = make_plan("arm", ["gross"], bounds=bounds, resolution={"gross": 1})
    counted = count_rows(rows, make_plan("arm", ["net"], bounds={"net": (0, 9)}, resolution={"net": 1}), [earlier])
    (derived,) = counted.derived["arm"]
    assert {derived.first, derived.second} == {"gross", "net"}
    assert counted.derived["arm"][derived].people.tolist() == [0, 1]


@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), max_size=12),
    st.lists(st.tuples(st.just(6), st.just(2)), max_size=12),
)
def test_the_commonest_ratio_is_that_of_half_of_the_people_who_have_both(
    some: list[tuple[int, int]], alike: list[tuple[int, int]]
) -> None:
    y, z = np.array([*some, *alike], dtype=np.int64).reshape(-1, 2).T
    times = Counter(first / second for first, second in zip(y.tolist(), z.tolist(), strict=True) if first and second)
    ratio, most = max(times.items(), key=lambda item: (item[1], -item[0]), default=(0.0, 0))
    common = most >= 2 and 2 * most >= sum(times.values())
    assert _commonest_ratio(y, z) == (simplest_fraction(ratio) if common else None)
