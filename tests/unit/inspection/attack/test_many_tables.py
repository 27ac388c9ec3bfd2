"""Attacks that skip what cannot tell anything find the same as trying every two tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kanab.inspection.attack import count_bounds, differencing, experiment_differences, metric_differences
from kanab.inspection.attack import nested_classes as nested
from kanab.inspection.attack.experiment_differences import find_experiment_differences
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis, alike
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric
from kanab.tally.moments import Moments

EXPERIMENTS = ("checkout", "banner", "price", "search")
TIERS = (
    Axis("tier", (1, 2, 3)),
    Axis("tier", (1, "2 … 3"), "covariate", LevelMap("tier", ((1, (1,)), ("2 … 3", (2, 3))), {})),
    Axis("tier", ("1 … 2", 3), "covariate", LevelMap("tier", (("1 … 2", (1, 2)), (3, (3,))), {})),
)
DEVICE = Axis("device", ("phone", "desktop"))
BOUGHT, VISITED = Metric("bought", 1, (0, 1)), Metric("visited", 1, (0, 1))


def arm(experiment: str) -> Axis:
    return Axis(experiment, ("A", "B"), "arm")


@st.composite
def tables(draw: st.DrawFn, most_arms: int = 2) -> AttackedTable:
    names = draw(st.lists(st.sampled_from(EXPERIMENTS), max_size=most_arms, unique=True))
    axes = [arm(name) for name in names]
    axes += draw(st.sampled_from([[], [TIERS[0]], [TIERS[1]], [TIERS[2]], [DEVICE], [TIERS[0], DEVICE]]))
    axes = axes or [DEVICE]
    shape = tuple(len(axis.levels) for axis in axes)
    size = int(np.prod(shape))
    people = np.array(draw(st.lists(st.integers(0, 30), min_size=size, max_size=size)), dtype=object).reshape(shape)
    hidden = np.zeros(shape, dtype=bool)
    hidden.flat[0] = draw(st.integers(0, 7)) == 0
    moments = tuple(Moments(metric, people, people // 2, {}) for metric in draw(st.sampled_from([[BOUGHT], [VISITED]])))
    return AttackedTable("/".join(axis.name for axis in axes), tuple(axes), people, hidden, moments)


@st.composite
def releases(draw: st.DrawFn, most_arms: int = 2) -> list[AttackedRelease]:
    groups = draw(st.lists(st.lists(tables(most_arms), min_size=1, max_size=5), min_size=1, max_size=4))
    cohorts = draw(st.lists(st.sampled_from(["", "", "W1", "W2"]), min_size=len(groups), max_size=len(groups)))
    return [
        AttackedRelease(f"r{number}", tuple(group), 10, cohort)
        for number, (group, cohort) in enumerate(zip(groups, cohorts, strict=True))
    ]


def everything(groups: Sequence[AttackedRelease]) -> list[AttackedTable]:
    return [table for release in groups for table in release.tables]


def all_unions(tables: Sequence[AttackedTable]) -> Iterator[frozenset[str]]:
    """The axes of every table, of every two that share one, and of every three that run in a circle."""
    distinct = list(dict.fromkeys(frozenset(table.names) for table in tables))
    yield from distinct
    linked = [(left, right) for left, right in combinations(distinct, 2) if left & right]
    yield from (left | right for left, right in linked)
    for left, right in linked:
        for third in distinct:
            if third & (left - right) and third & (right - left):
                yield left | right | third


@pytest.mark.slow
@settings(max_examples=60)
@given(releases())
def test_the_same_sets_of_linked_tables_are_bounded(groups: list[AttackedRelease]) -> None:
    tables = everything(groups)
    tried = [[*system.tables] for system in count_bounds._systems(tables)]
    expected = []
    for axes in dict.fromkeys(all_unions(tables)):
        inside = [table for table in tables if axes.issuperset(table.names)]
        if count_bounds._may_expose(inside) and count_bounds._System(tuple(inside)).size <= count_bounds.MOST_UNKNOWNS:
            expected.append(inside)
    places = {id(table): place for place, table in enumerate(tables)}
    assert sorted([places[id(table)] for table in inside] for inside in tried) == sorted(
        [places[id(table)] for table in inside] for inside in expected
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(releases())
def test_the_same_tables_are_subtracted_in_the_same_order(groups: list[AttackedRelease]) -> None:
    inside = [(one, one, *pair) for one in groups for pair in combinations(one.tables, 2)]
    between = [
        (before, after, first, second)
        for before, after in combinations(groups, 2)
        if not before.apart(after)
        for first in before.tables
        for second in after.tables
    ]
    expected = [
        (before, after, first, second)
        for before, after, first, second in (*inside, *between)
        if (first.experiments <= second.experiments or second.experiments <= first.experiments)
        and set(first.names) & set(second.names)
    ]
    assert [*map(ids, differencing._comparable(groups))] == [*map(ids, expected)]


def ids(values: Sequence[Any]) -> list[int]:
    return [id(value) for value in values]


@pytest.mark.slow
@settings(max_examples=60)
@given(releases(most_arms=1))
def test_the_same_two_tables_are_laid_over_each_other(groups: list[AttackedRelease]) -> None:
    expected = []
    crossed = [table for table in everything(groups) if len(nested._covariates(table)) > 1]
    for (before, first), (after, second) in combinations([(one, t) for one in groups for t in one.tables], 2):
        mine, theirs = nested._covariates(first), nested._covariates(second)
        if first.experiments != second.experiments or before.apart(after) or not len(mine) == len(theirs) == 1:
            continue
        if nested._pairs_of_levels(first.axis(mine[0]), second.axis(theirs[0]), crossed) is not None:
            expected.append([id(first), id(second)])
    assert [ids(overlap.tables) for overlap in nested._by_levels(groups)] == expected


@pytest.mark.slow
@settings(max_examples=60)
@given(releases(most_arms=1))
def test_the_same_metrics_of_earlier_tables_are_put_beside_later_ones(groups: list[AttackedRelease]) -> None:
    for number, (release, joined) in enumerate(metric_differences._with_earlier(groups)):
        earlier = [table for old in groups[:number] if not old.apart(release) for table in old.tables]
        for table, wider in zip(release.tables, joined, strict=True):
            names = [part.metric.name for part in table.moments]
            for old in (old for old in earlier if set(old.names) == set(table.names)):
                more = [part.metric.name for part in old.moments if part.metric.name not in names]
                if more and np.array_equal(*(side.people for side in alike(table, old, table.names))):
                    names += more
            assert [part.metric.name for part in wider.moments] == names


@pytest.mark.slow
@pytest.mark.parametrize("k", [3, 10])
@settings(max_examples=60)
@given(groups=releases(most_arms=1))
def test_the_same_experiments_are_subtracted_from_each_other(k: int, groups: list[AttackedRelease]) -> None:
    expected = []
    for release in groups:
        of: dict[str, list[AttackedTable]] = {}
        for table in release.tables:
            if len(table.experiments) == 1 and len(table.axes) <= 2 and not table.hidden.any():
                of.setdefault(next(iter(table.experiments)), []).append(table)
        for first, second in combinations(of, 2):
            mine, theirs = ([experiment_differences._side(table) for table in of[name]] for name in (first, second))
            expected += experiment_differences._compared(release.name, (first, mine), (second, theirs), k)
    assert find_experiment_differences(groups, k) == expected


def test_of_a_thousand_alike_experiments_no_two_are_laid_together() -> None:
    people = np.full((2, 3), 50, dtype=object)
    hidden = np.zeros((2, 3), dtype=bool)
    tables = [
        AttackedTable(f"t{number}/tier", (arm(f"t{number}"), TIERS[0]), people, hidden, ()) for number in range(1000)
    ]
    links = count_bounds._Links(tables, [frozenset(table.names) for table in tables])
    assert list(links.unions()) == []


def test_two_tables_without_arms_are_laid_over_each_other() -> None:
    people = np.array([20, 7, 15], dtype=object)
    fine = AttackedTable("tier", (TIERS[0],), people, np.zeros(3, dtype=bool), (Moments(BOUGHT, people, people, {}),))
    coarse = fine.folded(TIERS[1], [0, 1, 1])
    (overlap,) = nested._by_levels([AttackedRelease("r", (fine, coarse))])
    assert overlap.cells.tolist() == [[0, 0], [1, 1], [2, 1]]


def test_experiments_with_other_merged_levels_are_subtracted_too() -> None:
    fine = np.array([[10, 10, 10], [10, 10, 10]], dtype=object)
    coarse = np.array([[12, 18], [11, 19]], dtype=object)
    tables = [
        AttackedTable(f"{name}/tier", (arm(name), axis), people, np.zeros(people.shape, dtype=bool), ())
        for name, axis, people in (("checkout", TIERS[0], fine), ("banner", TIERS[1], coarse))
    ]
    told = find_experiment_differences([AttackedRelease("r", tuple(tables))], 10)
    assert [(finding.people, finding.learnt) for finding in told] == [
        (3, "tier = 1 differs by 3 people"),
        (3, "tier = 2 + 3 differs by 3 people"),
    ]
