"""Open Parquet files as one table: columns mean the same in all of them, folders may be columns (hive)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from kanab.counting.files import check_no_parts, parse_fields
from kanab.errors import SourceError

_PARTITION = re.compile(r"(?<=/)([^=/]+)=([^=/]*)(?=/)")
_NOTHING = "__HIVE_DEFAULT_PARTITION__"


def open_parquet(backend: Any, files: Sequence[Path], name: str) -> Any:
    """Open Parquet files, one below the other, as a table of a name, whose columns are of one kind in all of them."""
    check_no_parts(files)
    names = _check_alike(files) if len(files) > 1 else None
    partitions = partition_kinds(files)
    try:
        rows = backend.read_parquet(
            [str(file) for file in files],
            table_name=name,
            hive_partitioning=bool(partitions),
            hive_types_autocast=False,
            union_by_name=names is not None,
        )
    except Exception as problem:
        raise unreadable(files[0], problem) from None
    if names is not None:
        rows = rows.select(*names, *(name for name in partitions if name not in names))
    return rows.mutate(**{name: rows[name].cast(kind) for name, kind in partitions.items() if kind != "string"})


def unreadable(file: Path, problem: Exception) -> SourceError:
    """Return the error of a file that is not whole, or no Parquet file."""
    return SourceError(
        f"{file.name} cannot be read as Parquet ({type(problem).__name__})",
        "Check that it is whole, and that all files have the same columns.",
    )


# ── columns ────────────────────────────────────────────────────────────────────────────────────


def _check_alike(files: Sequence[Path]) -> list[str] | None:
    """Return the columns of the first file if the types in others are different ones of the same kind, else None."""
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    first: Any = None
    same = True
    for file in files:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError) as problem:
            raise unreadable(file, problem) from None
        if first is None:
            first = schema
        elif not schema.equals(first):
            same = False
            _compare(files[0], first, file, schema)
    return None if same else [str(name) for name in first.names]


def _compare(first: Path, expected: Any, file: Path, schema: Any) -> None:
    for column in expected:
        if column.name not in schema.names:
            raise SourceError(
                f"{file.name} has no column {column.name!r}, which {first.name} has", "Give all files the same columns."
            )
        kinds = _kind(column.type), _kind(schema.field(column.name).type)
        if kinds[0] != kinds[1] and "nothing" not in kinds:
            raise SourceError(
                f"column {column.name!r} holds {kinds[0]} in {first.name} and {kinds[1]} in {file.name}",
                "Write it alike in all files, or name only files that hold one kind of value in it.",
            )


def _kind(kind: Any) -> str:
    """Return what values of an Arrow type are, in the words of errors; types of one kind are widened."""
    from pyarrow import types  # noqa: PLC0415 - comes with the [sql] extra

    if types.is_dictionary(kind):
        return _kind(kind.value_type)
    tests = {
        "nothing": (types.is_null,),
        "true/false": (types.is_boolean,),
        "numbers": (types.is_integer, types.is_floating, types.is_decimal),
        "texts": (types.is_string, types.is_large_string, types.is_string_view),
        "dates or times": (types.is_date, types.is_timestamp),
    }
    return next((word for word, fits in tests.items() if any(fit(kind) for fit in fits)), f"values of type {kind}")


# ── folders ────────────────────────────────────────────────────────────────────────────────────


def partition_kinds(files: Sequence[Path]) -> Mapping[str, str]:
    """Return the columns that the names of folders hold (tier=1/day=2024-01-02), and their types.

    The rules are those of CSV files: 007 is a text. Folders that name other columns are an error.
    """
    parts = [dict(_PARTITION.findall(f"/{file.parent.as_posix()}/")) for file in files]
    for file, named in zip(files, parts, strict=True):
        if list(named) != list(parts[0]):
            raise SourceError(
                f"the folders of {file.name} name other columns than those of {files[0].name}",
                "Name only files that are partitioned alike.",
            )
    return {name: _type_of([unquote(named[name]) for named in parts]) for name in parts[0]}


def _type_of(texts: Sequence[str]) -> str:
    present = [text for text in texts if text != _NOTHING]
    values = parse_fields(present)
    if values.dtype == np.float64 and present:
        return "int64" if all(text.lstrip("+-").isdigit() for text in present) else "float64"
    return "boolean" if present and all(isinstance(value, bool) for value in values) else "string"
