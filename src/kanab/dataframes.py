"""Rows of plain data as DataFrames of pandas or polars, as CSV and as Excel, each table by its name."""

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from os import PathLike
from typing import Any, ClassVar, Generic, TypeVar

from kanab.arguments import check_arguments
from kanab.atomicfile import write_whole
from kanab.errors import AnalysisError, SourceError, meant
from kanab.spreadsheets import csv_text, workbook

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
Name = TypeVar("Name", bound=str)

_PAIRS = {"interval": ("low", "high"), "df": ("numerator", "denominator")}
"""How the two columns of a pair end; of intervals every name that holds the word, and these: "limits", "prediction"."""


class Frames(ABC, Generic[Name]):
    """A value with tables of rows, which it returns as DataFrames and writes into files."""

    _columns: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The columns of tables that are shown without ``details``; of others all are."""

    @abstractmethod
    def _tables(self) -> Tables:
        """Return the rows of every table by its name; the first is what there is without a name."""

    @check_arguments(skip=("rows",))
    def to_pandas(self, rows: Name | None = None, *, details: bool = False) -> Any:
        """Return a pandas DataFrame of one table, by its name; without a name, of the first one.

        Intervals are two columns, parts of a row that have names are a column each. Of wide tables these are the main
        columns; ``details`` gives all. Raises `SourceError` where pandas is not installed, `AnalysisError` for a table
        that there is not, with the names that there are.
        """
        return frame("pandas", self._rows(rows, details))

    @check_arguments(skip=("rows",))
    def to_polars(self, rows: Name | None = None, *, details: bool = False) -> Any:
        """Return a polars DataFrame of the same rows as ``to_pandas``.

        Raises `SourceError` where polars is not installed, `AnalysisError` for a table that there is not.
        """
        return frame("polars", self._rows(rows, details))

    @check_arguments(skip=("rows",))
    def to_csv(self, path: str | PathLike[str], rows: Name | None = None, *, details: bool = False) -> None:
        """Write one table into a CSV file, with the columns of ``to_pandas``; without a name, the first one."""
        write_whole(path, csv_text(flat_rows(self._rows(rows, details))))

    def to_excel(self, path: str | PathLike[str]) -> None:
        """Write all tables that have rows into an Excel workbook (.xlsx), a sheet each, with all columns."""
        write_whole(path, workbook({name: flat_rows(rows) for name, rows in self._tables().items() if rows}))

    def _rows(self, name: str | None, details: bool) -> Sequence[Row]:
        tables = self._tables()
        name = next(iter(tables)) if name is None else name
        if not isinstance(name, str) or name not in tables:
            raise AnalysisError(
                "there are no rows of that name", f"{meant(name, tables)}Use one of: {', '.join(tables)}."
            )
        shown = self._columns.get(name)
        if details or shown is None:
            return tables[name]
        return [{column: row[column] for column in shown if column in row} for row in tables[name]]


def frame(package: str, rows: Iterable[Row]) -> Any:
    """Return rows as a DataFrame of a package that the reader has installed; see ``flat_rows``."""
    try:
        library = importlib.import_module(package)
    except ImportError:
        raise SourceError(f"{package} is not installed", f"Run: pip install {package}") from None
    flat = flat_rows(list(rows))
    return library.DataFrame(flat, **({"infer_schema_length": None} if package == "polars" else {}))


def flat_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows that all have the same columns: pairs as two, parts with names as one each, lists as one text.

    Lists of rows are left out: they are tables of their own.
    """
    columns: dict[str, dict[str, None]] = {}
    flat = []
    for row in rows:
        parts = {name: _columns(name, value) for name, value in row.items()}
        for name, part in parts.items():
            columns.setdefault(name, {}).update(dict.fromkeys(part))
        flat.append(dict(chain.from_iterable(part.items() for part in parts.values())))
    spread = {name for name, names in columns.items() if len(names) > 1}
    kept: list[str] = []
    for name, names in columns.items():
        kept += [column for column in names if not (name in spread and column == name)]
    return [{column: row.get(column) for column in kept} for row in flat]


def _columns(name: str, value: Any) -> dict[str, Any]:
    """Return the columns that one value of a row takes."""
    if isinstance(value, Mapping):
        return dict(chain.from_iterable(_columns(f"{name}_{key}", inner).items() for key, inner in value.items()))
    ends = _ends(name)
    if ends and value is None and ends[0] == "low":
        return dict.fromkeys((f"{name}_{end}" for end in ends), None)
    if not isinstance(value, list | tuple):
        return {name: value}
    if ends and len(value) == 2:
        return {f"{name}_{end}": part for end, part in zip(ends, value, strict=True)}
    if any(isinstance(part, Mapping) for part in value):
        return {}
    if any(isinstance(part, list | tuple) for part in value):
        return {name: [list(part) for part in value]}
    return {name: ", ".join(str(part) for part in value)}


def _ends(name: str) -> tuple[str, str] | None:
    """Return how the two columns of a pair of this name end; None for what is no pair."""
    if "interval" in name or name in ("limits", "prediction"):
        return _PAIRS["interval"]
    return _PAIRS["df"] if name.split("_", maxsplit=1)[0] == "df" else None
