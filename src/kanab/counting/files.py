"""Read files: tell them apart by name and contents, and read CSV, JSON, Excel, zipped texts, Delta and Iceberg tables.

CSV files need the standard library alone. A directory with a log also holds files that were deleted from its table, so
that its files are never read one by one.
"""

import csv
import glob
import gzip
import json
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from kanab.counting.frames import Array, check_column
from kanab.errors import SourceError, listed, need_extra
from kanab.tally.metric import DOUBLE_LIMIT

NUMBER = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?"
"""Fields that are numbers, in a notation that engines know too: 007 is a text."""

EMPTY_FIELDS = ("", "NA", "NULL", "null", "NaN", "nan")

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What may separate fields where nobody says it."""

_ROWS_AT_ONCE = 50_000
_BYTES_AT_ONCE = 1 << 20
_LINES_TO_TELL = 50
"""Lines that are looked at to tell what separates fields."""


@dataclass(frozen=True)
class CsvForm:
    """How CSV files are written: what separates fields (None: as the first lines show), and the decimal mark."""

    sep: str | None = None
    decimal: str = "."

    def __post_init__(self) -> None:
        sep = {"tab": "\t", r"\t": "\t"}.get(str(self.sep), self.sep)
        if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or sep.isalnum() or sep in '"\r\n'):
            raise SourceError("the separator is not one character", "For example sep=';' (--sep ';'), or 'tab'.")
        if self.decimal not in (".", ","):
            raise SourceError("the decimal mark is neither a point nor a comma", "Give decimal=',' (--decimal ',').")
        if sep == self.decimal:
            raise SourceError("the separator and the decimal mark are the same", "Fields need a mark of their own.")
        object.__setattr__(self, "sep", sep)

    @property
    def number(self) -> str:
        """The pattern of fields that are numbers."""
        return NUMBER.replace(r"\.", re.escape(self.decimal))

    def separator(self, file: Path) -> str:
        """Return what separates the fields of a file: as said, or what cuts its first lines into equally many parts."""
        if self.sep is not None:
            return self.sep
        if _bare_name(file).endswith((".tsv", ".tab")):
            return "\t"
        with _open_text(file) as stream:
            lines = list(islice(stream, _LINES_TO_TELL))
        parts = {sep: _even_parts(lines, sep) for sep in SEPARATORS if sep != self.decimal}
        even = [sep for sep, count in parts.items() if count > 1]
        if len(even) > 1:
            raise SourceError(
                f"fields of {file.name} may be separated by {' or by '.join(SEPARATORS[sep] for sep in even)}",
                f"Say which it is: sep={even[0]!r} (--sep {even[0]!r}).",
            )
        if even:
            return even[0]
        header = lines[0] if lines else ""
        return max(parts, key=lambda sep: (header.count(sep), sep == ","))


PLAIN = CsvForm()


def _bare_name(file: Path) -> str:
    """Return the name of a file, in small letters, without the ending of a packed one."""
    return file.name.lower().removesuffix(".gz").removesuffix(".zst")


def _even_parts(lines: Sequence[str], sep: str) -> int:
    """Return into how many fields a separator cuts every line; 0 where these differ."""
    try:
        rows = [row for row in csv.reader(lines, delimiter=sep) if row]
    except csv.Error:
        return 0
    if len(lines) == _LINES_TO_TELL:
        rows = rows[:-1]  # its end may be on a further line
    sizes = {len(row) for row in rows}
    return sizes.pop() if len(sizes) == 1 else 0


def read_texts(
    path: str | PathLike[str], names: Sequence[str] | None = None, form: CsvForm = PLAIN
) -> dict[str, list[str]]:
    """Read columns of a CSV file as they are written."""
    file = Path(path)
    separator = form.separator(file)
    with _open_text(file) as stream:
        reader = csv.reader(stream, delimiter=separator, strict=True)
        header = _read_header(reader, file)
        wanted = header if names is None else list(dict.fromkeys(names))
        for name in wanted:
            check_column(name, header)
        places = [header.index(name) for name in wanted]
        columns: list[list[str]] = [[] for _ in wanted]
        while chunk := list(islice(reader, _ROWS_AT_ONCE)):
            rows = [row for row in chunk if row]  # blank lines are nobody
            if not {len(row) for row in rows} <= {len(header)}:
                raise SourceError(
                    f"{file.name} has a line with too many or too few fields",
                    f"Every line needs {len(header)} fields; what separates them is said by sep=… (--sep).",
                    at=f"one of the lines up to {reader.line_num}",
                )
            for fields, place in zip(columns, places, strict=True):
                fields.extend(row[place] for row in rows)
    return dict(zip(wanted, columns, strict=True))


def header_of(file: Path, form: CsvForm = PLAIN) -> list[str]:
    """Read the column names of a CSV file."""
    with _open_text(file) as stream:
        return _read_header(csv.reader(stream, delimiter=form.separator(file), strict=True), file)


def matching_files(place: str) -> list[Path]:
    """Return the file of a path, or all files that match a pattern, sorted; raise `SourceError` where none does.

    Of a directory, all Parquet files in it and in its folders, or the directory itself where it is a table with a log.
    """
    if Path(place).is_dir():
        return _files_in(Path(place))
    if Path(place).is_file() or not glob.has_magic(place):
        return [Path(place)]
    files = [Path(file) for file in sorted(glob.glob(place, recursive=True)) if Path(file).is_file()]
    if not files:
        raise SourceError(f"no file matches {Path(place).name!r}", "Check the path.")
    return files


def _files_in(folder: Path) -> list[Path]:
    if lake_at(folder) is not None:
        return [folder]
    files = sorted(file for ending in ("parquet", "pq") for file in folder.rglob(f"*.{ending}") if file.is_file())
    written = [file for file in files if not any(part[0] in "._" for part in file.relative_to(folder).parts)]
    if not written:
        raise SourceError(
            f"{folder.name or str(folder)!r} is a directory without Parquet files",
            "Name a file, or a pattern of files: 'visits/*.csv'.",
        )
    return written


def _read_header(reader: Iterator[list[str]], file: Path) -> list[str]:
    """Read the column names from the first line; raise `SourceError` where there are none, or one comes twice."""
    names = [name.strip() for name in next(reader, [])]
    _check_header(names, file)
    return names


def _check_header(names: Sequence[str], file: Path) -> None:
    if not names:
        raise SourceError(f"{file.name} is empty", "It needs a first line with column names.")
    if len(set(names)) != len(names):
        raise SourceError(f"{file.name} names a column twice", "Rename one of them.")


@contextmanager
def _open_text(file: Path) -> Iterator[IO[str]]:
    """Open a file as text, also a gzipped one or the only one of a zip; raise `SourceError` where it cannot be read."""
    try:
        if file.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as archive:
                _check_unpacked(archive, file)
            with zipfile.ZipFile(file) as archive, archive.open(_zipped_name(archive, file)) as raw:
                yield TextIOWrapper(raw, encoding="utf-8-sig", newline="")
        elif file.suffix.lower() in (".gz", ".zst"):
            with _unpack(file) as raw, TextIOWrapper(raw, encoding="utf-8-sig", newline="") as stream:
                yield stream
        else:
            with file.open(encoding="utf-8-sig", newline="") as stream:
                yield stream
    except FileNotFoundError:
        raise SourceError(f"there is no file {file.name!r}", "Check the path.") from None
    except UnicodeDecodeError:
        raise SourceError(
            f"{file.name} is not UTF-8 text", f"Save it as UTF-8, for example: iconv -f latin1 -t utf-8 {file.name}."
        ) from None
    except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, NotImplementedError):
        raise SourceError(f"{file.name} cannot be unpacked", "Check that it is whole.") from None
    except RuntimeError:
        raise SourceError(f"{file.name} is locked by a password", "Unpack it first.") from None
    except csv.Error:
        raise SourceError(f"{file.name} is not a well-formed CSV file", "Check quotes and line ends.") from None
    except OSError as problem:
        if problem.strerror is None:
            raise SourceError(f"{file.name} cannot be unpacked", "Check that it is whole.") from None
        raise SourceError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None
    except ValueError:
        raise SourceError("the path holds a character that no file name may hold", "Check the path.") from None


def _unpack(file: Path) -> IO[bytes]:
    """Open a .gz or .zst file; raise `MissingExtraError` where the package that knows the latter is not installed."""
    if file.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(file))
    need_extra("reading .zst files", "sql", "pyarrow")
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra

    return cast(IO[bytes], pa.input_stream(str(file), compression="zstd"))


def check_whole(file: Path) -> None:
    """Raise `SourceError` where a .gz or .zst file ends too early: DuckDB would count the people up to there."""
    if file.suffix.lower() in (".gz", ".zst"):
        with _open_text(file) as stream:
            while cast(TextIOWrapper, stream).buffer.read(_BYTES_AT_ONCE):
                pass


MOST_UNPACKED, MOST_RATIO = 64 * 2**20, 100
"""Bytes that any zip may hold, and how many times its own size beyond that: rows of people are packed by less."""


def _check_unpacked(archive: zipfile.ZipFile, file: Path) -> None:
    """Raise `SourceError` where a zip, such as a workbook, would fill the memory, whatever it says of itself."""
    left = max(MOST_UNPACKED, MOST_RATIO * file.stat().st_size)
    for info in archive.infolist():
        info.file_size = left + 2 * _BYTES_AT_ONCE  # or reading would end where the archive says
        with archive.open(info) as member:
            while left >= 0 and (piece := member.read(_BYTES_AT_ONCE)):
                left -= len(piece)
        if left < 0:
            raise SourceError(
                f"{file.name} unpacks to more than {MOST_RATIO} times its size",
                "If you trust where it comes from, unpack it, or save it as CSV, and read that.",
            )


def _zipped_name(archive: zipfile.ZipFile, file: Path) -> str:
    """Return the name of the only file of a zip; raise `SourceError` where there is none, or several."""
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise SourceError(
            f"{file.name} holds {'several files' if names else 'no file'}",
            "Unpack it, and name files by a pattern.",
        )
    return names[0]


def parse_fields(fields: Iterable[str], form: CsvForm = PLAIN) -> Array:
    """Return fields as numbers if every field is one (007 is a text), as true/false likewise, else as texts."""
    written = list(fields)
    known = {field: None if field.strip() in EMPTY_FIELDS else field.strip() for field in set(written)}
    present = [text for text in known.values() if text is not None]
    meaning: dict[str, Any] = dict(known)
    number = re.compile(form.number)
    if all(number.fullmatch(text) for text in present):
        points = {field: None if text is None else text.replace(form.decimal, ".") for field, text in known.items()}
        meaning = {field: math.nan if text is None else _number(text) for field, text in points.items()}
        exact = any(isinstance(value, int) for value in meaning.values())
        return np.array([meaning[field] for field in written], dtype=object if exact else np.float64)
    if all(text.lower() in ("true", "false") for text in present):
        meaning = {field: None if text is None else text.lower() == "true" for field, text in known.items()}
    return np.array([meaning[field] for field in written], dtype=object)


def _number(text: str) -> float | int:
    """Return a double, but an integer where doubles would merge whole numbers: identifiers may be that long."""
    number = float(text)
    long = DOUBLE_LIMIT <= abs(number) < math.inf and text.lstrip("+-").isdigit()
    return int(text) if long else number


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────


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
    return Path(_bare_name(Path(place))).suffix in (*ENDINGS, ".zip")


def _inner_name(file: Path) -> str:
    if not is_packed(file) or not file.is_file():
        return _bare_name(file)
    try:
        with zipfile.ZipFile(file) as archive:
            return _zipped_name(archive, file)
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
    read = [_read_excel(file, sheet) if kind == "excel" else _read_json(file) for file in files]
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
        with _open_text(path) as stream:
            head = stream.read(_HEAD).lstrip()
    except SourceError:
        return False
    if head.startswith("["):
        return True
    first, _, rest = head.partition("\n")
    objects = first.rstrip().endswith("}") and rest.lstrip().startswith("{")  # an object to a line
    return objects or re.match(r'\{\s*"(?!format")[^"]*"\s*:\s*[\[{]', head) is not None


def _read_json(file: Path) -> dict[str, list[Any]]:
    """Read the columns of a JSON file: a list of objects, an object to a line, or an object of columns."""
    with _open_text(file) as stream:
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


def _read_excel(file: Path, sheet: str | None = None) -> dict[str, list[Any]]:
    """Read the columns of a sheet: the named one, or the only one that is not empty."""
    need_extra("reading Excel files", "excel", "python_calamine")
    from python_calamine import CalamineError, CalamineWorkbook  # noqa: PLC0415 - an extra

    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                _check_unpacked(archive, file)
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
    _check_header([name for name in columns if name], file)
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


# ── Delta and Iceberg ─────────────────────────────────────────────────────────────────────────────


_METADATA = ".metadata.json"
_HINT = "version-hint.text"


def lake_at(place: Path) -> Literal["delta", "iceberg"] | None:
    """Return what kind of table a directory is, or the metadata file of one; None where it is none."""
    if (place / "_delta_log").is_dir():
        return "delta"
    if place.name.endswith(_METADATA) or any((place / "metadata").glob(f"*{_METADATA}")):
        return "iceberg"
    return None


def check_no_parts(files: Iterable[Path]) -> None:
    """Raise `SourceError` where files are parts of a Delta or Iceberg table, which may have deleted them."""
    for folder in {parent for file in files for parent in list(file.parents)[:8]}:
        if lake_at(folder) is not None:
            raise SourceError(
                f"files of {folder.name} are parts of a table with a log, and some of them may be deleted there",
                f"Name the directory itself: {folder.name}.",
            )


def open_lake(place: Path) -> Any:
    """Return a table on disk as an Arrow dataset or stream; raise `SourceError` where it cannot be read."""
    if lake_at(place) == "delta":
        need_extra("reading Delta tables", "delta", "deltalake")
        from deltalake import DeltaTable  # noqa: PLC0415 - an extra

        return _read(place.name, lambda: lake_rows(DeltaTable(str(place))))
    need_extra("reading Iceberg tables", "iceberg", "pyiceberg")
    from pyiceberg.table import StaticTable  # noqa: PLC0415 - an extra

    metadata = _iceberg_metadata(place)
    return _read(place.name, lambda: lake_rows(StaticTable.from_metadata(str(metadata))))


def lake_rows(table: Any) -> Any:
    """Return the rows of a DeltaTable, or of an Iceberg table or scan; anything else is returned as it is."""
    package = type(table).__module__.partition(".")[0]
    if package == "deltalake":
        return _read("the Delta table", table.to_pyarrow_dataset)
    if package == "pyiceberg":
        scan = table.scan() if hasattr(table, "scan") else table
        return _read("the Iceberg table", scan.to_arrow_batch_reader)
    return table


def _read(name: str, read: Any) -> Any:
    try:
        return read()
    except SourceError:
        raise
    except Exception as problem:  # of packages that are not imported here
        raise SourceError(
            f"{name} cannot be read ({type(problem).__name__})",
            "Check that its log and its files are whole. A table with deletion vectors is read by Spark (spark://…), "
            "or after they were purged.",
        ) from None


def _iceberg_metadata(place: Path) -> Path:
    """Return the file that describes a table as it is now; which one that is, is known to its catalog."""
    if place.is_file():
        return place
    folder = place / "metadata"
    files = sorted(folder.glob(f"*{_METADATA}"))
    if (folder / _HINT).is_file():
        version = (folder / _HINT).read_text(encoding="utf-8").strip()
        files = [file for file in files if file.name in (f"v{version}{_METADATA}", f"{version}{_METADATA}", version)]
    if len(files) != 1:
        raise SourceError(
            f"{place.name} is an Iceberg table with several states, and its catalog knows which holds",
            f"Name the file of one ({place.name}/metadata/….metadata.json), or give the table of pyiceberg in Python.",
        )
    return files[0]
