"""Exact integers to floats: classes, spreads and least squares."""

from fractions import Fraction

import numpy as np
import pytest

from kanab import Metric, count_columns
from kanab.stats.gram import classes_of, difference_of_fits, independent, solve


def four(y, *, scale=1, squares="marginals"):
    rows = {"arm": list("AABB"), "tier": [1, 2, 1, 1], "y": y}
    return count_columns(rows, arm="arm", covariates=["tier"], metrics={"y": Metric("y", scale)}, squares=squares)


def test_independent_sees_through_very_uneven_weights():
    design = np.array([[1.0, 1, 0], [1, 0, 1], [1, 0, 0]])
    assert independent(design, np.array([1e12, 1.0, 1e12])).tolist() == [True, True, True]


def test_coefficients_of_fractional_scores_are_right_to_the_last_digit():
    classes = classes_of(four([10, 20, 30, 41]))
    design = np.column_stack([np.ones(3), [0.1, 2.5, 1 / 3]])
    x, n = [Fraction(score) for score in (0.1, 2.5, 1 / 3)], [1, 1, 2]
    y = [Fraction(10), Fraction(20), Fraction(71, 2)]
    mean_x, mean_y = (sum(w * v for w, v in zip(n, values, strict=True)) / 4 for values in (x, y))
    slope = sum(w * (a - mean_x) * (b - mean_y) for w, a, b in zip(n, x, y, strict=True))
    slope /= sum(w * (a - mean_x) ** 2 for w, a in zip(n, x, strict=True))
    solution = solve(design, classes.n, classes, ("Intercept", "x"))
    assert float(solution.exact[1]) == float(slope)
    assert float(solution.exact[0] + classes.centre) == float(mean_y - slope * mean_x)
    left = [float(b - mean_y - slope * (a - mean_x)) for a, b in zip(x, y, strict=True)]
    assert solution.residuals.tolist() == pytest.approx(left, rel=1e-15)


def test_a_large_near_design_is_solved_in_floats_and_a_far_one_is_refined():
    rng = np.random.default_rng(4)
    people = {"arm": rng.choice(["A", "B"], 9_000), "x": rng.integers(0, 90, 9_000)}
    for height, refined in ((1, False), (10**9, True)):
        people["y"] = people["x"] * height + rng.integers(0, 400, 9_000)
        tally = count_columns(people, arm="arm", covariates=["x"], metrics=["y"], squares="arm")
        classes = classes_of(tally)
        within = classes.within(int(tally.squares().sum()))
        design = np.column_stack([np.ones(180), classes.places[:, 0], classes.places[:, 1]]).astype(float)
        solution = solve(design, classes.n, classes, ("Intercept", "arm", "x"), within)
        assert solution.refined is refined
        assert np.abs(design.T @ (classes.n * solution.residuals)).max() < 1e-6
        flat = solve(design[:, :1], classes.n, classes, ("Intercept",), within)
        gained = difference_of_fits((design, solution), (design[:, :1], flat), classes.n)
        assert gained == pytest.approx(flat.residuals - solution.residuals, rel=1e-9, abs=1e-6 * height)
