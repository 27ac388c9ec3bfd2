from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from kanab.privacy.pinned_totals import Work, all_free, pin_totals


def brute_force(cells: np.ndarray, most: np.ndarray, sums: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Enumerate all whole solutions; return the least and the greatest total of every unknown."""
    every = np.indices(most + 1).reshape(len(most), -1).T
    fits = np.ones(len(every), dtype=bool)
    for column, table in zip(cells.T, sums, strict=True):
        for place, total in enumerate(table.tolist()):
            fits &= every[:, column == place].sum(axis=1) == total
    return every[fits].min(axis=0), every[fits].max(axis=0)


def design(
    seed: int, people: int, tables: int, span: int, rate: float
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """People in classes of some tables, a few of them outside, and their values added up."""
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, rng.integers(2, 4, tables), (people, tables))
    classes[rng.random(classes.shape) < 0.05] = -1
    values = rng.binomial(span, rate, people)
    cells, inverse = np.unique(classes, axis=0, return_inverse=True)
    most = np.bincount(inverse.ravel()) * span
    sums = [np.bincount(column[column >= 0], values[column >= 0], 3).astype(np.int64) for column in classes.T]
    return cells, most, sums


@given(
    st.integers(0, 10**6), st.integers(3, 11), st.integers(1, 4), st.integers(1, 2), st.sampled_from([0.1, 0.5, 0.9])
)
@settings(max_examples=300, deadline=None)
@pytest.mark.slow
def test_what_is_pinned_is_what_all_whole_solutions_have_in_common(
    seed: int, people: int, tables: int, span: int, rate: float
) -> None:
    cells, most, sums = design(seed, people, tables, span, rate)
    if np.prod(most + 1.0) > 60_000:
        return
    low, high = brute_force(cells, most, sums)
    solved = pin_totals(cells, most, sums)
    assert not solved.unsettled.any()
    assert np.array_equal(solved.pinned, low == high)
    assert np.array_equal(solved.totals[solved.pinned], low[solved.pinned])


def test_totals_that_only_whole_numbers_pin_are_found() -> None:
    cells = np.array([[0, 1, 1, 0], [0, 2, 1, 0], [0, 2, 1, 1], [1, 1, 1, 1], [1, 2, 1, 0]])
    most, sums = np.array([1, 1, 1, 1, 2]), [np.array([1, 2]), np.array([0, 1, 2]), np.array([0, 3]), np.array([2, 1])]
    assert not pin_totals(cells, most, sums, work=Work(certain=-np.inf)).pinned.any()
    solved = pin_totals(cells, most, sums)
    low, high = brute_force(cells, most, sums)
    assert solved.pinned.all()
    assert solved.totals.tolist() == low.tolist() == high.tolist() == [0, 1, 0, 1, 1]


def test_large_ordinary_systems_need_no_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scipy.optimize, "linprog", None)
    monkeypatch.setattr(scipy.optimize, "milp", None)
    rng = np.random.default_rng(1)
    classes = rng.integers(0, 6, (20_000, 6))
    values = (rng.random(20_000) < 0.02 + 0.1 * classes[:, 0]).astype(np.int64)
    cells, inverse = np.unique(classes, axis=0, return_inverse=True)
    sums = [np.bincount(column, values, 6).astype(np.int64) for column in classes.T]
    solved = pin_totals(cells, np.bincount(inverse.ravel()), sums)
    assert not solved.pinned.any()
    assert not solved.unsettled.any()


def test_what_is_too_much_work_is_not_settled_and_not_pinned() -> None:
    cells, most, sums = design(3, 11, 3, 1, 0.5)
    for work in (Work(classes=2), Work(whole=1), Work(unknowns=0, whole=0)):
        solved = pin_totals(cells, most, sums, work=work)
        exact = pin_totals(cells, most, sums)
        assert solved.unsettled.any()
        assert not (solved.pinned & ~exact.pinned).any()


def test_sums_that_nothing_fits_settle_nothing() -> None:
    solved = pin_totals(np.array([[0], [0]]), np.array([1, 1]), [np.array([5])])
    assert solved.unsettled.all()


def test_everybody_is_free_where_some_real_solution_is_inside_all_bounds() -> None:
    cells = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    most = np.ones(4, dtype=np.int64)
    assert all_free(cells, most, [np.array([1.0, 0.5]), np.array([1.0, 0.5])])
    assert not all_free(cells, most, [np.array([2.0, 1.0]), np.array([2.0, 1.0])])
    assert not all_free(cells, most, [np.array([0.0, 1.0]), np.array([0.5, 0.5])])
