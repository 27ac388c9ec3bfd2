"""Adjust for numbers as they are, and for several covariates that were never crossed, from tables of two at a time.

It takes counts of arm × covariate × covariate, sums of arm × covariate and squares per arm; of a number from before
also its products per arm with the metric and other numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import get_args

import numpy as np

from kanab.arguments import check_arguments
from kanab.choices import Slopes, Variance
from kanab.errors import AnalysisError, DesignError, listed
from kanab.stats.adjust import check_variance
from kanab.stats.effect import ArmMeans
from kanab.stats.gram import Floats, arm_cross, arm_squares
from kanab.stats.marginals import (
    CodedColumn,
    Column,
    Marginals,
    NumberColumn,
    NumberSums,
    Rational,
    Row,
    check_people,
    with_fit_noise,
)
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.factor import Factor, label
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

_BITS = 160
"""Binary digits behind the point of a coefficient."""


@check_arguments()
def additive_means(
    tables: Iterable[Tally],
    metric: str | None = None,
    covariates: Sequence[str] | None = None,
    *,
    variance: Variance = "exact",
    numbers: Sequence[str] = (),
    slopes: Slopes = "own",
    totals: Tally | None = None,
) -> ArmMeans:
    """Return arm means adjusted for several covariates, added, from tables that hold two of them each.

    The same numbers as ``adjusted_means`` gives from one table that crosses all of them. Tables of
    pairs may hold people only, without metrics, where there are tables of each covariate that hold the
    metric. All tables must be about the same people: their marginals must be equal, to the last digit, but for noise.

    ``numbers`` are metrics from before the experiment that enter as they are, one column each: they need products
    with the metric and with each other, per arm, and their sums in every table of a covariate. ``slopes="one"`` fits
    everyone by one regression on the covariates, and compares the arms by what it leaves (CUPED): Welch's variance of
    that, whatever ``variance`` says. By default every arm has slopes of its own, which is never less precise in large
    samples. ``totals`` are the arms of a release with noise, as for ``adjusted_means``.

    Raises `AnalysisError` where tables are of other people or something is missing, `DesignError` where people are too
    few, or a number cannot be told from the rest.
    """
    check_variance(variance)
    if slopes not in get_args(Slopes):
        raise AnalysisError("unknown choice of slopes", "Use 'own' (every arm its own), or 'one' for all arms.")
    held = _gathered(list(tables), metric, covariates, list(numbers))
    columns: list[Column] = [*_number_columns(held)]
    for factor in held.factors:
        columns += _coded(factor, held.single[factor.name][0].sum(axis=0))
    if not columns:
        raise AnalysisError("there is no covariate to adjust for", "Count with a covariate of two or more levels.")
    if held.noisy:
        check_people(held)
    everyone, total = held.products(columns, slice(None)), held.total
    sums = everyone[0][1:]
    mean = [Fraction(x) / total for x in sums]
    about = [
        [float((everyone[i][j] * total - a * b) / total) for j, b in enumerate(sums, 1)] for i, a in enumerate(sums, 1)
    ]
    scales = [float(column.scale) for column in columns]
    if slopes == "own":
        parts = [_arm_fit(held, columns, mean, place, variance) for place in range(len(held.arms.levels))]
    else:
        parts = _common_fit(held, columns, mean, everyone)
    exact, betas, sample, df = zip(*parts, strict=True)
    means = ArmMeans(
        held.metric.name, "adjusted", (*held.numbers.sums, *(factor.name for factor in held.factors)), held.arms.levels,
        held.arms.control, tuple(int(n) for n in held.counts), exact, np.array(sample), np.array(df), betas,
        np.array(about) / np.outer(scales, scales) / (total * (total - 1)),
    )  # fmt: skip
    if not held.noisy:
        return means
    return with_fit_noise(held, columns, means, variance, one_slope=slopes == "one", totals=totals)


_ArmPart = tuple[Fraction, tuple[Fraction, ...], float, float]
"""One arm's mean at the common covariate means, its slopes, its variance and degrees of freedom."""


