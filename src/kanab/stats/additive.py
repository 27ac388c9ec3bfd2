"""Adjust for several covariates that were never crossed, from tables of two at a time.

An additive fit per arm needs counts of arm × covariate × covariate, sums of arm × covariate and the
squares per arm. With three covariates or more these are pair tables, far coarser than the one table
that crosses them all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

from kanab.arguments import check_arguments
from kanab.errors import AnalysisError, DesignError, listed
from kanab.stats.adjust import Variance, check_variance
from kanab.stats.effect import ArmMeans
from kanab.stats.gram import Floats, arm_squares
from kanab.tally.cells import Cells, marginal
from kanab.tally.factor import Factor, label
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

_BITS = 160
"""Binary digits behind the point of a coefficient."""

_Number = int | Fraction
"""Whole numbers where all scores are whole, which add much faster; fractions otherwise."""

_Numbers = list[_Number]


@dataclass(frozen=True, eq=False)
class _Coded:
    """One covariate's column: its value in every level, about a whole number near the mean."""

    covariate: str
    name: str
    values: Cells


@dataclass(frozen=True, eq=False)
class _Marginals:
    """The marginals of all tables, arms first: people who have a value, their sums and squares."""

    metric: Metric
    arms: Factor
    factors: tuple[Factor, ...]
    counts: Cells
    sums: Cells
    squares: Cells
    single: dict[str, tuple[Cells, Cells]]
    pairs: dict[tuple[str, str], Cells]

    @property
    def total(self) -> int:
        """Everyone who has a value."""
        return int(self.counts.sum())

    @property
    def centre(self) -> int:
        """A whole number near the mean, in steps."""
        return int(self.sums.sum()) // self.total

    def products(self, columns: Sequence[_Coded], place: Any) -> list[_Numbers]:
        """Return X'X with an intercept, of one arm or (a slice) of everyone, exact."""
        size = len(columns) + 1
        xtx: list[_Numbers] = [[0] * size for _ in range(size)]
        xtx[0][0] = int(np.sum(self.counts[place]))
        for i, right in enumerate(columns, 1):
            counts = _arm(self.single[right.covariate][0], place)
            xtx[0][i] = xtx[i][0] = _total(counts * right.values)
            for j, left in enumerate(columns[:i], 1):
                pair = left.covariate, right.covariate
                if left.covariate == right.covariate:
                    value = _total(counts * right.values * left.values)
                else:
                    crossed = (
                        _arm(self.pairs[pair], place) if pair in self.pairs else _arm(self.pairs[pair[::-1]], place).T
                    )
                    value = _total(crossed * left.values[:, None] * right.values[None, :])
                xtx[i][j] = xtx[j][i] = value
        return xtx

    def right_side(self, columns: Sequence[_Coded], place: int) -> _Numbers:
        """Return X'y of one arm, y about the centre."""
        first = int(self.sums[place]) - self.centre * int(self.counts[place])
        rest: _Numbers = []
        for column in columns:
            counts, sums = (cells[place] for cells in self.single[column.covariate])
            rest.append(_total((sums - self.centre * counts) * column.values))
        return [first, *rest]

    def squares_about(self, place: int) -> int:
        """Return Σ y² of one arm about the centre."""
        k, n = self.centre, int(self.counts[place])
        return int(self.squares[place]) - 2 * k * int(self.sums[place]) + n * k**2


@check_arguments()
def additive_means(
    tables: Iterable[Tally],
    metric: str | None = None,
    covariates: Sequence[str] | None = None,
    *,
    variance: Variance = "exact",
) -> ArmMeans:
    """Return arm means adjusted for several covariates, added, from tables that hold two of them each.

    The same numbers as ``adjusted_means`` gives from one table that crosses all of them. Tables of
    pairs may hold people only, without metrics, where there are tables of each covariate that hold the
    metric. All tables must be about the same people: their marginals must be equal, to the last digit. Raises
    `AnalysisError` where they are not or a pair is missing, `DesignError` where people are too few.

    >>> from kanab.counting.columns import count_columns
    >>> from kanab.datasets import shop_rows
    >>> rows = shop_rows(20_000)
    >>> pairs = [("tier", "device"), ("tier", "country"), ("device", "country")]
    >>> means = additive_means(count_columns(rows, arm="variant", covariates=p, metrics=["bought"]) for p in pairs)
    >>> means.covariates, means.means.round(4)
    (('tier', 'device', 'country'), array([0.1082, 0.1146]))
    """
    check_variance(variance)
    held = _gathered(list(tables), metric, covariates)
    columns = [column for factor in held.factors for column in _coded(factor, held.single[factor.name][0].sum(axis=0))]
    if not columns:
        raise AnalysisError("there is no covariate to adjust for", "Count with a covariate of two or more levels.")
    everyone, total = held.products(columns, slice(None)), held.total
    mean = [Fraction(x) / total for x in everyone[0][1:]]
    about = [
        [float((everyone[i][j] * total - a * b) / total) for j, b in enumerate(everyone[0][1:], 1)]
        for i, a in enumerate(everyone[0][1:], 1)
    ]
    parts = [_arm_fit(held, columns, mean, place, variance) for place in range(len(held.arms.levels))]
    exact, slopes, sample, df = zip(*parts, strict=True)
    return ArmMeans(
        held.metric.name, "adjusted", tuple(factor.name for factor in held.factors), held.arms.levels,
        held.arms.control, tuple(int(n) for n in held.counts), exact, np.array(sample), np.array(df), slopes,
        np.array(about) / (total * (total - 1)),
    )  # fmt: skip


