import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kanab import KanabError, Metric, count_columns
from kanab.counting import read_classes
from kanab.datasets import eighteen
from kanab.errors import LevelError, SourceError, TallyError
from kanab.stats import fit

TABLE_2 = """Treatment,Covariate,Count,Sum Time on App
A,1,3,2.170849320
A,2,3,6.210894813
A,3,3,3.054570154
B,1,3,1.422669537
B,2,3,1.709508844
B,3,3,7.234526468
"""
# every digit of Σ y² on a grid of nine decimals
TABLE_3 = "Treatment,Sum of Squared Time on App\nA,{}\nB,{}\n"

CLASSES = {
    "arm": ["A", "A", "B", "B"],
    "tier": [1, 2, 1, 2],
    "count": [3, 2, 2, 1],
    "spend": [1.5, 2.0, 0.5, 4.0],
}


def paper(folder: Path) -> tuple[Path, Path]:
    squares = [f"{value // 10**18}.{value % 10**18:018d}" for value in eighteen().squares().tolist()]
    table2, table3 = folder / "table2.csv", folder / "table3.csv"
    table2.write_text(TABLE_2)
    table3.write_text(TABLE_3.format(*squares))
    return table2, table3


@pytest.mark.parametrize("formula", ["arm + C({})", "arm * C({})", "arm + {}", "arm", "arm * {}"])
def test_the_papers_tables_2_and_3_fit_exactly_like_its_eighteen_rows(tmp_path: Path, formula: str) -> None:
    tally = read_classes(*paper(tmp_path))
    ours, theirs = fit(tally, formula.format("Covariate")), fit(eighteen(), formula.format("tier"))
    for field in ("b", "se", "t", "p", "tss", "rss", "df", "n", "intervals", "xtx", "xty"):
        assert np.array_equal(getattr(ours, field), getattr(theirs, field)), field
    assert dataclasses.astuple(ours.anova) == dataclasses.astuple(theirs.anova)


def test_the_papers_printed_squares_fit_to_their_three_decimals(tmp_path: Path) -> None:
    table2, table3 = paper(tmp_path)
    table3.write_text(TABLE_3.format("17.910", "19.634"))
    fitted = fit(read_classes(table2, table3), "arm + C(Covariate)")
    assert fitted.rss == pytest.approx(7.227903, abs=1e-3)
    assert fitted.b == pytest.approx([0.658342556056, -0.118845493111, 0.721147466667, 1.115929627500], rel=1e-11)


def test_texts_frames_and_files_give_the_same_tally(tmp_path: Path) -> None:
    squares = {"arm": ["A", "B"], "spend": [4.25, 17.0]}
    tally = read_classes(CLASSES, squares)
    assert tally.people.tolist() == [[3, 2], [2, 1]]
    assert tally.metrics == (Metric("spend", 10),)
    assert tally.moments_of().sums.tolist() == [[15, 20], [5, 40]]
    assert tally.squares().tolist() == [425, 1700]
    frame = pd.DataFrame(CLASSES)
    frame.to_csv(tmp_path / "classes.csv", index=False)
    for same in (frame, {name: [*map(str, values)] for name, values in CLASSES.items()}, tmp_path / "classes.csv"):
        assert read_classes(same, squares) == tally


def test_a_class_table_of_rows_equals_counting_the_rows() -> None:
    rows = {"arm": list("AAABBB"), "tier": [1, 1, 2, 1, 2, 2], "spend": [1.5, 2.5, 0.5, 3.0, 1.0, 2.0]}
    counted = count_columns(
        rows, arm="arm", covariates=["tier"], metrics=["spend"], resolution={"spend": 0.5}, bounds={"spend": (0, 5)}
    )
    table = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "n": [2, 1, 1, 2], "spend": [4, 0.5, 3, 3]}
    margins = [{"arm": ["A", "B"], "spend²": [8.75, 14]}, {"tier": [1, 2], "spend²": [17.5, 5.25]}]
    read = read_classes(table, margins, resolution={"spend": 0.5}, bounds={"spend": (0, 5)})
    assert read == counted