def _arm_fit(
    held: Marginals, columns: Sequence[Column], mean: list[Fraction], place: int, variance: Variance
) -> _ArmPart:
    """Fit one arm by itself."""
    arm, n = label(held.arms.levels[place]), int(held.counts[place])
    freedom = _freedom(arm, n, 1 + len(columns))
    xtx, xty = held.products(columns, place), held.right_side(columns, place)
    for i, column in enumerate(columns, 1):
        if isinstance(column, NumberColumn) and xtx[i][i] * n == xtx[0][i] ** 2:
            raise DesignError(f"in arm {arm!r} {column.name} is the same for everybody", "Leave it out.")
    b, inverse = _solved(xtx, xty, columns, f"in arm {arm!r} ")
    unit = 1 << _BITS  # coefficients are whole numbers of these parts
    left = (held.squares_about(place) * unit - 2 * _dot(b, xty)) * unit + _dot(b, [_dot(row, b) for row in xtx])
    at_mean = np.array([1.0, *map(float, mean)])
    share = 1 / n if variance == "paper" else float(at_mean @ inverse @ at_mean)
    scale = held.metric.scale
    alpha = ((b[0] + _dot(b[1:], mean)) / Fraction(unit) + held.centre) / scale
    sample = max(0.0, float(left / (unit * unit))) / freedom * share / scale**2
    return alpha, _in_units(b[1:], columns, held.metric), sample, float(freedom)


def _common_fit(
    held: Marginals, columns: Sequence[Column], mean: list[Fraction], everyone: list[Row]
) -> list[_ArmPart]:
    """Fit everyone by one regression without arms; each arm has the mean of what it leaves, and Welch's variance."""
    b, _ = _solved(everyone, held.right_side(columns, slice(None)), columns, "")
    slopes, unit, scale = b[1:], 1 << _BITS, held.metric.scale
    parts = []
    for place, arm in enumerate(held.arms.levels):
        n = int(held.counts[place])
        freedom = _freedom(label(arm), n, 1)
        xtx, xty = held.products(columns, place), held.right_side(columns, place)
        left = xty[0] * unit - _dot(slopes, xtx[0][1:])
        squares = (held.squares_about(place) * unit - 2 * _dot(slopes, xty[1:])) * unit
        squares += _dot(slopes, [_dot(row[1:], slopes) for row in xtx[1:]])
        alpha = ((Fraction(left) / n + _dot(slopes, mean)) / unit + held.centre) / scale
        within = max(0.0, float((squares - Fraction(left) ** 2 / n) / (unit * unit)))
        sample = within / (freedom * n) / scale**2
        parts.append((alpha, _in_units(slopes, columns, held.metric), sample, float(freedom)))
    return parts


def _freedom(arm: str, n: int, coefficients: int) -> int:
    """Return the degrees of freedom that an arm has left."""
    if n <= coefficients:
        raise DesignError(
            f"arm {arm!r} has too few people for its {coefficients} coefficients",
            "Wait for more people, or use fewer covariates or levels.",
        )
    return n - coefficients


def _in_units(slopes: Sequence[int], columns: Sequence[Column], metric: Metric) -> tuple[Fraction, ...]:
    """Return slopes in units of the metric, per unit of a number or score."""
    unit = metric.scale << _BITS
    return tuple(Fraction(b * column.scale, unit) for b, column in zip(slopes, columns, strict=True))


def _solved(xtx: list[Row], xty: Row, columns: Sequence[Column], where: str) -> tuple[list[int], Floats]:
    """Solve the normal equations to the last digit: residuals are exact, and fitted again."""
    names = ["Intercept", *(column.name for column in columns)]
    matrix = np.array([[float(x) for x in row] for row in xtx])
    lengths = np.sqrt(np.maximum(0.0, np.diag(matrix)))  # noise may make squares negative
    idle = [name for name, length in zip(names, lengths, strict=True) if length == 0]
    scaled = matrix / np.outer(lengths, lengths) if not idle else np.eye(len(names))
    values, vectors = np.linalg.eigh(scaled)
    if idle or values[0] < 1e-11:
        lost = idle or [name for name, x in zip(names, vectors[:, 0], strict=True) if abs(x) > 1e-6]
        raise DesignError(
            f"{where}the classes cannot tell these terms apart: {', '.join(lost)}",
            "Drop the terms, or merge levels so that every combination holds people.",
        )
    inverse = (vectors / values) @ vectors.T / np.outer(lengths, lengths)
    b, unit = [0] * len(names), 1 << _BITS
    for _ in range(4):
        rest = np.array([float((y * unit - _dot(row, b)) / unit) for y, row in zip(xty, xtx, strict=True)])
        step = [int(math.ldexp(x, _BITS)) for x in (inverse @ rest).tolist()]
        b = [old + new for old, new in zip(b, step, strict=True)]
    return b, inverse