def _arm_fit(
    held: _Marginals, columns: Sequence[_Coded], mean: list[Fraction], place: int, variance: Variance
) -> tuple[Fraction, tuple[Fraction, ...], float, float]:
    """Return one arm's mean at the common covariate means, its slopes, its variance and degrees of freedom."""
    arm, n = label(held.arms.levels[place]), int(held.counts[place])
    freedom = n - 1 - len(columns)
    if freedom < 1:
        raise DesignError(
            f"arm {arm!r} has too few people for its {1 + len(columns)} coefficients",
            "Wait for more people, or use fewer covariates or levels.",
        )
    xtx, xty = held.products(columns, place), held.right_side(columns, place)
    b, inverse = _solved(xtx, xty, ["Intercept", *(column.name for column in columns)], arm)
    unit = 1 << _BITS  # coefficients are whole numbers of these parts
    left = (held.squares_about(place) * unit - 2 * _dot(b, xty)) * unit + _dot(b, [_dot(row, b) for row in xtx])
    at_mean = np.array([1.0, *map(float, mean)])
    share = 1 / n if variance == "paper" else float(at_mean @ inverse @ at_mean)
    scale = held.metric.scale
    alpha = ((b[0] + _dot(b[1:], mean)) / Fraction(unit) + held.centre) / scale
    sample = max(0.0, float(left / (unit * unit))) / freedom * share / scale**2
    return alpha, tuple(Fraction(x, unit * scale) for x in b[1:]), sample, float(freedom)


def _solved(xtx: list[_Numbers], xty: _Numbers, names: list[str], arm: str) -> tuple[list[int], Floats]:
    """Solve the normal equations to the last digit: residuals are exact, and fitted again."""
    matrix = np.array([[float(x) for x in row] for row in xtx])
    lengths = np.sqrt(np.diag(matrix))
    idle = [name for name, length in zip(names, lengths, strict=True) if length == 0]
    scaled = matrix / np.outer(lengths, lengths) if not idle else np.eye(len(names))
    values, vectors = np.linalg.eigh(scaled)
    if idle or values[0] < 1e-11:
        lost = idle or [name for name, x in zip(names, vectors[:, 0], strict=True) if abs(x) > 1e-6]
        raise DesignError(
            f"in arm {arm!r} the classes cannot tell these terms apart: {', '.join(lost)}",
            "Drop the terms, or merge levels so that every combination holds people.",
        )
    inverse = (vectors / values) @ vectors.T / np.outer(lengths, lengths)
    b, unit = [0] * len(names), 1 << _BITS
    for _ in range(4):
        rest = np.array([float((y * unit - _dot(row, b)) / unit) for y, row in zip(xty, xtx, strict=True)])
        step = [int(math.ldexp(x, _BITS)) for x in (inverse @ rest).tolist()]
        b = [old + new for old, new in zip(b, step, strict=True)]
    return b, inverse


def _gathered(tables: list[Tally], metric: str | None, covariates: Sequence[str] | None) -> _Marginals:
    """Return the marginals that an additive fit needs, checked to be those of the same people in every table."""
    factors = {factor.name: factor for table in tables for factor in table.covariates}
    names = list(factors) if covariates is None else list(covariates)
    if not names or not set(names) <= set(factors):
        raise AnalysisError("a covariate is in none of the tables", f"They have: {listed(factors) or 'none'}.")
    tables = sorted(tables, key=lambda table: not table.moments)
    arms, known = tables[0].experiment, tables[0].moments_of(metric).metric
    held: dict[tuple[str, ...], list[Cells]] = {}
    for table in [table.keep(*(name for name in names if name in table.axes)) for table in tables]:
        if table.experiment != arms or any(factors[factor.name] != factor for factor in table.covariates):
            raise AnalysisError("the tables have different arms or levels", "Use one level map per covariate in all.")
        crossed = [factor.name for factor in table.covariates]
        if table.moments:
            part = table.moments_of(metric)
            cells = [part.counts, part.sums]
            _agree(held, (), [*(marginal(x, table.axes, (arms.name,)) for x in cells), arm_squares(table, metric)])
        else:
            cells = [table.people]
            if not np.array_equal(marginal(table.people, table.axes, (arms.name,)), held[()][0]):
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
    counts, sums, squares = held[()]
    if not np.all(counts > 0):
        raise AnalysisError("an arm has nobody in it", "Select the arms that have people first.")
    single = {name: (held[name,][0], held[name,][1]) for name in names}
    pairs = {(key[0], key[1]): cells[0] for key, cells in held.items() if len(key) == 2}
    used = tuple(factors[name] for name in names)
    return _Marginals(known, arms, used, counts, sums, squares, single, pairs)


def _agree(held: dict[tuple[str, ...], list[Cells]], key: tuple[str, ...], cells: list[Cells]) -> None:
    """Hold a marginal, or check that it equals the one that an earlier table held."""
    if key[::-1] in held and len(key) == 2:
        key, cells = (key[1], key[0]), [np.swapaxes(table, 1, 2) for table in cells]
    earlier = held.setdefault(key, cells)
    if not all(np.array_equal(before, now) for before, now in zip(earlier, cells, strict=False)):
        raise AnalysisError(
            "the tables are not about the same people: their marginals differ",
            "Count them in one pass, from one source.",
        )


def _coded(factor: Factor, people: Cells) -> list[_Coded]:
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
        columns.append(_Coded(factor.name, name, cells))
    return columns


def _arm(cells: Cells, place: Any) -> Cells:
    """Return one arm's cells, or those of all arms added up."""
    return np.asarray(cells.sum(axis=0) if isinstance(place, slice) else cells[place])


def _total(cells: Cells) -> _Number:
    total: _Number = sum(cells.ravel().tolist())
    return total


def _dot(first: Sequence[_Number], second: Sequence[_Number]) -> _Number:
    return sum(a * b for a, b in zip(first, second, strict=True))
