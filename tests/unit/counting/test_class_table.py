from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kanab import KanabError, Metric, Tally, count_columns
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


def test_the_papers_tables_hold_the_same_integers_as_its_rows(tmp_path: Path) -> None:
    tally, rows = read_classes(*paper(tmp_path)), eighteen()
    assert tally.axes == ("Treatment", "Covariate")
    assert tally.metrics == (Metric("Time on App", 10**9),)
    assert tally.people.tolist() == rows.people.tolist()
    assert tally.moments_of().sums.tolist() == rows.moments_of().sums.tolist()
    assert tally.squares().tolist() == rows.squares().tolist()
    assert tally.factor("Covariate").scores == (1.0, 2.0, 3.0)


def test_the_papers_printed_squares_fit_to_their_three_decimals(tmp_path: Path) -> None:
    table2, table3 = paper(tmp_path)
    table3.write_text(TABLE_3.format("17.910", "19.634"))
    fitted = fit(read_classes(table2, table3), "arm + C(Covariate)")
    assert fitted.rss == pytest.approx(7.227903, abs=1e-3)
    assert fitted.b == pytest.approx([0.658342556056, -0.118845493111, 0.721147466667, 1.115929627500], rel=1e-11)


def test_a_table_without_squares_has_counts_and_sums(tmp_path: Path) -> None:
    tally = read_classes(paper(tmp_path)[0])
    assert tally.total == 18
    assert tally.squares() is None


