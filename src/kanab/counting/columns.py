"""Count arrays, frames and CSV files into a tally, with NumPy alone: ``count_columns``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from kanab.arguments import check_arguments
from kanab.counting.files import parse_fields, read_texts
from kanab.counting.frames import encode, get_columns, load_frame, to_numbers
from kanab.counting.grids import check_range, check_zero, choose_metric, profile_values
from kanab.errors import SourceError, listed
from kanab.plan.model import MOST_CLASSES, MetricPlan
from kanab.tally.cell_arrays import Cells, check_shape
from kanab.tally.factor import Factor, numeric_scores
from kanab.tally.metric import Metric, Missing
from kanab.tally.moments import By, Cross, Moments
from kanab.tally.tally import Tally

Squares = Literal["arm", "marginals", "class"]

_CHUNK = 1 << 20


@check_arguments(skip=("arm", "metrics", "covariates", "bounds", "resolution", "missing", "squares", "products"))
def count_columns(
    data: Any,
    *,
    arm: str | Sequence[str],
    metrics: Sequence[str] | Mapping[str, Metric] = (),
    covariates: Sequence[str] = (),
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    squares: Squares = "marginals",
    products: Iterable[tuple[str, str]] = (),
) -> Tally:
    """Count people, one row each, into one tally of arm × covariates.

    ``data`` is a dict of columns, a pandas, polars or Arrow table, or the path of a CSV file (or .csv.gz, .tsv, .zip),
    whose empty fields are missing values. Two arm columns make the table of a pair of experiments. ``squares`` says
    how finely squares are kept: per "arm", on the "marginals" (per arm and per level), or, at a cost to privacy, per
    "class".

    >>> rows = {"variant": ["A", "A", "B", "B"], "tier": [1, 2, 1, 2], "spend": [0.5, 2.0, 1.5, 0.0]}
    >>> count_columns(rows, arm="variant", metrics=["spend"], covariates=["tier"], resolution={"spend": 0.5})
    Tally of variant (A, B) × tier (1, 2): spend in steps of 0.5, squares by variant, tier
    """
    arms = name_list([arm] if isinstance(arm, str) else arm, "arm")
    if not arms:
        raise SourceError("no arm column is named", "Name the column that holds the arm: arm=….")
    crossed, named = name_list(covariates, "covariates"), name_list(metrics, "metrics")
    declared = declare_metrics(metrics, named, {"bounds": bounds, "resolution": resolution, "missing": missing})
    pairs = _pairs(products)
    if not isinstance(squares, str) or squares not in get_args(Squares):
        raise SourceError("unknown choice of squares", "Use 'arm', 'marginals' or 'class'.")
    columns = list(dict.fromkeys([*arms, *crossed, *named]))
    if isinstance(data, (str, PathLike)):
        data = {name: parse_fields(fields) for name, fields in read_texts(data, columns).items()}
    table = get_columns(load_frame(data), columns)
    factors, code = _classes(table, arms, crossed)
    metric_steps = []
    for name in named:
        values, gone = to_numbers(table[name], name)
        metric_steps.append(measure(_choose(declared[name], values[~gone], gaps=bool(gone.any())), values, gone))
    return fill_tally(factors, code, metric_steps, dict.fromkeys(named, squares), pairs)


@dataclass(frozen=True, eq=False)
class MetricSteps:
    """The grid steps of one metric of everybody, and who has a value."""

    metric: Metric
    steps: NDArray[np.int64]
    has: NDArray[np.bool_]

    def of(self, people: NDArray[np.bool_]) -> MetricSteps:
        """Return the same metric of some of the people."""
        return MetricSteps(self.metric, self.steps[people], self.has[people])


def measure(metric: Metric, values: NDArray[np.float64], gone: NDArray[np.bool_]) -> MetricSteps:
    """Step values onto a metric's grid, by its rule for missing values."""
    steps = metric.to_grid(values)
    if gone.any():
        check_zero(metric)
        steps = np.where(gone, 0, steps)
    return MetricSteps(metric, steps, ~gone if metric.missing == "exclude" else np.ones(len(steps), dtype=bool))


