import json
from functools import reduce
from typing import Any

import pytest

from kanab import KanabError, Metric, Tally, count_columns
from kanab.errors import TallyError

PLANTED = 918273645


def valid() -> dict[str, Any]:
    """Four people: two metrics (one may be missing), squares on marginals and per class, one pair crossed."""
    return {
        "format": "kanab-tally/1",
        "factors": [
            {"name": "arm", "levels": ["A", "B"], "role": "arm"},
            {"name": "tier", "levels": [1, 2], "role": "covariate", "scores": [1.0, 2.0]},
        ],
        "metrics": [
            {"name": "spend", "scale": 10, "bounds": [0.0, 9.0]},
            {"name": "rating", "missing": "exclude"},
        ],
        "classes": [
            {"levels": ["A", 1], "people": 2, "sums": {"spend": 30, "rating": 5}, "counts": {"rating": 1}},
            {"levels": ["B", 2], "people": 2, "sums": {"spend": 70, "rating": 0}, "counts": {"rating": 0}},
        ],
        "squares": [
            {
                "metric": "spend",
                "by": ["arm"],
                "cells": [{"levels": ["A"], "squares": 500}, {"levels": ["B"], "squares": 2900}],
            },
            {
                "metric": "spend",
                "by": ["tier"],
                "cells": [{"levels": [1], "squares": 500}, {"levels": [2], "squares": 2900}],
            },
        ],
        "crosses": [
            {
                "metrics": ["spend", "rating"],
                "by": ["arm"],
                "cells": [{"levels": ["A"], "people": 1, "sums": [10, 5], "squares": [100, 25], "products": 50}],
            }
        ],
    }


def through_json(tally: Tally) -> Tally:
    return Tally.from_dict(json.loads(json.dumps(tally.to_dict())))


def test_a_document_is_read_number_by_number() -> None:
    tally = Tally.from_dict(valid())
    assert tally.people.tolist() == [[2, 0], [0, 2]]
    assert tally.metrics == (Metric("spend", 10, (0, 9)), Metric("rating", 1, None, "exclude"))
    assert tally.moments_of("rating").counts.tolist() == [[1, 0], [0, 0]]
    assert tally.squares("spend", ["tier"]).tolist() == [500, 2900]
    assert tally.cross("spend", "rating").products.tolist() == [50, 0]
    assert tally.factor("tier").scores == (1.0, 2.0)


def test_a_written_document_says_nothing_about_classes_without_people() -> None:
    written = Tally.from_dict(valid()).to_dict()
    assert [entry["levels"] for entry in written["classes"]] == [["A", 1], ["B", 2]]


def test_defaults_are_not_written() -> None:
    written = count_columns({"arm": ["A", "B"], "n": [2, 3]}, arm="arm", metrics=["n"]).to_dict()
    assert written["metrics"] == [{"name": "n"}]
    assert "crosses" not in written
    assert written["factors"] == [{"name": "arm", "levels": ["A", "B"], "role": "arm"}]


def test_integers_above_2_to_the_53_are_written_as_texts() -> None:
    top = 2**52 - 1
    rows = {"arm": ["A", "A", "A", "B"], "m": [top, top, top, 1], "z": [top, -top, -top, 1]}
    tally = count_columns(rows, arm="arm", metrics=["m", "z"], products=[("m", "z")])
    written = tally.to_dict()
    assert written["classes"][0]["sums"]["m"] == str(3 * top)
    assert written["classes"][0]["sums"]["z"] == -top
    assert written["squares"][0]["cells"][0]["squares"] == str(3 * top**2)
    assert written["crosses"][0]["cells"][0]["products"] == str(-(top**2))
    assert through_json(tally) == tally


@pytest.mark.parametrize(("value", "written"), [(2**53, 2**53), (2**53 + 1, str(2**53 + 1)), (-(2**53), -(2**53))])
def test_2_to_the_53_is_the_last_integer_written_as_a_number(value: int, written: Any) -> None:
    document = {**valid(), "metrics": [{"name": "spend"}], "squares": [], "crosses": []}
    document["classes"] = [{"levels": ["A", 1], "people": 2, "sums": {"spend": str(value)}}]
    assert Tally.from_dict(document).to_dict()["classes"][0]["sums"]["spend"] == written


