"""Tables of several files, packed files and lakes: the digits of the same rows in memory, or a clear error."""

import gzip
import importlib.util
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from tests.described import as_values

import kanab as kb
from kanab.cli.main import cli
from kanab.counted import Counted
from kanab.counting.columns import count_columns
from kanab.counting.files import open_lake
from kanab.errors import MissingExtraError, SourceError
from kanab.scan.count.pair_counting import count_pairs

pytestmark = pytest.mark.slow  # engines and lakes, several times in each

PEOPLE = 240
ROWS: dict[str, list[Any]] = {
    "variant": ["AB"[i % 2] for i in range(PEOPLE)],
    "tier": [i % 3 + 1 for i in range(PEOPLE)],
    "code": [f"00{i % 4}" for i in range(PEOPLE)],
    "spend": [i * 7 % 11 / 4 for i in range(PEOPLE)],
}
TABLE = pa.table(ROWS)


def count(source: Any, **choices: Any) -> Counted:
    return kb.count(
        source, **as_values("count", arm="variant", metrics=["spend"], covariates=["tier", "code"], **choices)
    )


EXPECTED = count(ROWS).tallies


def as_csv() -> bytes:
    text = io.BytesIO()
    pacsv.write_csv(TABLE, text, pacsv.WriteOptions(quoting_style="needed"))
    return text.getvalue()


def pack(text: bytes, codec: str) -> bytes:
    return gzip.compress(text) if codec == "gz" else pa.Codec("zstd").compress(text, asbytes=True)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_parquet(name: str, table: pa.Table) -> Path:
        pq.write_table(table, tmp_path / name)
        return tmp_path / name

    return write_parquet


