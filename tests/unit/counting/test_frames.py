import contextlib
import datetime
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kanab import KanabError
from kanab.counting.frames import column_names, encode, get_column, load_frame, to_numbers
from kanab.errors import LevelError, SourceError


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def coded(values: Any) -> tuple[list[int], tuple[Any, ...]]:
    codes, levels = encode(values, "tier")
    return codes.tolist(), levels


FRAMES = {
    "dict": {"a": [1, 2], "b": ["x", "y"]},
    "pandas": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "polars": pl.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "arrow": pa.table({"a": [1, 2], "b": ["x", "y"]}),
    "record batch": pa.record_batch({"a": [1, 2], "b": ["x", "y"]}),
}


COLUMNS = (list, tuple, np.array, iter, pd.Series, pd.Index, pl.Series, pa.array, np.ma.masked_array)


@pytest.mark.parametrize("values", [*(kind([1, 2]) for kind in COLUMNS), range(1, 3), pa.chunked_array([[1], [2]])])
def test_a_dict_holds_columns_of_any_kind(values: Any) -> None:
    assert get_column({"a": values}, "a").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array(["x", None]), ["x", None]),
        (pa.array([True, False]), [True, False]),
        (pa.chunked_array([pa.array(["x", None, "y"]).dictionary_encode()]), ["x", None, "y"]),
        (pl.Series(["x", None, "y"], dtype=pl.Enum(["y", "x"])), ["x", None, "y"]),
        (np.ma.masked_array([1, 2], mask=[False, True]), [1, None]),
    ],
    ids=["text", "boolean", "dictionary", "enum", "masked"],
)
def test_arrays_that_need_a_copy_are_columns_too(array: Any, expected: list[Any]) -> None:
    assert get_column({"a": array}, "a").tolist() == expected


@pytest.mark.parametrize("frame", [{0: ["x", "y"]}, pd.DataFrame({0: ["x", "y"]})], ids=["dict", "pandas"])
def test_a_column_named_by_a_number_is_found_by_its_text_or_refused(frame: Any) -> None:
    with contextlib.suppress(KanabError):
        assert get_column(frame, "0").tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "data",
    [None, 5, [1, 2], "arm", np.array([1, 2]), pd.Series([1, 2]), object()],
    ids=lambda data: type(data).__name__,
)
def test_data_without_named_columns_is_refused(data: Any) -> None:
    with pytest.raises(SourceError, match=r"has no named columns. Give a dict of columns, or a pandas, polars or Arr"):
        column_names(data)


def test_lazy_frames_and_streams_are_loaded_and_everything_else_stays_itself() -> None:
    assert load_frame(pl.LazyFrame({"a": [1]})).equals(pl.DataFrame({"a": [1]}))
    assert load_frame(FRAMES["arrow"].to_reader()).equals(FRAMES["arrow"])
    for source in (None, 5, "rows.csv", Path("rows.csv"), *FRAMES.values()):
        assert load_frame(source) is source


def test_a_column_that_comes_twice_is_refused() -> None:
    frame = pd.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(SourceError, match=r"there are several columns 'a'. Rename all but one"):
        get_column(frame, "a")
    with pytest.raises(SourceError, match="several columns"):
        get_column(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), "a")


@pytest.mark.parametrize("values", [np.array([[1, 2]]), np.array(5), pd.DataFrame({"x": [1]})], ids=repr)
def test_a_column_is_flat(values: Any) -> None:
    with pytest.raises(SourceError, match=r"column 'a' is not flat. Give one value per person"):
        get_column({"a": values}, "a")


@pytest.mark.parametrize("values", ["918273645", b"918273645", 918273645, None], ids=repr)
def test_a_column_is_not_a_single_value(values: Any) -> None:
    with pytest.raises(SourceError, match=r"a column is a single value. Give one value per person") as caught:
        get_column({"a": values}, "a")
    assert "918273645" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "codes", "levels"),
    [
        (np.array([3, 1, 3]), [1, 0, 1], (1, 3)),
        (np.array([2.5, np.nan, 1.0, np.nan]), [1, 2, 0, 2], (1, 2.5, None)),
        (np.array([True, False]), [1, 0], (False, True)),
        (np.array(["b", "a"]), [1, 0], ("a", "b")),
        (np.array([1, 2], dtype=np.uint8), [0, 1], (1, 2)),
        (np.array([2**63], dtype=np.uint64), [0], (2**63,)),
        (objects("b", None, 10, 9.0, math.nan, "a"), [3, 4, 1, 0, 4, 2], (9, 10, "a", "b", None)),
        (objects(pd.NA, "x", pd.NaT, np.float32("nan")), [1, 0, 1, 1], ("x", None)),
        (objects(1, 1.0, np.int64(1)), [0, 0, 0], (1,)),
        (objects("1", 1), [1, 0], (1, "1")),
        (objects(Decimal("2.50"), Decimal(1), Decimal("NaN"), 1), [1, 0, 2, 0], (1, 2.5, None)),
        (np.array([1.5, 2.5], dtype=np.longdouble), [0, 1], (1.5, 2.5)),
        (np.array([], dtype=object), [], ()),
    ],
    ids=str,
)
def test_levels_are_sorted_and_coded_and_missing_is_the_last(values: Any, codes: Any, levels: Any) -> None:
    encoded = coded(values)
    assert encoded == (codes, levels)
    assert [type(level) for level in encoded[1]] == [type(level) for level in levels]


