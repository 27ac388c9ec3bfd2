"""Read columns from dicts, NumPy, pandas, polars and Arrow tables, without importing any of these.

Whatever else speaks Arrow's C stream (readers, other libraries' tables) becomes an Arrow table first: ``load_frame``.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import date
from decimal import Decimal
from numbers import Real
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import SourceError, closest, listed, need_extra
from kanab.plan.metric_windows import metric_window
from kanab.tally.factor import Level, as_level, sorted_levels
from kanab.tally.metric import DOUBLE_LIMIT

Array = NDArray[Any]

_ELSEWHERE = ("ibis", "pyspark", "duckdb", "_duckdb", "deltalake", "pyiceberg", "sqlalchemy")
"""Packages whose tables are read by an engine, never into memory first."""


def is_elsewhere(source: Any) -> bool:
    """Return whether a table's rows are not in memory, or not yet: an engine counts them where they are."""
    return type(source).__module__.partition(".")[0] in _ELSEWHERE or is_dataset(source)


def is_dataset(source: Any) -> bool:
    """Return whether a source is an Arrow dataset: files whose rows are read when they are needed."""
    return type(source).__module__ == "pyarrow._dataset" and hasattr(source, "scanner")


def load_frame(source: Any) -> Any:
    """Return a source that can be read again and again: a lazy frame is collected, an Arrow stream becomes a table.

    Paths, dicts, frames and what an engine reads stay as they are.
    """
    if type(source).__module__.partition(".")[0] == "narwhals":
        source = source.to_native()
    if isinstance(source, (str, PathLike, Mapping)) or is_elsewhere(source):
        return source
    try:
        if type(source).__name__ == "LazyFrame":
            return source.collect()
        if hasattr(source, "columns") or hasattr(source, "column_names") or not hasattr(source, "__arrow_c_stream__"):
            return source
        return _read_stream(source)
    except SourceError:
        raise
    except Exception as problem:  # of a library that is not imported here
        raise SourceError(
            f"a {type(source).__name__} cannot be read ({type(problem).__name__})",
            "Read it into a table first, to see why: .collect(), .read_all().",
        ) from None


def _read_stream(source: Any) -> Any:
    need_extra("reading Arrow streams", "sql", "pyarrow")
    import pyarrow as pa  # noqa: PLC0415 - comes with the [sql] extra

    table = pa.table(source)
    if not table.num_rows:
        raise SourceError(
            f"a {type(source).__name__} has no rows, or none any more",
            "A stream is read once: make it anew, or keep its rows as a table (.read_all()).",
        )
    return table


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of a mapping or a frame, as texts."""
    return [str(key) for key in _keys(data)]


def _keys(data: Any) -> list[Any]:
    """Return the columns' keys in the data: texts, or numbers in a frame that was given no names."""
    if isinstance(data, Mapping):
        return list(data)
    names = getattr(data, "column_names", None)  # Arrow
    if names is None:
        names = getattr(data, "columns", None)  # pandas, polars
    if not isinstance(names, Iterable):
        raise SourceError(
            f"a {type(data).__name__} has no named columns",
            "Give a dict of columns, or a pandas, polars or Arrow table.",
        )
    return list(names)


def get_column(data: Any, name: str) -> Array:
    """Return one column as a flat NumPy array."""
    keys = _keys(data)
    names = [str(key) for key in keys]
    check_column(name, names)
    array = _array(data[keys[names.index(name)]])
    if array.ndim != 1:
        raise SourceError(f"column {name!r} is not flat", "Give one value per person.")
    return array


def check_column(name: str, names: Iterable[str]) -> None:
    """Check that a name is that of one column; raise `SourceError` with similar names where it is not."""
    names = list(names)
    if names.count(name) == 1:
        return
    if name in names:
        raise SourceError(f"there are several columns {name!r}", "Rename all but one.")
    window = metric_window(name)
    if window is not None and window.column in names:
        raise SourceError(
            f"{name!r} is a part of the time after a first exposure, and no events are named",
            "Name their table, who they are of and how long they count: --events orders.csv --unit user --window 28d.",
        )
    names = list(dict.fromkeys(each for each in names if not each.startswith("kanab_")))  # those are our own
    near = closest(name, names, 3, 0.5)
    hint = f"Did you mean {listed(near)}?" if near else f"There are: {listed(names)}."
    raise SourceError(f"there is no column {name!r}", hint)


