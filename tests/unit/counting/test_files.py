"""Files of every kind hold the same people: whoever reads them, counts come out alike."""

import csv
import datetime
import gzip
import importlib.util
import io
import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pytest
from tests.described import as_values

import kanab as kb
from kanab import KanabError, Tally, count_columns
from kanab.counted import Counted
from kanab.counting import dispatch
from kanab.counting.files import holds_rows, parse_fields, read_files, read_texts
from kanab.errors import MissingExtraError, SourceError

ROWS: list[dict[str, Any]] = [
    {"variant": "AB"[i % 2], "spend": (i % 7) + 0.25, "code": f"00{i % 3}", "vip": i % 5 == 0, "tier": i % 3 + 1}
    for i in range(120)
]
needs_excel = pytest.mark.skipif(
    importlib.util.find_spec("python_calamine") is None, reason="the [excel] extra is not installed"
)


def as_csv(sep: str = ",", decimal: str = ".") -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=sep)
    writer.writerow(ROWS[0])
    writer.writerows([str(value).replace(".", decimal) for value in row.values()] for row in ROWS)
    return text.getvalue()


def as_zip(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def as_sheet(rows: list[list[Any]]) -> str:
    """Write a sheet the way Excel does: numbers as such, texts inline, an empty cell as none."""

    def cell(value: Any) -> str:
        if value is None:
            return "<c/>"
        if isinstance(value, bool):
            return f'<c t="b"><v>{int(value)}</v></c>'
        if isinstance(value, str):
            return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
        return f"<c><v>{value}</v></c>"

    body = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
    return f'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{body}</sheetData></worksheet>'


def as_excel(sheets: dict[str, list[list[Any]]]) -> bytes:
    base = "http://schemas.openxmlformats.org"
    office = f"{base}/officeDocument/2006/relationships"
    listed = "".join(f'<sheet name="{name}" sheetId="{i}" r:id="r{i}"/>' for i, name in enumerate(sheets, 1))
    links = "".join(
        f'<Relationship Id="r{i}" Type="{office}/worksheet" Target="worksheets/sheet{i}.xml"/>'
        for i in range(1, len(sheets) + 1)
    )
    relations = f"{base}/package/2006/relationships"
    return as_zip(
        {
            "[Content_Types].xml": f'<Types xmlns="{base}/package/2006/content-types"/>',
            "_rels/.rels": f'<Relationships xmlns="{relations}"><Relationship Id="r1" Type="{office}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
            "xl/workbook.xml": f'<workbook xmlns="{base}/spreadsheetml/2006/main" xmlns:r="{office}"><sheets>{listed}'
            "</sheets></workbook>",
            "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{relations}">{links}</Relationships>',
            **{f"xl/worksheets/sheet{i}.xml": as_sheet(rows) for i, rows in enumerate(sheets.values(), 1)},
        }
    )


TABLE = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
FILES: dict[str, bytes] = {
    "rows.csv": as_csv().encode(),
    "ROWS.CSV.GZ": gzip.compress(as_csv().encode()),
    "rows.tsv": as_csv("\t").encode(),
    "tabs.csv": as_csv("\t").encode(),
    "semicolons.csv": as_csv(";").encode(),
    "bars.txt": as_csv("|").encode(),
    "rows.zip": as_zip({"__MACOSX/._rows.csv": "", "rows.csv": as_csv()}),
    "json.zip": as_zip({"rows.jsonl": "\n".join(map(json.dumps, ROWS))}),
    "rows.json": json.dumps(ROWS).encode(),
    "columns.json": json.dumps(COLUMNS, indent=1).encode(),
    "pandas.json": json.dumps({name: dict(enumerate(values)) for name, values in COLUMNS.items()}).encode(),
    "lines.json": "\n".join(map(json.dumps, ROWS)).encode(),
    "rows.jsonl": "\n".join(map(json.dumps, ROWS)).encode() + b"\n\n",
    "rows.ndjson.gz": gzip.compress("\n".join(map(json.dumps, ROWS)).encode()),
}


def tables(counted: Counted) -> dict[str, Any]:
    return {name: tally.to_dict() for name, tally in counted.tallies.items()}


def counted(source: Any, **choices: Any) -> Counted:
    return kb.count(
        source, **as_values("count", arm="variant", metrics=["spend"], covariates=["code", "vip", "tier"], **choices)
    )


@pytest.fixture(params=["engine", "core"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Count with DuckDB, or as where it is not installed."""
    if request.param == "core":
        monkeypatch.setattr(dispatch, "_installed", lambda _package: False)
    return str(request.param)


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_counted_alike(tmp_path: Path, reader: str, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert tables(counted(tmp_path / name)) == tables(counted(COLUMNS))


@needs_excel
def test_a_sheet_of_excel_is_counted_like_rows(tmp_path: Path, reader: str) -> None:
    file = tmp_path / "rows.xlsx"
    file.write_bytes(as_excel({"Sheet1": [*TABLE, [None] * 5]}))
    assert tables(counted(file)) == tables(counted(COLUMNS))
    file.write_bytes(as_excel({"people": TABLE, "notes": [["what"], ["nothing"]]}))
    with pytest.raises(SourceError, match=r"rows\.xlsx has several sheets\. Name one with table=… \(--table\): people"):
        counted(file)
    assert tables(counted(file, table="people")) == tables(counted(COLUMNS))
    with pytest.raises(SourceError, match=r"rows\.xlsx has no sheet 'person'\. There are: people, notes\."):
        counted(file, table="person")


@needs_excel
def test_what_is_no_sheet_of_rows_is_told(tmp_path: Path) -> None:
    file = tmp_path / "rows.xlsx"
    for data, told in (
        (b"no zip", "cannot be read as an Excel file"),
        (as_excel({"a": []}), "is empty"),
        (as_excel({"a": [["x", "x"], [1, 2]]}), "names a column twice"),
    ):
        file.write_bytes(data)
        with pytest.raises(SourceError, match=rf"rows\.xlsx {told}"):
            counted(file)


def test_excel_without_its_extra_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.xlsx").write_bytes(as_excel({"a": TABLE}))
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "python_calamine" else real(name))
    with pytest.raises(MissingExtraError, match=r"reading Excel files needs an extra\. Run: .*kanab\[excel\]"):
        counted(tmp_path / "rows.xlsx")


@pytest.mark.slow
def test_decimal_commas_are_read_where_they_are_said(tmp_path: Path, reader: str) -> None:
    (tmp_path / "rows.csv").write_text(as_csv(";", ","), encoding="utf-8")
    assert tables(counted(tmp_path / "rows.csv", decimal=",")) == tables(counted(COLUMNS))
    with pytest.raises(SourceError, match=r"metric 'spend' holds texts that look like numbers with a decimal comma"):
        counted(tmp_path / "rows.csv")


def test_what_separates_fields_is_asked_where_two_marks_do(tmp_path: Path, reader: str) -> None:
    lines = ["variant,a;spend,b", *(f"{'AB'[i % 2]},x;{i},y" for i in range(60))]
    (tmp_path / "rows.csv").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(
        SourceError, match=r"fields of rows\.csv may be separated by commas or by semicolons\. Say which it is: sep=','"
    ):
        kb.count(tmp_path / "rows.csv", arm="variant")
    assert kb.count(tmp_path / "rows.csv", arm="variant", rows=kb.Rows(sep=",")).tallies["variant"].total == 60


@pytest.mark.parametrize(
    ("choices", "told"),
    [
        ({"sep": ";;"}, "the separator is not one character"),
        ({"sep": ",", "decimal": ","}, "the separator and the decimal mark are the same"),
        ({"decimal": "'"}, "the decimal mark is neither a point nor a comma"),
    ],
)
def test_marks_that_cannot_be_are_refused(tmp_path: Path, choices: dict[str, str], told: str) -> None:
    (tmp_path / "rows.csv").write_text(as_csv(), encoding="utf-8")
    with pytest.raises(SourceError, match=told):
        counted(tmp_path / "rows.csv", **choices)


UNFIT: dict[str, tuple[str, bytes, str]] = {
    "two files": ("a.zip", as_zip({"a.csv": "x", "b.csv": "x"}), "a.zip holds several files. Unpack it"),
    "no file": ("a.zip", as_zip({}), "a.zip holds no file"),
    "no zip": ("a.zip", b"x,y", "a.zip cannot be unpacked"),
    "packed Parquet": ("a.zip", as_zip({"a.parquet": "x"}), "a.zip holds a packed .parquet file. Unpack it first."),
    "no gzip": ("a.csv.gz", b"x,y", "a.csv.gz cannot be unpacked"),
    "no rows": ("a.json", b'{"a": 1}', "there is no column '"),
    "numbers": ("a.json", b"[1, 2]", "a.json does not hold rows"),
    "a broken line": ("a.jsonl", b'{"variant": "A"}\n{"vari', "a.jsonl does not hold rows - at line 2"),
    "a release": ("a.json", b'{"format": "kanab-release/1"}', "a.json is a release: its people are counted already"),
    "another kind": ("a.sas7bdat", b"", "'a.sas7bdat' is of an unknown kind. Give .csv, .tsv, .txt, .json"),
    "SQLite": ("a.db", b"SQLite format 3\0", "'a.db' is a database. Give sqlite:/// with its path after it"),
    "DuckDB": ("a.db", b"12345678DUCK", "'a.db' is a database. Give duckdb:/// with"),
    "latin-1": ("a.csv", "variant,spend\ncafé,1\n".encode("latin-1"), "a.csv is not UTF-8 text. Save it as UTF-8, for"),
    "an empty file": ("a.csv", b"", "a.csv is empty"),
}


@pytest.mark.parametrize(("name", "data", "told"), UNFIT.values(), ids=UNFIT)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, reader: str, name: str, data: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError) as refused:
        counted(tmp_path / name)
    assert told in str(refused.value)


def test_a_directory_is_told_as_one(tmp_path: Path, reader: str) -> None:
    with pytest.raises(SourceError, match=r"is a directory without Parquet files\. Name a file, or a pattern of files"):
        counted(tmp_path)


def test_columns_of_several_kinds_are_texts(tmp_path: Path, reader: str) -> None:
    rows = [{"variant": "AB"[i % 2], "x": [1, "1", True, [2]][i % 4], "y": 2**70 if i % 2 else 1} for i in range(80)]
    (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
    made = kb.count(tmp_path / "rows.json", arm="variant", segments=["x", "y"])
    assert made.tallies["variant/x"].factor("x").levels == ("1", "[2]", "true")
    assert made.tallies["variant/y"].factor("y").levels == ("1", str(2**70))


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[]", True), ('[{"a": 1}]', True),
        ('{"a": 1}\n{"a": 2}', True), ('{"a": [1]}', True), ('{"a": {"0": 1}}', True),
        ('{"format": "kanab-release/1"}', False), ('{\n "format": "x"}', False), ("{}", False), ("no JSON", False),
    ],
)  # fmt: skip
def test_rows_are_told_from_releases_by_their_beginning(tmp_path: Path, text: str, rows: bool) -> None:
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    assert holds_rows(tmp_path / "a.json") is rows


LOOKING: dict[str, tuple[Callable[[int], str], str]] = {
    "thousands": (lambda i: f"{1_000 + i:,}", "numbers with commas"),
    "percent": (lambda i: f"{i}%", "percentages"),
    "yes": (lambda i: "yes" if i % 2 else "No", "yes and no"),
    "dates": (lambda i: f"2026-01-0{i % 9 + 1}", "dates"),
}


@pytest.mark.parametrize(("make", "word"), LOOKING.values(), ids=LOOKING)
def test_texts_in_place_of_numbers_are_told_by_what_they_look_like(
    tmp_path: Path, reader: str, make: Callable[[int], str], word: str
) -> None:
    with (tmp_path / "rows.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([["variant", "spend"], *(["AB"[i % 2], make(i)] for i in range(60))])
    with pytest.raises(SourceError, match=f"metric 'spend' holds texts that look like {word}"):
        kb.count(tmp_path / "rows.csv", arm="variant", metrics=["spend"])


@pytest.mark.slow
def test_a_query_of_a_file_or_a_frame_calls_it_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(FILES["rows.csv"])
    query = "SELECT * FROM rows WHERE tier > 1;"
    for source in (tmp_path / "rows.csv", COLUMNS):
        assert counted(source, sql=query).tallies["variant/tier"].total == 80
        with pytest.raises(
            SourceError, match=r"the query was refused .* The source is the table rows: SELECT \* FROM rows"
        ):
            counted(source, sql="SELECT * FROM users")
        with pytest.raises(SourceError, match=r"the source is a table by itself\. Leave table out"):
            counted(source, table="users")


@pytest.mark.parametrize("place", ["ftp://shop.example/rows.csv", "file:///rows.parquet"])
def test_addresses_that_are_not_read_name_those_that_are(place: str) -> None:
    with pytest.raises(SourceError, match=r"files are not read from (ftp|file)://\. Give a path, or an address that"):
        counted(place)


def days(count: int, kind: str) -> dict[str, Any]:
    moments = [datetime.datetime(2026, 1, 1, 12) + datetime.timedelta(days=i % count) for i in range(4_000)]
    made = {"text": [str(at.date()) for at in moments], "date": [at.date() for at in moments], "time": moments}
    return {"variant": ["A", "B"] * 2_000, "signup": made[kind]}


@pytest.mark.parametrize("engine", [False, True])
@pytest.mark.parametrize(("count", "kind"), [(200, "text"), (1_500, "text"), (200, "date"), (20, "time")])
def test_dates_as_a_covariate_are_pointed_to_months(count: int, kind: str, engine: bool) -> None:
    choices = {"sql": "SELECT * FROM rows"} if engine else {}
    with pytest.raises(SourceError, match=r"column 'signup' holds dates, and each would be .* --sql") as told:
        kb.count(days(count, kind), **as_values("count", arm="variant", segments=["signup"], **choices))
    query = told.value.remedy.partition('"')[2].removesuffix('".')
    made = kb.count(days(200, kind), arm="variant", segments=["signup"], rows=kb.Rows(sql=query))
    assert made.tallies["variant/signup"].factor("signup").levels[:2] == ("2026-01", "2026-02")


def test_a_few_days_may_be_levels() -> None:
    assert len(kb.count(days(20, "text"), arm="variant", segments=["signup"]).tallies["variant/signup"].people[0]) == 20


@pytest.mark.parametrize("name", ["rows.zip", "rows.xlsx"])
@pytest.mark.parametrize("honest", [True, False])
def test_what_unpacks_to_very_much_more_than_its_size_is_refused(tmp_path: Path, name: str, honest: bool) -> None:
    inner = "xl/worksheets/sheet1.xml" if name.endswith("xlsx") else "rows.csv"
    with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(inner, "w") as member:
        for _ in range(80):
            member.write(b"0" * 2**20)
    if not honest:
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data.replace((80 * 2**20).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    with pytest.raises(SourceError, match=f"{name} unpacks to more than 100 times its size. If you trust"):
        read_files([tmp_path / name])


# ── CSV files, without an engine ───────────────────────────────────────────────────────────────

CSV = "arm,tier,spend\nA,1,0.5\nA,2,2\nB,1,1.5\nB,2,\n"
CSV_COLUMNS = {"arm": ["A", "A", "B", "B"], "tier": [1, 2, 1, 2], "spend": [0.5, 2, 1.5, None]}
CSV_CHOICES: dict[str, Any] = {"arm": "arm", "covariates": ["tier"], "metrics": ["spend"], "resolution": {"spend": 0.5}}


def written(folder: Path, content: str | bytes, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def arms(folder: Path, content: str | bytes, name: str = "people.csv") -> Tally:
    return count_columns(written(folder, content, name), arm="arm")


def test_a_file_and_its_columns_give_one_tally(tmp_path: Path) -> None:
    assert count_columns(written(tmp_path, CSV), **CSV_CHOICES) == count_columns(CSV_COLUMNS, **CSV_CHOICES)
    assert count_columns(str(written(tmp_path, CSV)), **CSV_CHOICES) == count_columns(CSV_COLUMNS, **CSV_CHOICES)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("\n", "\r"),
        CSV.replace("arm,tier", " arm , tier "),
        CSV.replace("A,1", '"A" ,1'.replace(" ", "")),
        CSV.replace("A,1", " A , 1 "),
        CSV.replace("B,1", "\n\nB,1"),
        CSV.replace("arm,", "arm,note,").replace("A,", 'A,"x, ""y""",').replace("B,", "B,z,"),
        CSV.rstrip("\n"),
    ],
    ids=["bom", "crlf", "cr", "spaced header", "quoted", "spaced", "blank lines", "another column", "no last newline"],
)
def test_ways_of_writing_a_file_make_no_difference(tmp_path: Path, text: str) -> None:
    assert count_columns(written(tmp_path, text), **CSV_CHOICES) == count_columns(CSV_COLUMNS, **CSV_CHOICES)


@pytest.mark.parametrize("empty", ["", "NA", "NULL", "null", "NaN", "nan", "  "])
def test_empty_fields_are_missing(empty: str) -> None:
    numbers = parse_fields(["1", empty, "2.5"]).tolist()
    assert numbers[::2] == [1.0, 2.5]
    assert math.isnan(numbers[1])
    assert parse_fields(["x", empty]).tolist() == ["x", None]
    assert parse_fields(["true", empty]).tolist() == [True, None]


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        (["1", "-2", "+3", "0.5", ".5", "1e3", "1E-2", "-0"], [1, -2, 3, 0.5, 0.5, 1000, 0.01, 0]),
        (["true", "False", "TRUE"], [True, False, True]),
        (["true", "yes"], ["true", "yes"]),
        (["007", "12"], ["007", "12"]),
        (["1.", "2"], ["1.", "2"]),
        (["1", "x"], ["1", "x"]),
        *(([text], [text]) for text in ("+", "inf", "1_000", "1,5", "0x10", "E5", "e10", "-e5", "e")),
        ([" padded "], ["padded"]),
    ],
    ids=str,
)
def test_a_column_is_numbers_or_truths_or_texts(fields: list[str], values: list[Any]) -> None:
    parsed = parse_fields(fields).tolist()
    assert parsed == values
    assert {type(value) for value in parsed} <= {float, bool, str}


