"""Read a ready class table: many people have only counts and sums, and need nothing else."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from kanab.arguments import check_arguments
from kanab.counting.columns import name_list, per_metric
from kanab.counting.files import parse_fields, read_texts
from kanab.counting.frames import Array, check_column, column_names, encode, get_columns, load_frame
from kanab.counting.grids import too_fine
from kanab.errors import SourceError, TallyError, listed
from kanab.tally.cell_arrays import Cells, check_shape, zeros
from kanab.tally.factor import Factor, numeric_scores
from kanab.tally.metric import Metric
from kanab.tally.moments import By, Moments
from kanab.tally.tally import Tally

_COUNT_NAMES = ("people", "count", "counts", "n")
_WORDS = re.compile(r"\b(sum|sums|total|of|squares?|squared)\b|[Σ²_]", re.IGNORECASE)

_FINEST = 15
"""Decimals of the finest grid: a sixteenth would not fit 52 bits."""

_MOST_DIGITS = 60
"""Sums of squares of everybody alive have fewer digits than this, before or after the point."""

Table = Mapping[str, Array]


class _Roles(NamedTuple):
    """Which column of the class table is what."""

    arm: str
    covariates: list[str]
    counts: str
    metrics: list[str]


class _Marginal(NamedTuple):
    """The squares of one metric on a marginal: where each stands among the levels of the factors."""

    factors: list[Factor]
    places: list[tuple[int, ...]]
    squares: list[Fraction]


@check_arguments()
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
    """Read a tally from a table like the paper's Table 2, and one of squares like its Table 3.

    ``classes`` is a CSV path, a dict of columns or a frame: arm, covariates, count, then one
    column of sums per metric. ``squares`` is the same with squares, per arm or per any factors; a
    list gives several such tables. By default the first column is the arm, the columns up
    to the count are covariates, and the rest are metrics ("sum of spend" is the metric spend).
    Raises `SourceError` where a column is missing or unfit, `TallyError` where the numbers contradict
    each other.

    >>> table2 = {"arm": list("AABB"), "tier": [1, 2, 1, 2], "count": [30, 20, 31, 19], "spend": [12.5, 9, 15, 11]}
    >>> read_classes(table2, {"arm": ["A", "B"], "spend": [40.75, 52.5]})
    Tally of arm (A, B) × tier (1, 2): spend in steps of 0.1, squares by arm
    """
    table = _columns(classes)
    roles = _roles(list(table), arm, covariates, count, metrics)
    names = [_metric_name(column) for column in roles.metrics]
    bounds = per_metric(bounds, names, "bounds")
    resolution = per_metric(resolution, names, "resolution")
    factors, places = _factors(table, roles)
    tables = squares if isinstance(squares, (list, tuple)) else [] if squares is None else [squares]
    marginals = _marginals([_columns(each) for each in tables], factors, roles)
    counts = _exact(table[roles.counts], "counts")
    if any(number.denominator != 1 or number < 0 for number in counts):
        raise TallyError("the counts must be whole numbers of people", "Check for negative or fractional ones.")
    people = _fill(factors, places, map(int, counts))
    moments = []
    for column, name in zip(roles.metrics, names, strict=True):
        sums = _exact(table[column], f"sums of {name!r}")
        metric = _metric(name, sums, marginals[column], bounds.get(name), resolution.get(name))
        squared = {
            by: _fill(marginal.factors, marginal.places, _steps(marginal.squares, metric.scale**2))
            for by, marginal in marginals[column].items()
        }
        moments.append(Moments(metric, people, _fill(factors, places, _steps(sums, metric.scale)), squared))
    return Tally(factors, people, tuple(moments))


def _columns(source: Any) -> Table:
    table = read_texts(source) if isinstance(source, (str, PathLike)) else source
    table = load_frame(table)
    names = column_names(table)
    return get_columns(table, names) if names else {}


def _roles(names: Sequence[str], arm: Any, covariates: Any, count: Any, metrics: Any) -> _Roles:
    """Return the columns' roles as named, or by their order."""
    for word, name in (("arm", arm), ("count", count)):
        name_list([] if name is None else [name], word)
    counts = next((name for name in names if name.lower() in _COUNT_NAMES), None) if count is None else count
    if counts is None:
        raise SourceError("the table has no column of counts", f"Call it {listed(_COUNT_NAMES)}, or name it.")
    check_column(counts, names)
    place = names.index(counts)
    armed = names[0] if arm is None else arm
    before = [name for name in names[:place] if name != armed]
    crossed = before if covariates is None else name_list(covariates, "covariates")
    after = [name for name in names[place + 1 :] if name not in (armed, *crossed)]
    summed = after if metrics is None else name_list(metrics, "metrics")
    used = [armed, *crossed, *summed]
    for name in used:
        check_column(name, names)
    if len({counts, *used}) != 1 + len(used):
        raise SourceError("a column of the class table has two roles", "Name arm, covariates, count and metrics apart.")
    return _Roles(armed, crossed, counts, summed)


