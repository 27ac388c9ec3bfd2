from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bad_releases import tabulate

from kanab.inspection.attack import linked_tables
from kanab.inspection.attack.linked_tables import find_linked
from kanab.inspection.attack.published import AttackedRelease, AttackedTable, Axis
from kanab.privacy.merging import LevelMap
from kanab.tally.metric import Metric

SPEND = Metric("spend", 100, (0.0, 500.0))


def people(cells: dict[tuple[Any, ...], int], *names: str) -> dict[str, list[Any]]:
    rows = [levels for levels, count in cells.items() for _ in range(count)]
    return {name: [row[i] for row in rows] for i, name in enumerate(names)}


def table(rows: dict[str, list[Any]], *names: str, spend: bool = False) -> AttackedTable:
    values = {SPEND: np.arange(1, len(rows[names[0]]) + 1, dtype=np.int64)} if spend else {}
    sides = [Axis(name, tuple(sorted(set(rows[name]))), "arm" if name == "arm" else "covariate") for name in names]
    return tabulate("/".join(names), rows, sides, values, [])


def blacked(made: AttackedTable, *places: tuple[int, ...]) -> AttackedTable:
    hidden = made.hidden.copy()
    for place in places:
        hidden[place] = True
    return AttackedTable(made.name, made.axes, made.people, hidden, made.moments)


TOWNS = {("A", "x"): 40, ("A", "y"): 4, ("B", "x"): 35, ("B", "y"): 30}


def test_a_blacked_out_class_follows_from_its_total() -> None:
    rows = people(TOWNS, "arm", "town")
    full = table(rows, "arm", "town", spend=True)
    shown = blacked(full, (0, 1))
    (found,) = find_linked([AttackedRelease("r", (shown, full.by(("arm",))))], 10)
    assert (found.attack, found.people) == ("linked tables", 4)
    spend = sum(range(41, 45)) / 100
    assert found.learnt == f"arm = A, town = y holds exactly 4 people; their spend adds up to {spend:g}"
    assert found.table == "r, arm/town"


def test_inequalities_alone_can_pin_a_count() -> None:
    # all classes of both arms are hidden; those of x and y are too few to leave A's total to them
    cells = {("A", "x"): 1, ("A", "y"): 1, ("A", "z"): 10, ("B", "x"): 1, ("B", "y"): 0, ("B", "z"): 20}
    full = table(people(cells, "arm", "town"), "arm", "town", spend=True)
    shown = blacked(full, *product((0, 1), (0, 1, 2)))
    found = find_linked([AttackedRelease("r", (shown, full.by(("arm",)), full.by(("town",))))], 15)
    assert [(one.learnt, one.people) for one in found] == [("arm = A, town = z holds between 9 and 12 people", 12)]


def test_levels_merged_in_two_ways_give_the_level_between_away() -> None:
    cells = {("A", 1): 40, ("A", 2): 3, ("A", 3): 30, ("B", 1): 20, ("B", 2): 33, ("B", 3): 15}
    full = table(people(cells, "arm", "tier"), "arm", "tier", spend=True)

    def merged(*groups: tuple[Any, tuple[int, ...]]) -> AttackedTable:
        axis = Axis("tier", tuple(new for new, _ in groups), "covariate", LevelMap("tier", groups, {}))
        return full.folded(axis, [axis.place(level) for level in (1, 2, 3)])

    low, high = merged(("1 … 2", (1, 2)), (3, (3,))), merged((1, (1,)), ("2 … 3", (2, 3)))
    assert min(low.people.min(), high.people.min()) >= 10
    (found,) = find_linked([AttackedRelease("first", (low,)), AttackedRelease("second", (high,))], 10)
    assert found.learnt.startswith("arm = A, tier = 2 holds exactly 3 people; their spend adds up to ")
    assert found.table == "first, second, arm/tier"
    separate = [AttackedRelease("first", (low,), cohorts="W1"), AttackedRelease("second", (high,), cohorts="W2")]
    assert find_linked(separate, 10) == []


