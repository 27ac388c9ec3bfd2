"""The leverage rule with numbers against brute force over people: no wrong pass, and right where a corner is real."""

from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kanab.counted import SignatureNumbers
from kanab.privacy.numbers import design as module
from kanab.privacy.numbers.design import NumberDesign, Weighted

SOME = settings(max_examples=60, deadline=None, database=None)
Floats = NDArray[np.float64]


class People(NamedTuple):
    """The arm and two covariates of everybody, and their numbers."""

    classes: NDArray[np.int64]
    numbers: Floats


class Signed(NamedTuple):
    """The same people by signature, and the signature of everybody."""

    cells: NDArray[np.int64]
    people: NDArray[np.int64]
    numbers: SignatureNumbers
    signature: NDArray[np.int64]

    def columns(self) -> list[Weighted]:
        """Every number by arm; of everybody whose second covariate is not missing."""
        there = self.cells[:, 2] >= 0
        arms = [self.cells[:, 0] == arm for arm in np.unique(self.cells[:, 0])]
        return [Weighted(name, rows & there) for name in self.numbers.names for rows in arms]


@st.composite
def everybody(draw: st.DrawFn, most_numbers: int = 2, largest: float = 1e9) -> People:
    """Some people in one to three arms; a number may follow from a class, from another number, or have an outlier."""
    size, arms = draw(st.integers(4, 40)), draw(st.integers(1, 3))
    labels = [draw(st.lists(st.integers(low, high), min_size=size, max_size=size)) for low, high in ((0, 2), (-1, 1))]
    arm = np.array(draw(st.lists(st.integers(0, arms - 1), min_size=size, max_size=size)))
    first, second = map(np.array, labels)
    classes = np.column_stack([arm, arm * 10 + first, np.where(second < 0, -1, arm * 10 + second)])
    columns: list[Floats] = []
    for _ in range(draw(st.integers(1, most_numbers))):
        kind = draw(st.sampled_from(["any", "of a class", "copy", "large"]))
        values = np.array(draw(st.lists(st.integers(-50, 50), min_size=size, max_size=size)), dtype=float)
        if kind == "of a class":
            values = first * 7.0
        elif kind == "copy" and columns:
            values = 2 * columns[0]
        elif kind == "large":
            values += draw(st.sampled_from([1e4, largest]))
        if draw(st.booleans()):
            values[draw(st.integers(0, size - 1))] += draw(st.integers(1, 10_000))
        columns.append(values)
    return People(classes, np.column_stack(columns))


def signed(people: People) -> Signed:
    cells, signature, counts = np.unique(people.classes, axis=0, return_inverse=True, return_counts=True)
    places, x = signature.ravel(), people.numbers
    low, high = np.full((len(cells), x.shape[1]), np.inf), np.full((len(cells), x.shape[1]), -np.inf)
    np.minimum.at(low, places, x)
    np.maximum.at(high, places, x)
    sums, products = np.zeros_like(low), np.zeros((*low.shape, x.shape[1]))
    np.add.at(sums, places, x)
    np.add.at(products, places, x[:, :, None] * x[:, None, :])
    names = tuple(f"x{place}" for place in range(x.shape[1]))
    return Signed(cells, counts, SignatureNumbers(names, low, high, sums, products), places)


def design_of(known: Signed) -> NumberDesign:
    return NumberDesign.of(known.cells, known.people, known.numbers, known.columns())


def by_brute_force(people: People, known: Signed) -> Floats:
    """The leverage of everybody, from their rows: marks of classes, and numbers in the columns of arms."""
    marks = [
        people.classes[:, table] == label
        for table in range(people.classes.shape[1])
        for label in np.unique(people.classes[:, table])
        if label >= 0
    ]
    inside = np.column_stack([column.rows[known.signature] for column in known.columns()])
    places = [known.numbers.names.index(column.number) for column in known.columns()]
    classes = np.column_stack([*marks, inside]).astype(float)
    # Without what classes explain, so that large numbers do not drown their own differences.
    weighted = np.where(inside, people.numbers[:, places] - np.median(people.numbers, axis=0)[places], 0)
    left = weighted - classes @ np.linalg.lstsq(classes, weighted, rcond=1e-10)[0]
    left = left[:, np.linalg.norm(left, axis=0) > 1e-6 * max(1.0, float(np.abs(weighted).max()))]
    both = np.column_stack([classes, left / np.linalg.norm(left, axis=0)])
    hat = np.asarray(both @ np.linalg.pinv(both.T @ both, rcond=1e-9, hermitian=True) @ both.T)
    return np.diag(hat)


@SOME
@given(everybody())
def test_nobody_hides_among_fewer_people_than_the_design_says(people: People) -> None:
    known = signed(people)
    design = design_of(known)
    every = [True] * len(design.columns)
    assert design.leverage(every).effective_k <= (1 + 1e-6) / by_brute_force(people, known).max()


@SOME
@given(everybody(most_numbers=1, largest=1e4))
def test_with_one_number_the_most_exposed_person_is_real(people: People) -> None:
    known = signed(people)
    result = design_of(known).leverage([True] * len(known.columns()))
    true = 1 / by_brute_force(people, known).max()
    # Where rounding cannot be told from a person, nobody hides.
    assert result.effective_k == 1 or abs(result.effective_k - true) <= 1e-5 * true


@SOME
@given(everybody(most_numbers=4))
def test_more_corners_than_are_tried_are_bounded_from_above(people: People) -> None:
    known = signed(people)
    design = design_of(known)
    every = [True] * len(design.columns)
    exact = design.leverage(every).effective_k
    with patch.object(module, "MOST_CORNERS", 1):
        assert design.leverage(every).effective_k <= exact * (1 + 1e-9)


@pytest.mark.parametrize("size", [1.0, 1e6, 2.0**50])
def test_one_person_who_is_a_step_off_is_no_rounding_error(size: float) -> None:
    x = np.full((200, 1), size)
    x[7] += 1
    known = signed(People(np.repeat(np.arange(200)[:, None] % 2, 3, axis=1), x))
    assert design_of(known).leverage([True] * 2).effective_k == pytest.approx(1)


def test_a_corner_where_nobody_can_be_does_not_count_where_people_are_told_apart_by_classes() -> None:
    tier = np.repeat(np.arange(4), 50)
    spend = np.tile([0.0, 0, 0, 0, 0, 0, 0, 0, 0, 10], 20) + tier
    numbers = np.column_stack([spend, spend * 2 + np.random.default_rng(0).integers(0, 2, 200)])
    arm, place = np.arange(200) % 2, np.arange(200) // 4
    known = signed(People(np.column_stack([arm, place, place]), numbers))
    h = 0.0
    for side in range(2):
        mine = np.column_stack([np.ones(100), numbers[arm == side]])
        h = max(h, float(np.einsum("ij,ij->i", mine @ np.linalg.inv(mine.T @ mine), mine).max()))
    # Signatures hold two people each, so that squares say where they stand; by corners alone nobody would hide.
    design = NumberDesign.of(known.cells[:, :1], known.people, known.numbers, known.columns())
    assert 0.85 / h < design.leverage([True] * 4).effective_k < 1 / h


def test_nobody_is_nobody() -> None:
    numbers = SignatureNumbers(("x",), *(np.zeros((1, 1)) for _ in range(3)), np.zeros((1, 1, 1)))
    design = NumberDesign.of(np.array([[0]]), np.array([0]), numbers, [Weighted("x", np.array([True]))])
    assert design.leverage([True]).effective_k == float("inf")
