"""Columns of all kinds become the same codes."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kanab.counting.frames import to_numbers
from kanab.errors import LevelError, SourceError
from kanab.scan.count.codes import ArmCodes, as_numbers

TEXTS = ["on", None, "off", "on"]
WHOLE = [3, None, -1, 3]
TRUTHS = [True, None, False, True]


def names(values: Any, codes: ArmCodes | None = None) -> list[Any]:
    """Everybody's arm, by way of the codes."""
    codes = codes or ArmCodes("red")
    return [None if code == 255 else codes.levels[code] for code in codes.read(values).tolist()]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (TEXTS, TEXTS),
        (np.array(TEXTS, dtype=object), TEXTS),
        (np.array(["a", "b"]), ["a", "b"]),
        (pa.array(TEXTS), TEXTS),
        (pa.array(TEXTS, pa.large_string()), TEXTS),
        (pa.array(TEXTS, pa.string_view()), TEXTS),
        (pa.array(TEXTS).dictionary_encode(), TEXTS),
        (pa.array(["x", "x", *TEXTS, "y"])[2:6], TEXTS),
        (pa.array(["x", "x", *TEXTS, "y"]).dictionary_encode()[2:6], TEXTS),
        (pa.chunked_array([TEXTS[:1], TEXTS[1:]]), TEXTS),
        (pa.chunked_array([TEXTS[:1], TEXTS[1:]]).dictionary_encode(), TEXTS),
        (pd.Series(TEXTS), TEXTS),
        (pd.Series(TEXTS, dtype=object), TEXTS),
        (pd.Series(TEXTS, dtype="category"), TEXTS),
        (pl.Series(TEXTS), TEXTS),
        (pl.Series(TEXTS, dtype=pl.Categorical), TEXTS),
        (WHOLE, WHOLE),
        (np.array([3.0, np.nan, -1, 3]), WHOLE),
        (pa.array(WHOLE), WHOLE),
        (pa.array(WHOLE, pa.int8()), WHOLE),
        (pa.array([9, 9, 9, *WHOLE, 9], pa.int16())[3:7], WHOLE),
        (pa.array([3.0, None, -1.0, float("nan")]), [3, None, -1, None]),
        (pa.array([Decimal(3), None, Decimal(-1), Decimal(3)]), WHOLE),
        (pd.Series(WHOLE), WHOLE),
        (pd.Series(WHOLE, dtype="Int64"), WHOLE),
        (pd.Series([1, 0, 1]), [1, 0, 1]),
        (pl.Series(WHOLE), WHOLE),
        (np.array([0, 1, 1], dtype=np.uint8), [0, 1, 1]),
        (TRUTHS, TRUTHS),
        (np.array([True, False]), [True, False]),
        (pa.array(TRUTHS), TRUTHS),
        (pa.array([False] * 9 + TRUTHS + [False])[9:13], TRUTHS),
        (pd.Series(TRUTHS, dtype="boolean"), TRUTHS),
        (pl.Series(TRUTHS), TRUTHS),
        ([1, "1", None], [1, "1", None]),
        (pd.Series([1, "1", None], dtype=object), [1, "1", None]),
        (pa.nulls(2), [None, None]),
        (pa.array([None, None], pa.int32()), [None, None]),
        (pa.array([None, None], pa.string()), [None, None]),
        (np.array([]), []),
    ],
)  # fmt: skip
def test_a_column_of_any_kind_becomes_codes(values: Any, expected: list[Any]) -> None:
    codes = ArmCodes("red")
    for _ in range(2):  # the second time the levels are known
        found = names(values, codes)
        assert found == expected
        assert [type(one) for one in found] == [type(one) for one in expected]
    assert set(codes.levels) == {one for one in expected if one is not None}


def test_levels_get_codes_as_batches_bring_them() -> None:
    codes = ArmCodes("red")
    batches = [pa.array(["b"]), pa.array(["a", "b", None]), np.array(["c", "a"]), pl.Series(["c", "d"])]
    assert [codes.read(batch).tolist() for batch in batches] == [[0], [1, 0, 255], [2, 1], [2, 3]]
    assert codes.levels == ["b", "a", "c", "d"]


def test_whole_numbers_keep_their_codes_when_others_come() -> None:
    codes = ArmCodes("red")
    assert codes.read(np.array([0, 1])).tolist() == [0, 1]
    assert codes.read(np.array([1, 0, 1])).tolist() == [1, 0, 1]
    assert codes.read(pa.array([5, None, 0])).tolist() == [2, 255, 0]
    assert codes.read(np.array([5.0, np.nan, 1.0])).tolist() == [2, 255, 1]
    assert codes.read(pa.array([1, 5, 0], pa.uint8())).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([f"user {place}" for place in range(1000)]), "'red' has more than 8 arms"),
        (pa.array([Decimal("0.5")]), "'red' has arms that are numbers with a fraction"),
        (pa.array([datetime.date(2024, 1, 1)]), "'red' holds values that are not levels"),
        (pa.array([[1, 2]]), "'red' holds values that are not levels"),
    ],
)
def test_what_cannot_be_arms_is_refused(values: Any, message: str) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        ArmCodes("red").read(values)
    assert caught.value.remedy
    assert "user 3" not in str(caught.value)


def test_infinite_arms_are_refused() -> None:
    with pytest.raises(LevelError, match="finite"):
        ArmCodes("red").read(np.array([np.inf, 1]))


def test_a_dictionary_may_name_more_than_anybody_has() -> None:
    many = pa.array([f"arm {place}" for place in range(100)]).dictionary_encode()
    assert names(many[40:42]) == ["arm 40", "arm 41"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1, None, 3]), [1, None, 3]),
        (pa.array([True, None, False]), [1, None, 0]),
        (pa.array([Decimal("1.25"), None]), [1.25, None]),
        (pa.array([2**62]), [2**62]),
        (pa.array([1.5, float("nan"), None]), [1.5, None, None]),
        (pa.array([1, None], pa.int16()).dictionary_encode(), [1, None]),
        (pa.nulls(2), [None, None]),
        (pd.Series([True, None], dtype="boolean"), [1, None]),
        (pd.Series([1.5, np.nan]), [1.5, None]),
        (pl.Series([1, None]), [1, None]),
        ([True, None, 2], [1, None, 2]),
    ],
)
def test_metrics_of_any_kind_become_numbers(values: Any, expected: list[Any]) -> None:
    found, gone = to_numbers(as_numbers(values), "spend")
    assert [None if out else value for value, out in zip(found.tolist(), gone, strict=True)] == expected


@pytest.mark.parametrize("values", [pa.array(["1"]), pa.array([datetime.date(2024, 1, 1)]), pl.Series(["a"]), ["a"]])
def test_texts_and_dates_are_no_metrics(values: Any) -> None:
    with pytest.raises(SourceError, match="'spend' holds something other than numbers"):
        to_numbers(as_numbers(values), "spend")


def test_frames_are_read_without_arrow_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanab.scan.count.codes.importlib.util.find_spec", lambda _name: None)
    assert names(pd.Series(TEXTS)) == TEXTS
    assert names(pl.Series([3, 1])) == [3, 1]


def test_true_and_one_are_not_mixed_over_batches() -> None:
    codes = ArmCodes("red")
    codes.read(np.array([0, 1]))
    with pytest.raises(SourceError, match="mixes true/false with numbers"):
        codes.read(np.array([True]))
