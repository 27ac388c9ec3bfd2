from typing import Any

import pytest

from kanab.errors import SourceError
from kanab.inspection.attack.published import Axis, alike, finest_levels, published_from_dict
from kanab.privacy.merging import LevelMap

TABLE: dict[str, Any] = {
    "format": "kanab-tally/1",
    "factors": [
        {"name": "arm", "levels": ["A", "B"], "role": "arm"},
        {"name": "town", "levels": ["x", "y"], "role": "covariate"},
    ],
    "metrics": [{"name": "spend", "scale": 100, "bounds": [0, 500]}],
    "classes": [
        {"levels": ["A", "x"], "people": 3, "sums": {"spend": 700}},
        {"levels": ["A", "y"], "people": 40, "sums": {"spend": 4000}},
        {"levels": ["B", "x"], "people": None},
        {"levels": ["B", "y"], "people": 35, "sums": {"spend": 3500}},
    ],
    "squares": [{"metric": "spend", "by": ["arm"], "cells": [{"levels": ["A"], "squares": 600000}]}],
}


def plain(**more: Any) -> dict[str, Any]:
    return {"receipt": {"k": 5}, "tables": {"arm/town": TABLE}, **more}


def test_small_and_blacked_out_classes_come_in() -> None:
    read = published_from_dict(plain(), "towns")
    (table,) = read.tables
    assert read.k == 5
    assert table.people.tolist() == [[3, 40], [0, 35]]
    assert table.hidden.tolist() == [[False, False], [True, False]]
    assert list(table.places()) == [(0, 0), (0, 1), (1, 1)]
    assert table.words((0, 1)) == "arm = A, town = y"
    assert table.words((1,), ("town",)) == "town = y"


def test_adding_up_a_blacked_out_class_is_blacked_out() -> None:
    (table,) = published_from_dict(plain(), "towns").tables
    town = table.by(("town",))
    assert town.hidden.tolist() == [True, False]
    assert town.people.tolist() == [3, 75]
    turned = table.by(("town", "arm"))
    assert turned.people.tolist() == [[3, 0], [40, 35]]
    assert turned.hidden.tolist() == [[False, True], [False, False]]
    part = turned.part("spend")
    assert part is not None
    assert part.sums.tolist() == [[700, 0], [4000, 3500]]
    assert part.squares[("arm",)].tolist() == [600000, 0]


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (None, "this is not a release"),
        ([], "this is not a release"),
        ({"tables": {}}, "this is not a release"),
        ({"tables": {"t": 7}}, "a table cannot be read"),
        ({"tables": {"t": {"format": "kanab-tally/1"}}}, "missing required field"),
        ({"tables": {"t": TABLE | {"classes": 7}}}, "Expected `array`"),
        ({"tables": {"t": TABLE | {"classes": [{"levels": ["A", "z"], "people": None}]}}}, "unknown level"),
        ({"tables": {"t": TABLE | {"classes": [{"levels": ["A"], "people": None}]}}}, "a table cannot be read"),
        ({"tables": {"t": TABLE}, "levels": {"t": {"covariate": 7}}}, "a table cannot be read"),
    ],
)
def test_what_is_no_release_is_said_with_its_place(data: Any, fact: str) -> None:
    with pytest.raises(SourceError, match=fact) as problem:
        published_from_dict(data, "x")
    assert "$.tables.t" in str(problem.value) or fact == "this is not a release"


def merged(*groups: tuple[Any, tuple[Any, ...]], **more: Any) -> Axis:
    return Axis("tier", tuple(new for new, _ in groups), "covariate", LevelMap("tier", groups, {}, **more))


def test_atoms_are_the_finest_levels_that_any_version_tells_apart() -> None:
    low = merged(("1 … 2", (1, 2)), (3, (3,)))
    high = merged((1, (1,)), ("2 … 3", (2, 3)))
    assert finest_levels([low, high]) == [1, 2, 3]
    assert [low.place(level) for level in (1, 2, 3, 4)] == [0, 0, 1, -1]
    rest = merged(("DE", ("DE",)), ("other", ("FR",)), rest=True)
    assert [rest.place(level) for level in finest_levels([rest])] == [0, 1, 1]


def test_levels_without_a_name_are_told_apart_by_cuts() -> None:
    young = merged(("< 30", (20,)), ("≥ 30", (50,)), cuts=(30.0,))
    old = merged(("< 40", (20,)), ("≥ 40", (50,)), cuts=(40.0,))
    places = {(young.place(level), old.place(level)) for level in finest_levels([young, old])}
    assert places == {(0, 0), (1, 0), (1, 1)}


def test_true_is_not_the_number_one() -> None:
    assert Axis("x", (True, False)).place(1) == -1
    assert Axis("x", (0, 1)).place(True) == -1
    assert Axis("x", (False, True)).place(True) == 1


def test_two_tables_meet_at_the_finest_levels_that_both_have() -> None:
    def table(axis: Axis, people: list[int]) -> Any:
        source = {
            "format": "kanab-tally/1",
            "factors": [{"name": "tier", "levels": list(axis.levels), "role": "covariate"}],
            "metrics": [],
            "classes": [{"levels": [level], "people": n} for level, n in zip(axis.levels, people, strict=True)],
        }
        (made,) = published_from_dict({"tables": {"tier": source}}, "x").tables
        return type(made)(made.name, (axis,), made.people, made.hidden, made.moments)

    fine = table(Axis("tier", (1, 2, 3, 4)), [10, 20, 30, 40])
    coarse = table(merged(("1 … 2", (1, 2)), ("3 … 4", (3, 4))), [33, 70])
    one, two = alike(fine, coarse, ("tier",))
    assert one.people.tolist() == [30, 70]
    assert two.people.tolist() == [33, 70]
    assert one.axis("tier").levels == ("1 + 2", "3 + 4")
    crossed = table(merged((1, (1,)), ("2 … 3", (2, 3)), (4, (4,))), [10, 52, 40])
    one, two = alike(coarse, crossed, ("tier",))
    assert one.people.tolist() == [103]
    assert two.people.tolist() == [102]
    newer = table(Axis("tier", (1, 2, 3, 4, 5)), [10, 20, 30, 40, 12])
    one, two = alike(fine, newer, ("tier",))
    assert one.people.tolist() == [10, 20, 30, 40, 0]
    assert two.people.tolist() == [10, 20, 30, 40, 12]
