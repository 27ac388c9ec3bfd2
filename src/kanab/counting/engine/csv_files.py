"""Open CSV files in DuckDB, with the rules of ``csvfile``: 007 is a text, NA is missing, TRUE is true."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ibis

from kanab.counting.csvfile import EMPTY_FIELDS, PLAIN, CsvForm, open_csv_text, read_header
from kanab.counting.engine.dialects import first_row
from kanab.errors import QueryError, SourceError

_WHOLE = r"^-?(0|[1-9][0-9]{0,14})$"
_SAMPLE = 10_000


def open_csv(backend: Any, files: Sequence[Path], name: str, form: CsvForm = PLAIN) -> Any:
    """Open all files, one below the other, as a table of a name with numbers, true/false and texts.

    Every column is the narrowest kind that all its fields are. That is looked up over all rows,
    because a code such as 007 may come late. Raises `SourceError` where a file is no CSV file.
    """
    separator = form.separator(files[0])
    names = _shared_header(files, separator)
    try:
        written = backend.read_csv(
            [str(file) for file in files],
            table_name=name,
            columns=dict.fromkeys(names, "string"),
            header=True,
            delim=separator,
            quote='"',
            escape='"',
        )
        fields = written.select(**{name: _field(written[name]) for name in names})
        maybe = {name for name, kind in _kinds(fields.limit(_SAMPLE), names, form).items() if kind != "string"}
        kinds = _kinds(fields, [name for name in names if name in maybe], form)
    except QueryError:
        raise SourceError(
            f"{files[0].name} is not a well-formed CSV file",
            "Check quotes, line ends, fields per line, what separates them (--sep), UTF-8.",
        ) from None
    return fields.select(**{name: _typed(fields[name], kinds.get(name, "string"), form) for name in names})


def _shared_header(files: Sequence[Path], separator: str) -> list[str]:
    """Read the column names, which all files must share."""
    headers = []
    for file in files:
        with open_csv_text(file) as stream:
            headers.append(read_header(csv.reader(stream, delimiter=separator, strict=True), file))
        if headers[-1] != headers[0]:
            raise SourceError(
                f"{file.name} has other columns than {files[0].name}", "Give all files the same columns, in one order."
            )
    return headers[0]


def _field(written: Any) -> Any:
    """Strip a field; empty ones and their like become missing."""
    bare = written.strip()
    return ibis.ifelse(bare.isin(EMPTY_FIELDS), ibis.null("string"), bare)


def _kinds(fields: Any, names: Iterable[str], form: CsvForm) -> Mapping[str, str]:
    """Return the type of each column: what every field that is there can be read as."""
    wanted = list(names)
    tests: dict[str, Any] = {}
    for place, name in enumerate(wanted):
        field = fields[name]
        tests |= {
            f"whole{place}": field.re_search(_WHOLE).all(),
            f"number{place}": field.re_search(f"^{form.number}$").all(),
            f"truth{place}": field.lower().isin(("true", "false")).all(),
            f"any{place}": field.count() > 0,
        }
    row = first_row(fields.aggregate(**tests)) if wanted else {}
    return {name: _kind(row, place) for place, name in enumerate(wanted)}


def _kind(row: Mapping[str, Any], place: int) -> str:
    if not row[f"any{place}"]:
        return "float64"
    for test, kind in (("whole", "int64"), ("number", "float64"), ("truth", "boolean")):
        if row[f"{test}{place}"]:
            return kind
    return "string"


def _typed(field: Any, kind: str, form: CsvForm) -> Any:
    if kind in ("boolean", "string"):
        return field.lower() == "true" if kind == "boolean" else field
    return (field if form.decimal == "." else field.replace(form.decimal, ".")).cast(kind)