def test_releases_that_nobody_can_be_in_together_are_bounded_one_by_one() -> None:
    full = table(people(TOWNS, "arm", "town"), "arm", "town")
    grown = table(people(TOWNS | {("B", "x"): 95}, "arm", "town"), "arm", "town")
    shown = blacked(full, (0, 1))
    found = find_linked([AttackedRelease("mon", (shown, full.by(("arm",)))), AttackedRelease("tue", (grown,))], 10)
    assert [one.table for one in found] == ["mon, arm/town"]


def circle(cells: dict[tuple[Any, ...], int]) -> AttackedRelease:
    rows = people(cells, "arm", "tier", "town")
    edges = (("arm", "tier"), ("arm", "town"), ("tier", "town"))
    return AttackedRelease("r", tuple(table(rows, *names) for names in edges))


def test_three_tables_in_a_circle_can_pin_a_crossed_class() -> None:
    cells = dict.fromkeys(product("AB", (1, 2), "xy"), 0)
    cells |= {("A", 1, "x"): 3, ("A", 2, "y"): 40, ("A", 1, "y"): 12, ("B", 1, "x"): 20, ("B", 2, "x"): 17}
    release = circle(cells)
    assert all(n == 0 or n >= 10 for made in release.tables for n in made.people.ravel() if n not in (3,))
    found = find_linked([release], 10)
    assert "arm = A, tier = 1, town = x holds exactly 3 people" in {one.learnt for one in found}


def test_tables_that_hang_together_like_a_tree_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linked_tables._System, "exposed", lambda *_: pytest.fail("tried"))
    rows = people({("A", 1, "x"): 12, ("B", 2, "y"): 15, ("A", 2, "y"): 30}, "arm", "tier", "town")
    assert find_linked([AttackedRelease("r", (table(rows, "arm", "tier"), table(rows, "tier", "town")))], 10) == []


def test_systems_beyond_the_limits_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = dict.fromkeys(product("AB", (1, 2), "xy"), 0)
    cells |= {("A", 1, "x"): 3, ("A", 2, "y"): 40, ("A", 1, "y"): 12, ("B", 1, "x"): 20, ("B", 2, "x"): 17}
    monkeypatch.setattr(linked_tables, "MOST_UNKNOWNS", 7)
    assert find_linked([circle(cells)], 10) == []
    monkeypatch.setattr(linked_tables, "MOST_UNKNOWNS", 8)
    assert find_linked([circle(cells)], 10) != []
    monkeypatch.setattr(linked_tables, "MOST_SYSTEMS", 0)
    assert find_linked([circle(cells)], 10) == []


def fitting(cells: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Every 2 × 2 × 2 table of whole numbers with the same two-way margins: one number is free."""
    signs = np.array([1, -1])
    free = signs[:, None, None] * signs[:, None] * signs
    return [x for t in range(-20, 21) if (x := cells + t * free).min() >= 0]


@pytest.mark.slow
@given(st.lists(st.integers(0, 9), min_size=8, max_size=8))
@settings(max_examples=40)
def test_bounds_are_those_of_all_tables_that_fit(counts: list[int]) -> None:
    cells = {key: n + 1 for key, n in zip(product("AB", (1, 2), "xy"), counts, strict=True)}
    release = circle(cells)
    k = 6
    tables = fitting(np.array(list(cells.values())).reshape(2, 2, 2))
    low, high = np.min(tables, axis=0), np.max(tables, axis=0)
    expected = set()
    for place, (a, t, w) in zip(product((0, 1), repeat=3), product("AB", (1, 2), "xy"), strict=True):
        if low[place] >= 1 and high[place] < k:
            one = int(low[place]) == int(high[place])
            n = "one person" if high[place] == 1 else f"{high[place]} people"
            size = f"exactly {n}" if one else f"between {low[place]} and {high[place]} people"
            expected.add(f"arm = {a}, tier = {t}, town = {w} holds {size}")
    assert {one.learnt for one in find_linked([release], k)} == expected


def test_of_a_thousand_alike_experiments_no_two_are_solved_together() -> None:
    people, hidden = np.full((2, 3), 50, dtype=object), np.zeros((2, 3), dtype=bool)
    tier = Axis("tier", (1, 2, 3))
    tables = [
        AttackedTable(f"t{number}/tier", (Axis(f"t{number}", ("A", "B"), "arm"), tier), people, hidden)
        for number in range(1_000)
    ]
    assert list(linked_tables._systems(tables)) == []
