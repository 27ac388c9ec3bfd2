"""Whatever comes in, a Tally or a KanabError comes out, and no error repeats a value from the data."""

import contextlib
import copy
import csv
import datetime
import gzip
import io
import json
import math
import operator
import tempfile
import uuid
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kanab import KanabError, Metric, Tally, count_columns
from kanab.counting import read_classes

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)

PLANTED = 918273645


def outcome(make: Callable[[], Tally]) -> KanabError | None:
    """None if a tally was made; the error, which must not name what was planted, if not."""
    try:
        tally = make()
    except KanabError as problem:
        assert str(PLANTED) not in str(problem)
        assert problem.fact
        assert problem.remedy
        return problem
    assert isinstance(tally, Tally)
    assert Tally.from_dict(json.loads(json.dumps(tally.to_dict()))) == tally
    assert tally + tally.empty() == tally
    return None


# ── documents ──────────────────────────────────────────────────────────────────────────────────

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([PLANTED, -PLANTED, f"{PLANTED}", PLANTED + 0.5, 10**400, 2**63, 2**64, "\ud800", ""])
)
FIELDS = [
    "format", "factors", "metrics", "classes", "squares", "crosses", "name", "levels", "role", "scores", "scale",
    "bounds", "missing", "people", "sums", "counts", "metric", "by", "cells", "products",
]  # fmt: skip
keys = st.sampled_from(FIELDS) | st.text(max_size=3)
plain = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=15
)


VALID = count_columns(
    {
        "arm": ["A", "A", "B", "B", "B"],
        "tier": [1, 2, 1, 2, None],
        "y": [0.5, 1.5, None, 2, 3],
        "z": [1, 0, 2, 5, 9],
        "paid": [0, 1, 1, 0, 1],
    },
    arm="arm",
    covariates=["tier"],
    metrics={"y": Metric("y", 2, (0, 5), "exclude"), "z": Metric("z"), "paid": Metric("paid", 1, (0, 1))},
    products=[("y", "z")],
).to_dict()


