"""The marginals that a fit to several tables needs, its columns, and their sums of products, exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

from kanab.tally.cell_arrays import Cells
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally

Rational = int | Fraction
"""Whole numbers where all scores are whole, which add much faster; fractions otherwise."""

Row = list[Rational]

_ROOM = 1 << 62
"""Below this whole numbers are added as 64-bit integers, which is many times as fast."""


@dataclass(frozen=True, eq=False)
class CodedColumn:
    """One covariate's column: its value in every level, about a whole number near the mean."""

    covariate: str
    name: str
    values: Cells
    scale: int = 1


@dataclass(frozen=True, eq=False)
class NumberColumn:
    """One number's column: its grid steps, about a whole number near the mean."""

    number: str
    scale: int
    centre: Rational

    @property
    def name(self) -> str:
        """What errors call it."""
        return self.number


Column = CodedColumn | NumberColumn


@dataclass(frozen=True, eq=False)
class NumberSums:
    """The numbers: sums per arm and by arm × covariate, and products per arm of two numbers, or one and the metric."""

    metrics: dict[str, Metric]
    sums: dict[str, Cells]
    by_level: dict[tuple[str, str], Cells]
    products: dict[frozenset[str], Cells]


@dataclass(frozen=True, eq=False)
class Marginals:
    """The marginals of all tables, arms first: people who have a value, their sums and squares."""

    metric: Metric
    arms: Factor
    factors: tuple[Factor, ...]
    counts: Cells
    sums: Cells
    squares: Cells
    single: dict[str, tuple[Cells, Cells]]
    pairs: dict[tuple[str, str], Cells]
    numbers: NumberSums
    tables: list[Tally]

    @property
    def noisy(self) -> bool:
        """Whether the tables carry noise."""
        return self.tables[0].noise is not None

    @property
    def total(self) -> int:
        """Everyone who has a value."""
        return int(self.counts.sum())

    @property
    def centre(self) -> int:
        """A whole number near the mean, in steps."""
        return int(self.sums.sum()) // self.total

    def products(self, columns: Sequence[Column], place: Any) -> list[Row]:
        """Return X'X with an intercept, of one arm or (a slice) of everyone, exact."""
        size = len(columns) + 1
        xtx: list[Row] = [[0] * size for _ in range(size)]
        xtx[0][0] = int(np.sum(self.counts[place]))
        coded: dict[str, dict[int, CodedColumn]] = {}
        for i, right in enumerate(columns, 1):
            xtx[0][i] = xtx[i][0] = self._sum(right, place)
            for j, left in enumerate(columns[:i], 1):
                if isinstance(left, NumberColumn):
                    xtx[i][j] = xtx[j][i] = self._product(left, right, place)
            if isinstance(right, CodedColumn):
                coded.setdefault(right.covariate, {})[i] = right
        for first, second in combinations_with_replacement(coded.values(), 2):
            block = self._block([*first.values()], [*second.values()], place)
            for i, row in zip(first, block, strict=True):
                for j, product in zip(second, row, strict=True):
                    xtx[i][j] = xtx[j][i] = product
        return xtx

    def _sum(self, column: Column, place: Any) -> Rational:
        if isinstance(column, NumberColumn):
            n = int(np.sum(self.counts[place]))
            return int(np.sum(self.numbers.sums[column.number][place])) - column.centre * n
        return _total(_arm(self.single[column.covariate][0], place) * column.values)

    def _product(self, left: NumberColumn, right: Column, place: Any) -> Rational:
        """Return Σ of the products of a number and another column."""
        if isinstance(right, NumberColumn):
            raw = self.numbers.products[frozenset((left.number, right.number))]
            sums, n = self.numbers.sums, int(np.sum(self.counts[place]))
            first, second = (int(np.sum(sums[column.number][place])) for column in (left, right))
            return _about(int(np.sum(raw[place])), n, (first, left.centre), (second, right.centre))
        counts = _arm(self.single[right.covariate][0], place)
        by_level = _arm(self.numbers.by_level[left.number, right.covariate], place)
        return _total((by_level - left.centre * counts) * right.values)

    def _block(self, left: Sequence[CodedColumn], right: Sequence[CodedColumn], place: Any) -> list[Row]:
        """Return Σ of the products of all columns of a covariate with all of another one, or of the same."""
        pair = left[0].covariate, right[0].covariate
        if pair[0] == pair[1]:
            people = np.diag(_arm(self.single[pair[0]][0], place))
        else:
            people = _arm(self.pairs[pair], place) if pair in self.pairs else _arm(self.pairs[pair[::-1]], place).T
        first, second = (np.stack([column.values for column in columns]) for columns in (left, right))
        if all(map(_whole, (first, people, second))):
            most = int(abs(first).max()) * int(abs(second).max()) * int(abs(people).sum())
            if most < _ROOM:  # no sum of any of them is longer
                first, people, second = (cells.astype(np.int64) for cells in (first, people, second))
        rows: list[Row] = (first @ people @ second.T).tolist()
        return rows

    def right_side(self, columns: Sequence[Column], place: Any) -> Row:
        """Return X'y of one arm, or (a slice) of everyone, y about the centre."""
        total, n = int(np.sum(self.sums[place])), int(np.sum(self.counts[place]))
        rest: Row = []
        for column in columns:
            if isinstance(column, NumberColumn):
                raw = self.numbers.products[frozenset((column.number, self.metric.name))]
                x = int(np.sum(self.numbers.sums[column.number][place]))
                rest.append(_about(int(np.sum(raw[place])), n, (x, column.centre), (total, self.centre)))
            else:
                counts, sums = (_arm(cells, place) for cells in self.single[column.covariate])
                rest.append(_total((sums - self.centre * counts) * column.values))
        return [total - self.centre * n, *rest]

    def squares_about(self, place: int) -> int:
        """Return Σ y² of one arm about the centre."""
        k, n = self.centre, int(self.counts[place])
        return int(self.squares[place]) - 2 * k * int(self.sums[place]) + n * k**2


def _whole(cells: Cells) -> bool:
    return all(type(value) is int for value in cells.ravel().tolist())


def _arm(cells: Cells, place: Any) -> Cells:
    """Return one arm's cells, or those of all arms added up."""
    return np.asarray(cells.sum(axis=0) if isinstance(place, slice) else cells[place])


def _about(product: int, n: int, first: tuple[int, Rational], second: tuple[int, Rational]) -> Rational:
    """Return Σ (x − a)(y − b) from Σ x y, given the sums of x and y with a and b."""
    (x, a), (y, b) = first, second
    return product - b * x - a * y + n * a * b


def _total(cells: Cells) -> Rational:
    total: Rational = sum(cells.ravel().tolist())
    return total
