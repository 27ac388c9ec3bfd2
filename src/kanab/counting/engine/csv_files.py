"""CSV files in DuckDB, with the rules of ``csvfile``: 007 is a text, NA is missing, TRUE is true."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ibis

from kanab.counting.engine.dialects import first_row
from kanab.errors import QueryError, SourceError

_EMPTY = ("", "NA", "NULL", "null", "NaN", "nan")
_NUMBER = r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]+)?|\.[0-9]+)([eE][-+]?[0-9]{1,3})?$"
_WHOLE = r"^-?(0|[1-9][0-9]{0,14})$"
_SAMPLE = 10_000


def open_csv(backend: Any, files: Sequence[Path]) -> Any:
    """All files, one below the other, as a table of numbers, true/false and texts.

    Every column is the narrowest kind that all its fields are. That is looked up over all rows,
    because a code such as 007 may come late.
    """
    names = _header(files)
    try:
        written = backend.read_csv(
            [str(file) for file in files],
            columns=dict.fromkeys(names, "string"),
            header=True,
            delim=",",
            quote='"',
            escape='"',
        )
        fields = written.select(**{name: _field(written[name]) for name in names})
        maybe = {name for name, kind in _kinds(fields.limit(_SAMPLE), names).items() if kind != "string"}
        kinds = _kinds(fields, [name for name in names if name in maybe])
    except QueryError:
        raise SourceError(
            f"{files[0].name} is not a well-formed CSV file", "Check quotes, line ends, fields per line and UTF-8."
        ) from None
    return fields.select(**{name: _typed(fields[name], kinds.get(name, "string")) for name in names})


def _header(files: Sequence[Path]) -> list[str]:
    """The column names, which all files share."""
    found = [_first_line(file) for file in files]
    for file, names in zip(files, found, strict=True):
        if not names:
            raise SourceError(f"{file.name} is empty", "It needs a first line with column names.")
        if len(set(names)) != len(names):
            raise SourceError(f"{file.name} names a column twice", "Rename one of them.")
        if names != found[0]:
            raise SourceError(
                f"{file.name} has other columns than {files[0].name}", "Give all files the same columns, in one order."
            )
    return found[0]


def _first_line(file: Path) -> list[str]:
    try:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8-sig", newline="") as stream:
            return [name.strip() for name in next(csv.reader(stream, strict=True), [])]
    except UnicodeDecodeError:
        raise SourceError(f"{file.name} is not UTF-8 text", "Save it as UTF-8.") from None
    except (csv.Error, EOFError, gzip.BadGzipFile):
        raise SourceError(f"{file.name} is not a well-formed CSV file", "Check quotes and line ends.") from None
    except OSError as problem:
        raise SourceError(f"{file.name} cannot be read: {problem.strerror}", "Check the path.") from None


def _field(written: Any) -> Any:
    """A field without spaces around it; empty ones and their like are missing."""
    bare = written.strip()
    return ibis.ifelse(bare.isin(_EMPTY), ibis.null("string"), bare)


def _kinds(fields: Any, names: Iterable[str]) -> Mapping[str, str]:
    """The type of each column: what every field that is there can be read as."""
    wanted = list(names)
    questions: dict[str, Any] = {}
    for place, name in enumerate(wanted):
        field = fields[name]
        questions |= {
            f"whole{place}": field.re_search(_WHOLE).all(),
            f"number{place}": field.re_search(_NUMBER).all(),
            f"truth{place}": field.lower().isin(("true", "false")).all(),
            f"any{place}": field.count() > 0,
        }
    row = first_row(fields.aggregate(**questions)) if wanted else {}
    return {name: _kind(row, place) for place, name in enumerate(wanted)}


def _kind(row: Mapping[str, Any], place: int) -> str:
    if not row[f"any{place}"]:
        return "float64"
    for query, kind in (("whole", "int64"), ("number", "float64"), ("truth", "boolean")):
        if row[f"{query}{place}"]:
            return kind
    return "string"


def _typed(field: Any, kind: str) -> Any:
    return field.lower() == "true" if kind == "boolean" else field if kind == "string" else field.cast(kind)
