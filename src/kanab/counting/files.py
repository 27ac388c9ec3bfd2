"""Tell files apart by their names and contents, and read those that no engine reads: JSON, Excel, zipped tables."""

import importlib.util
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from kanab.counting.csvfile import (
    PLAIN,
    CsvForm,
    bare_name,
    check_unpacked,
    open_csv_text,
    parse_fields,
    read_texts,
    zipped_name,
)
from kanab.counting.lakes import lake_at
from kanab.errors import MissingExtraError, SourceError, listed

FileKind = Literal["csv", "json", "excel", "parquet", "lake"]

ENDINGS: Mapping[str, FileKind] = {
    ".csv": "csv", ".tsv": "csv", ".tab": "csv", ".txt": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".xlsx": "excel", ".xls": "excel", ".xlsb": "excel", ".ods": "excel", ".parquet": "parquet", ".pq": "parquet",
}  # fmt: skip
"""What a file is by the end of its name, also before .gz and .zst and inside a .zip."""

_HEAD = 4_096  # characters that tell rows from a release


def file_kind(file: Path) -> FileKind:
    """Return what a file is; raise `SourceError` where that is unknown, or cannot be read while it is packed.

    A lake is the directory of a Delta or Iceberg table, or the metadata file of one.
    """
    if lake_at(file) is not None:
        return "lake"
    name = _inner_name(file)
    kind = ENDINGS.get(Path(name).suffix.lower())
    if kind is None:
        if (engine := _engine_of(file)) is not None:
            remedy = f"Give {engine}:/// with its path after it, and the name of a table (--table)."
            raise SourceError(f"{file.name!r} is a database", remedy)
        raise SourceError(
            f"{file.name!r} is of an unknown kind",
            f"Give {listed(ending for ending in ENDINGS if ending not in ('.tab', '.pq', '.xlsb'))} "
            "(the texts also as .gz, .zst or .zip), or the directory of a Delta or Iceberg table.",
        )
    if kind in ("excel", "parquet") and name.lower() != file.name.lower():
        raise SourceError(f"{file.name} holds a packed {Path(name).suffix} file", "Unpack it first.")
    return kind


def _engine_of(file: Path) -> str | None:
    try:
        with file.open("rb") as stream:
            head = stream.read(16)
    except OSError:
        return None
    return "sqlite" if head.startswith(b"SQLite format 3") else "duckdb" if head[8:12] == b"DUCK" else None


def is_packed(file: Path) -> bool:
    """Return whether a file is a zip, which is unpacked in memory: nothing about people is written elsewhere."""
    return file.suffix.lower() == ".zip"


def has_file_ending(place: str) -> bool:
    """Return whether a text is named like a file of a known kind, rather than like a table."""
    return Path(bare_name(Path(place))).suffix in (*ENDINGS, ".zip")


def _inner_name(file: Path) -> str:
    if not is_packed(file) or not file.is_file():
        return bare_name(file)
    try:
        with zipfile.ZipFile(file) as archive:
            return zipped_name(archive, file)
    except (zipfile.BadZipFile, OSError):
        raise SourceError(f"{file.name} cannot be unpacked", "Check that it is whole.") from None


def no_table() -> SourceError:
    """Return the error of a table that is named where the source is one."""
    return SourceError(
        "the source is a table by itself", "Leave table out (--table): it is for databases, and for sheets of Excel."
    )


def read_files(files: Sequence[Path], sheet: str | None = None, form: CsvForm = PLAIN) -> dict[str, Any]:
    """Read the columns of files of one kind, one below the other; raise `SourceError` where they cannot be read."""
    kind = file_kind(files[0])
    if kind == "csv":
        texts = [read_texts(file, form=form) for file in files]
        for file, table in zip(files, texts, strict=True):
            if list(table) != list(texts[0]):
                raise SourceError(
                    f"{file.name} has other columns than {files[0].name}", "Give all files the same columns."
                )
        return {name: parse_fields(chain.from_iterable(table[name] for table in texts), form) for name in texts[0]}
    read = [read_excel(file, sheet) if kind == "excel" else read_json(file) for file in files]
    names = list(dict.fromkeys(name for table in read for name in table))
    sizes = [len(next(iter(table.values()), ())) for table in read]
    return {
        name: _of_one_kind(
            [value for table, size in zip(read, sizes, strict=True) for value in table.get(name, [None] * size)]
        )
        for name in names
    }


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────