def test_columns_may_be_named_instead_of_standing_in_order() -> None:
    table = {"size": [3, 4], "spend": [6, 9], "tier": [1, 1], "variant": ["A", "B"], "note": ["x", "y"]}
    tally = read_classes(table, arm="variant", covariates=["tier"], count="size", metrics=["spend"])
    assert (tally.axes, tally.people_by()) == (("variant", "tier"), {"A": 3, "B": 4})
    assert tally.moments_of("spend").sums.tolist() == [[6], [9]]


@pytest.mark.parametrize("name", ["people", "Count", "counts", "N"])
@pytest.mark.parametrize("written", ["spend", "sum of spend", "Sum spend", "Σ spend", "sum_spend"])
def test_columns_of_counts_and_sums_are_recognised_by_their_names(name: str, written: str) -> None:
    tally = read_classes({"arm": ["A", "B"], name: [3, 4], written: [1, 2]})
    assert (tally.total, tally.metrics) == (7, (Metric("spend"),))


def test_squares_of_several_metrics_are_found_by_name() -> None:
    table = {"arm": ["A", "B"], "n": [2, 2], "sum of spend": [3, 4], "sum of visits": [2, 6]}
    squares = {"arm": ["B", "A"], "Σ visits²": [18, 2], "sum of squared spend": [8, 5]}
    tally = read_classes(table, squares)
    assert tally.squares("spend").tolist() == [5, 8]
    assert tally.squares("visits").tolist() == [2, 18]


def test_squares_may_come_per_class() -> None:
    table = {name: values for name, values in CLASSES.items() if name != "count"} | {"spend": [0.75, 2, 0.25, 16]}
    tally = read_classes(CLASSES, table)
    assert tally.squares(by=["arm", "tier"]).tolist() == [[75, 200], [25, 1600]]


def test_the_grid_is_the_coarsest_decimal_one_that_holds_sums_and_squares() -> None:
    table = {"arm": ["A", "B"], "n": [2, 2], "y": [3, 4]}
    for squares, scale in (([5, 8], 1), ([5.5, 8], 10), ([5.25, 8], 10), ([5.125, 8], 100)):
        assert read_classes(table, {"arm": ["A", "B"], "y": squares}).metrics[0].scale == scale
    assert read_classes({"arm": ["A", "B"], "n": [2, 2], "y": ["3.100", "4"]}).metrics[0].scale == 10


def test_sums_are_read_as_they_are_written_not_as_doubles() -> None:
    table = {"arm": ["A", "B"], "n": [2, 2], "y": ["0.1", "123456789012345678901234567890.3"]}
    tally = read_classes(table)
    assert tally.moments_of().sums.tolist() == [1, 1234567890123456789012345678903]


def test_a_declared_0_1_metric_needs_no_squares() -> None:
    tally = read_classes({"arm": ["A", "B"], "n": [9, 9], "paid": [4, 5]}, bounds={"paid": (0, 1)})
    assert tally.metrics[0].binary
    assert tally.squares().tolist() == [4, 5]


def test_a_class_that_is_not_listed_has_nobody_in_it() -> None:
    tally = read_classes({"arm": ["A", "B"], "tier": [1, 2], "n": [3, 4]})
    assert tally.people.tolist() == [[3, 0], [0, 4]]


ONE = {"arm": ["A", "B"], "n": [2, 2], "y": [2, 4]}
TIERS = {"arm": ["A", "B"], "tier": [1, 2], "n": [2, 2], "y": [2, 4]}
FINITE, WHOLE = "the counts must be finite numbers", "the counts must be whole numbers of people"