def test_levels_of_every_kind_survive_json() -> None:
    rows = {"arm": [True, False] * 3, "c": ["x", 'quo"te', "ü", None, "1", "<b>"], "n": [1, 2.5, None, -3, 2**60, 0]}
    tally = count_columns(rows, arm="arm", covariates=["c", "n"])
    again = through_json(tally)
    assert again == tally
    assert [type(level) for level in again.factor("arm").levels] == [bool, bool]
    assert again.factor("n").levels == (-3, 0, 1, 2.5, 2**60, None)


def test_the_order_of_a_margins_names_does_not_change_its_cells() -> None:
    document = {**valid(), "metrics": [{"name": "spend"}], "crosses": []}
    places = [("A", 1, 5), ("A", 2, 7), ("B", 1, 11), ("B", 2, 13)]
    document["classes"] = [{"levels": [a, t], "people": 2, "sums": {"spend": 0}} for a, t, _ in places]
    cells = [{"levels": [t, a], "squares": q} for a, t, q in places]
    document["squares"] = [{"metric": "spend", "by": ["tier", "arm"], "cells": cells}]
    assert Tally.from_dict(document).squares("spend", ["arm", "tier"]).tolist() == [[5, 7], [11, 13]]


GONE = object()
TEXT, MARGINAL = "a number written as text is not a whole number", "a marginal names an unknown factor"
NO_LEVEL = "a level of 'tier' is neither text, a finite number, true/false nor missing"
OWN_COUNT = "a metric with missing='exclude' needs its own count in every class"
SUMS, TWICE = "a class must have one sum for every metric", "the same class comes twice among the"

BROKEN: list[tuple[str, Any, str, str]] = [
    ("format", f"kanab-tally/{PLANTED}", "Invalid value", "$.format"),
    ("format", GONE, "Object missing required field `format`", "$"),
    ("people", PLANTED, "Object contains unknown field `people`", "$"),
    ("factors 0 role", f"{PLANTED}", "Invalid value", "$.factors[0].role"),
    ("factors 0 role", "covariate", "a tally needs arms", ""),
    ("factors 0 levels", ["A", "B", None], "'arm' has a missing arm", ""),
    ("factors 1 levels", [1, float("inf")], NO_LEVEL, ""),
    ("factors 1 scores", [1, 10**400], "Number out of range", "$.factors[1].scores[1]"),
    ("classes 0 people", PLANTED + 0.5, "Expected `int`, got `float`", "$.classes[0].people"),
    ("classes 0 people", f"{PLANTED}", "Expected `int`, got `str`", "$.classes[0].people"),
    ("classes 0 sums spend", [PLANTED], "Expected `int | str`, got `array`", "$.classes[0].sums[...]"),
    ("classes 0 sums spend", f"{PLANTED}x", TEXT, "$.classes[0].sums"),
    ("classes 0 sums spend", "٣", TEXT, "$.classes[0].sums"),
    ("classes 0 sums spend", "9" * 81, TEXT, "$.classes[0].sums"),
    ("classes 0 levels", ["A", float("inf")], NO_LEVEL, "$.classes[0]"),
    ("classes 1 sums spend", GONE, SUMS, "$.classes[1].sums"),
    ("classes 1 sums clicks", PLANTED, SUMS, "$.classes[1].sums"),
    ("classes 0 counts clicks", PLANTED, SUMS, "$.classes[0].sums"),
    ("metrics", [], SUMS, "$.classes[0].sums"),
    (
        "classes 1 counts",
        {},
        "a metric with missing='exclude' needs its own count in every class",
        "$.classes[1].counts",
    ),
    ("classes 1 levels", ["B"], "one level for each factor is needed", "$.classes[1]"),
    ("classes 1 levels", ["B", PLANTED], "unknown level of 'tier'", "$.classes[1]"),
    ("classes 1 levels", [f"{PLANTED}", 2], "unknown arm of 'arm'", "$.classes[1]"),
    ("classes 1 levels", ["A", 1], f"{TWICE} classes", "$.classes[1]"),
    ("squares 0 cells 1 squares", f"{PLANTED}.5", TEXT, "$.squares[0].cells[1]"),
    ("squares 0 cells 1 levels", ["A"], f"{TWICE} squares", "$.squares[0].cells[1]"),
    ("squares 1 metric", "clicks", "squares of an unknown metric", "$.squares[1]"),
    ("squares 1 by", ["arm"], "the same marginal comes twice", "$.squares[1]"),
    ("squares 1 by", ["plan"], MARGINAL, "$.squares[1]"),
    ("squares 1 by", [], MARGINAL, "$.squares[1]"),
    ("crosses 0 by", ["plan"], MARGINAL, "$.crosses[0]"),
    ("crosses", valid()["crosses"] * 2, "the same pair of metrics is crossed twice", ""),
    ("crosses 0 cells", valid()["crosses"][0]["cells"] * 2, f"{TWICE} cross-products", "$.crosses[0].cells[1]"),
]