def test_long_whole_numbers_stay_apart(tmp_path: Path) -> None:
    tally = arms(tmp_path, "arm\n9007199254740993\n9007199254740992\n")
    assert list(tally.people_by().values()) == [1, 1]


def test_only_the_wanted_columns_are_read(tmp_path: Path) -> None:
    path = written(tmp_path, CSV)
    assert read_texts(path, ["tier", "arm", "tier"]) == {"tier": ["1", "2", "1", "2"], "arm": ["A", "A", "B", "B"]}
    assert list(read_texts(path)) == ["arm", "tier", "spend"]


REFUSED_CSV: dict[str, tuple[str | bytes, str]] = {
    "blank first line": ("\narm\nA\n", r"people.csv is empty"),
    "header only": ("arm\n", r"there are no rows to count. Check the file"),
    "too few fields": ("arm,n\nA,1\n918273645\n", r"too few fields - at .*line.* 3. Every line needs 2 fields"),
    "too many fields": ("arm,n\nA,1,918273645\n", r"too many or too few fields - at .*line.* 2"),
    "column twice": ("arm,n,n\nA,1,2\n", r"people.csv names a column twice. Rename one of them"),
    "arm twice": ("arm,arm\nA,1\n", r"people.csv names a column twice|several columns 'arm'"),
    "unknown column": ("Arm,n\nA,918273645\n", r"there is no column 'arm'. Did you mean Arm\?"),
    "no near column": ("variant,n\nA,918273645\n", r"there is no column 'arm'. There are: variant, n\."),
    "text after a quote": ('arm\n"A"918273645\n', r"people.csv is not a well-formed CSV file. Check quotes"),
    "open quote": ('arm\n"918273645\n', r"people.csv is not a well-formed CSV file"),
    "endless field": ("arm\n" + "9" * 200_000, r"people.csv is not a well-formed CSV file"),
    "infinite arm": ("arm\n1e999\n918273645\n", r"neither text, a finite number"),
    "missing arm": ("arm,n\n,1\nA,918273645\n", r"arm column 'arm' has missing values. Leave out people"),
    "no arms at all": ("arm,n\n,1\nNA,918273645\n", r"arm column 'arm' has missing values"),
}