# ── packed files ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.zst", "rows.tsv.zst", "rows.jsonl.zst"])
@pytest.mark.parametrize("engine", [True, False], ids=["engine", "core"])
def test_packed_files_hold_the_same_people(
    name: str, engine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = as_csv()
    if "tsv" in name:
        text = text.replace(b",", b"\t")
    if "json" in name:
        text = "\n".join(json.dumps(row) for row in TABLE.to_pylist()).encode()
    (tmp_path / name).write_bytes(pack(text, name.rpartition(".")[2]))
    if not engine:
        monkeypatch.setattr("kanab.counting.dispatch._installed", lambda _: False)
    assert count(tmp_path / name).tallies == EXPECTED


@pytest.mark.parametrize("codec", ["gz", "zst"])
@pytest.mark.parametrize("engine", [True, False], ids=["engine", "core"])
def test_a_packed_file_that_ends_too_early_is_no_half_result(
    codec: str, engine: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, *lines = as_csv().splitlines(keepends=True)
    whole = pack(header + b"".join(lines * 60), codec)
    if not engine:
        monkeypatch.setattr("kanab.counting.dispatch._installed", lambda _: False)
    for cut in (5, 9, len(whole) // 2):
        (tmp_path / f"rows.csv.{codec}").write_bytes(whole[:-cut])
        with pytest.raises(SourceError, match=rf"rows\.csv\.{codec} cannot be unpacked\. Check that it is whole"):
            kb.count(tmp_path / f"rows.csv.{codec}", arm="variant", metrics=["spend"])


def test_zst_files_need_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv.zst").write_bytes(pack(as_csv(), "zst"))
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"reading \.zst files needs an extra\. Run: pip install 'kanab\[sql"):
        count_columns(tmp_path / "rows.csv.zst", arm="variant")


def partitioned(table: pa.Table, folder: Path, columns: list[str]) -> None:
    ds.write_dataset(table, folder, format="parquet", partitioning=columns, partitioning_flavor="hive")


# ── several Parquet files ──────────────────────────────────────────────────────────────────────


def test_folders_that_name_columns_are_columns_by_the_rules_of_csv_files(tmp_path: Path) -> None:
    partitioned(TABLE, tmp_path / "hive", ["tier", "code"])
    for place in ("hive", "hive/**/*.parquet", "hive/*/*/*.parquet"):
        assert count(tmp_path / place).tallies == EXPECTED
        assert count(tmp_path / place, where="tier < 3").tallies == count(ROWS, where="tier < 3").tallies
    pairs = count_pairs(str(tmp_path / "hive"), ["variant", "tier"], ["spend"])
    assert pairs.people.tolist() == count_pairs(ROWS, ["variant", "tier"], ["spend"]).people.tolist()


def test_a_folder_may_say_that_a_value_is_missing_and_spell_signs(tmp_path: Path) -> None:
    table = TABLE.set_column(2, "code", pa.array([[None, "a b/c", "d"][i % 3] for i in range(PEOPLE)]))
    partitioned(table, tmp_path / "hive", ["code"])
    levels = count(tmp_path / "hive").tallies["variant/code"].factor("code").levels
    assert levels == ("a b/c", "d", None)
    assert count(tmp_path / "hive").tallies == count(table).tallies


def test_folders_that_name_different_columns_are_refused(tmp_path: Path) -> None:
    for folder in ("tier=1", "level=2"):
        (tmp_path / folder).mkdir()
        pq.write_table(TABLE.drop(["tier"]), tmp_path / folder / "a.parquet")
    with pytest.raises(SourceError, match=r"the folders of a\.parquet name other columns"):
        count(tmp_path / "*" / "*.parquet")


def test_whole_numbers_in_the_first_file_do_not_round_those_of_the_second(write: Callable[..., Path]) -> None:
    whole = {**ROWS, "spend": [i % 11 for i in range(PEOPLE)]}
    first, second = pa.table(whole), TABLE
    narrow = first.set_column(3, "spend", first["spend"].cast(pa.int8()))
    place = write("a.parquet", narrow).with_name("*.parquet")
    write("b.parquet", second)
    together = {name: whole[name] + ROWS[name] for name in ROWS}
    assert count(place).tallies == count(together).tallies
    pairs = count_pairs(str(place), ["variant", "tier"], ["spend"])
    expected = count_pairs(together, ["variant", "tier"], ["spend"])
    assert pairs.tally(0, 1) == expected.tally(0, 1)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (pa.array(["918273645"] * PEOPLE), "holds numbers in a.parquet and texts in b.parquet"),
        (pa.array([True] * PEOPLE), "holds numbers in a.parquet and true/false in b.parquet"),
        (pa.array([0] * PEOPLE, pa.date32()), "holds numbers in a.parquet and dates or times in b.parquet"),
        (pa.array([b""] * PEOPLE), "holds numbers in a.parquet and values of type binary in b.parquet"),
    ],
    ids=["text", "truth", "date", "binary"],
)
def test_a_column_that_changes_its_kind_between_files_is_named(
    write: Callable[..., Path], values: Any, words: str
) -> None:
    write("a.parquet", TABLE)
    place = write("b.parquet", TABLE.set_column(3, "spend", values)).with_name("*.parquet")
    with pytest.raises(SourceError, match=f"column 'spend' {words}. Write it alike in all files") as caught:
        count(place)
    assert "918273645" not in str(caught.value)


def test_a_column_that_a_file_lacks_or_adds(write: Callable[..., Path]) -> None:
    write("a.parquet", TABLE)
    place = write("b.parquet", TABLE.append_column("new", TABLE["tier"])).with_name("*.parquet")
    assert count(place).tallies["variant/tier"].total == 2 * PEOPLE
    write("c.parquet", TABLE.drop(["code"]))
    with pytest.raises(SourceError, match=r"c\.parquet has no column 'code', which a\.parquet has"):
        count(place)


def test_a_parquet_file_that_is_cut_is_named(write: Callable[..., Path]) -> None:
    write("a.parquet", TABLE)
    broken = write("b.parquet", TABLE)
    broken.write_bytes(broken.read_bytes()[:-20])
    for place in (broken, broken.with_name("*.parquet")):
        with pytest.raises(SourceError, match=r"b\.parquet cannot be read as Parquet \(.*\)\. Check that it is whole"):
            count(place)


def test_parts_of_a_table_that_was_not_finished_are_no_table(tmp_path: Path) -> None:
    (tmp_path / "_temporary").mkdir()
    pq.write_table(TABLE, tmp_path / "_temporary" / "part.parquet")
    with pytest.raises(SourceError, match="is a directory without Parquet files"):
        count(tmp_path)