@pytest.mark.parametrize(("where", "value", "fact", "place"), BROKEN)
def test_a_broken_document_is_refused_with_the_path_of_the_mistake(
    where: str, value: Any, fact: str, place: str
) -> None:
    document: Any = valid()
    *path, last = [int(word) if word.isdigit() else word for word in where.split()]
    part = reduce(lambda inner, key: inner[key], path, document)
    if where == "squares 1 by" and value == ["arm"]:
        part["cells"] = valid()["squares"][0]["cells"]
    if value is GONE:
        del part[last]
    else:
        part[last] = value
    with pytest.raises(KanabError) as caught:
        Tally.from_dict(document)
    assert (caught.value.fact, caught.value.at) == (fact, place)
    assert caught.value.remedy
    assert str(PLANTED) not in str(caught.value)


@pytest.mark.parametrize("data", [None, 5, "kanab-tally/1", [], {}, b"{}", {1: 2}, [valid()], float("nan")], ids=repr)
def test_data_that_is_no_document_is_refused(data: Any) -> None:
    with pytest.raises(TallyError, match="Give a tally as to_dict"):
        Tally.from_dict(data)


@pytest.mark.parametrize("place", ["key", "format", "role", "level"])
def test_half_a_character_is_refused_like_any_other_mistake(place: str) -> None:
    document = valid()
    half = "\ud800"  # Python's json reads this from a file without complaint
    if place == "key":
        document[half] = 1
    elif place == "format":
        document["format"] = half
    elif place == "role":
        document["factors"][0]["role"] = half
    else:
        document["classes"][0]["levels"] = [half, 1]
    with pytest.raises(KanabError):
        Tally.from_dict(document)


@pytest.mark.parametrize("sizes", [[1] * 65, [1000] * 6], ids=["more factors than axes", "more memory than there is"])
def test_a_short_document_of_a_huge_table_is_refused(sizes: list[int]) -> None:
    factors = [{"name": f"f{i}", "levels": list(range(size)), "role": "arm"} for i, size in enumerate(sizes)]
    with pytest.raises(KanabError):
        Tally.from_dict({"format": "kanab-tally/1", "factors": factors, "metrics": [], "classes": []})


def test_the_usual_rule_for_missing_values_is_not_written_whichever_text_says_it() -> None:
    typed = "".join(["ze", "ro"])  # as read from a command line: equal to the default, but another object
    tallies = [
        count_columns({"arm": ["A", "B"], "y": [1, 2]}, arm="arm", metrics={"y": Metric("y", missing=rule)})
        for rule in (typed, "zero")
    ]
    assert tallies[0].to_dict() == tallies[1].to_dict()
    assert "missing" not in tallies[0].to_dict()["metrics"][0]
