from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import kanab as kb
from kanab.privacy.audit import (
    class_squares,
    most_squares,
)
from kanab.tally.moments import Moments, least_squares

AXES = ("arm", "level")


def cells(values: object) -> np.ndarray:
    return np.array(values, dtype=object)


def moments(n: object, s: object, squares: dict[tuple[str, ...], object]) -> Moments:
    return Moments(kb.Metric("y", 100), cells(n), cells(s), {by: cells(q) for by, q in squares.items()})


@pytest.mark.parametrize("bounds", [(0, 4), (-2, 3)])
def test_greatest_squares_are_those_of_brute_force(bounds) -> None:
    low, high = bounds
    for n in range(1, 5):
        found: dict[int, int] = {}
        for y in itertools.combinations_with_replacement(range(low, high + 1), n):
            found[sum(y)] = max(found.get(sum(y), 0), sum(value**2 for value in y))
        assert found == {s: most_squares(n, s, low, high) for s in found}


def test_where_all_other_classes_are_empty_handed_a_margin_says_as_much_as_the_class() -> None:
    part = moments([[3, 3, 3]], [[217, 0, 0]], {("arm",): [47089]})
    least, most = class_squares(part, AXES, 0, 10_000)
    assert least.tolist() == most.tolist() == [[47089, 0, 0]]


@pytest.mark.parametrize("seed", range(30))
def test_two_marginals_of_a_two_arm_table_leave_what_linear_programming_leaves(seed) -> None:
    rng = np.random.default_rng(seed)
    y = np.where(rng.random((2, 4, 5)) < 0.4, rng.integers(0, 30, (2, 4, 5)), 0)
    n, s, q = np.full((2, 4), 5), y.sum(axis=2), (y**2).sum(axis=2)
    part = moments(n.tolist(), s.tolist(), {("arm",): q.sum(axis=1).tolist(), ("level",): q.sum(axis=0).tolist()})
    least, most = class_squares(part, AXES, 0, 30)
    box = [*zip(least_squares(part.counts, part.sums).ravel(), most_squares(5, part.sums, 0, 30).ravel(), strict=True)]
    rows = [np.kron(np.eye(2), np.ones(4)), np.kron(np.ones(2), np.eye(4))]
    totals = np.concatenate([q.sum(axis=1), q.sum(axis=0)])
    for place in range(8):
        goal = np.eye(8)[place]
        ends = [
            sign * linprog(sign * goal, A_eq=np.vstack(rows), b_eq=totals, bounds=box, method="highs").fun
            for sign in (1, -1)
        ]
        assert ends == pytest.approx([least.flat[place], most.flat[place]], abs=1e-6)


def test_squares_of_a_0_1_metric_are_its_sums() -> None:
    part = Moments(kb.Metric("y", 1, (0, 1)), cells([[3, 2]]), cells([[2, 0]]), {})
    least, most = class_squares(part, AXES, 0, 1)
    assert least.tolist() == most.tolist() == [[2, 0]]
