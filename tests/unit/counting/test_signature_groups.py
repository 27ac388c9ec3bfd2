from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kanab.counting.signature_groups import Membership, make_signatures

CELLS = st.integers(-1, 3)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, st.booleans(), st.integers(0, 5)), min_size=1, max_size=40)


def seen(rows: list[tuple[Any, ...]]) -> list[Membership]:
    first, second, third, has, _ = (np.array(column) for column in zip(*rows, strict=True))
    return [
        Membership({"a": first, "b": second}, {"a": 4, "b": 4}, {}),
        Membership({"c": third, "a": first}, {"c": 4, "a": 4}, {"y": has}),
    ]


def listed(rows: list[tuple[Any, ...]], people: Any = None) -> list[Any]:
    first, second = make_signatures(seen(rows), people)
    assert first.people is second.people
    assert (first.tables, second.tables, first.metrics, second.metrics) == (("a", "b"), ("c", "a"), (), ("y",))
    return [
        (*first.cells[i].tolist(), *second.cells[i].tolist(), bool(second.present[i, 0]), int(n))
        for i, n in enumerate(first.people)
    ]


@pytest.mark.slow
@given(ROWS)
def test_people_are_grouped_by_everything_that_is_seen_of_them(rows: list[tuple[Any, ...]]) -> None:
    wanted = Counter((a, b, c, a, has) for a, b, c, has, _ in rows)
    assert listed(rows) == [(*key, n) for key, n in sorted(wanted.items())]


@given(ROWS)
def test_groups_of_people_are_added_up_to_the_same(rows: list[tuple[Any, ...]]) -> None:
    weights = np.array([row[-1] for row in rows], dtype=np.int64)
    wanted: Counter[Any] = Counter()
    for a, b, c, has, n in rows:
        wanted[a, b, c, a, has] += n
    assert listed(rows, weights) == [(*key, n) for key, n in sorted(wanted.items())]


@given(ROWS)
def test_sorting_and_counting_in_place_agree(rows: list[tuple[Any, ...]]) -> None:
    weights = np.array([row[-1] for row in rows], dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        direct = listed(rows), listed(rows, weights)
        patch.setattr("kanab.counting.signature_groups._DIRECT", 0)
        assert (listed(rows), listed(rows, weights)) == direct


def test_more_people_than_the_plan_is_about_have_no_class_and_no_value() -> None:
    wide = Membership({"a": np.array([2, 0])}, {"a": 3}, {"y": np.array([True, False])}).among(
        np.array([False, True, True, False])
    )
    assert wide.cells["a"].tolist() == [-1, 2, 0, -1]
    assert wide.present["y"].tolist() == [False, True, False, False]
    same = Membership({"a": np.array([2, 0])}, {"a": 3}, {})
    assert same.among(np.array([True, True])) is same
