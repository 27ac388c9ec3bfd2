"""The leverage rule with numbers: what outliers cost, what rounding may not hide, and that it is quick."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from kanab.counted import SignatureNumbers
from kanab.privacy.numbers.design import NumberDesign, Weighted

Floats = NDArray[np.float64]


def by_signature(cells: NDArray[np.int64], x: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64], SignatureNumbers]:
    """Add up people, a row each, by the classes that they are in."""
    signatures, places, people = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    places, shape = places.ravel(), (len(signatures), x.shape[1])
    low, high, sums, products = np.full(shape, np.inf), np.full(shape, -np.inf), np.zeros(shape), np.zeros((*shape, 2))
    np.minimum.at(low, places, x)
    np.maximum.at(high, places, x)
    np.add.at(sums, places, x)
    np.add.at(products, places, x[:, :, None] * x[:, None, :])
    return signatures, people, SignatureNumbers(("x", "z"), low, high, sums, products)


def effective_k(x: Floats, z: Floats | None = None, arms: int = 2) -> float:
    """Among how many people everyone hides in ``arms`` arms by turns, with x, and z if it is given."""
    cells = (np.arange(len(x)) % arms)[:, None]
    signatures, people, numbers = by_signature(cells, np.column_stack([x, x if z is None else z]))
    columns = [
        Weighted(name, signatures[:, 0] == arm) for name in ("x", "z")[: 1 + (z is not None)] for arm in range(arms)
    ]
    return NumberDesign.of(signatures, people, numbers, columns).leverage([True] * len(columns)).effective_k


@pytest.mark.parametrize("size", [1.0, 1e6, 2.0**50])
def test_one_person_who_is_a_step_off_is_no_rounding_error(size: float) -> None:
    x = np.full(200, size)
    x[7] += 1
    assert effective_k(x) == pytest.approx(1)


def test_a_corner_where_nobody_can_be_does_not_count_where_people_are_told_apart_by_classes() -> None:
    tier = np.repeat(np.arange(4), 50)
    spend = np.tile([0.0, 0, 0, 0, 0, 0, 0, 0, 0, 10], 20) + tier
    columns = np.column_stack([spend, spend * 2 + np.random.default_rng(0).integers(0, 2, 200)])
    cells = np.column_stack([np.arange(200) % 2, np.arange(200) // 4])
    signatures, people, numbers = by_signature(cells, columns)
    weighted = [Weighted(name, signatures[:, 0] == arm) for name in "xz" for arm in range(2)]
    h = 0.0
    for arm in range(2):
        mine = np.column_stack([np.ones(100), columns[cells[:, 0] == arm]])
        h = max(h, float(np.einsum("ij,ij->i", mine @ np.linalg.inv(mine.T @ mine), mine).max()))
    # Signatures hold two people each, so that squares say where they stand; by corners alone nobody would hide.
    result = NumberDesign.of(signatures[:, :1], people, numbers, weighted).leverage([True] * 4)
    assert 0.85 / h < result.effective_k < 1 / h


def test_nobody_is_nobody() -> None:
    numbers = SignatureNumbers(("x",), *(np.zeros((1, 1)) for _ in range(3)), np.zeros((1, 1, 1)))
    design = NumberDesign.of(np.array([[0]]), np.array([0]), numbers, [Weighted("x", np.array([True]))])
    assert design.leverage([True]).effective_k == float("inf")
