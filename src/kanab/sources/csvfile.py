"""CSV files with the standard library alone: ``count_csv``."""

from __future__ import annotations

import csv
import gzip
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from kanab.errors import SourceError
from kanab.sources.columns import count_columns
from kanab.sources.frames import Array, column
from kanab.tally import Tally

_NUMBER = re.compile(r"[-+]?(0|[1-9]\d*)?(\.\d+)?([eE][-+]?\d{1,3})?")
_ROWS_AT_ONCE = 50_000
_EMPTY = ("", "NA", "NULL", "null", "NaN", "nan")


def count_csv(path: str | PathLike[str], *, arm: str | Sequence[str], **choices: Any) -> Tally:
    """Count the rows of a CSV file (or .csv.gz), one person each, into one tally.

    Takes the same choices as ``count_columns``. Empty fields are missing values.
    """
    names = [*([arm] if isinstance(arm, str) else arm), *choices.get("covariates", ()), *choices.get("metrics", ())]
    table = read_columns(path, names)
    return count_columns(table, arm=arm, **choices)


def read_columns(path: str | PathLike[str], names: Sequence[str] | None = None) -> dict[str, Array]:
    """Columns of a CSV file: numbers, true/false or texts, whichever all their fields are."""
    texts = read_texts(path, names)
    return {name: typed(fields) for name, fields in texts.items()}


def read_texts(path: str | PathLike[str], names: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Columns of a CSV file as they are written."""
    file = Path(path)
    with _opened(file) as stream:
        reader = csv.reader(stream, strict=True)
        header = [name.strip() for name in next(reader, [])]
        if not header:
            raise SourceError(f"{file.name} is empty", "It needs a first line with column names.")
        wanted = header if names is None else list(dict.fromkeys(names))
        for name in wanted:
            column(dict.fromkeys(header, ()), name)  # an unknown name fails here, with a hint
        if len(set(header)) != len(header):
            raise SourceError(f"{file.name} names a column twice", "Rename one of them.")
        places = [header.index(name) for name in wanted]
        found: list[list[str]] = [[] for _ in wanted]
        while chunk := list(islice(reader, _ROWS_AT_ONCE)):
            rows = [row for row in chunk if row]  # blank lines are nobody
            if not {len(row) for row in rows} <= {len(header)}:
                raise SourceError(
                    f"{file.name} has a line with too many or too few fields",
                    f"Every line needs {len(header)} fields.",
                    at=f"one of the lines up to {reader.line_num}",
                )
            for fields, place in zip(found, places, strict=True):
                fields.extend(row[place] for row in rows)
    return dict(zip(wanted, found, strict=True))


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    try:
        if file.suffix == ".gz":
            with gzip.open(file, "rt", encoding="utf-8-sig", newline="") as stream:
                yield stream
        else:
            with file.open(encoding="utf-8-sig", newline="") as stream:
                yield stream
    except FileNotFoundError:
        raise SourceError(f"there is no file {file.name!r}", "Check the path.") from None
    except UnicodeDecodeError:
        raise SourceError(f"{file.name} is not UTF-8 text", "Save it as UTF-8.") from None
    except (csv.Error, EOFError, gzip.BadGzipFile):
        raise SourceError(f"{file.name} is not a well-formed CSV file", "Check quotes and line ends.") from None
    except OSError as problem:
        raise SourceError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None


def typed(fields: Iterable[str]) -> Array:
    """Numbers if every field is one (007 is a text), true/false likewise, else texts."""
    written = list(fields)
    known = {field: None if field.strip() in _EMPTY else field.strip() for field in set(written)}
    present = [field for field in known.values() if field is not None]
    meaning: dict[str, Any] = dict(known)
    if all(_NUMBER.fullmatch(field) and field.strip("+-.eE") for field in present):
        meaning = {field: np.nan if text is None else float(text) for field, text in known.items()}
        return np.array([meaning[field] for field in written], dtype=np.float64)
    if all(field.lower() in ("true", "false") for field in present):
        meaning = {field: None if text is None else text.lower() == "true" for field, text in known.items()}
    array = np.empty(len(written), dtype=object)
    array[:] = [meaning[field] for field in written]
    return array
