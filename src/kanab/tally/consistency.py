"""Checks that some group of people could have produced the numbers of a tally."""

from __future__ import annotations

from typing import Any

import numpy as np

from kanab.errors import TallyError
from kanab.tally.cell_arrays import Cells, marginal
from kanab.tally.moments import By, Cross, Moments


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
