"""From exact integers to floating point without losing a digit on the way.

Three things keep fits exact: sums are re-centred about a whole number before they become floats;
the spread within classes is computed in integers; and every fit is done twice, the second time on
residuals that were computed in integers, so that nothing large is ever subtracted in floats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.cells import Cells
from kanab.errors import AnalysisError, DesignError
from kanab.tally import Tally

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

    @property
    def n(self) -> Floats:
        """People per class."""
        return self.counts.astype(np.float64)

    @property
    def means(self) -> Floats:
        """Class means in steps about the centre, each correctly rounded."""
        return np.asarray(self.sums / self.counts, dtype=np.float64)

    @property
    def total(self) -> int:
        """Everyone who has a value."""
        return int(self.counts.sum())

    def within(self, squares: int, inside: NDArray[np.bool_] | None = None) -> float:
        """Σ (y − class mean)² in steps², from Σ y² about 0 over the same classes."""
        chosen = slice(None) if inside is None else inside
        counts, sums = self.counts[chosen], self.sums[chosen]
        total, count = int(sums.sum()), int(counts.sum())
        about = squares - 2 * self.centre * (total + count * self.centre) + count * self.centre**2
        return spread(counts, sums, about)


def classes_of(tally: Tally, metric: str | None = None) -> Classes:
    """The non-empty classes of one metric, re-centred exactly."""
    part = tally.moments_of(metric)
    places = np.argwhere(part.counts > 0)
    if not len(places):
        raise AnalysisError("nobody has been counted", "Count some people first.")
    counts = part.counts[tuple(places.T)]
    sums = part.sums[tuple(places.T)]
    centre = int(sums.sum()) // int(counts.sum())
    return Classes(places, counts, sums - counts * centre, centre, part.metric.scale)


def spread(counts: Cells, sums: Cells, squares: int) -> float:
    """Σ y² − Σ_g S_g²/n_g, the large parts subtracted as integers."""
    whole = squares - int((sums**2 // counts).sum()) if len(counts) else squares
    rest = math.fsum((sums**2 % counts / counts).tolist())
    return max(0.0, whole - rest)


def arm_squares(tally: Tally, metric: str | None, by: tuple[str, ...] = ()) -> Cells:
    """Squares at a margin that a test needs; an error that names the remedy if they are missing."""
    margins = by or (tally.arms[0].name,)
    squares = tally.squares(metric, margins)
    if squares is None:
        kept = " × ".join(margins)
        raise AnalysisError(
            f"no squares by {kept} were kept, so no error can be estimated",
            f"Count again with squares by {kept}; a 0/1 metric needs none if its bounds are (0, 1).",
        )
    return squares


@dataclass(frozen=True, eq=False)
class Solution:
    """Weighted least squares over classes, in steps about the centre."""

    b: Floats
    residuals: Floats
    inverse: Floats
    """(X'WX)⁻¹."""


def independent(design: Floats, weights: Floats) -> NDArray[np.bool_]:
    """Which columns are not combinations of the ones before them."""
    rows = np.sqrt(weights)[:, None] * design
    lengths = np.linalg.norm(rows, axis=0)
    lengths[lengths == 0] = 1.0
    kept: list[int] = []
    basis = np.empty((rows.shape[0], 0))
    for position in range(rows.shape[1]):
        column = rows[:, position] / lengths[position]
        for _ in range(2):  # twice is enough
            column = column - basis @ (basis.T @ column)
        size = float(np.linalg.norm(column))
        if size > 1e-9:
            kept.append(position)
            basis = np.column_stack([basis, column / size])
    found = np.zeros(rows.shape[1], dtype=bool)
    found[kept] = True
    return found


def solve(design: Floats, weights: Floats, classes: Classes, names: tuple[str, ...]) -> Solution:
    """Fit class means by least squares, then fit the exactly computed remainder once more."""
    root = np.sqrt(weights)
    q, r = np.linalg.qr(root[:, None] * design)
    lengths = np.linalg.norm(root[:, None] * design, axis=0)
    if design.shape[0] < design.shape[1] or np.any(np.abs(np.diag(r)) <= 1e-9 * lengths):
        kept = independent(design, weights)
        lost = [name for name, fine in zip(names, kept, strict=True) if not fine]
        raise DesignError(
            f"the classes cannot tell these terms apart: {', '.join(lost)}",
            "Drop the terms, or merge levels so that every combination holds people.",
        )
    inverse = np.linalg.inv(r)

    def once(target: Floats) -> Floats:
        return np.asarray(inverse @ (q.T @ (root * target)))

    first = np.rint(once(classes.means))
    target = remainder(design, first, classes)
    second = once(target)
    return Solution(first + second, target - design @ second, inverse @ inverse.T)


def refit(design: Floats, weights: Floats, residuals: Floats) -> Floats:
    """What a larger model finds in the residuals of a smaller one: the difference of their fits."""
    root = np.sqrt(weights)
    q, _ = np.linalg.qr(root[:, None] * design)
    return np.asarray(q @ (q.T @ (root * residuals)) / root)


def remainder(design: Floats, b: Floats, classes: Classes) -> Floats:
    """Class means minus X b for whole-number b, exact until the last rounding."""
    if np.all(design == np.rint(design)) and float((np.abs(design) @ np.abs(b)).max()) < 2.0**53:
        fitted: Any = np.array([int(value) for value in design @ b], dtype=object)
        return np.asarray((classes.sums - classes.counts * fitted) / classes.counts, dtype=np.float64)
    shift = max(float(x).as_integer_ratio()[1].bit_length() - 1 for x in design.ravel())
    fitted = np.zeros(len(design), dtype=object)
    for column, coefficient in zip(design.T, b, strict=True):
        if coefficient:
            whole = [_shifted(float(x), shift) for x in column]
            fitted = fitted + np.array(whole, dtype=object) * int(coefficient)
    unit = 1 << shift
    return np.asarray((classes.sums * unit - classes.counts * fitted) / (classes.counts * unit), dtype=np.float64)


def _shifted(x: float, shift: int) -> int:
    numerator, denominator = x.as_integer_ratio()
    return (numerator << shift) // denominator
