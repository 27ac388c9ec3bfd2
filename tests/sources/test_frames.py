"""Frames of every library hold the same people: counted in memory or by an engine, they come out alike."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import arro3.core
import duckdb
import ibis
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from tests.described import as_values

import kanab as kb
from kanab.counted import Counted
from kanab.counting import dispatch
from kanab.errors import GridError, MissingExtraError, SourceError
from kanab.plan.periods import Span
from kanab.scan.count.pair_counting import count_pairs

PEOPLE = 240
ROWS: dict[str, list[Any]] = {
    "variant": ["AB"[i % 2] for i in range(PEOPLE)],
    "tier": [i % 3 + 1 if i % 17 else None for i in range(PEOPLE)],
    "vip": [i % 5 == 0 if i % 19 else None for i in range(PEOPLE)],
    "spend": [i * 7 % 11 / 4 if i % 23 else None for i in range(PEOPLE)],
    "bought": [i % 4 == 0 for i in range(PEOPLE)],
}
ARROW, PANDAS, POLARS = pa.table(ROWS), pd.DataFrame(ROWS), pl.DataFrame(ROWS)


class Stream:
    """What any library may give: nothing but an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return ARROW.__arrow_c_stream__(requested_schema)


def with_column(name: str, values: Any) -> pa.Table:
    return ARROW.set_column(ARROW.schema.get_field_index(name), name, values)


def decimals(name: str) -> list[Decimal | None]:
    return [None if value is None else Decimal(str(value)) for value in ROWS[name]]


def relation() -> Any:
    return duckdb.connect().from_arrow(ARROW)


SOURCES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: PANDAS,
    "pandas, nullable": lambda: PANDAS.astype(
        {"variant": "string", "tier": "Int64", "vip": "boolean", "spend": "Float64", "bought": "boolean"}
    ),
    "pandas, Arrow": lambda: ARROW.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas, categories": lambda: PANDAS.astype({"variant": "category", "tier": "category", "vip": "category"}),
    "pandas, Decimal": lambda: PANDAS.assign(
        spend=[value if value is None else Decimal(str(value)) for value in ROWS["spend"]]
    ),
    "pandas, Decimal levels": lambda: PANDAS.assign(
        tier=[value if value is None else Decimal(value) for value in ROWS["tier"]]
    ),
    "pandas, float32": lambda: PANDAS.astype({"spend": "float32"}),
    "pandas, object": lambda: PANDAS.astype(object),
    "pandas, sparse": lambda: PANDAS.assign(spend=pd.arrays.SparseArray(PANDAS["spend"])),
    "pandas, index": lambda: PANDAS.set_index(pd.Index(range(PEOPLE, 0, -1), name="spend_before")),
    "polars": lambda: POLARS,
    "polars, lazy": POLARS.lazy,
    "polars, Enum": lambda: POLARS.cast({"variant": pl.Enum(["B", "A"])}),
    "polars, Categorical": lambda: POLARS.cast({"variant": pl.Categorical}),
    "polars, Decimal": lambda: POLARS.cast({"spend": pl.Decimal(10, 2), "tier": pl.Decimal(10, 2)}),
    "polars, Float32": lambda: POLARS.cast({"spend": pl.Float32, "tier": pl.UInt8}),
    "Arrow": lambda: ARROW,
    "Arrow, chunks": lambda: pa.concat_tables([ARROW.slice(0, 2), ARROW.slice(2)]),
    "Arrow, batch": lambda: ARROW.to_batches()[0],
    "Arrow, reader": ARROW.to_reader,
    "Arrow, dataset": lambda: ds.dataset(ARROW),
    "Arrow, dictionary": lambda: with_column("variant", ARROW["variant"].dictionary_encode()),
    "Arrow, runs": lambda: with_column("variant", pc.run_end_encode(ARROW["variant"].combine_chunks())),
    "Arrow, string_view": lambda: with_column("variant", ARROW["variant"].cast(pa.string_view())),
    "Arrow, decimal256": lambda: with_column("spend", ARROW["spend"].cast(pa.decimal256(40, 2))),
    "Arrow, float16": lambda: with_column("spend", ARROW["spend"].cast(pa.float16())),
    "a stream": Stream,
    "arro3": lambda: arro3.core.Table.from_arrow(ARROW),
    "arro3, reader": lambda: arro3.core.RecordBatchReader.from_arrow(ARROW),
    "narwhals": lambda: nw.from_native(PANDAS),
    "narwhals, lazy": lambda: nw.from_native(POLARS.lazy()),
    "narwhals, DuckDB": lambda: nw.from_native(relation()),
    "DuckDB": relation,
    "Ibis": lambda: ibis.memtable(ARROW),
}