def get_columns(data: Any, names: Sequence[str]) -> dict[str, Array]:
    """Return several columns; raise `SourceError` where their lengths differ or there are no rows."""
    table = {name: get_column(data, name) for name in names}
    if len({len(array) for array in table.values()}) > 1:
        raise SourceError("the columns have different lengths", "Give one value per person in each.")
    if not next(iter(table.values()), np.empty(0)).size:
        raise SourceError("there are no rows to count", "Check the file, the query or the filter.")
    return table


def _array(values: Any) -> Array:
    if isinstance(values, np.ma.MaskedArray) and values.ndim == 1:
        masked = np.ma.getmaskarray(values)
        return _objects(None if gone else value for value, gone in zip(values.data, masked, strict=True))
    if isinstance(values, np.ndarray):
        return values
    if hasattr(values, "to_pylist"):  # Arrow
        kind: Any = getattr(values, "type", None)
        if hasattr(kind, "index_type"):  # as an array, a missing category would get the name of another one
            values = values.cast(kind.value_type)
        try:
            return _exact(np.asarray(values), values.to_pylist)
        except ValueError:  # of arro3, where a value is missing
            return _objects(values.to_pylist())
    if hasattr(values, "to_numpy"):  # pandas, polars
        return _exact(np.asarray(values.to_numpy()), getattr(values, "to_list", None))
    if isinstance(values, (Mapping, Set)):
        raise SourceError("a column is a dict or a set", "Give one value per person, in the order of the people.")
    try:
        return _objects(None if isinstance(values, (str, bytes)) else values)
    except TypeError:
        raise SourceError("a column is a single value", "Give one value per person.") from None


def _exact(array: Array, as_list: Callable[[], list[Any]] | None) -> Array:
    """Return the array, or the values themselves where doubles may have merged long whole numbers.

    Frames turn whole numbers into doubles when one of them is missing.
    """
    if as_list is not None and array.dtype == np.float64 and bool((np.abs(array) >= DOUBLE_LIMIT).any()):
        return _objects(as_list())
    return array


def _objects(values: Any) -> Array:
    return np.fromiter(values, dtype=object)


def encode(values: Array, name: str) -> tuple[NDArray[np.intp], tuple[Level, ...]]:
    """Return whole-number codes of a column's levels, and the levels, sorted; missing is a level."""
    if values.dtype.kind == "M":
        raise days_as_levels(name)
    if values.dtype.kind in "biuf":
        distinct, codes = np.unique(values, return_inverse=True)  # NaNs come last, as one
        raw: list[Any] = distinct.tolist()
    else:
        places: dict[tuple[type, Any], int] = {}  # by type too: True is not the number 1
        try:
            codes = np.fromiter(
                (places.setdefault((type(value), value), len(places)) for value in values), np.intp, len(values)
            )
        except (TypeError, ValueError):
            raise SourceError(f"column {name!r} holds values that are not levels", "Use texts or numbers.") from None
        raw = [_plain(value) for _, value in places]
        if any(isinstance(value, date) for value in raw):
            raise days_as_levels(name)
    spelled = [as_level(value, name) for value in raw]
    if any(isinstance(level, bool) for level in spelled) and any(type(level) in (int, float) for level in spelled):
        raise SourceError(f"column {name!r} mixes true/false with numbers", "Use one kind of value.")
    levels = sorted_levels(set(spelled))
    positions = {level: place for place, level in enumerate(levels)}
    return np.array([positions[level] for level in spelled], dtype=np.intp)[codes], levels


DAY = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
"""How a text begins that is a date, perhaps with a time."""

MOST_DAYS = 31
"""So many days may be levels: a month of them can be compared one by one."""


def check_days(name: str, levels: Iterable[Level]) -> None:
    """Raise `SourceError` where levels are dates, and too many to be compared one by one."""
    known = [level for level in levels if level is not None]
    if len(known) > MOST_DAYS and all(isinstance(level, str) and re.match(DAY, level) for level in known):
        raise days_as_levels(name)