@pytest.mark.parametrize("case", REFUSED_CSV)
def test_a_file_that_cannot_be_counted_is_refused(tmp_path: Path, case: str) -> None:
    content, expected = REFUSED_CSV[case]
    with pytest.raises(KanabError, match=expected) as caught:
        arms(tmp_path, content)
    assert "918273645" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("damage", ["cut short", "damaged", "damaged checksum"])
def test_a_broken_compressed_file_is_refused(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"arm\n" + b"A\nB\n" * 5000)
    content = {
        "cut short": packed[:-12],
        "damaged": packed[:15] + b"\xff" * 4 + packed[19:],
        "damaged checksum": packed[:-8] + b"\0\0\0\0" + packed[-4:],
    }[damage]
    with pytest.raises(SourceError, match=r"people\.csv\.gz"):
        arms(tmp_path, content, "people.csv.gz")


@pytest.mark.parametrize(
    ("name", "fact"),
    [
        ("nobody.csv", r"there is no file 'nobody.csv'. Check the path"),
        ("", r"cannot be read: .*directory. Check the path"),
        ("a\0b.csv", "the path holds a character that no file name may hold"),
    ],
)
def test_what_is_no_file_is_refused_without_its_folder(tmp_path: Path, name: str, fact: str) -> None:
    with pytest.raises(SourceError, match=fact) as caught:
        count_columns(tmp_path / name, arm="arm")
    assert str(tmp_path.parent) not in str(caught.value)
