from __future__ import annotations

import pytest

from kanab.counted import floor_to_k


@pytest.mark.parametrize(
    ("people", "k", "shown"), [(0, 10, 0), (9, 10, 0), (10, 10, 10), (137, 10, 130), (137, 7, 133)]
)
def test_people_are_shown_as_the_multiple_of_k_below(people: int, k: int, shown: int) -> None:
    assert floor_to_k(people, k) == shown
