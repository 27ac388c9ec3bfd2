"""A ready class table: many people have only counts and sums, and need nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from os import PathLike
from typing import Any

from kanab.cells import Cells, zeros
from kanab.errors import SourceError, TallyError, listed
from kanab.factor import Factor
from kanab.metric import Metric
from kanab.moments import By, Moments
from kanab.sources.csvfile import read_texts, typed
from kanab.sources.frames import column, column_names, encode, numeric_scores
from kanab.tally import Tally

_COUNT_NAMES = ("people", "count", "counts", "n")
_Margin = tuple[list[Factor], list[tuple[int, ...]], list[Decimal]]
_WORDS = re.compile(r"\b(sum|sums|total|of|squares?|squared)\b|[Σ²_]", re.IGNORECASE)


def read_classes(
    classes: Any,
    squares: Any = None,
    *,
    arm: str | None = None,
    covariates: Sequence[str] | None = None,
    count: str | None = None,
    metrics: Sequence[str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
) -> Tally:
    """A tally from a table like the paper's Table 2, and one of squares like its Table 3.

    ``classes`` is a CSV path, a dict of columns or a frame: arm, covariates, count, then one
    column of sums per metric. ``squares`` is the same with squares, per arm or per any margin; a
    list of tables gives several margins. By default the first column is the arm, the columns up
    to the count are covariates, and the rest are metrics ("sum of spend" is the metric spend).

    >>> table2 = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "count": [30, 20, 31, 19], "spend": [12.5, 9, 15, 11]}
    >>> read_classes(table2, {"arm": ["A", "B"], "spend": [40.75, 52.5]})
    Tally of arm (A, B) × tier (1, 2): spend in steps of 0.1, squares by arm
    """
    table = _columns(classes)
    names = list(table)
    counted = count or next((name for name in names if name.lower() in _COUNT_NAMES), None)
    if counted is None:
        raise SourceError("the table has no column of counts", f"Call it {listed(_COUNT_NAMES)}, or name it.")
    place = names.index(counted) if counted in names else 0
    armed = arm or names[0]
    crossed = [name for name in names[:place] if name != armed] if covariates is None else list(covariates)
    summed = [name for name in names[place + 1 :] if name not in (armed, *crossed)] if metrics is None else metrics
    factors, places = _factors(table, armed, crossed)
    margins = [
        _columns(one) for one in (squares if isinstance(squares, (list, tuple)) else [squares]) if one is not None
    ]
    people = _filled(factors, places, _whole(column(table, counted), "counts"))
    moments = []
    for name in summed:
        own = _name(name)
        sums = _decimals(column(table, name), f"sums of {own!r}")
        kept = _squares(name, margins, factors, alone=len(summed) == 1)
        step = (resolution or {}).get(own) or 1 / 10 ** min(15, _decimal_places(sums, kept))
        metric = Metric.declare(own, bounds=(bounds or {}).get(own), resolution=step)
        filled = {by: _filled(named, where, _steps(q, metric.scale**2)) for by, (named, where, q) in kept.items()}
        moments.append(Moments(metric, people, _filled(factors, places, _steps(sums, metric.scale)), filled))
    return Tally(factors, people, tuple(moments))


def _columns(source: Any) -> dict[str, Any]:
    """Columns of a path, a dict or a frame."""
    if isinstance(source, (str, PathLike)):
        return dict(read_texts(source))
    return {name: column(source, name) for name in column_names(source)}


def _decimal(value: Any) -> Decimal | None:
    """An exact decimal, as it was written; None if it is not a finite number."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        return None
    try:
        number = Decimal(repr(value) if isinstance(value, float) else str(value).strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _decimals(values: Iterable[Any], what: str) -> list[Decimal]:
    found = [_decimal(value) for value in values]
    if any(number is None for number in found):
        raise SourceError(f"the {what} must be finite numbers", "Leave no field empty.")
    return [number for number in found if number is not None]


def _whole(values: Iterable[Any], what: str) -> list[int]:
    numbers = _decimals(values, what)
    if any(number != number.to_integral_value() or number < 0 for number in numbers):
        raise TallyError(f"the {what} must be whole numbers of people", "Check for negative or fractional ones.")
    return [int(number) for number in numbers]


def _factors(
    table: Mapping[str, Any], arm: str, covariates: Sequence[str]
) -> tuple[tuple[Factor, ...], list[tuple[int, ...]]]:
    factors, codes = [], []
    for name in (arm, *covariates):
        code, levels = encode(_levels(table, name), name)
        role = "arm" if name == arm else "covariate"
        factors.append(Factor(name, levels, role, None if role == "arm" else numeric_scores(levels)))  # type: ignore[arg-type]
        codes.append(code.tolist())
    return tuple(factors), list(zip(*codes, strict=True))


def _filled(factors: Sequence[Factor], places: Sequence[tuple[int, ...]], values: Sequence[int]) -> Cells:
    if len(set(places)) != len(places):
        raise TallyError("the same class comes twice", "Add such rows up first.")
    cells = zeros(tuple(len(factor.levels) for factor in factors))
    for place, value in zip(places, values, strict=True):
        cells[place] = value
    return cells


def _name(name: str) -> str:
    """The metric's own name: "Sum Time on App" is about Time on App."""
    stripped = re.sub(r"^(sum( of)?|Σ)[ _]+", "", name, flags=re.IGNORECASE)
    return stripped or name


def _decimal_places(sums: Sequence[Decimal], kept: Mapping[By, _Margin]) -> int:
    """The coarsest decimal grid that holds the sums, and the squares on its square."""
    return max([_digits(sums), *(-(-_digits(squares) // 2) for _, _, squares in kept.values())])


def _digits(values: Sequence[Decimal]) -> int:
    exponents = [number.normalize().as_tuple().exponent for number in values]
    return max([0, *(-exponent for exponent in exponents if isinstance(exponent, int))])


def _steps(values: Iterable[Decimal], per_unit: int) -> list[int]:
    return [math.floor(Fraction(value) * per_unit + Fraction(1, 2)) for value in values]


def _squares(
    metric: str, tables: Sequence[Mapping[str, Any]], factors: Sequence[Factor], *, alone: bool
) -> dict[By, _Margin]:
    """The squares of one metric in every table that has them, by margin."""
    found: dict[By, _Margin] = {}
    for table in tables:
        named = [factor for factor in factors if factor.name in table]
        if not named:
            raise SourceError(
                "a table of squares has no column of the class table's levels",
                f"Name one as there: {listed(factor.name for factor in factors)}.",
            )
        rest = [name for name in table if name not in {factor.name for factor in named}]
        chosen = rest if alone and len(rest) == 1 else [name for name in rest if _bare(name) == _bare(metric)]
        if chosen:
            rows = [[factor.index(level) for level in _levels(table, factor.name)] for factor in named]
            values = _decimals(column(table, chosen[0]), f"squares of {_name(metric)!r}")
            found[tuple(factor.name for factor in named)] = named, list(zip(*rows, strict=True)), values
    return found


def _levels(table: Mapping[str, Any], name: str) -> Any:
    values = column(table, name)
    return typed(values) if all(isinstance(value, str) for value in values) else values


def _bare(name: str) -> str:
    return " ".join(_WORDS.sub(" ", name).lower().split())
