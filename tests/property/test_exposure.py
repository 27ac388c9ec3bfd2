"""The theorems behind rules 2 and 3 (T1–T4), by brute force and random search on small designs.

h_i = w_i · a_i (AᵀWA)⁺ a_iᵀ over a design A of people × published columns; T1 is why it bounds every attacker.
"""

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


def values(*groups: list[float]) -> SignatureValues:
    """What is known of signatures whose people are so far off the commonest value."""
    ordered = [[*sorted(map(abs, group), reverse=True), 0.0, 0.0] for group in groups]
    return SignatureValues(
        0,
        np.array([sum(value > 0 for value in group) for group in ordered]),
        np.array([sum(value**2 for value in group) for group in ordered]),
        np.array([group[0] for group in ordered]),
        np.array([group[1] for group in ordered]),
    )


def most(columns: list[list[int]], people: SignatureValues, squared: list[list[int]] | None = None) -> float:
    return float(excess([np.array(c) for c in columns], [np.array(c) for c in squared or []], people).max())


def test_somebody_who_knows_the_second_largest_value_learns_nothing_of_the_largest() -> None:
    # 500, 400 and 1: whoever paid 400 sees 501 for the other two.
    assert most([[0]], values([500, 400, 1])) > 1
    assert most([[0]], values([500, 400, 60])) <= 1


def test_people_whom_nothing_published_tells_apart_are_asked_together_however_fine_signatures_are() -> None:
    apart = values([500], [400], [1], [300, 200, 100])
    assert most([[0, 0, 0, 1]], apart) == most([[0, 1]], values([500, 400, 1], [300, 200, 100])) > 1
    assert most([[0, 0, 0, 0], [0, 0, 0, 1]], apart) > 1


def test_of_published_squares_one_person_is_not_the_root() -> None:
    people = values([9_000, *[50.0] * 1_000])  # √(9,000² + 1,000 · 50²) is 9,138
    assert most([[0]], people) > 1
    ordinary = values([100, *[40.0] * 100])
    assert most([[0]], ordinary, [[0]]) <= 1
    assert most([[0]], values([100, 30, 25]), [[0]]) > 1  # 10,000 of 11,525: the root is 107.4
    assert most([[0]], values([100, 30, 25])) <= 1


def test_what_was_released_before_does_not_forbid_what_adds_nothing() -> None:
    before = np.array([2.0, 0.5])
    assert within(np.array([2.0, 0.9]), before)
    assert not within(np.array([2.1, 0.9]), before)
    assert not within(np.array([2.0, 1.1]), before)


def test_a_lone_buyer_of_five_cents_among_large_sums_is_no_rounding_error() -> None:
    rng = np.random.default_rng(3)
    groups = [[*rng.lognormal(8, 1, 2_000)] for _ in range(6)]
    first, second = [0, 0, 0, 1, 1, 1, 0], [0, 1, 2, 0, 1, 2, 3]
    people = values(*groups, [0.05])
    assert most([first, second], people) == pytest.approx(3)