REFUSED: list[tuple[Any, Any, type[KanabError], str]] = [
    ({"arm": ["A"], "spend": [1]}, None, SourceError, "no column of counts. Call it people, count, counts, n, or name"),
    ({}, None, SourceError, "the table has no column of counts"),
    ({"arm": [], "n": []}, None, KanabError, "no levels|no rows"),
    ({"arm": ["A", "B"], "n": [1, -918273645]}, None, TallyError, WHOLE),
    ({"arm": ["A", "B"], "n": [1, 918273645.5]}, None, TallyError, WHOLE),
    ({"arm": ["A", "B"], "n": [1, None]}, None, SourceError, FINITE),
    ({"arm": ["A", "B"], "n": [1, float("inf")]}, None, SourceError, FINITE),
    ({"arm": ["A", "B"], "n": [1, True]}, None, SourceError, FINITE),
    ({"arm": ["A", "B"], "n": ["1", "918273645x"]}, None, SourceError, FINITE),
    ({"arm": ["A", "B"], "n": ["1e99999", "1"]}, None, SourceError, "beyond anything that people add up to"),
    ({"arm": ["A", "B"], "n": ["1" + "0" * 5000, "1"]}, None, SourceError, "beyond anything that people add up to"),
    ({"arm": [float("inf"), 1], "n": [1, 2]}, None, LevelError, "neither text, a finite number"),
    ({"arm": ["A", None], "n": [1, 2]}, None, KanabError, "missing"),
    ({**{f"f{i}": ["x"] for i in range(65)}, "n": [1]}, None, TallyError, "the table has too many classes"),
    ({**{f"f{i}": [*range(1000)] for i in range(6)}, "n": [1] * 1000}, None, TallyError, "too many classes"),
    ("918273645/nowhere.csv", None, SourceError, r"there is no file 'nowhere.csv'. Check the path"),
    ({**ONE, "y": [1, float("nan")]}, None, SourceError, "sums of 'y' must be finite numbers. Leave"),
    ({**ONE, "y": ["1", "918273645 EUR"]}, None, SourceError, "the sums of 'y' must be finite numbers"),
    ({**ONE, "y": ["-1e9999999", "1"]}, None, SourceError, "the sums of 'y' are beyond anything that people add up to"),
    ({**ONE, "arm": ["A", "A"]}, None, TallyError, "the same class comes twice. Add such rows up"),
    (ONE, {"arm": ["A", "B"], "y": [2, None]}, SourceError, "the squares of 'y' must be finite"),
    (ONE, {"arm": ["A", "A"], "y": [2, 918273645]}, TallyError, "the same class comes twice"),
    (ONE, {"arm": ["A", "918273645"], "y": [2, 8]}, LevelError, "unknown arm of 'arm'. It has: A, B"),
    (
        ONE,
        {"variant": ["A", "B"], "y": [2, 8]},
        SourceError,
        r"class table's levels.* as there: arm\.",
    ),
    (ONE, {"arm": ["A", "B"], "y": [1, 8]}, TallyError, "below Σ S²/n"),
    (ONE, {"arm": ["A"], "y": [2]}, TallyError, "below Σ S²/n"),
    (ONE | {"z": [2, 4]}, {"arm": ["A", "B"], "yy": [2, 8]}, SourceError, "the squares 'yy' are of no metric"),
    (ONE, [{"arm": ["A", "B"], "y": [q, 8]} for q in (2, 4)], SourceError, "squares of 'y' by arm come twice"),
    (TIERS, [{"arm": ["A", "B"], "y": [2, 8]}, {"tier": [1, 2], "y": [2, 9]}], TallyError, "not add up to one total"),
]


@pytest.mark.parametrize(("classes", "squares", "error", "fact"), REFUSED)
def test_a_table_that_no_people_could_have_made_is_refused(
    classes: Any, squares: Any, error: type[KanabError], fact: str
) -> None:
    with pytest.raises(error, match=fact) as caught:
        read_classes(classes, squares)
    assert "918273645" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(
    "choices",
    [
        *({"resolution": value} for value in (5, {"z": 1})),
        *({"bounds": value} for value in (5, {"z": (0, 9)})),
        *({"metrics": value} for value in ("y", ["z"], 5)),
        *({"covariates": value} for value in ("arm", 5)),
        *({word: value} for word in ("arm", "count") for value in ("variant", 5)),
    ],
    ids=repr,
)
def test_choices_of_a_wrong_type_or_name_are_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(KanabError):
        read_classes(ONE, **choices)