def _gathered(
    tables: list[Tally], metric: str | None, covariates: Sequence[str] | None, numbers: Sequence[str]
) -> Marginals:
    """Return the marginals that an additive fit needs, checked to be those of the same people in every table."""
    factors = {factor.name: factor for table in tables for factor in table.covariates}
    names = list(factors) if covariates is None else list(covariates)
    if not (names or numbers) or not tables or not set(names) <= set(factors):
        raise AnalysisError("a covariate is in none of the tables", f"They have: {listed(factors) or 'none'}.")
    tables = sorted(tables, key=lambda table: not table.moments)
    arms, known = tables[0].experiment, tables[0].moments_of(metric).metric
    held = _Held(check=all(table.noise is None for table in tables))
    if not held.check and any(table.noise is None for table in tables):
        raise AnalysisError("one of the tables has noise, and another has none", "Take all from one release.")
    tables = [table.keep(*(name for name in names if name in table.axes)) for table in tables]
    for table in tables:
        if table.experiment != arms or any(factors[factor.name] != factor for factor in table.covariates):
            raise AnalysisError("the tables have different arms or levels", "Use one level map per covariate in all.")
        crossed = [factor.name for factor in table.covariates]
        if table.moments:
            part = table.moments_of(metric)
            cells = [part.counts, part.sums]
            _agree(held, (), [*(marginal(x, table.axes, (arms.name,)) for x in cells), arm_squares(table, metric)])
        else:
            cells = [table.people]
            if not _everybody(held, table, tables[0], known.name):
                raise AnalysisError(
                    f"some people have no value of {known.name!r}, and by {' × '.join(crossed)} it is not known who",
                    "Count it with missing = 'zero', or adjust for one covariate.",
                )
        for name in crossed:
            _agree(held, (name,), [marginal(x, table.axes, (arms.name, name)) for x in cells])
        for first, second in combinations(crossed, 2):
            _agree(held, (first, second), [marginal(cells[0], table.axes, (arms.name, first, second))])
    missing = [f"{a} × {b}" for a, b in combinations(names, 2) if not {(a, b), (b, a)} & held.keys()]
    if missing:
        raise AnalysisError(
            f"there is no table of {arms.name} × {missing[0]}",
            "Covariates are adjusted for together only where every pair of them was counted.",
        )
    without = [name for name in names if len(held[name,]) < 2]
    if without:
        raise AnalysisError(
            f"there are no sums of {known.name!r} by {without[0]}",
            "Give a table of each covariate that holds the metric.",
        )
    of_numbers = _gathered_numbers(tables, known.name, names, numbers, held[()])
    counts, sums, squares = held[()]
    if not np.all(counts > 0):
        raise AnalysisError("an arm has nobody in it", "Select the arms that have people first.")
    single = {name: (held[name,][0], held[name,][1]) for name in names}
    pairs = {(key[0], key[1]): cells[0] for key, cells in held.items() if len(key) == 2}
    used = tuple(factors[name] for name in names)
    return Marginals(known, arms, used, counts, sums, squares, single, pairs, of_numbers, tables)


class _Held(dict[tuple[str, ...], list[Cells]]):
    """Marginals by the names they cross; of tables with noise they are those of the first, and differ in others."""

    def __init__(self, *, check: bool) -> None:
        super().__init__()
        self.check = check


def _everybody(held: _Held, table: Tally, first: Tally, metric: str) -> bool:
    """Return whether everybody of a table without metrics has a value of the metric."""
    if first.noise is not None:
        return first.noise.metrics[metric].counts is None
    return np.array_equal(marginal(table.people, table.axes, (first.experiment.name,)), held[()][0])


