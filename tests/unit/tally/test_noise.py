"""Noise of known variance: it goes wherever the numbers of its tally go."""

from typing import Any

import numpy as np
import pytest

from kanab.errors import TallyError
from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.moments import Cross, Moments
from kanab.tally.noise import AddedNoise, MetricNoise, twice_centre
from kanab.tally.plain import read
from kanab.tally.tally import Tally

ARMS = Factor("arm", ("A", "B"), "arm")
TIER = Factor("tier", (1, 2, 3), "covariate", (1.0, 2.0, 3.0))
SPEND = Metric("spend", 1, (0.0, 10.0))
HIT = Metric("hit", 1, (0.0, 1.0), "exclude")


def cells(*rows: Any) -> Cells:
    return np.array(rows, dtype=object)


PEOPLE = cells([-3, 20, 30], [10, 20, 40])
VARIANCES = cells([1, 2, 3], [4, 5, 6])


def noisy(people: Cells = PEOPLE, *, fine: bool = False) -> Tally:
    by = ("arm", "tier") if fine else ("arm",)
    squares = {("arm", "tier"): PEOPLE * 9} if fine else {("arm",): cells(600, 700), ("tier",): cells(100, 200, 300)}
    variances = {("arm", "tier"): VARIANCES * 9} if fine else {("arm",): cells(7, 8), ("tier",): cells(9, 10, 11)}
    moments = (Moments(SPEND, people, people * 2, squares), Moments(HIT, people - 1, people - 5, {}))
    crosses = () if fine else (
        Cross(("spend", "hit"), by, cells(1, 2), (cells(3, 4), cells(5, 6)), (cells(7, 8), cells(5, 6)), cells(9, 9)),
    )  # fmt: skip
    noise = AddedNoise(
        VARIANCES,
        {"spend": MetricNoise(None, VARIANCES * 2, variances), "hit": MetricNoise(VARIANCES * 3, VARIANCES * 4, {})},
        {} if fine else {(("spend", "hit"), by): cells(12, 13)},
    )
    return Tally((ARMS, TIER), people, moments, crosses, noise)


def of(tally: Tally) -> AddedNoise:
    assert tally.noise is not None
    return tally.noise


def squares_of(noise: AddedNoise) -> dict[Any, Any]:
    return {by: cells.tolist() for by, cells in noise.metrics["spend"].squares.items()}


def test_a_tally_with_noise_may_hold_what_no_people_can() -> None:
    assert noisy().people[0, 0] == -3
    with pytest.raises(TallyError):
        Tally((ARMS, TIER), PEOPLE)


def test_the_middle_of_bounds_is_that_of_their_steps() -> None:
    assert twice_centre(Metric("y", 10, (-1.0, 2.0))) == 10
    with pytest.raises(TallyError, match="'y' has no bounds") as problem:
        twice_centre(Metric("y"))
    assert problem.value.remedy == "Declare its bounds."


def test_coarsening_adds_the_variances_of_what_is_merged() -> None:
    noise = of(noisy().coarsen("tier", {1: "1 … 2", 2: "1 … 2"}, {"1 … 2": 1.5}))
    assert noise.people.tolist() == [[3, 3], [9, 6]]
    assert noise.metrics["spend"].sums.tolist() == [[6, 6], [18, 12]]
    assert noise.metrics["hit"].counts.tolist() == [[9, 9], [27, 18]]
    assert squares_of(noise) == {("arm",): [7, 8], ("tier",): [19, 11]}
    assert noise.products[("spend", "hit"), ("arm",)].tolist() == [12, 13]


def test_collapsing_and_keeping_add_them_over_all_levels() -> None:
    table = noisy()
    for noise in (of(table.collapse("tier")), of(table.keep()), of(table.keep("arm"))):
        assert noise.people.tolist() == [6, 15]
        assert noise.metrics["spend"].sums.tolist() == [12, 30]
        assert noise.metrics["hit"].counts.tolist() == [18, 45]
        assert squares_of(noise) == {("arm",): [7, 8]}
        assert noise.products[("spend", "hit"), ("arm",)].tolist() == [12, 13]
    fine = of(noisy(fine=True).collapse("tier"))
    assert fine.metrics["spend"].squares["arm",].tolist() == [54, 135]
    assert fine.products == {}


def test_of_an_experiment_that_is_collapsed_no_product_by_its_arms_is_left() -> None:
    other = Factor("banner", ("off", "on"), "arm")
    people = cells([10, 20], [30, 40])
    noise = AddedNoise(people, {}, {(("a", "b"), ("arm",)): cells(1, 2), (("a", "b"), ("banner",)): cells(3, 4)})
    table = Tally((ARMS, other), people, noise=noise)
    assert of(table.collapse("banner")).people.tolist() == [30, 70]
    assert {key: c.tolist() for key, c in of(table.collapse("banner")).products.items()} == {
        (("a", "b"), ("arm",)): [1, 2]
    }


