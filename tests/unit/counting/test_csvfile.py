import gzip
import math
from pathlib import Path
from typing import Any

import pytest

from kanab import KanabError, Tally, count_columns
from kanab.counting.files import parse_fields, read_texts
from kanab.errors import SourceError

TEXT = "arm,tier,spend\nA,1,0.5\nA,2,2\nB,1,1.5\nB,2,\n"
COLUMNS = {"arm": ["A", "A", "B", "B"], "tier": [1, 2, 1, 2], "spend": [0.5, 2, 1.5, None]}
CHOICES: dict[str, Any] = {"arm": "arm", "covariates": ["tier"], "metrics": ["spend"], "resolution": {"spend": 0.5}}


def written(folder: Path, content: str | bytes, name: str = "people.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def arms(folder: Path, content: str | bytes, name: str = "people.csv") -> Tally:
    return count_columns(written(folder, content, name), arm="arm")


def test_a_file_and_its_columns_give_one_tally(tmp_path: Path) -> None:
    assert count_columns(written(tmp_path, TEXT), **CHOICES) == count_columns(COLUMNS, **CHOICES)
    assert count_columns(str(written(tmp_path, TEXT)), **CHOICES) == count_columns(COLUMNS, **CHOICES)


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff" + TEXT,
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\r"),
        TEXT.replace("arm,tier", " arm , tier "),
        TEXT.replace("A,1", '"A" ,1'.replace(" ", "")),
        TEXT.replace("A,1", " A , 1 "),
        TEXT.replace("B,1", "\n\nB,1"),
        TEXT.replace("arm,", "arm,note,").replace("A,", 'A,"x, ""y""",').replace("B,", "B,z,"),
        TEXT.rstrip("\n"),
    ],
    ids=["bom", "crlf", "cr", "spaced header", "quoted", "spaced", "blank lines", "another column", "no last newline"],
)
def test_ways_of_writing_a_file_make_no_difference(tmp_path: Path, text: str) -> None:
    assert count_columns(written(tmp_path, text), **CHOICES) == count_columns(COLUMNS, **CHOICES)


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
    path = written(tmp_path, TEXT)
    assert read_texts(path, ["tier", "arm", "tier"]) == {"tier": ["1", "2", "1", "2"], "arm": ["A", "A", "B", "B"]}
    assert list(read_texts(path)) == ["arm", "tier", "spend"]


REFUSED: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", r"people.csv is empty. It needs a first line with column names"),
    "blank first line": ("\narm\nA\n", r"people.csv is empty"),
    "header only": ("arm\n", r"there are no rows to count. Check the file"),
    "too few fields": ("arm,n\nA,1\n918273645\n", r"too few fields - at .*line.* 3. Every line needs 2 fields"),
    "too many fields": ("arm,n\nA,1,918273645\n", r"too many or too few fields - at .*line.* 2"),
    "column twice": ("arm,n,n\nA,1,2\n", r"people.csv names a column twice. Rename one of them"),
    "arm twice": ("arm,arm\nA,1\n", r"people.csv names a column twice|several columns 'arm'"),
    "unknown column": ("Arm,n\nA,918273645\n", r"there is no column 'arm'. Did you mean Arm\?"),
    "no near column": ("variant,n\nA,918273645\n", r"there is no column 'arm'. There are: variant, n\."),
    "undecodable": (b"arm\n\xff\xfe918273645\n", r"people.csv is not UTF-8 text. Save it as UTF-8"),
    "text after a quote": ('arm\n"A"918273645\n', r"people.csv is not a well-formed CSV file. Check quotes"),
    "open quote": ('arm\n"918273645\n', r"people.csv is not a well-formed CSV file"),
    "endless field": ("arm\n" + "9" * 200_000, r"people.csv is not a well-formed CSV file"),
    "infinite arm": ("arm\n1e999\n918273645\n", r"neither text, a finite number"),
    "missing arm": ("arm,n\n,1\nA,918273645\n", r"arm column 'arm' has missing values. Leave out people"),
    "no arms at all": ("arm,n\n,1\nNA,918273645\n", r"arm column 'arm' has missing values"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_cannot_be_counted_is_refused(tmp_path: Path, case: str) -> None:
    content, expected = REFUSED[case]
    with pytest.raises(KanabError, match=expected) as caught:
        arms(tmp_path, content)
    assert "918273645" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize("damage", ["not gzip", "cut short", "damaged", "damaged checksum"])
def test_a_broken_compressed_file_is_refused(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"arm\n" + b"A\nB\n" * 5000)
    content = {
        "not gzip": TEXT.encode(),
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