def fill_tally(
    factors: tuple[Factor, ...],
    code: NDArray[np.intp],
    metrics: Sequence[MetricSteps],
    squares: Mapping[str, Squares],
    products: Iterable[tuple[str, str]] = (),
) -> Tally:
    """Return the tally of people, given everybody's class as a flat index and their metrics."""
    shape = tuple(len(factor.levels) for factor in factors)
    check_shape(shape)
    size = math.prod(shape)
    moments = []
    for values in metrics:
        metric, steps, place = values.metric, values.steps[values.has], code[values.has]
        squared = {}
        for by in () if metric.binary else _marginals(factors, squares[metric.name]):
            group, sides = _marginal_code(place, factors, by)
            squared[by] = group_products(steps, steps, group, math.prod(sides)).reshape(sides)
        sums = group_sums(steps, place, size).reshape(shape)
        moments.append(Moments(metric, _counts(place, size).reshape(shape), sums, squared))
    by_name = {values.metric.name: values for values in metrics}
    arms = [factor.name for factor in factors if factor.role == "arm"]
    crosses = [_cross(pair, by_name, code, factors, arm) for pair in products for arm in arms]
    return Tally(factors, _counts(code, size).reshape(shape), tuple(moments), tuple(crosses))


def name_list(names: Iterable[Any], word: str) -> list[str]:
    """Return column names as a list; raise `SourceError` where they are none, or one comes twice."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        example = f"[{names!r}]" if isinstance(names, str) else "['…']"
        raise SourceError(f"{word} must be a list of column names", f"Write {word}={example}.")
    columns = list(names)
    if not all(isinstance(name, str) for name in columns):
        raise SourceError(f"{word} must be column names", "Give texts.")
    if len(set(columns)) != len(columns):
        raise SourceError(f"{word} names a column twice", "Name each column once.")
    return columns


def per_metric(choices: Any, names: Sequence[str], word: str) -> Mapping[str, Any]:
    """Return choices by metric, empty where there are none; raise `SourceError` where they fit no metric."""
    if choices is None:
        return {}
    if not isinstance(choices, Mapping):
        raise SourceError(f"{word} must say which metric they are for", f"Write {word}={{'…': …}}.")
    if not set(choices) <= set(names):
        raise SourceError(f"{word} are given for a metric that is not counted", f"Counted metrics: {listed(names)}.")
    return choices


def declare_metrics(
    metrics: Any, names: Sequence[str], choices: Mapping[str, Any]
) -> Mapping[str, Metric | MetricPlan]:
    """Return metrics as they were declared, or with what was chosen for each of them."""
    by_word = {word: per_metric(choice, names, word) for word, choice in choices.items()}
    if not isinstance(metrics, Mapping):
        return {
            name: MetricPlan(name, **{word: choice[name] for word, choice in by_word.items() if name in choice})
            for name in names
        }
    if any(by_word.values()):
        raise SourceError(
            "metrics are declared, and bounds, resolution or missing are given besides",
            "Put them into the declared metrics.",
        )
    for name, metric in metrics.items():
        if not isinstance(metric, Metric) or metric.name != name:
            raise SourceError(f"metric {name!r} is not declared under its name", f"Give a Metric({name!r}, …).")
    return metrics


def _choose(declared: Metric | MetricPlan, values: NDArray[np.float64], *, gaps: bool) -> Metric:
    """Return the metric as declared, or on the simplest grid that holds the values."""
    if isinstance(declared, Metric):
        return declared
    profile = replace(profile_values(values), gaps=gaps)
    metric = choose_metric(declared, profile)
    if declared.bounds is not None and declared.resolution is None and profile.whole:
        whole = replace(metric, scale=1)
        return whole if whole.bounds_on_grid else metric
    check_range(metric, profile)
    return metric


def _pairs(products: Any) -> list[tuple[str, str]]:
    pairs = list(products) if isinstance(products, Iterable) else [products]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise SourceError("products must be pairs of metrics", "For example products=[('spend', 'visits')].")
    return list(dict.fromkeys((first, second) for first, second in pairs))


def _classes(
    table: Mapping[str, Any], arms: Sequence[str], covariates: Sequence[str]
) -> tuple[tuple[Factor, ...], NDArray[np.intp]]:
    """Return the factors, and everybody's class as a flat index."""
    factors: list[Factor] = []
    code = np.zeros(len(table[arms[0]]), dtype=np.intp)
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
        if size > MOST_CLASSES:
            raise SourceError(
                f"{name!r} brings the table to more than {MOST_CLASSES:,} classes",
                "Bin or merge its levels, or count covariates in tables of their own.",
            )
        factors.append(Factor(name, levels, role, numeric_scores(levels) if role == "covariate" else None))
        code = code * len(levels) + codes
    return tuple(factors), code


