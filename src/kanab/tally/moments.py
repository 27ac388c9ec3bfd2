"""Counts, sums and squares of one metric, and cross-products of two, over the cells of a tally."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from kanab.errors import TallyError
from kanab.tally.cell_arrays import DROPPED, Cells, fold, marginal
from kanab.tally.metric import Metric

By = tuple[str, ...]
"""The factors at whose combinations a number is kept: ("arm",), ("tier",) or every factor."""


def combine_squares(
    mine: Mapping[By, Cells], theirs: Mapping[By, Cells], op: Callable[[Cells, Cells], Cells]
) -> dict[By, Cells]:
    """Add or subtract squares at the marginals that both have."""
    squares: dict[By, Cells] = {}
    for by, cells in mine.items():
        for other_by, other_cells in theirs.items():
            both = tuple(name for name in by if name in other_by)
            if both:
                squares[both] = op(marginal(cells, by, both), marginal(other_cells, other_by, both))
    return squares


@dataclass(frozen=True, eq=False)
class Moments:
    """One metric: per class the people who have a value and their sum; squares by marginal.

    Sums are in grid steps, squares in grid steps squared. A 0/1 metric stores no squares: they
    are its sums.
    """

    metric: Metric
    counts: Cells
    sums: Cells
    squares: Mapping[By, Cells]

    def squares_by(self, by: By, axes: By) -> Cells | None:
        """Return the squares of a marginal, stored or added up from a finer one; None where neither is possible."""
        if self.metric.binary:
            return marginal(self.sums, axes, by)
        for stored, cells in self.squares.items():
            if set(by) <= set(stored):
                return marginal(cells, stored, by)
        return None

    def with_squares_at(self, marginals: Iterable[By], axes: By) -> Moments:
        """Keep squares at these marginals only, as far as they are known."""
        known = {by: self.squares_by(by, axes) for by in marginals if not self.metric.binary}
        return replace(self, squares={by: cells for by, cells in known.items() if cells is not None})

    def fold(self, axes: By, name: str, into: Sequence[int], size: int) -> Moments:
        """Send the levels of one factor to new places."""
        axis = axes.index(name)
        complete = DROPPED not in into
        squares = {
            by: fold(cells, by.index(name), into, size) if name in by else cells
            for by, cells in self.squares.items()
            if name in by or complete
        }
        return Moments(self.metric, fold(self.counts, axis, into, size), fold(self.sums, axis, into, size), squares)

    def collapse(self, axes: By, name: str) -> Moments:
        """Sum over one factor."""
        keep = tuple(axis for axis in axes if axis != name)
        squares: dict[By, Cells] = {}
        for by, cells in self.squares.items():
            rest = tuple(axis for axis in by if axis != name)
            if rest and rest not in squares:
                squares[rest] = marginal(cells, by, rest)
        return Moments(self.metric, marginal(self.counts, axes, keep), marginal(self.sums, axes, keep), squares)

    def refine(self, scale: int, axes: By) -> Moments:
        """Put the same sums on a finer grid that contains this one. Raises `TallyError` where it does not."""
        if scale == self.metric.scale:
            return self
        factor, rest = divmod(scale, self.metric.scale)
        if rest:
            raise TallyError(
                f"the grids of {self.metric.name!r} do not fit into each other",
                "Count both with the same resolution.",
            )
        if not self.metric.bounds_on_grid:
            raise TallyError(
                f"the bounds of {self.metric.name!r} fall between the steps of the coarser grid",
                "Count both with the same resolution.",
            )
        squares = {axes: self.sums} if self.metric.binary else self.squares
        return Moments(
            replace(self.metric, scale=scale),
            self.counts,
            self.sums * factor,
            {by: cells * factor**2 for by, cells in squares.items()},
        )

    def combine(self, other: Moments, op: Callable[[Cells, Cells], Cells], axes: By) -> Moments:
        """Add or subtract another group of people; squares stay at the marginals that both have."""
        scale = max(self.metric.scale, other.metric.scale)
        mine, theirs = self.refine(scale, axes), other.refine(scale, axes)
        if mine.metric != theirs.metric:
            raise TallyError(
                f"{self.metric.name!r} has other bounds or another rule for missing values there",
                "Declare the metric once and count both tallies with it.",
            )
        squares = combine_squares(mine.squares, theirs.squares, op)
        return Moments(mine.metric, op(mine.counts, theirs.counts), op(mine.sums, theirs.sums), squares)

    def finest(self) -> Moments:
        """Leave out squares that other ones already imply."""
        squares = {
            by: cells
            for by, cells in self.squares.items()
            if not self.metric.binary and not any(set(by) < set(other) for other in self.squares)
        }
        same = squares.keys() == self.squares.keys()
        return self if same else replace(self, squares=MappingProxyType(squares))


@dataclass(frozen=True, eq=False)
class Cross:
    """Σ y z of a declared pair of metrics, per arm, over the people who have both values."""

    pair: tuple[str, str]
    by: By
    counts: Cells
    sums: tuple[Cells, Cells]
    squares: tuple[Cells, Cells]
    products: Cells

    @property
    def arrays(self) -> tuple[Cells, Cells, Cells, Cells, Cells, Cells]:
        """All arrays: counts, both sums, both squares and the products."""
        return self.counts, *self.sums, *self.squares, self.products

    def _with(self, arrays: Iterable[Cells]) -> Cross:
        n, y, z, yy, zz, yz = arrays
        return replace(self, counts=n, sums=(y, z), squares=(yy, zz), products=yz)

    def map(self, change: Callable[[Cells], Cells]) -> Cross:
        """Apply one change to every array."""
        return self._with(map(change, self.arrays))

    def refine(self, factors: tuple[int, int]) -> Cross:
        """Put the same products on finer grids."""
        a, b = factors
        return self._with(map(operator.mul, self.arrays, (1, a, b, a**2, b**2, a * b)))

    def combine(self, other: Cross, op: Callable[[Cells, Cells], Cells]) -> Cross:
        """Add or subtract another group of people."""
        return self._with(map(op, self.arrays, other.arrays))


# ── could some people have produced these numbers? ──────────────────────────────────────────────


def check_people(people: Cells) -> None:
    """Check that no class has a negative count. Raises `TallyError` where one has."""
    if _any(people < 0):
        raise TallyError("a class has a negative count", "Subtract only people who were added before.")


def check_moments(part: Moments, people: Cells, axes: By) -> None:
    """Check that counts, sums and squares of a metric are possible. Raises `TallyError` where they are not."""
    name, counts, sums = part.metric.name, part.counts, part.sums
    if _any(counts < 0) or _any(counts > people):
        raise TallyError(
            f"more people have a value of {name!r} than there are in the class",
            "Count people and values over the same rows.",
        )
    if part.metric.missing == "zero" and _any(counts != people):
        raise TallyError(
            f"{name!r} has fewer values than people",
            "Declare missing='exclude' if people without a value are left out.",
        )
    if _any(sums[counts == 0] != 0):
        raise TallyError(f"a class without values of {name!r} has a sum", "Check the class's count.")
    bounds = part.metric.grid_bounds
    if bounds is not None and (_any(sums < counts * bounds[0]) or _any(sums > counts * bounds[1])):
        raise TallyError(
            f"a sum of {name!r} lies outside what its bounds and counts allow",
            "Check the bounds, the resolution and the counts.",
        )
    _check_squares(part, axes)


def _check_squares(part: Moments, axes: By) -> None:
    name = part.metric.name
    least = least_squares(part.counts, part.sums)
    _check_marginals(part, axes)
    for by, cells in part.squares.items():
        if _any(cells < marginal(least, axes, by)):
            raise TallyError(
                f"squares of {name!r} are below Σ S²/n: no such people exist",
                "Check that sums and squares were counted over the same people and in the same units.",
            )
        if part.metric.grid_bounds is not None:
            low, high = part.metric.grid_bounds
            most = (low + high) * part.sums - low * high * part.counts  # (y − low)(high − y) ≥ 0
            if _any(cells > marginal(most, axes, by)):
                raise TallyError(
                    f"squares of {name!r} are above what its bounds allow",
                    "Check the bounds and the units of the squares.",
                )


def _check_marginals(part: Moments, axes: By) -> None:
    """Check that marginals that share factors agree on them, and that those of a 0/1 metric are its sums."""
    marginals = list(part.squares.items())
    if part.metric.binary and marginals:
        marginals.append((axes, part.sums))
    for position, (by, cells) in enumerate(marginals):
        for other_by, other_cells in marginals[:position]:
            both = tuple(name for name in by if name in other_by)
            if _any(marginal(cells, by, both) != marginal(other_cells, other_by, both)):
                raise TallyError(
                    f"the marginals of squares of {part.metric.name!r} do not add up to one total",
                    "Count every marginal over the same people.",
                )


def least_squares(counts: Cells, sums: Cells) -> Cells:
    """Return the smallest Σ y² that whole numbers y with this count and sum can have.

    Reached when all values differ by at most one step; never below S²/n.
    """
    base = counts.copy()
    base[counts == 0] = 1
    low, rest = sums // base, sums % base
    spread: Cells = counts * low**2 + rest * (2 * low + 1)
    return spread


def check_cross(cross: Cross, pair: tuple[Moments, ...], axes: By) -> None:
    """Check that cross-products keep to people and Cauchy–Schwarz. Raises `TallyError` where they do not."""
    first, second = cross.pair
    name = f"cross-products of {first!r} and {second!r}"
    if first == second:
        raise TallyError(f"the {name} are squares", "Declare two different metrics.")
    for part in pair:
        if _any(cross.counts < 0) or _any(cross.counts > marginal(part.counts, axes, cross.by)):
            raise TallyError(f"the {name} count more people than have the values", "Count the same rows.")
    floor = [least_squares(cross.counts, sums) for sums in cross.sums]
    if any(_any(squares < low) for squares, low in zip(cross.squares, floor, strict=True)):
        raise TallyError(f"the {name} have squares below Σ S²/n", "Count the same rows.")
    n, (s, t), (q, r) = cross.counts, cross.sums, cross.squares
    nobody = n == 0
    if any(_any(cells[nobody] != 0) for cells in (s, t, q, r, cross.products)):
        raise TallyError(f"the {name} belong to nobody", "Count the same rows.")
    if _any((n * cross.products - s * t) ** 2 > (n * q - s**2) * (n * r - t**2)):
        raise TallyError(f"the {name} are larger than their squares allow", "Count the same rows.")


def _any(condition: Any) -> bool:
    return bool(condition.any() if isinstance(condition, np.ndarray) else condition)
