"""The theorems behind rules 2 and 3 (T1–T4), by brute force and random search on small designs.

h_i = w_i · a_i (AᵀWA)⁺ a_iᵀ over a design A of people × published columns; T1 is why it bounds every attacker.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from kanab.counted import SignatureValues
from kanab.privacy.exposure import LEAST_CONTRIBUTORS, MOST_DOMINANCE, excess, within

Floats = NDArray[np.float64]
seeds = st.integers(0, 10**6)


def design(rng: np.random.Generator, people: int, *, products: bool = False) -> Floats:
    """0/1 columns of one to three tables, and perhaps products with a number within an arm."""
    arm = rng.integers(0, 2, people)
    columns = [arm == side for side in (0, 1)]
    for _ in range(int(rng.integers(1, 4))):
        levels = rng.integers(0, int(rng.integers(2, 4)), people)
        columns += [(arm == side) & (levels == level) for side in (0, 1) for level in np.unique(levels)]
    if products:
        number = rng.gamma(1.5, 20, people)
        columns += [np.where(arm == side, number, 0) for side in (0, 1)]
    matrix = np.stack(columns, axis=1).astype(float)
    return np.asarray(matrix[:, (matrix != 0).any(axis=0)])


def leverages(a: Floats, w: Floats) -> Floats:
    gram = a.T @ (w[:, None] * a)
    return np.asarray(w * np.einsum("ij,jk,ik->i", a, np.linalg.pinv(gram, rcond=1e-10, hermitian=True), a))


@given(seeds, st.integers(6, 24))
@settings(max_examples=60)
def test_t2_whoever_knows_c_people_leaves_at_least_m_minus_c(seed: int, people: int) -> None:
    rng = np.random.default_rng(seed)
    a = design(rng, people)
    h = leverages(a, np.ones(people))
    m = 1 / h.max()
    for c in range(1, min(int(m), 4)):
        known = rng.choice(people, c, replace=False)
        rest = np.delete(a, known, axis=0)
        assert 1 / leverages(rest, np.ones(len(rest))).max() >= m - c - 1e-6
    i, j = rng.choice(people, 2, replace=False)
    if h[j] < 1 - 1e-9:
        after = leverages(np.delete(a, j, axis=0), np.ones(people - 1))[i - (i > j)]
        assert after <= h[i] / (1 - h[j]) + 1e-9


@given(seeds, st.integers(5, 14))
@settings(max_examples=80)
def test_t3_where_dominance_holds_every_bound_on_a_value_is_at_least_a_third_off(seed: int, people: int) -> None:
    rng = np.random.default_rng(seed)
    a = design(rng, people)
    y = (rng.random(people) < 0.7) * rng.gamma(1, 30, people)
    h = leverages(a, y**2)
    for person in np.flatnonzero((h <= MOST_DOMINANCE) & (y > 0)):
        c = np.zeros(people)
        c[person] = 1
        low, high = (linprog(sign * c, A_eq=a.T, b_eq=a.T @ y, bounds=(0, None)) for sign in (1, -1))
        assert low.fun <= 0.67 * y[person]
        assert -high.fun >= 1.33 * y[person]


def told(rows: Floats, most: int) -> bool:
    """Whether some combination of columns is about at least one and at most so many of these rows, by brute force."""
    for few in range(1, most + 1):
        for chosen in combinations(range(len(rows)), few):
            others = np.delete(rows, chosen, axis=0)
            rank = np.linalg.matrix_rank(others) if len(others) else 0
            if np.linalg.matrix_rank(rows) > rank:  # some v is 0 for all others, and not for these
                return True
    return False


@given(seeds, st.integers(5, 12))
@settings(max_examples=150)
def test_what_the_rule_lets_pass_is_about_three_people_and_mostly_nobodys(seed: int, people: int) -> None:
    """`excess` itself, on signatures of one person each, against brute force and the plain hat matrix."""
    rng = np.random.default_rng(seed)
    a = design(rng, people)
    cells = [np.where(column > 0, 0, -1).astype(np.int64) for column in a.T]
    y = (rng.random(people) < 0.7) * np.round(rng.gamma(1, 30, people), 2)
    values = SignatureValues(0, (y > 0).astype(np.int64), y**2, y, np.zeros(people))
    beyond = excess(cells, [], values)
    if (y > 0).any():
        most = leverages(a[y > 0], y[y > 0] ** 2).max()
        fewest = 1 / leverages(a[y > 0], np.ones(int((y > 0).sum()))).max()
        assert beyond.max() == pytest.approx(max(LEAST_CONTRIBUTORS / fewest, most / MOST_DOMINANCE, most / 0.99))
    if within(beyond):
        assert not told(a[y > 0], LEAST_CONTRIBUTORS - 1)