def check_classes(name: str, shape: Sequence[int]) -> None:
    """Check that a table has no more classes than allowed; raise `SourceError` with the remedies where it has."""
    if math.prod(shape) > MOST_CLASSES:
        raise SourceError(
            f"{name} would have more than {MOST_CLASSES:,} classes",
            "Keep fewer levels: cut numbers into bins (--bin), keep only the most frequent (--top), or declare fewer.",
        )


def _marginals(factors: Sequence[Factor], squares: Squares) -> list[By]:
    if squares == "class":
        return [tuple(factor.name for factor in factors)]
    return [(factor.name,) for factor in factors if factor.role == "arm" or squares == "marginals"]


def _marginal_code(
    code: NDArray[np.intp], factors: Sequence[Factor], by: By
) -> tuple[NDArray[np.intp], tuple[int, ...]]:
    shape = tuple(len(factor.levels) for factor in factors)
    axes = [axis for axis, factor in enumerate(factors) if factor.name in by]
    marginal = tuple(shape[axis] for axis in axes)
    if len(axes) == len(shape):
        return code, marginal
    places = np.unravel_index(np.arange(math.prod(shape)), shape)
    lookup = np.ravel_multi_index(tuple(places[axis] for axis in axes), marginal)
    return lookup[code], marginal


def _cross(
    pair: tuple[str, str],
    metrics: Mapping[str, MetricSteps],
    code: NDArray[np.intp],
    factors: Sequence[Factor],
    arm: str,
) -> Cross:
    first, second = pair
    if first not in metrics or second not in metrics:
        raise SourceError("a product names a metric that is not counted", "Add it to metrics.")
    both = metrics[first].has & metrics[second].has
    places, (size,) = _marginal_code(code[both], factors, (arm,))
    y, z = metrics[first].steps[both], metrics[second].steps[both]
    sums = group_sums(y, places, size), group_sums(z, places, size)
    squares = group_products(y, y, places, size), group_products(z, z, places, size)
    return Cross((first, second), (arm,), _counts(places, size), sums, squares, group_products(y, z, places, size))


def _counts(code: NDArray[np.intp], size: int) -> Cells:
    return np.bincount(code, minlength=size).astype(object)


def group_sums(values: NDArray[np.int64], code: NDArray[np.intp], size: int) -> Cells:
    """Add 64-bit integers by group exactly, as Python integers.

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
    """Add products by group exactly; factors of 52 bits are cut into halves of 26."""
    if len(y) == 0 or int(np.abs(y).max()) * int(np.abs(z).max()) < 1 << 62:
        return group_sums(y * z, code, size)
    low = (1 << 26) - 1
    y1, y0, z1, z0 = y >> 26, y & low, z >> 26, z & low
    high, middle, low_part = (group_sums(part, code, size) for part in (y1 * z1, y1 * z0 + y0 * z1, y0 * z0))
    return np.asarray(high * (1 << 52) + middle * (1 << 26) + low_part)