def days_as_levels(name: str) -> SourceError:
    """Return the error of a covariate that holds points in time."""
    return SourceError(
        f"column {name!r} holds dates, and each would be a level of its own",
        f'Take months: --sql "SELECT * REPLACE (left(CAST({name} AS VARCHAR), 7) AS {name}) FROM rows".',
    )


def _plain(value: Any) -> Any:
    """Return a value as engines group by it: missing ones as None, decimals as doubles."""
    if is_na(value):
        return None
    return float(value) if isinstance(value, Decimal) else value


def is_na(value: Any) -> bool:
    """Return whether a value is one of pandas' missing values."""
    return type(value).__name__ in ("NAType", "NaTType")


def to_numbers(values: Array, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return a metric's values as doubles, and which of them are missing (those read 0)."""
    if values.dtype.kind in "biuf":
        with np.errstate(over="ignore", invalid="ignore"):
            floats = values.astype(np.float64)
    else:
        try:
            floats = np.array([_number(value) for value in values], dtype=np.float64)
        except (TypeError, ValueError):
            texts = [value for value in values if isinstance(value, str)]
            looks = [bool(texts) and all(re.search(look, text) for text in texts) for look in LOOKS]
            raise unfit_metric(name, looks) from None
    missing = np.isnan(floats)
    floats = np.where(missing, 0.0, floats)
    if not np.isfinite(floats).all():
        raise SourceError(f"metric {name!r} holds infinite values", "Remove them or declare them missing.")
    return floats, missing


def holds_fractions(values: Array) -> bool:
    """Return whether a column holds numbers that are not whole: each would be a level of its own."""
    if values.dtype.kind not in "fO":
        return False
    try:
        numbers = np.array([_number(value) for value in values] if values.dtype.kind == "O" else values)
    except (TypeError, ValueError):
        return False
    return bool((numbers != np.floor(numbers))[np.isfinite(numbers)].any())


LOOKS = {
    r"^[-+]?[0-9]+(\.[0-9]+)?$": (
        "numbers",
        'Make them numbers: --sql "SELECT * REPLACE (CAST({name} AS DOUBLE) AS {name}) FROM rows".',
    ),
    r"^[-+]?[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?$": (
        "numbers with commas",
        "Say that they are decimal marks (--decimal ','), or remove them: "
        "--sql \"SELECT * REPLACE (CAST(replace({name}, ',', '') AS DOUBLE) AS {name}) FROM rows\".",
    ),
    r"^[-+]?[0-9]+(,[0-9]+)?$": (
        "numbers with a decimal comma",
        "Say so: decimal=',' (--decimal ','), for files with another separator than commas.",
    ),
    r"^[-+]?[0-9]+([.,][0-9]+)? ?%$": (
        "percentages",
        "Take the signs off: "
        "--sql \"SELECT * REPLACE (CAST(rtrim({name}, '% ') AS DOUBLE) / 100 AS {name}) FROM rows\".",
    ),
    r"^([Yy]([Ee][Ss])?|[Nn][Oo]?)$": (
        "yes and no",
        "Make it true or false: --sql \"SELECT * REPLACE (lower({name}) LIKE 'y%' AS {name}) FROM rows\".",
    ),
    DAY: ("dates", "A metric is an amount, or whether something happened."),
}
"""What texts where numbers are needed may look like, by a pattern, and what to do about it."""


def unfit_metric(name: str, looks: Sequence[bool]) -> SourceError:
    """Return the error of a metric that is no number; ``looks`` says which of the patterns its texts have."""
    for (word, remedy), fits in zip(LOOKS.values(), looks, strict=False):
        if fits:
            return SourceError(f"metric {name!r} holds texts that look like {word}", remedy.format(name=name))
    return SourceError(
        f"metric {name!r} holds something other than numbers",
        "A metric needs numbers or true/false; empty values count as missing.",
    )


def _number(value: Any) -> float:
    if value is None or is_na(value):
        return math.nan
    if not isinstance(value, (float, int, Decimal, Real, np.bool_)) or isinstance(value, np.timedelta64):
        raise TypeError
    try:
        return float(value)
    except OverflowError:
        return math.inf