def _exact(values: Iterable[Any], word: str) -> list[Fraction]:
    numbers = []
    for value in values:
        number = _decimal(value)
        if number is None or not number.is_finite():
            raise SourceError(f"the {word} must be finite numbers", "Leave no field empty.")
        if number and abs(number.adjusted()) > _MOST_DIGITS:
            raise SourceError(f"the {word} are beyond anything that people add up to", "Check the numbers' exponents.")
        numbers.append(Fraction(number if number else 0))
    return numbers


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        return Decimal(repr(value) if isinstance(value, float) else value)
    except InvalidOperation:
        return None


def _factors(table: Table, roles: _Roles) -> tuple[tuple[Factor, ...], list[tuple[int, ...]]]:
    """Return the factors, and where each row of the table stands among their levels."""
    codes, levels = encode(_levels(table, roles.arm), roles.arm)
    factors, places = [Factor(roles.arm, levels, "arm")], [codes.tolist()]
    for name in roles.covariates:
        codes, levels = encode(_levels(table, name), name)
        factors.append(Factor(name, levels, "covariate", numeric_scores(levels)))
        places.append(codes.tolist())
    check_shape(tuple(len(factor.levels) for factor in factors))
    return tuple(factors), list(zip(*places, strict=True))


def _levels(table: Table, name: str) -> Array:
    values = table[name]
    return parse_fields(values) if all(isinstance(value, str) for value in values) else values


def _fill(factors: Sequence[Factor], places: Sequence[tuple[int, ...]], values: Iterable[int]) -> Cells:
    if len(set(places)) != len(places):
        raise TallyError("the same class comes twice", "Add such rows up first.")
    cells = zeros(tuple(len(factor.levels) for factor in factors))
    for place, value in zip(places, values, strict=True):
        cells[place] = value
    return cells


def _metric(
    name: str, sums: Sequence[Fraction], marginals: Mapping[By, _Marginal], bounds: Any, resolution: Any
) -> Metric:
    """Return the metric as declared, or on the coarsest decimal grid that holds sums, squares and bounds."""
    if resolution is not None:
        return Metric.declare(name, bounds=bounds, resolution=resolution)
    limits = _exact(Metric(name, 1, bounds).bounds or (), "bounds")
    whole = math.lcm(*(number.denominator for number in (*sums, *limits)))
    square = math.lcm(*(number.denominator for marginal in marginals.values() for number in marginal.squares))
    grids = (10**digits for digits in range(_FINEST))
    scale = next((grid for grid in grids if grid % whole == 0 and grid**2 % square == 0), 10**_FINEST)
    if any(sums) and not any(_steps(sums, scale)):
        raise too_fine(name)
    return Metric(name, scale, bounds)


def _steps(values: Iterable[Fraction], per_unit: int) -> Iterator[int]:
    """Round sums to whole steps by the rule of ``grid_steps``, in exact arithmetic: they outgrow doubles."""
    return (math.floor(value * per_unit + Fraction(1, 2)) for value in values)


def _marginals(tables: Sequence[Table], factors: Sequence[Factor], roles: _Roles) -> dict[str, dict[By, _Marginal]]:
    """Return the squares of every metric, by marginal. A column of counts may come along."""
    marginals: dict[str, dict[By, _Marginal]] = {name: {} for name in roles.metrics}
    for table in tables:
        named = [factor for factor in factors if factor.name in table]
        if not named:
            raise SourceError(
                "a table of squares has no column of the class table's levels",
                f"Name one as there: {listed(factor.name for factor in factors)}.",
            )
        by = tuple(factor.name for factor in named)
        rows = [[factor.index(level) for level in _levels(table, factor.name)] for factor in named]
        rest = [name for name in table if name not in (*by, roles.counts)]
        for name in rest:
            metric = _metric_of(name, roles.metrics, alone=len(rest) == 1)
            if by in marginals[metric]:
                raise SourceError(f"squares of {_metric_name(metric)!r} by {listed(by)} come twice", "Give them once.")
            values = _exact(table[name], f"squares of {_metric_name(metric)!r}")
            marginals[metric][by] = _Marginal(named, list(zip(*rows, strict=True)), values)
    return marginals


def _metric_of(squares: str, metrics: Sequence[str], *, alone: bool) -> str:
    """Return the metric that a column of squares is about: of its name, or the only one."""
    if alone and len(metrics) == 1:
        return metrics[0]
    for metric in metrics:
        if _bare(metric) == _bare(squares):
            return metric
    raise SourceError(f"the squares {squares!r} are of no metric", f"Name them like one of: {listed(metrics)}.")


def _metric_name(column: str) -> str:
    """Return the metric's name of a column: "Sum Time on App" is about Time on App."""
    return re.sub(r"^(sum( of)?|Σ)[ _]+", "", column, flags=re.IGNORECASE) or column


def _bare(name: str) -> str:
    return " ".join(_WORDS.sub(" ", name).lower().split())
