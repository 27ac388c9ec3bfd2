"""Group by arms and levels in an engine: the column to group by, and its texts read back as levels.

Grouping uses the column's own type. Only the few groups leave the engine, as texts, so that no
driver can turn a whole number into a rounded one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ibis

from kanab.counting.engine.dialects import first_row
from kanab.counting.frames import LOOKS, check_column, days_as_levels, unfit_metric
from kanab.counting.levels import Bins, find_levels
from kanab.errors import QueryError, SourceError
from kanab.tally.cell_arrays import DROPPED
from kanab.tally.factor import OTHER, Level, as_level

Kind = Literal["text", "whole", "number", "truth"]

_KINDS: tuple[tuple[str, Kind], ...] = (
    ("is_boolean", "truth"),
    ("is_integer", "whole"),
    ("is_floating", "number"),
    ("is_decimal", "number"),
    ("is_string", "text"),
)


@dataclass(frozen=True)
class Key:
    """One column to group by: an experiment's arm, or a covariate's level.

    ``named`` are the levels that stay themselves in the engine, as values of the column's type;
    all others become one further value there. ``bins`` cuts a number, ``fill`` is the number of who has none.
    """

    name: str
    column: str
    kind: Kind
    named: tuple[Level, ...] | None = None
    bins: Bins | None = None
    fill: float | None = None

    def expression(self, table: Any) -> Any:
        """Return what to group by: a bin by its number; a missing value is nothing."""
        value = as_plain(table[self.name], self.kind)
        if self.bins is not None:
            number = (value.cast("int32") if self.kind == "truth" else value).cast("float64")
            number = number if self.fill is None else number.fill_null(self.fill)
            below = [(number < edge, ibis.literal(place, type="int64")) for place, edge in enumerate(self.bins.edges)]
            last = ibis.literal(len(self.bins.edges), type="int64")
            return ibis.cases((number.isnull(), ibis.null("int64")), *below, else_=last)
        if self.named is None:
            return value
        if self.kind == "whole":
            value = value.cast("int64")
        rest = ibis.literal(_unlike(self.named, self.kind), type=value.type())
        is_named = value.isin(list(self.named)) if self.named else ibis.literal(False)
        return ibis.cases((value.isnull() | is_named, value), else_=rest)

    def level(self, text: str | None) -> Level:
        """Return a level from its text; for bins the number of the bin."""
        return read_level(text, "whole" if self.bins is not None else self.kind, self.name)


def kind_of(table: Any, name: str, *, metric: bool = False) -> Kind:
    """Return what a column holds; raise `SourceError` where there is no such column or its type is unfit."""
    check_column(name, table.columns)
    dtype = table.schema()[name]
    for is_kind, kind in _KINDS:
        if getattr(dtype, is_kind)():
            if metric and kind == "text":
                break
            return kind
    if dtype.is_null():
        return "number" if metric else "text"
    if metric:
        raise unfit_metric(name, _looks(table, name) if dtype.is_string() else ())
    if dtype.is_temporal():
        raise days_as_levels(name)
    raise SourceError(
        f"column {name!r} holds values that are not levels",
        "Use texts, numbers or true/false; turn other types into text first.",
    )


def _looks(table: Any, name: str) -> list[bool]:
    """Return which of the patterns all texts of a column have."""
    text = table[name].strip()
    tests = {f"look{place}": text.re_search(look).all() for place, look in enumerate(LOOKS)}
    try:
        return [value is True for value in first_row(table.aggregate(**tests)).values()]
    except QueryError:
        return []


def in_experiment(arm: Any, kind: Kind, arms: Sequence[Level] | None) -> Any:
    """Return who is in an experiment: their arm is there, and declared if arms are."""
    if arms is None:
        return arm.notnull()
    values = as_values(arms, kind)
    return arm.isin(list(values)).fill_null(False) if values else ibis.literal(False)


def as_plain(value: Any, kind: Kind) -> Any:
    """Return a column in a type that every engine groups and compares alike; NaN is missing."""
    if kind == "number":
        double = value.cast("float64")
        return ibis.ifelse(double.isnan(), ibis.null("float64"), double)
    return value.cast("string") if value.type().is_null() else value


def only_where(condition: Any, value: Any) -> Any:
    """Return a value where a condition holds, and nothing elsewhere; also of a column that is declared NOT NULL."""
    return ibis.ifelse(condition, value, ibis.null(value.type().copy(nullable=True)))


def read_level(text: str | None, kind: Kind, name: str) -> Level:
    """Return a level from the text that an engine wrote."""
    if text is None or kind == "text":
        return text
    if kind == "truth":
        return text.lower() in ("true", "t", "1")
    return int(text) if kind == "whole" else as_level(float(text), name)


def as_values(levels: Sequence[Level], kind: Kind) -> tuple[Level, ...]:
    """Return the values of a column of this kind that mean the declared levels."""
    distinct = dict.fromkeys(_as_value(level, kind) for level in levels if level is not None)
    values = [value for value in distinct if value is not None]
    return tuple(value for value, place in zip(values, find_levels(values, levels), strict=True) if place != DROPPED)


def _as_value(level: Level, kind: Kind) -> Level:
    text = str(level).lower() if isinstance(level, bool) else str(level)
    if kind == "text":
        return text
    if kind == "truth":
        return {"true": True, "false": False}.get(text.lower())
    try:
        number = as_level(float(text), "")
        return int(text) if kind == "whole" else number
    except ValueError:
        return None


def _unlike(levels: Sequence[Level], kind: Kind) -> Level:
    """Return a value of the same type that is none of the levels."""
    if kind == "text":
        return OTHER
    if kind == "truth":
        return True not in levels
    return next(number for number in range(len(levels) + 1) if number not in levels)
