"""The leverage rule against brute force in fractions: never a wrong pass, whatever the tables are."""

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kanab.privacy import exact_rank
from kanab.privacy import leverage as module
from kanab.privacy.leverage import SLACK, Leverage, holds, leverage, leverages

Row = list[Fraction]
MANY = settings(max_examples=500, deadline=None, database=None)
SOME = settings(max_examples=100, deadline=None, database=None)


class Design(NamedTuple):
    """Signatures, and how many people have each."""

    cells: NDArray[np.int64]
    people: NDArray[np.int64]


@st.composite
def designs(draw: st.DrawFn, largest: int = 30) -> Design:
    """One to four tables, beside them coarser, copied and almost copied ones; some people are not in all."""
    rows, tables = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    label = st.integers(draw(st.sampled_from([-1, 0])), draw(st.integers(0, 3)))
    cells = np.array(draw(st.lists(label, min_size=rows * tables, max_size=rows * tables))).reshape(rows, tables)
    for kind in draw(st.lists(st.sampled_from(["coarser", "copy", "almost"]), max_size=2)):
        column = cells[:, draw(st.integers(0, tables - 1))].copy()
        if kind == "coarser":
            column = np.where(column >= 0, column // 2, -1)
        elif kind == "almost":
            column[draw(st.integers(0, rows - 1))] = draw(label)
        cells = np.column_stack([cells, column])
    count = st.integers(1, 30) | st.integers(1, largest)
    people = draw(st.lists(count, min_size=rows, max_size=rows))
    return Design(cells.astype(np.int64), np.array(people, dtype=np.int64))


def indicators(cells: NDArray[np.int64]) -> list[list[int]]:
    classes = sorted({(table, int(label)) for row in cells for table, label in enumerate(row) if label >= 0})
    return [[int(row[table] == label) for table, label in classes] for row in cells]


def gram(x: list[list[int]], people: NDArray[np.int64]) -> list[Row]:
    size = range(len(x[0]))
    return [
        [Fraction(sum(int(n) * row[i] * row[j] for row, n in zip(x, people, strict=True))) for j in size] for i in size
    ]


def solutions(matrix: list[Row], rights: list[list[int]]) -> list[Row]:
    """A solution v of matrix · v = right for each right-hand side in its range, in fractions."""
    size = len(matrix)
    table = [row + [Fraction(right[i]) for right in rights] for i, row in enumerate(matrix)]
    kept = []
    for column in range(size):
        pivot = table[column][column]
        if not pivot:
            continue  # the matrix is that of a sum of squares: with the pivot the row is nothing
        kept.append(column)
        table[column] = [value / pivot for value in table[column]]
        for line in range(size):
            factor = table[line][column]
            if line != column and factor:
                table[line] = [a - factor * b for a, b in zip(table[line], table[column], strict=True)]
    return [
        [table[column][size + number] if column in kept else Fraction(0) for column in range(size)]
        for number in range(len(rights))
    ]


def best(design: Design) -> tuple[list[list[int]], list[Row]]:
    """The 0/1 matrix, and for every signature the combination of classes that puts the most weight on it."""
    x = indicators(design.cells)
    return x, solutions(gram(x, design.people), x)


def dot(x: list[int], v: Row) -> Fraction:
    return sum((a * b for a, b in zip(x, v, strict=True)), Fraction(0))


def brute_force(design: Design) -> list[Fraction]:
    x, combinations = best(design)
    return [dot(row, v) for row, v in zip(x, combinations, strict=True)]


def share(x: list[list[int]], people: NDArray[np.int64], v: Row, who: int) -> Fraction:
    """The share of the squared weight of a combination v that rests on one person of a signature."""
    weight = [dot(row, v) for row in x]
    total = sum((int(n) * one**2 for n, one in zip(people, weight, strict=True)), Fraction(0))
    return weight[who] ** 2 / total if total else Fraction(0)


def assert_never_above(design: Design, exact: list[Fraction]) -> Leverage:
    """Effective k is not above the truth, and no k passes that does not hold."""
    worst = max(exact)
    found = leverage(design.cells, design.people)
    if worst == 0:
        assert found == Leverage(np.inf, -1)
        return found
    assert found.effective_k <= float(1 / worst) * (1 + SLACK)
    for k in range(2, 12):
        assert not holds(found, k) or 1 / worst >= k * (1 - 3 * Fraction(SLACK))
    return found


def assert_right(design: Design, exact: list[Fraction]) -> None:
    found = assert_never_above(design, exact)
    assert found.worst == -1 or float(exact[found.worst]) == pytest.approx(float(max(exact)), rel=SLACK)
    assert leverages(design.cells, design.people) == pytest.approx([float(h) for h in exact], rel=SLACK, abs=0)


@contextmanager
def settled(**values: object) -> Iterator[None]:
    """Constants of the two modules, changed for a while."""
    where = {name: module if hasattr(module, name) else exact_rank for name in values}
    patches = [patch.object(where[name], name, value) for name, value in values.items()]
    try:
        for one in patches:
            one.start()
        yield
    finally:
        for one in patches:
            one.stop()


@pytest.mark.slow
@MANY
@given(designs())
def test_leverages_are_those_of_brute_force(design: Design) -> None:
    assert_right(design, brute_force(design))


@pytest.mark.slow
@SOME
@given(designs(largest=10**9))
def test_one_person_beside_a_thousand_millions_is_seen(design: Design) -> None:
    exact = brute_force(design)
    found = assert_never_above(design, exact)
    assert not max(exact) or found.effective_k >= 0.99 * float(1 / max(exact))


@pytest.mark.slow
@SOME
@given(designs(largest=10**14))
def test_of_counts_beyond_floating_point_the_answer_is_never_too_large(design: Design) -> None:
    assert_never_above(design, brute_force(design))


@pytest.mark.slow
@SOME
@given(designs(largest=10**7), st.sampled_from([(0.999,), (0.5,), (0.5, 1e-12)]))
def test_a_wrong_guess_of_what_is_superfluous_is_never_believed(design: Design, guesses: tuple[float, ...]) -> None:
    exact = brute_force(design)
    with settled(NIL=guesses):
        assert_never_above(design, exact)


@pytest.mark.slow
@SOME
@given(designs(largest=10**6))
def test_single_entries_whole_matrices_and_proofs_by_primes_give_the_same(design: Design) -> None:
    exact = brute_force(design)
    with settled(MANY_CLASSES=0, PACK=1):
        assert_right(design, exact)
    with settled(_unproved=lambda *given: given[2], STEP=3):
        assert_right(design, exact)


@pytest.mark.slow
@SOME
@given(designs(), st.data())
def test_h_is_the_largest_share_of_weight_that_a_combination_of_published_sums_puts_on_one_person(
    design: Design, data: st.DataObject
) -> None:
    x, combinations = best(design)
    h = leverages(design.cells, design.people)
    anything = [Fraction(n) for n in data.draw(st.lists(st.integers(-9, 9), min_size=len(x[0]), max_size=len(x[0])))]
    for who, v in enumerate(combinations):
        assert float(share(x, design.people, v, who)) == pytest.approx(h[who], rel=SLACK, abs=0)
        near = [a + b / 100 for a, b in zip(v, anything, strict=True)]
        for other in (anything, near):
            assert float(share(x, design.people, other, who)) <= h[who] * (1 + SLACK)


@SOME
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_one_table_is_plain_k_to_the_last_digit(people: list[int], random: object) -> None:
    labels = random.sample(range(100), len(people))  # type: ignore[attr-defined]
    assert leverage(np.array(labels)[:, None], np.array(people)).effective_k == min(people)
