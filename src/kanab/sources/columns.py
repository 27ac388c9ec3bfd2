"""Rows to a tally with NumPy alone: ``count_columns`` for arrays and frames."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kanab.cells import Cells
from kanab.errors import GridError, SourceError
from kanab.factor import Factor
from kanab.metric import Metric, Missing, implied_scale
from kanab.moments import By, Cross, Moments
from kanab.sources.frames import columns, encode, numbers, numeric_scores
from kanab.tally import Tally

Squares = Literal["arm", "margins", "class"]

CLASS_BUDGET = 100_000
"""More classes than this are refused: such a table is rows under another name."""

_CHUNK = 1 << 20


def count_columns(
    data: Any,
    *,
    arm: str | Sequence[str],
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    covariates: Sequence[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    squares: Squares = "margins",
    products: Iterable[tuple[str, str]] = (),
) -> Tally:
    """Count people, one row each, into one tally of arm × covariates.

    ``data`` is a dict of columns or a pandas, polars or Arrow table. Two arm columns make the
    table of a pair of experiments. ``squares`` says how finely squares are kept: per "arm", on
    the "margins" (per arm and per level), or, at a cost to privacy, per "class".

    >>> rows = {"variant": ["A", "A", "B", "B"], "tier": [1, 2, 1, 2], "spend": [0.5, 2.0, 1.5, 0.0]}
    >>> count_columns(rows, arm="variant", metrics=["spend"], covariates=["tier"], resolution={"spend": 0.5})
    Tally of variant (A, B) × tier (1, 2): spend in steps of 0.5, squares by variant, tier
    """
    arms = [arm] if isinstance(arm, str) else list(arm)
    names = name_list(arms, "arm"), name_list(covariates, "covariates"), name_list(metrics, "metrics")
    table = columns(data, list(dict.fromkeys(chain(*names))))
    factors, code = _classes(table, arms, names[1])
    grids = _Grids(bounds or {}, resolution or {}, missing or {}, names[2])
    measured = []
    for name in names[2]:
        values, gone = numbers(table[name], name)
        metric = metrics[name] if isinstance(metrics, Mapping) else grids.metric(name, values[~gone])
        measured.append(measure(metric, values, gone))
    return fill(factors, code, measured, dict.fromkeys(names[2], squares), products)


@dataclass(frozen=True, eq=False)
class Measured:
    """One metric of everybody: grid steps, and who has a value."""

    metric: Metric
    steps: NDArray[np.int64]
    has: NDArray[np.bool_]

    def of(self, people: NDArray[np.bool_]) -> Measured:
        """The same metric of some of the people."""
        return Measured(self.metric, self.steps[people], self.has[people])


def measure(metric: Metric, values: NDArray[np.float64], gone: NDArray[np.bool_]) -> Measured:
    """A metric on its grid, with its rule for missing values."""
    steps = metric.to_grid(values)
    if gone.any():
        steps = _without(steps, gone, metric)
    return Measured(metric, steps, ~gone if metric.missing == "exclude" else np.ones(len(steps), dtype=bool))


def fill(
    factors: tuple[Factor, ...],
    code: NDArray[np.intp],
    measured: Sequence[Measured],
    squares: Mapping[str, Squares],
    products: Iterable[tuple[str, str]] = (),
) -> Tally:
    """A tally from the class of every person, as a flat index, and their metrics."""
    shape = tuple(len(factor.levels) for factor in factors)
    size = math.prod(shape)
    moments = []
    for one in measured:
        metric, steps, place = one.metric, one.steps[one.has], code[one.has]
        margins = [] if metric.binary else _margins(factors, squares[metric.name])
        kept = {by: _fold_squares(steps, place, factors, by) for by in margins}
        sums = group_sums(steps, place, size).reshape(shape)
        moments.append(Moments(metric, _counts(place, size).reshape(shape), sums, kept))
    found = {one.metric.name: one for one in measured}
    crosses = [
        _cross(pair, found, code, factors, (factor.name,))
        for pair in products
        for factor in factors
        if factor.role == "arm"
    ]
    return Tally(factors, _counts(code, size).reshape(shape), tuple(moments), tuple(crosses))


def name_list(names: Iterable[Any], what: str) -> list[str]:
    """A list of column names, each named once."""
    if isinstance(names, str):
        raise SourceError(f"{what} must be a list of column names", f"Write {what}=[{names!r}].")
    found = list(names)
    if not all(isinstance(name, str) for name in found):
        raise SourceError(f"{what} must be column names", "Give texts.")
    if len(set(found)) != len(found):
        raise SourceError(f"{what} names a column twice", "Name each column once.")
    return found


def _classes(
    table: Mapping[str, Any], arms: Sequence[str], covariates: Sequence[str]
) -> tuple[tuple[Factor, ...], NDArray[np.intp]]:
    """The factors, and for every person the number of their class."""
    factors: list[Factor] = []
    code = np.zeros(len(table[arms[0]]) if arms else 0, dtype=np.intp)
    size = 1
    for name in (*arms, *covariates):
        codes, levels = encode(table[name], name)
        role: Literal["arm", "covariate"] = "arm" if name in arms else "covariate"
        if role == "arm" and None in levels:
            raise SourceError(
                f"arm column {name!r} has missing values",
                "Leave out people who are not in the experiment.",
            )
        size *= len(levels)
        if size > CLASS_BUDGET:
            raise SourceError(
                f"{name!r} brings the table to more than {CLASS_BUDGET:,} classes",
                "Bin or merge its levels, or count covariates in tables of their own.",
            )
        factors.append(Factor(name, levels, role, numeric_scores(levels) if role == "covariate" else None))
        code = code * len(levels) + codes
    return tuple(factors), code


class _Grids:
    """The grid of each metric: declared, or the simplest that holds the values."""

    def __init__(
        self,
        bounds: Mapping[str, tuple[float, float]],
        resolution: Mapping[str, float],
        missing: Mapping[str, Missing],
        names: Sequence[str],
    ) -> None:
        self._bounds, self._resolution, self._missing = bounds, resolution, missing
        for word, given in (("bounds", bounds), ("resolution", resolution), ("missing", missing)):
            if not set(given) <= set(names):
                raise SourceError(f"{word} are given for a metric that is not counted", "Check its name.")

    def metric(self, name: str, values: NDArray[np.float64]) -> Metric:
        bounds = self._bounds.get(name)
        resolution = self._resolution.get(name)
        missing = self._missing.get(name, "zero")
        whole = bool(np.all(values == np.floor(values)))
        if bounds is None and resolution is None and whole and np.all((values == 0) | (values == 1)):
            bounds = (0.0, 1.0)
        if resolution is None and bounds is None and not whole:
            resolution = 1 / (decimal_scale(values) or implied_scale(float(values.min()), float(values.max())))
        if resolution is None and whole:
            resolution = 1
        return Metric.declare(name, bounds=bounds, resolution=resolution, missing=missing)


def decimal_scale(values: NDArray[np.float64]) -> int | None:
    """10, 100, 1,000 or 10,000 if the values are decimals with so few digits, such as money.

    >>> decimal_scale(np.array([0.25, 19.99])), decimal_scale(np.array([1 / 3]))
    (100, None)
    """
    for scale in (10, 100, 1_000, 10_000):
        if np.all(np.floor(values * scale + 0.5) / scale == values):
            return scale
    return None


def _without(steps: NDArray[np.int64], gone: NDArray[np.bool_], metric: Metric) -> NDArray[np.int64]:
    bounds = metric.bounds
    if metric.missing == "zero" and bounds is not None and not bounds[0] <= 0 <= bounds[1]:
        raise GridError(
            f"missing values of {metric.name!r} would count as 0, outside its bounds",
            "Declare missing='exclude' for this metric.",
        )
    return np.where(gone, 0, steps)


def _margins(factors: Sequence[Factor], squares: Squares) -> list[By]:
    if squares not in ("arm", "margins", "class"):
        raise SourceError("unknown choice of squares", "Use 'arm', 'margins' or 'class'.")
    if squares == "class":
        return [tuple(factor.name for factor in factors)]
    return [(factor.name,) for factor in factors if factor.role == "arm" or squares == "margins"]


def _margin_code(code: NDArray[np.intp], factors: Sequence[Factor], by: By) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    shape = tuple(len(factor.levels) for factor in factors)
    axes = [axis for axis, factor in enumerate(factors) if factor.name in by]
    kept = tuple(shape[axis] for axis in axes)
    if len(axes) == len(shape):
        return code, kept
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    lookup = np.ravel_multi_index(tuple(places[axis] for axis in axes), kept)
    return lookup[code], kept


def _fold_squares(steps: NDArray[np.int64], code: NDArray[np.intp], factors: Sequence[Factor], by: By) -> Cells:
    places, shape = _margin_code(code, factors, by)
    return group_products(steps, steps, places, math.prod(shape)).reshape(shape)


def _cross(
    pair: tuple[str, str],
    found: Mapping[str, Measured],
    code: NDArray[np.intp],
    factors: Sequence[Factor],
    by: By,
) -> Cross:
    first, second = pair
    if first not in found or second not in found:
        raise SourceError("a product names a metric that is not counted", "Add it to metrics.")
    both = found[first].has & found[second].has
    places, shape = _margin_code(code[both], factors, by)
    size = math.prod(shape)
    y, z = found[first].steps[both], found[second].steps[both]
    return Cross(
        (first, second),
        by,
        _counts(places, size).reshape(shape),
        (group_sums(y, places, size).reshape(shape), group_sums(z, places, size).reshape(shape)),
        (group_products(y, y, places, size).reshape(shape), group_products(z, z, places, size).reshape(shape)),
        group_products(y, z, places, size).reshape(shape),
    )


def _counts(code: NDArray[np.intp], size: int) -> Cells:
    return np.bincount(code, minlength=size).astype(object)


def group_sums(values: NDArray[np.int64], code: NDArray[np.intp], size: int) -> Cells:
    """Exact sums of 64-bit integers by group, as Python integers.

    ``bincount`` adds doubles, which is exact as long as every partial sum stays below 2^53: so
    values are cut into halves of 31 bits, and rows into chunks of 2^20.
    """
    total = np.zeros(size, dtype=object)
    small = bool(len(values) == 0 or int(np.abs(values).max()) < 1 << 32)
    for start in range(0, len(values), _CHUNK):
        part, place = values[start : start + _CHUNK], code[start : start + _CHUNK]
        if small:
            total += _bincount(part, place, size)
        else:
            total += _bincount(part >> 31, place, size) * (1 << 31)
            total += _bincount(part & ((1 << 31) - 1), place, size)
    return total


def _bincount(values: NDArray[np.int64], code: NDArray[np.intp], size: int) -> Cells:
    sums = np.bincount(code, weights=values, minlength=size)
    return sums.astype(np.int64).astype(object)


def group_products(y: NDArray[np.int64], z: NDArray[np.int64], code: NDArray[np.intp], size: int) -> Cells:
    """Exact sums of products by group; factors of 52 bits are cut into halves of 26."""
    if len(y) == 0 or int(np.abs(y).max()) * int(np.abs(z).max()) < 1 << 62:
        return group_sums(y * z, code, size)
    low = (1 << 26) - 1
    y1, y0, z1, z0 = y >> 26, y & low, z >> 26, z & low
    high, middle, low_part = (group_sums(part, code, size) for part in (y1 * z1, y1 * z0 + y0 * z1, y0 * z0))
    return np.asarray(high * (1 << 52) + middle * (1 << 26) + low_part)