@pytest.mark.parametrize("values", [[True, 2], [True, 0.5], [True, 1], [1, True, 2], [False, 0]], ids=repr)
def test_true_and_false_do_not_mix_with_numbers(values: list[Any]) -> None:
    with pytest.raises(SourceError, match=r"column 'tier' mixes true/false with numbers. Use one kind of value"):
        encode(objects(*values), "tier")


@pytest.mark.parametrize("value", [[918273645], {918273645}, {}, np.array([918273645]), Decimal("sNaN")], ids=repr)
def test_values_that_cannot_be_compared_are_not_levels(value: Any) -> None:
    with pytest.raises(
        SourceError, match=r"column 'tier' holds values that are not levels. Use texts or num"
    ) as caught:
        encode(objects("x", value), "tier")
    assert "918273645" not in str(caught.value)


NO_LEVELS = [objects(value) for value in (b"918273645", math.inf, (918273645,), Decimal("Infinity"))]
NO_LEVELS += [np.array([np.inf, 1.0]), np.array([1j]), np.array([b"918273645"])]
TIMES = [np.array([918273645], dtype="timedelta64[ns]")]
DATES = [np.array(["2020-01-01"], dtype=f"datetime64[{unit}]") for unit in ("D", "us", "ns")]


@pytest.mark.parametrize("values", [*NO_LEVELS, *TIMES], ids=repr)
def test_bytes_and_other_types_are_no_levels(values: Any) -> None:
    with pytest.raises(LevelError, match=r"a level of 'tier' is neither text, a finite number") as caught:
        encode(values, "tier")
    assert "918273645" not in str(caught.value)


@pytest.mark.parametrize("values", [objects(datetime.date(2020, 1, 1)), *DATES], ids=repr)
def test_dates_are_no_levels(values: Any) -> None:
    with pytest.raises(SourceError, match=r"column 'tier' holds dates, .* Take months: --sql") as caught:
        encode(values, "tier")
    assert "2020" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "floats", "missing"),
    [
        (np.array([1, 2], dtype=np.int8), [1, 2], [False, False]),
        (np.array([True, False]), [1, 0], [False, False]),
        (np.array([1.5, np.nan]), [1.5, 0], [False, True]),
        (np.array([1.5, 2], dtype=np.longdouble), [1.5, 2], [False, False]),
        (objects(True, None, 2, 2.5), [1, 0, 2, 2.5], [False, True, False, False]),
        (objects(pd.NA, pd.NaT, np.float32("nan"), 1), [0, 0, 0, 1], [True, True, True, False]),
        (objects(Decimal("0.1"), Fraction(1, 4), Decimal("NaN")), [0.1, 0.25, 0], [False, False, True]),
    ],
    ids=str,
)
def test_a_metric_is_doubles_and_which_of_them_are_missing(values: Any, floats: Any, missing: Any) -> None:
    doubles, gone = to_numbers(values, "spend")
    assert (doubles.tolist(), gone.tolist()) == (floats, missing)


NO_NUMBERS = ("918273645", b"918273645", [918273645], datetime.date(2020, 1, 1), {}, 1j, np.array([918273645, 1]))


@pytest.mark.parametrize(
    "values", [*map(objects, NO_NUMBERS), np.array(["918273645"]), np.array([1j]), *TIMES, *DATES], ids=repr
)
def test_texts_dates_and_other_types_are_no_metric(values: Any) -> None:
    with pytest.raises(SourceError, match=r"metric 'spend' holds .* numbers\. (A|M)") as caught:
        to_numbers(values, "spend")
    assert "918273645" not in str(caught.value)


@pytest.mark.parametrize(
    "values", [np.array([1, np.inf]), objects(-math.inf), objects(10**400), objects(Fraction(10**400))], ids=str
)
def test_infinite_values_are_refused(values: Any) -> None:
    with pytest.raises(SourceError, match=r"metric 'spend' holds infinite values. Remove them or declare them"):
        to_numbers(values, "spend")
