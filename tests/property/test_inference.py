"""Nothing that the closed forms or the audit say is ever wrong, and little of it is loose."""

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kanab as kb
from kanab.privacy.audit import (
    audit_table,
    class_squares,
    extremes_on_grid,
)
from kanab.tally.moments import Moments, least_squares

Group = tuple[int, ...]
AXES = ("arm", "level")
SMALL = [(0, 6), (-3, 2), (1, 5)]


def two_sums(y: Sequence[int]) -> tuple[int, int, int]:
    return len(y), sum(y), sum(value**2 for value in y)


@pytest.mark.parametrize("bounds", SMALL)
def test_intervals_of_extremes_hold_all_groups_of_a_few_people_and_most_are_no_wider(bounds: tuple[int, int]) -> None:
    low, high = bounds
    largest: dict[tuple[int, int, int], set[int]] = {}
    smallest: dict[tuple[int, int, int], set[int]] = {}
    for n in range(2, 7):
        for y in itertools.combinations_with_replacement(range(low, high + 1), n):
            largest.setdefault(two_sums(y), set()).add(max(y))
            smallest.setdefault(two_sums(y), set()).add(min(y))
    n, s, q = (np.array(column, dtype=object) for column in zip(*largest, strict=True))
    bottoms, tops = extremes_on_grid(n, s, (q, q), low, high)
    ends = [(int(a), int(b)) for pair in (bottoms, tops) for a, b in zip(*pair, strict=True)]
    true = [(min(values), max(values)) for values in (*smallest.values(), *largest.values())]
    assert all(low <= a <= c <= d <= b <= high for (a, b), (c, d) in zip(ends, true, strict=True))
    assert sum(end == exact for end, exact in zip(ends, true, strict=True)) > 0.86 * len(ends)


KINDS = {"arm": [("arm",)], "margins": [("arm",), ("level",)], "class": [AXES]}


def table(rng: np.random.Generator, kind: str) -> tuple[list[list[Group]], Moments, tuple[int, int]]:
    """People in two or three arms and a few levels, sparse or not, and what is published of them."""
    arms, levels = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    high = int(rng.choice([2, 9, 1_000]))
    people = [[tuple(draw(rng, int(rng.integers(0, 6)), high)) for _ in range(levels)] for _ in range(arms)]
    n, s, q = (np.array([[two_sums(y)[i] for y in row] for row in people], dtype=object) for i in range(3))
    gone = {("arm",): 1, ("level",): 0}
    squares = {by: q if by == AXES else q.sum(axis=gone[by]) for by in KINDS[kind]}
    return people, Moments(kb.Metric("y"), n, s, squares), (0, high)


def draw(rng: np.random.Generator, n: int, high: int) -> list[int]:
    return sorted(np.where(rng.random(n) < 0.5, rng.integers(0, high + 1, n), 0).tolist())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_with_squares_on_margins_the_truth_is_always_inside(kind) -> None:
    rng = np.random.default_rng(7)
    for _ in range(120):
        people, part, bounds = table(rng, kind)
        for low, high in (bounds, (bounds[0], None), (None, bounds[1]), (None, None)):
            q = class_squares(part, AXES, low, high)
            n = np.maximum(part.counts, 2)
            bottoms, tops = extremes_on_grid(n, part.sums, q, low, high)
            for place, y in enumerate(itertools.chain(*people)):
                ends = tuple(int(end.flat[place]) for end in q)
                assert ends[0] <= two_sums(y)[2] <= ends[1]
                if len(y) > 1:
                    assert bottoms[0].flat[place] <= y[0] <= bottoms[1].flat[place]
                    assert tops[0].flat[place] <= y[-1] <= tops[1].flat[place]


def tally(n: object, s: object, squares: dict, bounds: tuple[int, int] | None, scale: int = 1) -> kb.Tally:
    counts, sums = (np.array(values, dtype=object) for values in (n, s))
    part = Moments(
        kb.Metric("y", scale, bounds), counts, sums, {by: np.array(q, dtype=object) for by, q in squares.items()}
    )
    levels = kb.tally.Factor("level", tuple(range(counts.shape[1])))
    return kb.Tally((kb.tally.Factor("arm", ("A", "B"), "arm"), levels), counts, (part,))


@pytest.mark.slow
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=2, max_size=2), min_size=1, max_size=5),
    st.floats(0, 1),
    st.sampled_from([None, (0, 1), (0, 7), (-5, 5), (3, 4), (-(10**9), 10**9), (0, 2**51)]),
    st.sampled_from([1, 100]),
)
@settings(max_examples=200)
def test_no_numbers_that_a_tally_accepts_stop_the_audit(classes, spread, bounds, scale) -> None:
    """Also those that no people have: a tally checks less than everything."""
    low, high = bounds or (-1_000, 1_000)
    n = [[people for people, _ in level] for level in zip(*classes, strict=True)]
    s = [
        [people * low + int(people * (high - low) * share) for people, share in level]
        for level in zip(*classes, strict=True)
    ]
    counts, sums = (np.array(values, dtype=object) for values in (n, s))
    least = least_squares(counts, sums).sum(axis=1)
    most = ((low + high) * sums - low * high * counts).sum(axis=1)
    q = [a + int((b - a) * Fraction(spread)) if b > a else a for a, b in zip(least, most, strict=True)]
    declared = None if bounds is None else (low / scale, high / scale)
    found = audit_table("t", tally(n, s, {("arm",): q}, declared, scale), {})
    assert found.worst is None or 0 <= found.worst.ratio <= 1