# ── Delta and Iceberg ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table that was appended to, and from which people were deleted; their files are still there."""
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path_factory.mktemp("lake") / "people"
    deltalake.write_deltalake(str(folder), TABLE.slice(0, 100), partition_by=["tier"])
    deltalake.write_deltalake(str(folder), TABLE.slice(100), mode="append")
    deltalake.write_deltalake(str(folder), TABLE.set_column(0, "variant", pa.array(["C"] * PEOPLE)), mode="append")
    deltalake.DeltaTable(str(folder)).delete("variant = 'C'")
    return folder


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Any:
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    folder = tmp_path_factory.mktemp("iceberg")
    catalog = catalogs.SqlCatalog("shop", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.people", schema=TABLE.schema)
    table.append(TABLE.slice(0, 100))
    table.append(TABLE.slice(100))
    yield table
    catalog.engine.dispose()


def test_a_delta_table_is_read_as_its_log_says(delta: Path) -> None:
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra

    for source in (delta, str(delta), DeltaTable(str(delta)), DeltaTable(str(delta), version=1)):
        assert count(source).tallies == EXPECTED
        assert count(source, where="tier < 3").tallies == count(ROWS, where="tier < 3").tallies
    pairs = count_pairs(str(delta), ["variant", "tier"], ["spend"])
    assert pairs.people.tolist() == count_pairs(ROWS, ["variant", "tier"], ["spend"]).people.tolist()


def test_files_of_a_delta_table_are_not_read_past_its_log(delta: Path) -> None:
    for pattern in ("*/*.parquet", "tier=1/*.parquet"):
        with pytest.raises(SourceError, match=r"parts of a table with a log, .* Name the directory itself: people"):
            count(delta / pattern)
    with pytest.raises(SourceError, match="parts of a table with a log"):
        count_pairs(str(delta / "*/*.parquet"), ["variant", "tier"], ["spend"])


def test_an_iceberg_table_is_read_from_its_catalog_or_from_one_of_its_states(iceberg: Any) -> None:
    metadata = Path(iceberg.metadata_location.removeprefix("file://"))
    for source in (iceberg, iceberg.scan(), metadata, str(metadata)):
        assert count(source).tallies == EXPECTED
    assert count(iceberg.scan(row_filter="tier < 3")).tallies == count(ROWS, where="tier < 3").tallies
    with pytest.raises(SourceError, match="an Iceberg table with several states, and its catalog knows which"):
        count(metadata.parents[1])
    (metadata.parent / "version-hint.text").write_text(metadata.name.removesuffix(".metadata.json"))
    assert count(metadata.parents[1]).tallies == EXPECTED


def test_the_command_line_takes_directories_of_tables(delta: Path, iceberg: Any) -> None:
    metadata = iceberg.metadata_location.removeprefix("file://")
    for place in (str(delta), metadata):
        answer = CliRunner().invoke(cli, ["analyze", place, "--arm", "variant", "--metric", "spend"])
        assert answer.output.startswith("variant: 240 people in 2 arms, control A")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_lakes_name_their_extra_and_what_is_broken(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "lake" / {"delta": "_delta_log", "iceberg": "metadata"}[kind]
    log.mkdir(parents=True)
    (log / "1.metadata.json").write_text("{}")
    with pytest.raises(SourceError, match=r"lake cannot be read \(.*\)\. Check that its log and its files are whole"):
        count(tmp_path / "lake")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=rf"tables needs an extra\. Run: pip install 'kanab\[{kind}\]'"):
        open_lake(tmp_path / "lake")


def test_a_delta_table_with_deletion_vectors_is_refused_and_not_counted_with_who_was_deleted(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = tmp_path / "visits"
    deltalake.write_deltalake(str(folder), TABLE)
    (first,) = (folder / "_delta_log").glob("*.json")
    (added,) = (action["add"] for action in map(json.loads, first.read_text().splitlines()) if "add" in action)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1}
    vector |= {"sizeInBytes": 36, "cardinality": 2}
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": added["path"], "dataChange": True}},
        {"add": added | {"deletionVector": vector}},
    ]
    (folder / "_delta_log" / f"{1:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(SourceError, match="A table with deletion vectors is read by Spark"):
        count(str(folder))
