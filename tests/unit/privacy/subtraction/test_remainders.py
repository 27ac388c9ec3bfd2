from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanab.privacy.subtraction.remainders import Numbers, Partition, Remainder, find_remainders, marginal_classes

Rows = list[list[int]]


def partition(classes: list[int], place: int, sums: list[int] | None = None) -> Partition:
    size = max(classes, default=-1) + 1
    column = np.array(classes, dtype=np.int64)

    def numbers(metric: str) -> Numbers | None:
        if sums is None or metric != "spend":
            return None
        cells = np.zeros(size, dtype=object)
        for group, value in zip(classes, sums, strict=True):
            if group >= 0:
                cells[group] += value
        return Numbers(np.bincount(column[column >= 0], minlength=size).astype(object), cells, None)

    return Partition(column, size, frozenset({place}), numbers, key=place)


def groups(*tables: list[int], people: list[int] | None = None) -> set[tuple[int, ...]]:
    """The signatures of every remainder."""
    weights = np.array(people or [1] * len(tables[0]))
    sets = set()
    for remainders in find_remainders([partition(column, place) for place, column in enumerate(tables)], weights):
        group, rows = remainders.members()
        sets |= {tuple(rows[group == number].tolist()) for number in range(len(remainders.groups))}
    return sets


def test_a_region_without_its_country_is_a_remainder() -> None:
    assert (1,) in groups([0, 0, 1], [0, 1, 1])


def test_a_region_that_its_countries_make_up_leaves_nothing() -> None:
    assert groups([0, 0, 1, 1], [0, 1, 2, 3]) == set()


def test_tables_that_only_cross_leave_nothing() -> None:
    assert groups([0, 0, 1, 1], [0, 1, 0, 1]) == set()


def test_people_outside_a_table_are_what_a_larger_table_leaves() -> None:
    assert groups([0, 0, 0], [0, 0, -1]) == {(2,)}


def test_remainders_are_subtracted_again() -> None:
    # {1,2} − {1} = {2}; {2,3} − {2} = {3}; {3,4} − {3} = {4}
    shown = groups([0, 0, 1, 1, -1], [0, 1, 1, 2, 2])
    assert {(1,), (2,), (3,), (4,)} <= shown


def test_a_class_inside_two_others_leaves_the_rest_of_both() -> None:
    # {1,2} ∪ {3,4} − {2,3} = {1,4}: no chain of single classes leads there
    assert (0, 3) in groups([0, 0, 1, 1, 2, 2], [2, 0, 0, 1, 1, 2])


def test_numbers_of_a_remainder_are_differences() -> None:
    region, country = partition([0, 0, 1], 0, [5, 7, 9]), partition([0, 1, 1], 1, [5, 7, 9])
    first = next(find_remainders([region, country], np.ones(3, dtype=np.int64)))
    numbers = first.numbers("spend")
    assert first.groups == (Remainder((0,), (0,)),)
    assert numbers is not None
    assert (numbers.counts.tolist(), numbers.sums.tolist()) == ([1], [7])
    assert first.numbers("clicks") is None


def test_signatures_of_nobody_leave_nothing() -> None:
    assert groups([0, 0, 0], [0, 0, -1], people=[5, 5, 0]) == set()


def test_an_empty_table_is_no_partition() -> None:
    assert groups([-1, -1], [0, 0]) == set()


def test_marginals_keep_people_who_are_nowhere() -> None:
    classes, size = marginal_classes(np.array([4, -1, 1]), ("arm", "tier"), (2, 3), ())
    assert (classes.tolist(), size) == ([0, -1, 0], 1)


@given(st.integers(0, 10_000), st.integers(3, 14), st.integers(2, 3), st.integers(2, 6))
@settings(deadline=None, max_examples=150, derandomize=True)
@pytest.mark.slow
def test_every_class_without_the_classes_inside_it_is_there_and_nothing_else(
    seed: int, signatures: int, tables: int, levels: int
) -> None:
    rng = np.random.default_rng(seed)
    drawn: Any = rng.integers(-1, levels, (tables, signatures))
    shown = groups(*drawn.tolist())
    classes = [
        [frozenset(np.flatnonzero(column == level).tolist()) for level in range(levels) if (column == level).any()]
        for column in drawn
    ]
    for outer in range(tables):
        for inner in range(tables):
            for group in classes[outer] if inner != outer else ():
                inside = [other for other in classes[inner] if other <= group]
                rest = group.difference(*inside) if inside else frozenset()
                if rest:
                    assert tuple(sorted(rest)) in shown
    x = np.array([[i in group for i in range(signatures)] for table in classes for group in table], dtype=float)
    for rest in shown:  # each is a combination of published classes
        target = np.isin(np.arange(signatures), rest).astype(float)
        weights = np.linalg.lstsq(x.T, target, rcond=None)[0]
        np.testing.assert_allclose(x.T @ weights, target, atol=1e-9)