def count(source: Any, **choices: Any) -> Counted:
    return kb.count(
        source, **as_values("count", arm="variant", metrics=["spend", "bought"], covariates=["tier", "vip"], **choices)
    )


EXPECTED = count(ROWS)


def test_the_expected_tallies_hold_these_sums() -> None:
    assert EXPECTED.tallies["variant/tier"].people_by("variant") == {"A": 120, "B": 120}
    moments = EXPECTED.tallies["variant/tier"].moments_of("spend")
    assert sum(moments.sums.ravel()) / moments.metric.scale == sum(value or 0 for value in ROWS["spend"]) == 285.75


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_every_frame_gives_the_digits_of_its_rows(name: str) -> None:
    assert count(SOURCES[name]()).tallies == EXPECTED.tallies
    assert count(SOURCES[name](), where="bought IN (true, false)").tallies == EXPECTED.tallies


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Arrow, reader", "arro3, reader", "polars, lazy", "narwhals, lazy", "DuckDB"])
def test_a_readout_reads_a_stream_once(name: str) -> None:
    choices: dict[str, Any] = {"arm": "variant", "metrics": ["bought"], "adjust": ["spend"]}
    assert (
        kb.readout(SOURCES[name](), **as_values("readout", **choices)).to_dict()
        == kb.readout(ROWS, **as_values("readout", **choices)).to_dict()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Arrow, reader", "polars, lazy", "Arrow, dataset", "DuckDB"])
def test_pairs_and_single_tables_take_the_same_frames(name: str) -> None:
    pairs = count_pairs(SOURCES[name](), ["variant", "tier"], ["spend"])
    assert pairs.people.tolist() == count_pairs(ROWS, ["variant", "tier"], ["spend"]).people.tolist()


def test_count_columns_reads_lazy_frames_and_streams() -> None:
    expected = kb.count_columns(ROWS, arm="variant", metrics=["spend"])
    assert kb.count_columns(POLARS.lazy(), arm="variant", metrics=["spend"]) == expected
    assert kb.count_columns(ARROW.to_reader(), arm="variant", metrics=["spend"]) == expected


def test_a_stream_may_be_joined_and_hold_events() -> None:
    people = ROWS | {"user": list(range(PEOPLE))}
    more = pa.table({"user": list(range(PEOPLE)), "region": ["north", "south"] * (PEOPLE // 2)})
    choices: dict[str, Any] = {"arm": "variant", "metrics": ["bought"], "segments": ["region"], "on": "user"}
    streamed = kb.readout(people, **as_values("readout", join=more.to_reader(), **choices))
    assert streamed.to_dict() == kb.readout(people, **as_values("readout", join=more, **choices)).to_dict()


# ── points in time ─────────────────────────────────────────────────────────────────────────────

START = datetime.datetime(2024, 1, 1, 23, 30)
ZONED = {
    "pandas": lambda times: PANDAS.assign(at=pd.Series(times).dt.tz_localize("America/New_York")),
    "pandas, object": lambda times: PANDAS.assign(
        at=pd.Series(times).dt.tz_localize("America/New_York").astype(object)
    ),
    "polars": lambda times: POLARS.with_columns(at=pl.Series(times).dt.replace_time_zone("America/New_York")),
    "Arrow": lambda times: ARROW.append_column(
        "at", pc.assume_timezone(pa.array(times, pa.timestamp("us")), "America/New_York")
    ),
    "a stream": lambda times: ARROW.append_column(
        "at", pc.assume_timezone(pa.array(times, pa.timestamp("us")), "America/New_York")
    ).to_reader(),
}


@pytest.mark.parametrize("name", ZONED)
def test_cohorts_begin_at_midnight_in_utc_whatever_the_zone(name: str) -> None:
    times = [START + datetime.timedelta(days=i % 14) for i in range(PEOPLE)]  # 04:30 of the next day in UTC
    span = Span("at", "7d", None, "2024-W01")
    choices: dict[str, Any] = {"arms": ["A", "B"], "span": span, "arm": "variant", "metrics": ["bought"]}
    utc = ROWS | {"at": [time + datetime.timedelta(hours=5) for time in times]}
    expected = kb.count(utc, **as_values("count", **choices)).tallies["variant"]
    assert 0 < expected.total < PEOPLE
    assert kb.count(ZONED[name](times), **as_values("count", **choices)).tallies["variant"] == expected
    assert (
        kb.count(ZONED[name](times), **as_values("count", where="bought IN (true, false)", **choices)).tallies[
            "variant"
        ]
        == expected
    )


# ── numbers ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_float32_is_the_number_it_is_and_a_resolution_makes_it_the_one_that_was_meant() -> None:
    single = np.array([0.1, 0.7] * (PEOPLE // 2), dtype=np.float32)
    as_it_is = ROWS | {"spend": single.astype(np.float64).tolist()}
    for frame in (
        PANDAS.assign(spend=single),
        POLARS.with_columns(spend=pl.Series(single)),
        with_column("spend", pa.array(single)),
    ):
        for choices in ({}, {"where": "bought IN (true, false)"}):
            assert count(frame, **choices).tallies == count(as_it_is).tallies
            meant = count(ROWS | {"spend": [0.1, 0.7] * (PEOPLE // 2)}, resolution={"spend": 0.1})
            assert count(frame, resolution={"spend": 0.1}, **choices).tallies == meant.tallies


@pytest.mark.parametrize("choices", [{}, {"where": "bought IN (true, false)"}], ids=["rows", "engine"])
def test_decimals_beyond_the_grid_are_refused_without_their_values(choices: dict[str, Any]) -> None:
    huge = [Decimal("918273645" * 3)] * PEOPLE
    for frame in (PANDAS.assign(spend=huge), with_column("spend", pa.array(huge, pa.decimal128(38, 2)))):
        with pytest.raises(GridError, match=r"'spend' are infinite or too large for its grid\. Declare") as caught:
            count(frame, **choices)
        assert "918273645" not in str(caught.value)
        assert count(frame, bounds={"spend": (0, 100)}, **choices).clamped["spend"] == PEOPLE


# ── what cannot be read ────────────────────────────────────────────────────────────────────────


def test_a_reader_that_was_read_before_says_so() -> None:
    reader = ARROW.to_reader()
    assert count(reader).tallies == EXPECTED.tallies
    for choices in ({}, {"where": "bought IN (true, false)"}):
        with pytest.raises(SourceError, match=r"RecordBatchReader has no rows, or none any more\. A stream is re"):
            count(reader, **choices)


def test_a_lazy_frame_whose_file_is_gone_says_where_to_look() -> None:
    with pytest.raises(SourceError, match=r"a LazyFrame cannot be read \(.*\)\. Read it into a table first"):
        count(pl.scan_parquet("gone.parquet"))


def test_streams_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"reading Arrow streams needs an extra\. Run: pip install 'kanab\[sql"):
        count(ARROW.to_reader())
    monkeypatch.setattr(dispatch, "_installed", lambda _: False)
    with pytest.raises(MissingExtraError, match=r"reading a DuckDBPyRelation needs an extra"):
        count(relation())


UNFIT = {
    "list": pa.array([[918273645]] * PEOPLE),
    "struct": pa.array([{"a": 918273645}] * PEOPLE),
    "map": pa.array([[("a", 918273645)]] * PEOPLE, pa.map_(pa.string(), pa.int64())),
    "binary": pa.array([b"918273645"] * PEOPLE),
    "duration": pa.array([918273645] * PEOPLE, pa.duration("us")),
    "interval": pa.array([(1, 2, 3)] * PEOPLE, pa.month_day_nano_interval()),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNFIT)
def test_nested_columns_binary_ones_and_intervals_are_refused_only_where_they_are_counted(kind: str) -> None:
    beside = ARROW.append_column("odd", UNFIT[kind])
    for choices in ({}, {"where": "bought IN (true, false)"}):
        assert count(beside, **choices).tallies == EXPECTED.tallies
        with pytest.raises(SourceError, match="metric 'odd' holds something other than numbers") as as_metric:
            kb.count(beside, **as_values("count", arm="variant", metrics=["odd"], **choices))
        with pytest.raises(kb.KanabError, match="'odd'") as as_level:
            kb.count(beside, **as_values("count", arm="variant", segments=["odd"], **choices))
        assert "918273645" not in str(as_metric.value) + str(as_level.value)


def test_a_type_that_duckdb_does_not_read_is_named() -> None:
    dataset = ds.dataset(with_column("spend", ARROW["spend"].cast(pa.float16())))
    with pytest.raises(SourceError, match=r"a column of a type that DuckDB does not read .* spend \(halffloat\)"):
        count(dataset)


def test_values_of_several_kinds_are_refused_with_the_name_of_their_column() -> None:
    mixed = PANDAS.assign(spend=[1.0, "none"] * (PEOPLE // 2))
    with pytest.raises(SourceError, match="metric 'spend' holds something other than numbers") as in_memory:
        count(mixed)
    with pytest.raises(SourceError, match="column 'spend' holds values of several kinds") as in_engine:
        count(mixed, where="bought IN (true, false)")
    assert "none" not in str(in_memory.value) + str(in_engine.value)
