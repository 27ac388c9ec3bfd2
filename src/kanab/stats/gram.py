"""Least squares over classes, from exact integers to floating point without losing a digit on the way.

Sums are re-centred about a whole number, squares within classes are integers, and where class means lie far apart fits
are refined on residuals in integers: nothing large is ever subtracted in floats.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import AnalysisError, DesignError
from kanab.tally.cell_arrays import Cells
from kanab.tally.moments import Cross
from kanab.tally.tally import Tally

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes that hold somebody: where they stand, their people and their sums.

    ``sums`` are grid steps about ``centre``, a whole number near the mean.
    """

    places: NDArray[np.intp]
    counts: Cells
    sums: Cells
    centre: int
    scale: int

    @cached_property
    def n(self) -> Floats:
        """People per class."""
        return self.counts.astype(np.float64)

    @cached_property
    def means(self) -> Floats:
        """Class means in steps about the centre, each correctly rounded."""
        return np.asarray(self.sums / self.counts, dtype=np.float64)

    @cached_property
    def total(self) -> int:
        """Everyone who has a value."""
        return int(self.counts.sum())

    def within(self, squares: int, inside: NDArray[np.bool_] | None = None) -> float:
        """Return Σ (y − class mean)² in steps², from Σ y² about 0 over the same classes."""
        chosen = slice(None) if inside is None else inside
        counts, sums = self.counts[chosen], self.sums[chosen]
        total, count = int(sums.sum()), int(counts.sum())
        about = squares - 2 * self.centre * (total + count * self.centre) + count * self.centre**2
        return spread(counts, sums, about)

    def within_each(self, squares: Cells) -> Floats:
        """Return Σ (y − class mean)² of every class in steps², the large parts subtracted as integers."""
        n, s, k = self.counts, self.sums, self.centre
        about = squares[tuple(self.places.T)] - 2 * k * (s + n * k) + n * k**2
        within = (about - s**2 // n) - (s**2 % n) / n
        return np.asarray(np.maximum(0.0, within.astype(np.float64)))


def classes_of(tally: Tally, metric: str | None = None) -> Classes:
    """Return the non-empty classes of one metric, re-centred exactly; raises `AnalysisError` if there are none."""
    part = tally.moments_of(metric)
    places = np.argwhere(part.counts > 0)
    if not len(places):
        raise AnalysisError("nobody has been counted", "Count some people first.")
    counts = part.counts[tuple(places.T)]
    sums = part.sums[tuple(places.T)]
    centre = int(sums.sum()) // int(counts.sum())
    return Classes(places, counts, sums - counts * centre, centre, part.metric.scale)


def spread(counts: Cells, sums: Cells, squares: int) -> float:
    """Return Σ y² − Σ_g S_g²/n_g, the large parts subtracted as integers."""
    whole = squares - int((sums**2 // counts).sum()) if len(counts) else squares
    rest = math.fsum((sums**2 % counts / counts).tolist())
    return max(0.0, whole - rest)


def arm_squares(tally: Tally, metric: str | None, by: tuple[str, ...] = ()) -> Cells:
    """Return the squares of a marginal, by default per arm; raises `AnalysisError` if they were not kept."""
    factors = by or (tally.arms[0].name,)
    squares = tally.squares(metric, factors)
    if squares is None:
        crossed = " × ".join(factors)
        raise AnalysisError(
            f"no squares by {crossed} were kept, so no error can be estimated",
            f"Count again with squares by {crossed}; a 0/1 metric needs none if its bounds are (0, 1).",
        )
    return squares


def arm_cross(tally: Tally, first: str, second: str) -> Cross | None:
    """Return the products of two metrics per arm, kept in either order; None where they were not."""
    by = (tally.experiment.name,)
    for cross in tally.crosses:
        if cross.by == by and cross.pair == (first, second):
            return cross
        if cross.by == by and cross.pair == (second, first):
            return replace(cross, pair=(first, second), sums=cross.sums[::-1], squares=cross.squares[::-1])
    return None


@dataclass(frozen=True, eq=False)
class Solution:
    """Weighted least squares over classes, in steps about the centre.

    ``exact`` holds the coefficients as fractions: differences of them lose nothing.
    """

    exact: tuple[Fraction, ...]
    residuals: Floats
    inverse: Floats
    """(X'WX)⁻¹."""
    refined: bool = False


def independent(design: Floats, weights: Floats) -> NDArray[np.bool_]:
    """Return which columns are not combinations of those before them."""
    rows = np.sqrt(weights)[:, None] * design
    lengths = np.linalg.norm(rows, axis=0)
    if rows.shape[0] >= rows.shape[1] and lengths.all():
        diagonal = np.abs(np.diag(np.linalg.qr(rows, mode="r")))
        if np.all(diagonal > 1e-9 * lengths):
            return np.ones(rows.shape[1], dtype=bool)
    lengths[lengths == 0] = 1.0
    chosen = np.zeros(rows.shape[1], dtype=bool)
    basis = np.empty((rows.shape[0], min(rows.shape)))
    size = 0
    for position in range(rows.shape[1]):
        column = rows[:, position] / lengths[position]
        for _ in range(2):  # twice is enough
            column = column - basis[:, :size] @ (basis[:, :size].T @ column)
        length = float(np.linalg.norm(column))
        if length > 1e-9 and size < basis.shape[1]:
            basis[:, size] = column / length
            chosen[position] = True
            size += 1
    return chosen


def solve(design: Floats, weights: Floats, classes: Classes, names: tuple[str, ...], spread: float = 0.0) -> Solution:
    """Fit class means by least squares.

    ``spread`` is the squares within classes. Where the class means lie far apart compared with it,
    floats would lose the residuals, so these are computed in integers and fitted again. Small
    designs always are. Raises `DesignError` where columns depend on each other.
    """
    root = np.sqrt(weights)
    rows = root[:, None] * design
    q, r = np.linalg.qr(rows)
    if design.shape[0] < design.shape[1] or np.any(np.abs(np.diag(r)) <= 1e-9 * np.linalg.norm(rows, axis=0)):
        lost = [name for name, fine in zip(names, independent(design, weights), strict=True) if not fine]
        raise DesignError(
            f"the classes cannot tell these terms apart: {', '.join(lost)}",
            "Drop the terms, or merge levels so that every combination holds people.",
        )
    half = np.linalg.inv(r)
    means = classes.means
    near = float(np.abs(means).max()) ** 2 * classes.total <= 100 * spread
    if near and design.size > _SMALL:
        b = half @ (q.T @ (root * means))
        b = b + half @ (q.T @ (root * (means - design @ b)))
        return Solution(tuple(map(Fraction, b.tolist())), means - design @ b, half @ half.T)
    return _refined(design, weights, classes, half)


_SMALL = 200
"""Designs of up to this many numbers are always refined: it costs next to nothing."""

_BITS = 160
"""Binary digits behind the point of a refined coefficient."""


def _refined(design: Floats, weights: Floats, classes: Classes, half: Floats) -> Solution:
    """Fit by Newton's steps with residuals in integers: each corrects the error of the step before."""
    inverse = half @ half.T
    columns, shift = _whole_columns(design)
    unit = 1 << (shift + _BITS)
    b = [0] * len(columns)
    for _ in range(6):
        rest = _remainder(columns, b, classes, unit)
        if np.array_equal(weights, classes.n):
            gradient = np.array([int((column * rest).sum()) / (unit << shift) for column in columns])
        else:
            gradient = design.T @ (weights * _ratio(rest, classes.counts * unit))
        step = inverse @ gradient
        b = [old + int(math.ldexp(new, _BITS)) for old, new in zip(b, step.tolist(), strict=True)]
        if np.all(np.abs(step) <= 2.0**-40 * np.abs([value / (1 << _BITS) for value in b])):
            break  # the error left is smaller again by as much
    residuals = _ratio(_remainder(columns, b, classes, unit), classes.counts * unit)
    residuals[np.abs(residuals) < 2.0**-70 * (1 + np.abs(classes.means))] = 0.0
    return Solution(tuple(Fraction(value, 1 << _BITS) for value in b), residuals, inverse, refined=True)


def _whole_columns(design: Floats) -> tuple[list[Cells], int]:
    """Return the design's columns as integers, times a power of two if they have fractions."""
    shift = 0
    if not np.all(design == np.rint(design)):
        shift = max(x.as_integer_ratio()[1].bit_length() - 1 for x in set(design.ravel().tolist()))
    columns = []
    for column in design.T.tolist():
        whole = np.empty(len(column), dtype=object)
        whole[:] = [(x.as_integer_ratio()[0] << shift) // x.as_integer_ratio()[1] for x in column]
        columns.append(whole)
    return columns, shift


def _remainder(columns: list[Cells], b: list[int], classes: Classes, unit: int) -> Cells:
    """Return S − n X b for every class, times the unit: exact."""
    fitted: Any = 0
    for column, coefficient in zip(columns, b, strict=True):
        fitted = fitted + column * coefficient
    return np.asarray(classes.sums * unit - classes.counts * fitted)


def _ratio(numerator: Cells, denominator: Cells) -> Floats:
    return np.asarray(numerator / denominator, dtype=np.float64)


def difference_of_fits(large: tuple[Floats, Solution], small: tuple[Floats, Solution], weights: Floats) -> Floats:
    """Return what a larger model fits beyond a smaller one, per class."""
    if large[1].refined or small[1].refined:
        sides = zip(large[0].tolist(), small[0].tolist(), strict=True)
        return np.array([float(_dot(x, large[1].exact) - _dot(z, small[1].exact)) for x, z in sides])
    return refit(large[0], weights, small[1].residuals)


def _dot(row: list[float], exact: tuple[Fraction, ...]) -> Fraction:
    return sum((Fraction(x) * b for x, b in zip(row, exact, strict=True) if x), Fraction(0))


def refit(design: Floats, weights: Floats, residuals: Floats) -> Floats:
    """Fit a larger model to the residuals of a smaller one: the difference of their fits."""
    root = np.sqrt(weights)
    q, _ = np.linalg.qr(root[:, None] * design)
    return np.asarray(q @ (q.T @ (root * residuals)) / root)