FRAMES = {
    "dict": CLASSES,
    "pandas": pd.DataFrame(CLASSES),
    "polars": pl.DataFrame(CLASSES),
    "arrow": pa.table(CLASSES),
    "texts": {name: [str(value) for value in values] for name, values in CLASSES.items()},
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_table_gives_the_same_tally(kind: str, tmp_path: Path) -> None:
    squares = {"arm": ["A", "B"], "spend": [4.25, 17.0]}
    tally = read_classes(FRAMES[kind], squares)
    assert tally.people.tolist() == [[3, 2], [2, 1]]
    assert tally.metrics == (Metric("spend", 10),)
    assert tally.moments_of().sums.tolist() == [[15, 20], [5, 40]]
    assert tally.squares().tolist() == [425, 1700]
    path = tmp_path / "classes.csv"
    pd.DataFrame(CLASSES).to_csv(path, index=False)
    assert read_classes(path, squares) == tally


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
def test_the_column_of_counts_is_recognised(name: str) -> None:
    assert read_classes({"arm": ["A", "B"], name: [3, 4]}).total == 7


@pytest.mark.parametrize(
    ("written", "metric"),
    [
        ("spend", "spend"),
        ("sum of spend", "spend"),
        ("Sum spend", "spend"),
        ("Σ spend", "spend"),
        ("sum_spend", "spend"),
    ],
)
def test_the_name_of_a_sum_is_the_name_of_its_metric(written: str, metric: str) -> None:
    assert read_classes({"arm": ["A", "B"], "n": [3, 4], written: [1, 2]}).metrics == (Metric(metric),)


def test_a_column_called_only_sum_keeps_its_name() -> None:
    assert read_classes({"arm": ["A", "B"], "n": [3, 4], "Sum ": [1, 2]}).metrics[0].name.strip() == "Sum"


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


Case = tuple[Any, Any, type[KanabError], str]
ONE = {"arm": ["A", "B"], "n": [2, 2], "y": [2, 4]}

REFUSED: dict[str, Case] = {
    "no counts": (
        {"arm": ["A"], "spend": [1]},
        None,
        SourceError,
        r"the table has no column of counts. Call it people, count, counts, n, or name it",
    ),
    "nothing": ({}, None, SourceError, "the table has no column of counts"),
    "no rows": ({"arm": [], "n": []}, None, KanabError, "no levels|no rows"),
    "negative count": ({"arm": ["A", "B"], "n": [1, -918273645]}, None, TallyError, "must be whole numbers of people"),
    "fractional count": ({"arm": ["A", "B"], "n": [1, 918273645.5]}, None, TallyError, "Check for negative or fract"),
    "missing count": ({"arm": ["A", "B"], "n": [1, None]}, None, SourceError, "the counts must be finite numbers"),
    "infinite count": ({"arm": ["A", "B"], "n": [1, float("inf")]}, None, SourceError, "must be finite numbers"),
    "true count": ({"arm": ["A", "B"], "n": [1, True]}, None, SourceError, "must be finite numbers"),
    "count as a word": ({"arm": ["A", "B"], "n": ["1", "918273645x"]}, None, SourceError, "must be finite numbers"),
    "missing sum": (
        {**ONE, "y": [1, float("nan")]},
        None,
        SourceError,
        r"sums of 'y' must be finite numbers. Leave",
    ),
    "sum as a word": (
        {**ONE, "y": ["1", "918273645 EUR"]},
        None,
        SourceError,
        "the sums of 'y' must be finite numbers",
    ),
    "missing squares": (ONE, {"arm": ["A", "B"], "y": [2, None]}, SourceError, "the squares of 'y' must be finite"),
    "same class twice": ({**ONE, "arm": ["A", "A"]}, None, TallyError, r"the same class comes twice. Add such rows up"),
    "same squares twice": (ONE, {"arm": ["A", "A"], "y": [2, 918273645]}, TallyError, "the same class comes twice"),
    "unknown level": (ONE, {"arm": ["A", "918273645"], "y": [2, 8]}, LevelError, r"unknown arm of 'arm'. It has: A, B"),
    "squares of no factor": (
        ONE,
        {"variant": ["A", "B"], "y": [2, 8]},
        SourceError,
        r"a table of squares has no column of the class table's levels. Name one as there: arm\.",
    ),
    "squares too small": (ONE, {"arm": ["A", "B"], "y": [1, 8]}, TallyError, "below Σ S²/n"),
    "an arm without squares": (ONE, {"arm": ["A"], "y": [2]}, TallyError, "below Σ S²/n"),
    "margins apart": (
        {"arm": ["A", "B"], "tier": [1, 2], "n": [2, 2], "y": [2, 4]},
        [{"arm": ["A", "B"], "y": [2, 8]}, {"tier": [1, 2], "y": [2, 9]}],
        TallyError,
        "do not add up to one total",
    ),
    "infinite level": ({"arm": [float("inf"), 1], "n": [1, 2]}, None, LevelError, "neither text, a finite number"),
    "missing arm": ({"arm": ["A", None], "n": [1, 2]}, None, KanabError, "missing"),
    "not a table": (918273645, None, SourceError, "has no named columns"),
    "squares that are no table": (ONE, 918273645, SourceError, "has no named columns"),
    "no such file": ("918273645/nowhere.csv", None, SourceError, r"there is no file 'nowhere.csv'. Check the path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_that_no_people_could_have_made_is_refused(case: str) -> None:
    classes, squares, error, expected = REFUSED[case]
    with pytest.raises(error, match=expected) as caught:
        read_classes(classes, squares)
    assert "918273645" not in str(caught.value)
    assert caught.value.remedy


def test_sums_beyond_the_bounds_are_refused() -> None:
    with pytest.raises(TallyError, match="lies outside what its bounds and counts allow"):
        read_classes(ONE, bounds={"y": (0, 1.5)}, resolution={"y": 0.5})


@pytest.mark.parametrize(
    ("classes", "squares"),
    [
        ({"arm": ["A"], "n": [1, 2]}, None),
        ({"arm": ["A", "B"], "tier": [1], "n": [1, 2]}, None),
        ({"arm": ["A", "B"], "n": [1, 2], "y": [1]}, None),
        (ONE, {"arm": ["A", "B"], "y": [2]}),
        ({**ONE, "tier": [1, 2]}, {"arm": ["A", "B"], "tier": [1], "y": [2, 8]}),
    ],
    ids=str,
)
def test_columns_of_different_lengths_are_refused(classes: Any, squares: Any) -> None:
    with pytest.raises(KanabError):
        read_classes(classes, squares)


@pytest.mark.parametrize(
    "choices",
    [
        {"resolution": 5},
        {"bounds": 5},
        {"resolution": {"z": 1}},
        {"bounds": {"z": (0, 9)}},
        {"metrics": "y"},
        {"metrics": ["z"]},
        {"metrics": 5},
        {"covariates": "arm"},
        {"covariates": 5},
        {"count": "people"},
        {"count": 5},
        {"arm": 5},
        {"arm": "variant"},
    ],
    ids=repr,
)
def test_choices_of_a_wrong_type_or_name_are_refused(choices: dict[str, Any]) -> None:
    with pytest.raises(KanabError):
        read_classes(ONE, **choices)


def test_squares_that_match_no_metric_are_refused() -> None:
    table = {**ONE, "z": [2, 4]}
    with pytest.raises(KanabError):
        read_classes(table, {"arm": ["A", "B"], "yy": [2, 8]})


def test_squares_of_one_margin_given_twice_are_refused() -> None:
    with pytest.raises(KanabError):
        read_classes(ONE, [{"arm": ["A", "B"], "y": [2, 8]}, {"arm": ["A", "B"], "y": [4, 8]}])


@pytest.mark.parametrize("count", ["1e99999", "1" + "0" * 5000])
def test_a_count_that_no_planet_holds_is_refused(count: str) -> None:
    with pytest.raises(KanabError):
        read_classes({"arm": ["A", "B"], "n": [count, "1"]})


@pytest.mark.parametrize("total", ["1e9999999", "-1e9999999"])
def test_a_sum_beyond_all_grids_is_refused(total: str) -> None:
    with pytest.raises(KanabError):
        read_classes({"arm": ["A", "B"], "n": [1, 1], "y": [total, "1"]})


def test_arms_that_look_like_exponents_are_texts() -> None:
    assert read_classes({"arm": ["E5", "E10"], "n": [1, 2]}).people_by() == {"E10": 2, "E5": 1}


def test_columns_named_by_numbers_are_found_or_refused() -> None:
    with contextlib.suppress(KanabError):
        assert read_classes({0: ["A", "B"], "n": [1, 2]}).total == 3


def test_a_table_with_more_factors_than_an_array_has_axes_is_refused() -> None:
    with pytest.raises(KanabError):
        read_classes({**{f"f{i}": ["x"] for i in range(65)}, "n": [1]})


def test_a_small_table_that_spans_too_many_classes_is_refused() -> None:
    with pytest.raises(KanabError, match="classes"):
        read_classes({**{f"f{i}": list(range(1000)) for i in range(6)}, "n": [1] * 1000})


def test_the_same_tally_comes_back_from_its_own_tables() -> None:
    tally = read_classes(CLASSES, {"arm": ["A", "B"], "spend": [4.25, 17.0]})
    assert Tally.from_dict(tally.to_dict()) == tally
