"""Variances of cells: by class, by arm, and from two margins."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.stats.noisy_tables import shop, stated_noise

from kanab import Metric, count_columns
from kanab.stats.ftest import _newton, by_arm, by_class, cell_spread, two_marginals, two_way
from kanab.stats.gram import arm_squares, classes_of

CELLS = {
    ("A", 1): [1, 2, 4, 7],
    ("A", 2): [0, 0, 1, 5, 9, 3],
    ("B", 1): [20, 40, 10],
    ("B", 2): [-7, 3, 12, 1, 0],
}
STILL = "nothing varies in a class, an arm or a level"
ALONE = "a class, an arm or a level has too few people"


def classes_and(cells, *by):
    rows = {
        "arm": [arm for (arm, _), values in cells.items() for _ in values],
        "tier": [tier for (_, tier), values in cells.items() for _ in values],
        "y": [value for values in cells.values() for value in values],
    }
    tally = count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y")}, squares="class")
    return classes_of(tally), *(arm_squares(tally, None, margin) for margin in by)


def inside(cells, side):
    """Σ (y − cell mean)² over the cells of one arm or one tier."""
    return sum(float(np.var(values) * len(values)) for key, values in cells.items() if side in key)


def test_two_marginals_fit_both_margins_with_one_factor_each():
    classes, rows, columns = classes_and(CELLS, ("arm",), ("tier",))
    spread = two_marginals(classes, rows, columns)
    fitted = (spread.variances * spread.df).reshape(2, 2)
    assert fitted.sum(axis=1) == pytest.approx([inside(CELLS, arm) for arm in "AB"], rel=1e-12)
    assert fitted.sum(axis=0) == pytest.approx([inside(CELLS, tier) for tier in (1, 2)], rel=1e-12)
    (a, b), (c, d) = spread.variances.reshape(2, 2)
    assert a * d == pytest.approx(b * c, rel=1e-12)
    assert spread.df.tolist() == [3, 5, 2, 4]


def test_two_marginals_reach_their_one_solution_when_arms_and_levels_nearly_coincide():
    n = 100_002
    cells = {("A", 1): [-1, 1] * (n // 2), ("A", 2): [0, 3], ("B", 1): [0, 10], ("B", 2): [-1, 1] * (n // 2)}
    spread = two_marginals(*classes_and(cells, ("arm",), ("tier",)))
    # With 2 × 2 classes the fitted squares follow from one of them, x, and (a·d)/(b·c) = 1 is quadratic in x.
    a, d, freedom = inside(cells, "A"), inside(cells, 2), float(n - 1) ** 2
    shift = inside(cells, 1) - a
    roots = np.roots([freedom - 1, freedom * shift + a + d, -a * d])
    x = roots[(roots > 0) & (roots < min(a, d))].item()
    assert spread.problem or spread.variances == pytest.approx(
        [(a - x) / (n - 1), x, shift + x, (d - x) / (n - 1)], rel=1e-6
    )


def test_newtons_method_reaches_the_margins_and_gives_up_after_a_hundred_steps():
    place = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    freedom, squares = np.array([3.0, 5, 2, 4]), (np.array([20.0, 300]), np.array([120.0, 200]))

    def misses(start):
        u, v = _newton((place[0], squares[0], np.full(2, start)), (place[1], squares[1], np.ones(2)), freedom)
        fitted = freedom * u[place[0]] * v[place[1]]
        sums = [np.bincount(where, weights=fitted) for where in place]
        return max(float(np.max(np.abs(found / wanted - 1))) for found, wanted in zip(sums, squares, strict=True))

    assert misses(1.0) < 1e-13
    assert misses(1e200) > 1  # a step shrinks both factors e-fold at most: far too few of them


def test_a_class_of_one_person_is_a_problem_by_class_and_in_the_margins():
    cells = CELLS | {("A", 1): [5]}
    classes, fine, rows, columns = classes_and(cells, ("arm", "tier"), ("arm",), ("tier",))
    assert by_class(classes, fine).problem == ALONE
    assert two_marginals(classes, rows, columns).problem == ALONE
    assert by_arm(classes, rows).problem == ""


def test_a_still_arm_or_level_is_a_problem_of_the_margins():
    arm = CELLS | {("A", 1): [5, 5, 5], ("A", 2): [6, 6]}
    level = CELLS | {("A", 1): [5, 5, 5], ("B", 1): [6, 6]}
    for cells in (arm, level):
        classes, rows, columns = classes_and(cells, ("arm",), ("tier",))
        assert two_marginals(classes, rows, columns).problem == STILL
    classes, rows = classes_and(arm, ("arm",))
    assert by_arm(classes, rows).problem == STILL


def spread_of(table, metric, variance):
    return cell_spread(two_way(table, "tier", metric), variance)


def test_squares_below_nothing_leave_the_noise_alone():
    exact = shop(4_000, np.random.default_rng(5))
    part = exact.moments_of("spend")
    none = {by: cells - cells for by, cells in part.squares.items()}
    table = replace(exact, moments=(replace(part, squares=none),), noise=stated_noise(exact))
    spread = spread_of(table, "spend", "two_marginals")
    assert spread.variances.tolist() == [0, 0]
    assert (spread.group.tolist(), spread.problem) == ([0, 0, 0, 1, 1, 1], "")
    n = two_way(table, "tier", "spend").classes.n
    np.testing.assert_allclose(spread.of_people(n), n * spread.noise)
    assert spread.estimated(n).tolist() == [0] * 6


def test_squares_that_noise_hides_are_too_noisy_to_tell():
    exact = shop(4_000, np.random.default_rng(5))
    noise = stated_noise(exact)
    own = noise.metrics["spend"]
    loud = replace(own, squares={by: cells * 1e6 for by, cells in own.squares.items()})
    table = replace(exact, noise=replace(noise, metrics={**noise.metrics, "spend": loud}))
    assert spread_of(table, "spend", "by_arm").problem == "too noisy to tell"