def _gathered_numbers(
    tables: list[Tally], metric: str, covariates: Sequence[str], numbers: Sequence[str], of_metric: list[Cells]
) -> NumberSums:
    """Return sums and products of the numbers; ``of_metric`` are people, sums and squares of the metric per arm.

    One number by itself is of those who have a value of the metric, and so is the metric then: its products tell.
    """
    pairs = [*((number, metric) for number in numbers), *combinations(numbers, 2)]
    held = _Held(check=tables[0].noise is None)
    metrics: dict[str, Metric] = {}
    for table in tables:
        arm = table.experiment.name
        for part in [table.moments_of(number) for number in numbers if number in table.metric_names]:
            name = metrics.setdefault(part.metric.name, part.metric).name
            by_arm = [marginal(cells, table.axes, (arm,)) for cells in (part.counts, part.sums)]
            _same(held, (name,), [*by_arm, arm_squares(table, name)])
            for factor in table.covariates:
                _same(held, (name, "by", factor.name), [marginal(part.sums, table.axes, (arm, factor.name))])
        for pair in pairs:
            cross = arm_cross(table, *pair)
            if cross is not None:
                _same(held, pair, [cross.counts, *cross.sums, *cross.squares, cross.products])
    for first, second in pairs:
        if (first, second) not in held:
            raise AnalysisError(
                f"the products of {first} and {second} are not in the tables",
                f"Count again with {first} among the numbers that effects are adjusted for, or leave it out.",
            )
    for number, covariate in [(number, covariate) for number in numbers for covariate in covariates]:
        if (number, "by", covariate) not in held:
            raise AnalysisError(
                f"there are no sums of {number!r} by {covariate}",
                "Give a table of each covariate that holds the number.",
            )
    if len(pairs) == 1 and not covariates:
        people, x, y, xx, yy, xy = held[pairs[0]]
        of_metric[:] = people, y, yy
        return NumberSums(metrics, {numbers[0]: x}, {}, {frozenset(pairs[0]): xy, frozenset(numbers): xx})
    counts = [held[key][0] for key in [*((number,) for number in numbers), *pairs]]
    if held.check and not all(np.array_equal(of_metric[0], people) for people in counts):
        raise AnalysisError(
            f"some people have only one of {metric!r} and {listed(numbers)}, so that their sums are of others",
            "Count both with missing = 'zero', or adjust for one number only.",
        )
    return NumberSums(
        metrics,
        {number: held[number,][1] for number in numbers},
        {(number, name): held[number, "by", name][0] for number in numbers for name in covariates},
        {frozenset(pair): held[pair][5] for pair in pairs} | {frozenset([x]): held[x,][2] for x in numbers},
    )


def _agree(held: _Held, key: tuple[str, ...], cells: list[Cells]) -> None:
    """Hold a marginal, or check that it equals the one that an earlier table held."""
    if key[::-1] in held and len(key) == 2:
        key, cells = (key[1], key[0]), [np.swapaxes(table, 1, 2) for table in cells]
    _same(held, key, cells)


def _same(held: _Held, key: tuple[str, ...], cells: list[Cells]) -> None:
    earlier = held.setdefault(key, cells)
    if held.check and not all(np.array_equal(before, now) for before, now in zip(earlier, cells, strict=False)):
        raise AnalysisError(
            "the tables are not about the same people: their marginals differ",
            "Count them in one pass, from one source.",
        )


def _number_columns(held: Marginals) -> list[NumberColumn]:
    columns = []
    for name, sums in held.numbers.sums.items():
        total, squares = int(sums.sum()), int(held.numbers.products[frozenset([name])].sum())
        if squares * held.total == total**2:
            raise DesignError(f"{name} is the same for everybody", "Leave it out.")
        columns.append(NumberColumn(name, held.numbers.metrics[name].scale, total // held.total))
    return columns


def _coded(factor: Factor, people: Cells) -> list[CodedColumn]:
    """Return a column of scores, or one per level but the first; levels that nobody has are left out."""
    present = [place for place in range(len(factor.levels)) if people[place]]
    if factor.scores is None:
        named = [
            (f"{factor.name}[{factor.labels[level]}]", [Fraction(i == level) for i in range(len(people))])
            for level in present[1:]
        ]
    else:
        scores = [Fraction(0) if score is None else Fraction(score) for score in factor.scores]
        known = [place for place in present if factor.scores[place] is not None]
        total = sum(int(people[place]) for place in known)
        middle = round(sum(int(people[place]) * scores[place] for place in known) / total) if total else 0
        shifted = [x - middle if factor.scores[i] is not None else Fraction(0) for i, x in enumerate(scores)]
        named = [(factor.name, shifted)] if len(known) > 1 else []
        if len(known) < len(present) and known:
            named.append((f"{factor.name}[missing]", [Fraction(score is None) for score in factor.scores]))
    columns = []
    for name, values in named:
        whole = all(value.denominator == 1 for value in values)
        cells = np.empty(len(values), dtype=object)
        cells[:] = [value.numerator for value in values] if whole else values
        columns.append(CodedColumn(factor.name, name, cells))
    return columns


def _dot(first: Sequence[Rational], second: Sequence[Rational]) -> Rational:
    return sum(a * b for a, b in zip(first, second, strict=True))
