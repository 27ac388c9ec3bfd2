"""Read CSV files with the standard library alone."""

import csv
import glob
import gzip
import importlib.util
import math
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from kanab.counting.frames import Array, check_column
from kanab.counting.lakes import lake_at
from kanab.errors import MissingExtraError, SourceError
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
        if bare_name(file).endswith((".tsv", ".tab")):
            return "\t"
        with open_csv_text(file) as stream:
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


def bare_name(file: Path) -> str:
    """Return the name of a file, in small letters, without the ending of a packed one.

    >>> bare_name(Path("visits/Rows.csv.zst"))
    'rows.csv'
    """
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
    with open_csv_text(file) as stream:
        reader = csv.reader(stream, delimiter=separator, strict=True)
        header = read_header(reader, file)
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
    with open_csv_text(file) as stream:
        return read_header(csv.reader(stream, delimiter=form.separator(file), strict=True), file)


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


def read_header(reader: Iterator[list[str]], file: Path) -> list[str]:
    """Read the column names from the first line; raise `SourceError` where there are none, or one comes twice."""
    names = [name.strip() for name in next(reader, [])]
    if not names:
        raise SourceError(f"{file.name} is empty", "It needs a first line with column names.")
    if len(set(names)) != len(names):
        raise SourceError(f"{file.name} names a column twice", "Rename one of them.")
    return names


@contextmanager
def open_csv_text(file: Path) -> Iterator[IO[str]]:
    """Open a file as text, also a gzipped one or the only one of a zip; raise `SourceError` where it cannot be read."""
    try:
        if file.suffix.lower() == ".zip":
            with zipfile.ZipFile(file) as archive:
                check_unpacked(archive, file)
            with zipfile.ZipFile(file) as archive, archive.open(zipped_name(archive, file)) as raw:
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
    if importlib.util.find_spec("pyarrow") is None:
        raise MissingExtraError("reading .zst files", "sql")
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra

    return cast(IO[bytes], pa.input_stream(str(file), compression="zstd"))


def check_whole(file: Path) -> None:
    """Raise `SourceError` where a .gz or .zst file ends too early: DuckDB would count the people up to there."""
    if file.suffix.lower() in (".gz", ".zst"):
        with open_csv_text(file) as stream:
            while cast(TextIOWrapper, stream).buffer.read(_BYTES_AT_ONCE):
                pass


MOST_UNPACKED, MOST_RATIO = 64 * 2**20, 100
"""Bytes that any zip may hold, and how many times its own size beyond that: rows of people are packed by less."""


_PIECE = 2**20


def check_unpacked(archive: zipfile.ZipFile, file: Path) -> None:
    """Raise `SourceError` where a zip, such as a workbook, would fill the memory, whatever it says of itself."""
    left = max(MOST_UNPACKED, MOST_RATIO * file.stat().st_size)
    for info in archive.infolist():
        info.file_size = left + 2 * _PIECE  # or reading would end where the archive says
        with archive.open(info) as member:
            while left >= 0 and (piece := member.read(_PIECE)):
                left -= len(piece)
        if left < 0:
            raise SourceError(
                f"{file.name} unpacks to more than {MOST_RATIO} times its size",
                "If you trust where it comes from, unpack it, or save it as CSV, and read that.",
            )


def zipped_name(archive: zipfile.ZipFile, file: Path) -> str:
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