def test_adding_adds_variances_and_aligns_levels() -> None:
    table = noisy()
    noise = of(table + table)
    assert noise.people.tolist() == (2 * VARIANCES).tolist()
    assert noise.metrics["spend"].counts is None
    assert noise.metrics["hit"].counts.tolist() == (6 * VARIANCES).tolist()
    assert noise.metrics["spend"].squares["tier",].tolist() == [18, 20, 22]
    assert noise.products[("spend", "hit"), ("arm",)].tolist() == [24, 26]
    assert of(sum([table, table])).people.tolist() == noise.people.tolist()
    fewer = Tally((ARMS, Factor("tier", (1,), "covariate", (1.0,))), cells([5], [6]), noise=AddedNoise(cells([7], [8])))
    whole = Tally((ARMS, TIER), PEOPLE, noise=AddedNoise(VARIANCES))
    assert of(fewer + whole).people.tolist() == [[8, 2, 3], [12, 5, 6]]


def test_squares_stay_only_at_marginals_that_both_have() -> None:
    both = of(noisy() + noisy(fine=True))
    assert both.metrics["spend"].squares.keys() == {("arm",), ("tier",)}
    assert both.metrics["spend"].squares["arm",].tolist() == [7 + 54, 8 + 135]
    assert both.metrics["spend"].squares["tier",].tolist() == [9 + 45, 10 + 63, 11 + 81]
    assert both.products == {}


def test_counts_of_one_tally_alone_are_added_to_the_people_of_the_other() -> None:
    first, second = of(noisy()), of(noisy())
    apart = AddedNoise(second.people, {"hit": MetricNoise(None, second.metrics["hit"].sums)})
    both = AddedNoise(first.people, {"hit": first.metrics["hit"]}).add(apart)
    assert both.metrics["hit"].counts.tolist() == (4 * VARIANCES).tolist()
    assert both.counts_of("hit") is both.metrics["hit"].counts


def test_selecting_metrics_keeps_their_noise_and_products_of_them_all() -> None:
    noise = of(noisy().select_metrics(["spend"]))
    assert [*noise.metrics] == ["spend"]
    assert noise.products == {}
    assert of(noisy().select_metrics(["spend", "hit"])).products.keys() == {(("spend", "hit"), ("arm",))}


def test_selecting_arms_drops_what_other_arms_are_in() -> None:
    noise = of(noisy().select_arms(["B"]))
    assert noise.people.tolist() == [[4, 5, 6]]
    assert squares_of(noise) == {("arm",): [8]}
    assert noise.products[("spend", "hit"), ("arm",)].tolist() == [13]
    pooled = of(noisy().pool_arms({"both": ["A", "B"]}))
    assert pooled.people.tolist() == [[5, 7, 9]]


def on_grid(scale: int) -> Tally:
    part = Moments(Metric("y", scale, (0.0, 1.0), "zero"), PEOPLE, PEOPLE, {("arm",): cells(1, 1)})
    noise = AddedNoise(VARIANCES, {"y": MetricNoise(None, VARIANCES, {("arm",): cells(1, 1)})})
    return Tally((ARMS, TIER), PEOPLE, (part,), (), noise)


EXACT = Tally((ARMS, TIER), np.abs(PEOPLE))
WITH_NOISE = Tally((ARMS, TIER), np.abs(PEOPLE), noise=AddedNoise(VARIANCES))


@pytest.mark.parametrize(
    ("combine", "fact"),
    [
        (lambda: noisy() - noisy(), "numbers with noise cannot be taken out of each other. Add only."),
        (lambda: EXACT + WITH_NOISE, "one of the two tallies has noise"),
        (lambda: WITH_NOISE + EXACT, "one of the two tallies has noise"),
        (lambda: on_grid(10) + on_grid(20), "on different grids"),
    ],
)
def test_numbers_with_noise_are_only_added_and_only_to_their_like(combine: Any, fact: str) -> None:
    with pytest.raises(TallyError, match=fact):
        combine()


def test_plain_data_keep_every_number_of_a_class_that_noise_left_nobody_in() -> None:
    people = cells([0, 1, 2], [0, 4, 5])
    part = Moments(HIT, cells([7, 1, 2], [0, 4, 5]), cells([0, 0, 1], [-6, 2, 2**70]), {})
    table = Tally((ARMS, TIER), people, (part,), (), AddedNoise(VARIANCES, {"hit": MetricNoise(VARIANCES, VARIANCES)}))
    plain = table.to_dict()
    assert len(plain["classes"]) == 6
    assert plain["classes"][5]["sums"]["hit"] == str(2**70)
    assert Tally(*read(plain), table.noise) == table