def paths(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to everything in a document."""
    yield at
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, child in inner:
        yield from paths(child, (*at, name))


def changed(document: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    fresh = copy.deepcopy(document)
    node: Any = fresh
    for step in path[:-1]:
        node = node[step]
    change(node, path[-1])
    return fresh


def put(value: Any) -> Callable[[Any, Any], None]:
    return lambda node, key: operator.setitem(node, key, value)


PLACES = [path for path in paths(VALID) if path]
# places of numbers and of the levels that a class names; not the declared names and levels themselves
NUMBERS = [
    path
    for path in PLACES
    if path[0] in ("classes", "squares", "crosses") and not {"by", "metric", "metrics"} & set(path)
]


@FUZZ
@given(path=st.sampled_from(NUMBERS), value=leaves | st.lists(leaves, max_size=2))
def test_a_valid_document_with_one_wrong_number_is_a_tally_or_an_error(path: Any, value: Any) -> None:
    outcome(lambda: Tally.from_dict(changed(VALID, path, put(value))))


safe = plain.filter(lambda value: str(PLANTED) not in repr(value))


@FUZZ
@given(path=st.sampled_from(PLACES), value=safe, again=st.sampled_from(PLACES), other=safe)
def test_a_valid_document_with_anything_changed_is_a_tally_or_an_error(
    path: Any, value: Any, again: Any, other: Any
) -> None:
    document = changed(VALID, path, put(value))
    with contextlib.suppress(KeyError, IndexError, TypeError):  # the first change took the second place away
        document = changed(document, again, put(other))
    outcome(lambda: Tally.from_dict(document))


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_a_valid_document_with_one_thing_missing_or_doubled_is_a_tally_or_an_error(path: Any) -> None:
    outcome(lambda: Tally.from_dict(changed(VALID, path, operator.delitem)))
    if isinstance(path[-1], int):
        outcome(lambda: Tally.from_dict(changed(VALID, path, lambda node, key: node.append(node[key]))))


# ── columns ────────────────────────────────────────────────────────────────────────────────────

odd = st.sampled_from(
    [
        None, math.nan, math.inf, -math.inf, True, False, 0, 1, -1, 0.5, 1e308, -1.7e308, 5e-324, 2**52, 2**53 + 1,
        2**64, 10**400, -(10**400), "", "x", "1", f"{PLANTED}", PLANTED, -PLANTED, PLANTED + 0.5, b"x", "\ud800", "\0",
        Decimal("0.1"), Decimal("NaN"), Decimal("sNaN"), Decimal("Infinity"), Decimal(PLANTED), Fraction(1, 3),
        Fraction(10**400), 1j, complex(PLANTED, 1), datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1),
        datetime.timedelta(1), uuid.UUID(int=PLANTED), [PLANTED], [], (PLANTED,), (), {"a": PLANTED}, {PLANTED},
        frozenset([1]), np.int8(3), np.uint64(2**63), np.float16(1.5), np.float32("nan"), np.longdouble(1.5),
        np.complex64(1j), np.str_("x"), np.bytes_(b"x"), np.bool_(True), np.datetime64("2020-01-01"),
        np.datetime64("2020-01-01", "ns"), np.datetime64("NaT"), np.timedelta64(5, "ns"), np.array(5), np.array([5]),
        np.array([PLANTED, 2]), pd.NA, pd.NaT, pd.Timestamp("2020-01-01"), pd.Interval(0, 1), int, len, object(),
        range(3), memoryview(b"x"), Ellipsis, NotImplemented,
    ]
)  # fmt: skip
values = odd | st.integers() | st.floats() | st.text(max_size=3) | st.dates() | st.binary(max_size=3)

Choices = dict[str, Any]
choices = st.fixed_dictionaries(
    {},
    optional={
        "squares": st.sampled_from(["arm", "marginals", "class", "levels", None]),
        "bounds": st.sampled_from([None, {"y": (0, 5)}, {"y": (5, 0)}, {"y": (1, 2)}, {"z": (0, 1)}]),
        "resolution": st.sampled_from([None, {"y": 0.5}, {"y": 0.3}, {"y": 1e-15}, {"y": "x"}]),
        "missing": st.sampled_from([None, {"y": "exclude"}, {"y": "level"}]),
        "products": st.sampled_from([[], [("y", "y")], [("y", "z")]]),
    },
)


def counted(data: Any, given: Choices | None = None) -> Tally:
    return count_columns(data, arm="arm", covariates=["tier"], metrics=["y"], **(given or {}))


@FUZZ
@given(
    column=st.sampled_from(["arm", "tier", "y"]),
    odd_ones=st.lists(values, min_size=1, max_size=4),
    given=choices,
)
def test_one_column_of_anything_is_counted_or_refused(column: str, odd_ones: list[Any], given: Choices) -> None:
    size = len(odd_ones)
    rows = {"arm": ["A", "B"] * size, "tier": [1, 2] * size, "y": [0, 3] * size}
    rows = {name: some[:size] for name, some in rows.items()}
    outcome(lambda: counted({**rows, column: odd_ones}, given))


DTYPES = [
    "?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "G", "S4", "V4", "U", "O",
    "M8[D]", "M8[us]", "M8[ns]", "M8[Y]", "m8[s]", "m8[ns]",
]  # fmt: skip


@FUZZ
@given(
    dtype=st.sampled_from(DTYPES),
    column=st.sampled_from(["arm", "tier", "y"]),
    raw=st.binary(min_size=64, max_size=64),
    shape=st.sampled_from([(2,), (2, 1), (1, 2), (0,)]),
)
def test_arrays_of_every_type_are_counted_or_refused(dtype: str, column: str, raw: bytes, shape: Any) -> None:
    size = math.prod(shape)
    if dtype in ("U", "O"):
        array = np.array([PLANTED, None][:size], dtype=dtype).reshape(shape)
    else:
        with np.errstate(all="ignore"):
            array = np.frombuffer(raw, dtype=dtype)[:size].reshape(shape)
    outcome(lambda: counted({"arm": ["A", "B"], "tier": [1, 2], "y": [0, 3], column: array}))


@FUZZ
@given(
    kind=st.sampled_from(["pandas", "polars", "arrow", "arrow batch"]),
    column=st.sampled_from(["arm", "tier", "y"]),
    some=st.sampled_from(
        [
            [1, None], [True, None], ["x", None], [1.5, math.nan], [None, None], [datetime.date(2020, 1, 1), None],
            [datetime.datetime(2020, 1, 1), None], [datetime.timedelta(1), None], [Decimal("1.5"), None], [b"x", None],
            [[1], None], [{"a": PLANTED}, None], [PLANTED, 2], [f"{PLANTED}", "x"], [2**62, None], [], [1],
        ]
    ),
)  # fmt: skip
def test_frames_of_every_type_are_counted_or_refused(kind: str, column: str, some: list[Any]) -> None:
    size = len(some)
    rows = {"arm": ["A", "B"][:size], "tier": [1, 2][:size], "y": [0, 3][:size], column: some}
    frame = {
        "pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table, "arrow batch": pa.record_batch,
    }[kind](rows)  # fmt: skip
    outcome(lambda: counted(frame))


# ── class tables ───────────────────────────────────────────────────────────────────────────────

names = st.sampled_from(["arm", "tier", "n", "count", "spend", "sum of spend", "Σ spend²", "", " "])
cell = (
    values
    | st.integers(0, 20)
    | st.decimals(allow_nan=True, allow_infinity=True).map(str)
    | st.sampled_from(["1e400", "1e-400", "-1e5", "1_000", "٣", "0x10", "E5", "nan", "inf", "½", " 3 ", "1e9999"])
)


def tables(most: int) -> st.SearchStrategy[dict[Any, list[Any]]]:
    def equally_long(size: int) -> st.SearchStrategy[dict[Any, list[Any]]]:
        return st.dictionaries(names, st.lists(cell, min_size=size, max_size=size), max_size=5)

    ragged = st.dictionaries(names | st.integers(0, 2), st.lists(cell, max_size=most), max_size=4)
    return st.integers(0, most).flatmap(equally_long) | ragged


@FUZZ
@given(
    column=st.sampled_from(["arm", "tier", "n", "spend"]),
    row=st.integers(0, 3),
    value=cell,
    in_squares=st.booleans(),
    given=st.fixed_dictionaries(
        {},
        optional={
            "bounds": st.sampled_from([{"spend": (0, 5)}, {"spend": (5, 0)}]),
            "resolution": st.sampled_from([{"spend": 0.1}, {"spend": 0.3}]),
            "count": st.sampled_from(["n", "people"]),
            "arm": st.sampled_from(["arm", "variant"]),
        },
    ),
)
def test_a_valid_class_table_with_one_wrong_value_is_a_tally_or_an_error(
    column: str, row: int, value: Any, in_squares: bool, given: Choices
) -> None:
    classes = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "n": [3, 2, 2, 1], "spend": [1.5, 2.0, 0.5, 4.0]}
    squares = {"arm": ["A", "B"], "spend": [4.25, 17.0]}
    table: dict[str, list[Any]] = squares if in_squares and column in squares else classes
    table[column][row % len(table[column])] = value
    outcome(lambda: read_classes(classes, squares, **given))


# ── anything at all ────────────────────────────────────────────────────────────────────────────

PARTS = st.fixed_dictionaries(dict.fromkeys(("factors", "metrics", "classes", "squares", "crosses"), plain))
ODD_COLUMNS = st.dictionaries(st.sampled_from(["arm", "tier", "y"]) | st.integers(0, 3) | st.none(), values, max_size=4)
ANYTHING: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Tally]]] = {
    "json": (plain, Tally.from_dict),
    "json under the right names": (PARTS, lambda parts: Tally.from_dict({"format": "kanab-tally/1", **parts})),
    "columns": (ODD_COLUMNS, counted),
    "data": (values, counted),
    "classes": (values, lambda data: read_classes(None if isinstance(data, str) else data)),
    "class tables": (st.tuples(tables(3), st.none() | tables(2)), lambda both: read_classes(*both)),
}


@pytest.mark.parametrize("kind", ANYTHING)
@FUZZ
@given(data=st.data())
def test_anything_is_a_tally_or_an_error(kind: str, data: st.DataObject) -> None:
    strategy, make = ANYTHING[kind]
    given_ = data.draw(strategy)
    assume(kind != "data" or not isinstance(given_, str))  # a path, which errors name
    outcome(lambda: make(given_))


# ── files ──────────────────────────────────────────────────────────────────────────────────────

pieces = st.sampled_from(
    [b"A", b"B", b"1", b"2", b",", b",", b"\n", b"\n", b"\r\n", b'"', b'""', b"\xff", b"\0", b" ", b"NA", b"e5", b"-",
     b"true", b"1e999", b"0.5", f"{PLANTED}".encode(), "ü".encode(), b"\xef\xbb\xbf", b";", b"\t"]
)  # fmt: skip
fields = st.text(max_size=3) | st.sampled_from(
    ["A", "B", "1", "2", "", "NA", "E5", "-e5", "+", ".", "1e999", "1e-999", "007", "true", "False", f"{PLANTED}",
     f"{PLANTED}x", "9" * 400, "\0", "1.5", "-0", "nan"]
)  # fmt: skip


def read_both(content: bytes, name: str = "people.csv") -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        outcome(lambda: count_columns(path, arm="arm", covariates=["tier"], metrics=["y"]))
        outcome(lambda: read_classes(path))


@FUZZ
@given(content=st.binary(max_size=60) | st.lists(pieces, max_size=25).map(b"".join))
def test_any_bytes_after_a_header_are_counted_or_refused(content: bytes) -> None:
    read_both(b"arm,tier,y\n" + content)
    read_both(b"arm,tier,n,y\n" + content)


@FUZZ
@given(rows=st.lists(st.lists(fields, min_size=3, max_size=3), max_size=6))
def test_any_fields_are_counted_or_refused(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["arm", "tier", "y"], *rows])
    read_both(text.getvalue().encode("utf-8", "surrogatepass"))


@FUZZ
@given(place=st.integers(0, 200), junk=st.binary(min_size=1, max_size=4), cut=st.integers(0, 200))
def test_any_compressed_bytes_are_counted_or_refused(place: int, junk: bytes, cut: int) -> None:
    packed = gzip.compress(b"arm,tier,y\n" + b"A,1,2\nB,2,3\n" * 50, mtime=0)
    place %= len(packed)
    read_both(packed[:place] + junk + packed[place + len(junk) :], "people.csv.gz")
    read_both(packed[: cut % len(packed)], "people.csv.gz")
