"""Read CSV files with the standard library alone: ``count_csv``."""

from __future__ import annotations

import csv
import glob
import gzip
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.counting.columns import CHECKED, Squares, check_column_names, count_columns
from kanab.counting.frames import Array, check_column
from kanab.errors import SourceError
from kanab.tally.metric import DOUBLE_LIMIT, Metric, Missing
from kanab.tally.tally import Tally

NUMBER = r"[-+]?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?"
"""Fields that are numbers, in a notation that engines know too: 007 is a text."""

EMPTY_FIELDS = ("", "NA", "NULL", "null", "NaN", "nan")

_NUMBER = re.compile(NUMBER)
_ROWS_AT_ONCE = 50_000


@check_arguments(skip=("path", *CHECKED))
def count_csv(
    path: str | PathLike[str],
    *,
    arm: str | Sequence[str],
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    covariates: Sequence[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    squares: Squares = "marginals",
    products: Iterable[tuple[str, str]] = (),
) -> Tally:
    """Count the rows of a CSV file (or .csv.gz), one person each, into one tally.

    Takes the same choices as ``count_columns``. Empty fields are missing values. Raises `SourceError`
    where the file cannot be read or has no such column.
    """
    arms, crossed, named = check_column_names(arm, covariates, metrics)
    table = read_columns(path, [*arms, *crossed, *named])
    measured = metrics if isinstance(metrics, Mapping) else named
    return count_columns(
        table, arm=arms, metrics=measured, covariates=crossed, bounds=bounds, resolution=resolution, missing=missing,
        squares=squares, products=products,
    )  # fmt: skip


def read_columns(path: str | PathLike[str], names: Sequence[str] | None = None) -> dict[str, Array]:
    """Read columns of a CSV file: numbers, true/false or texts, whichever all their fields are."""
    return {name: parse_fields(fields) for name, fields in read_texts(path, names).items()}


def read_texts(path: str | PathLike[str], names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Read columns of a CSV file as they are written."""
    if not isinstance(path, (str, PathLike)):
        raise SourceError("a file is named by something other than its path", "Give a text or a Path.")
    file = Path(path)
    with open_csv_text(file) as stream:
        reader = csv.reader(stream, strict=True)
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
                    f"Every line needs {len(header)} fields.",
                    at=f"one of the lines up to {reader.line_num}",
                )
            for fields, place in zip(columns, places, strict=True):
                fields.extend(row[place] for row in rows)
    return dict(zip(wanted, columns, strict=True))


def matching_files(place: str) -> list[Path]:
    """Return the file of a path, or all files that match a pattern, sorted; raise `SourceError` where none does."""
    if Path(place).is_file() or not glob.has_magic(place):
        return [Path(place)]
    files = [Path(file) for file in sorted(glob.glob(place))]
    if not files:
        raise SourceError(f"no file matches {Path(place).name!r}", "Check the path.")
    return files


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
    """Open a CSV file, or a gzipped one, as text; raise `SourceError` where it cannot be read."""
    try:
        if file.suffix.lower() == ".gz":
            with gzip.open(file, "rt", encoding="utf-8-sig", newline="") as stream:
                yield stream
        else:
            with file.open(encoding="utf-8-sig", newline="") as stream:
                yield stream
    except FileNotFoundError:
        raise SourceError(f"there is no file {file.name!r}", "Check the path.") from None
    except UnicodeDecodeError:
        raise SourceError(f"{file.name} is not UTF-8 text", "Save it as UTF-8.") from None
    except (csv.Error, EOFError, gzip.BadGzipFile, zlib.error):
        raise SourceError(f"{file.name} is not a well-formed CSV file", "Check quotes and line ends.") from None
    except OSError as problem:
        raise SourceError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None
    except ValueError:
        raise SourceError("the path holds a character that no file name may hold", "Check the path.") from None


def parse_fields(fields: Iterable[str]) -> Array:
    """Return fields as numbers if every field is one (007 is a text), as true/false likewise, else as texts."""
    written = list(fields)
    known = {field: None if field.strip() in EMPTY_FIELDS else field.strip() for field in set(written)}
    present = [text for text in known.values() if text is not None]
    meaning: dict[str, Any] = dict(known)
    if all(_NUMBER.fullmatch(text) for text in present):
        meaning = {field: math.nan if text is None else _number(text) for field, text in known.items()}
        exact = any(isinstance(number, int) for number in meaning.values())
        return np.array([meaning[field] for field in written], dtype=object if exact else np.float64)
    if all(text.lower() in ("true", "false") for text in present):
        meaning = {field: None if text is None else text.lower() == "true" for field, text in known.items()}
    return np.array([meaning[field] for field in written], dtype=object)


def _number(text: str) -> float | int:
    """Return a double, but an integer where doubles would merge whole numbers: identifiers may be that long."""
    number = float(text)
    long = DOUBLE_LIMIT <= abs(number) < math.inf and text.lstrip("+-").isdigit()
    return int(text) if long else number
