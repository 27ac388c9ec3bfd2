"""Columns out of whatever holds them: dicts, NumPy, pandas, polars and Arrow, without importing any."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import SourceError, listed
from kanab.factor import Level, as_level, sorted_levels

Array = NDArray[Any]


def column_names(data: Any) -> list[str]:
    """The names of the columns of a mapping or a frame."""
    if isinstance(data, Mapping):
        return [str(name) for name in data]
    names = getattr(data, "column_names", None)  # Arrow
    if names is None:
        names = getattr(data, "columns", None)  # pandas, polars
    if names is None or callable(names):
        raise SourceError(
            f"a {type(data).__name__} has no named columns",
            "Give a dict of columns, or a pandas, polars or Arrow table.",
        )
    return [str(name) for name in names]


def column(data: Any, name: str) -> Array:
    """One column as a flat NumPy array; an unknown name suggests its neighbours."""
    names = column_names(data)
    if names.count(name) != 1:
        if name in names:
            raise SourceError(f"there are several columns {name!r}", "Rename all but one.")
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
        hint = f"Did you mean {listed(near)}?" if near else f"There are: {listed(names)}."
        raise SourceError(f"there is no column {name!r}", hint)
    array = _array(data[name])
    if array.ndim != 1:
        raise SourceError(f"column {name!r} is not flat", "Give one value per person.")
    return array


def columns(data: Any, names: Sequence[str]) -> dict[str, Array]:
    """Several columns of one length, at least one row long."""
    found = {name: column(data, name) for name in names}
    if len({len(array) for array in found.values()}) > 1:
        raise SourceError("the columns have different lengths", "Give one value per person in each.")
    if not next(iter(found.values()), np.empty(0)).size:
        raise SourceError("there are no rows to count", "Check the file, the query or the filter.")
    return found


def _array(values: Any) -> Array:
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(object), None)
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise SourceError("a column is a single value", "Give one value per person.")
    items = list(values)
    flat = np.empty(len(items), dtype=object)
    flat[:] = items
    return flat


def encode(values: Array, name: str) -> tuple[NDArray[np.intp], tuple[Level, ...]]:
    """Whole-number codes of a column's levels, the levels sorted; missing is a level."""
    if values.dtype.kind in "biuf":
        found, codes = np.unique(values, return_inverse=True)  # NaNs come last, as one
        raw: list[Any] = found.tolist()
    else:
        raw_codes: dict[Any, int] = {}
        try:
            codes = np.fromiter(
                (raw_codes.setdefault(None if _is_nan(value) else value, len(raw_codes)) for value in values),
                dtype=np.intp,
                count=len(values),
            )
        except (TypeError, ValueError):
            raise SourceError(f"column {name!r} holds values that are not levels", "Use texts or numbers.") from None
        raw = list(raw_codes)
    spelled = [as_level(value, name) for value in raw]
    if any(isinstance(level, bool) for level in spelled) and any(type(level) in (int, float) for level in spelled):
        raise SourceError(f"column {name!r} mixes true/false with numbers", "Use one kind of value.")
    levels = sorted_levels(set(spelled))
    positions = {level: place for place, level in enumerate(levels)}
    return np.array([positions[level] for level in spelled], dtype=np.intp)[codes], levels


def _is_nan(value: Any) -> bool:
    """NaN, NaT and pandas' NA are missing; they differ from themselves or refuse to say."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or _is_na(value)


def _is_na(value: Any) -> bool:
    return type(value).__name__ in ("NAType", "NaTType")


def numeric_scores(levels: Sequence[Level]) -> tuple[float | None, ...] | None:
    """Numbers are their own scores; a covariate with texts or true/false has none."""
    scored = [level for level in levels if level is not None]
    if not scored or any(isinstance(level, (str, bool)) for level in scored):
        return None
    return tuple(None if level is None else float(level) for level in levels)


def numbers(values: Array, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A metric's values as doubles, and which of them are missing (those read 0)."""
    if values.dtype.kind in "biuf":
        floats = values.astype(np.float64)
    else:
        try:
            floats = np.array([_number(value) for value in values], dtype=np.float64)
        except (TypeError, ValueError):
            raise SourceError(
                f"metric {name!r} holds something other than numbers",
                "A metric needs numbers or true/false; empty values count as missing.",
            ) from None
    missing = np.isnan(floats)
    floats = np.where(missing, 0.0, floats)
    if not np.isfinite(floats).all():
        raise SourceError(f"metric {name!r} holds infinite values", "Remove them or declare them missing.")
    return floats, missing


def _number(value: Any) -> float:
    if value is None or _is_na(value):
        return np.nan
    if isinstance(value, (str, bytes)):
        raise TypeError
    return float(value)