def holds_rows(path: Path) -> bool:
    """Return whether a JSON file holds rows, by how it begins; a release begins with its format."""
    try:
        with open_csv_text(path) as stream:
            head = stream.read(_HEAD).lstrip()
    except SourceError:
        return False
    if head.startswith("["):
        return True
    first, _, rest = head.partition("\n")
    objects = first.rstrip().endswith("}") and rest.lstrip().startswith("{")  # an object to a line
    return objects or re.match(r'\{\s*"(?!format")[^"]*"\s*:\s*[\[{]', head) is not None


def read_json(file: Path) -> dict[str, list[Any]]:
    """Read the columns of a JSON file: a list of objects, an object to a line, or an object of columns."""
    with open_csv_text(file) as stream:
        text = stream.read()
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        plain = list(_json_lines(text, file))
    if isinstance(plain, Mapping) and str(plain.get("format", "")).startswith("kanab-"):
        raise SourceError(f"{file.name} is a release: its people are counted already", "Read it with kanab analyze.")
    if isinstance(plain, Mapping):
        columns = dict(plain)
        for name, column in plain.items():
            if isinstance(column, Mapping):  # values by row number, as pandas writes them
                columns[name] = list(column.values())
        lists = [column for column in columns.values() if isinstance(column, list)]
        if len(lists) == len(columns) and len(set(map(len, lists))) == 1:
            return columns
        plain = [plain]
    if not isinstance(plain, list) or not all(isinstance(row, Mapping) for row in plain):
        raise _not_rows(file)
    names = dict.fromkeys(name for row in plain for name in row)
    return {name: [row.get(name) for row in plain] for name in names}


def _json_lines(text: str, file: Path) -> Iterator[Any]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                raise _not_rows(file, at=f"line {number}") from None


def _not_rows(file: Path, at: str = "") -> SourceError:
    return SourceError(
        f"{file.name} does not hold rows",
        'Give a list of objects, one per person: [{"variant": "A", "spend": 2.5}, …], or one such object to a line.',
        at=at,
    )


# ── Excel ──────────────────────────────────────────────────────────────────────────────────────


def read_excel(file: Path, sheet: str | None = None) -> dict[str, list[Any]]:
    """Read the columns of a sheet: the named one, or the only one that is not empty."""
    if importlib.util.find_spec("python_calamine") is None:
        raise MissingExtraError("reading Excel files", "excel")
    from python_calamine import CalamineError, CalamineWorkbook  # noqa: PLC0415 - an extra

    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                check_unpacked(archive, file)
        book = CalamineWorkbook.from_path(str(file))
        if sheet is not None and sheet not in book.sheet_names:
            raise SourceError(f"{file.name} has no sheet {sheet!r}", f"There are: {listed(book.sheet_names)}.")
        names = book.sheet_names if sheet is None else [sheet]
        sheets: dict[str, list[list[Any]]] = {
            name: rows for name in names if (rows := book.get_sheet_by_name(name).to_python())
        }
    except (CalamineError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise SourceError(f"{file.name} cannot be read as an Excel file", "Check that it is whole.") from None
    if len(sheets) > 1:
        raise SourceError(f"{file.name} has several sheets", f"Name one with table=… (--table): {listed(sheets)}.")
    header, *rows = next(iter(sheets.values())) if sheets else [[]]
    columns = [str(name).strip() for name in header]
    if not any(columns):
        raise SourceError(f"{file.name} is empty", "It needs a first line with column names.")
    if len({name for name in columns if name}) < len([name for name in columns if name]):
        raise SourceError(f"{file.name} names a column twice", "Rename one of them.")
    filled = [[None if value == "" else value for value in row] for row in rows]
    filled = [row for row in filled if any(value is not None for value in row)]
    return {name: [row[place] for row in filled] for place, name in enumerate(columns) if name}


# ── columns ────────────────────────────────────────────────────────────────────────────────────


def _of_one_kind(values: Sequence[Any]) -> list[Any]:
    """Return the values as they are where they are of one kind, else all as texts; NaN is missing."""
    present = [None if value != value else value for value in values]  # noqa: PLR0124 - NaN alone differs from itself
    kinds = set(_kinds(present))
    if len(kinds) < 2 and "other" not in kinds:
        return present
    return [None if value is None else value if isinstance(value, str) else _text(value) for value in present]


def _kinds(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, (bool, str)):
            yield type(value).__name__
        elif isinstance(value, (int, float)):
            yield "number" if abs(value) < 2**63 else "other"
        elif value is not None:
            yield "other" if isinstance(value, (list, dict)) else type(value).__name__


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, list, dict)) else str(value)
