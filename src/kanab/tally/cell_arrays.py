"""Arrays of exact integers with one axis per factor: folding the levels of an axis, and marginals.

Cells are NumPy arrays of Python integers: sums of squares outgrow 64 bits.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.errors import TallyError

Cells = NDArray[Any]  # of Python integers

DROPPED = -1
"""In a fold: the place of a level that is left out."""

MOST_CELLS = 10_000_000
"""A tally with more classes than this is refused, wherever it comes from."""


def check_shape(shape: tuple[int, ...]) -> None:
    """Check that a table is small enough to be held in memory. Raises `TallyError` where it is not."""
    if len(shape) > 32 or math.prod(shape) > MOST_CELLS:
        raise TallyError("the table has too many classes", "Merge levels, or count covariates in tables of their own.")


def as_cells(values: Any, shape: tuple[int, ...], name: str) -> Cells:
    """Return a read-only array of Python integers of the given shape."""
    try:
        cells = np.array(values, dtype=object)
    except ValueError:
        cells = np.empty(0, dtype=object)
    if cells.shape != shape:
        raise TallyError(f"{name} must have one number per class", "Give every class once.")
    flat = cells.ravel().tolist()
    if {*map(type, flat)} != {int}:
        flat = [_whole(value, name) for value in flat]
    frozen = np.empty(len(flat), dtype=object)
    frozen[:] = flat
    frozen = frozen.reshape(shape)
    frozen.flags.writeable = False
    return frozen


def _whole(value: Any, name: str) -> int:
    if type(value) is int:
        return value
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return int(value)
    raise TallyError(f"{name} must be whole numbers", "Counts, grid sums and squares have no fractions.")


def zeros(shape: tuple[int, ...]) -> Cells:
    """Return cells with nobody in any class."""
    cells = np.empty(shape, dtype=object)
    cells.fill(0)
    return cells


def fold(cells: Cells, axis: int, into: Sequence[int], size: int) -> Cells:
    """Add each level of an axis into its new place; ``DROPPED`` ones vanish.

    Coarsening, selecting and aligning to more levels are all folds.
    """
    source = np.moveaxis(cells, axis, 0)
    target = zeros((size, *source.shape[1:]))
    places = np.asarray(into, dtype=np.intp)
    kept = places != DROPPED
    np.add.at(target, places[kept], source[kept])
    return np.moveaxis(target, 0, axis)


def marginal(cells: Cells, axes: Sequence[str], keep: Sequence[str]) -> Cells:
    """Sum over every axis that is not kept."""
    gone = tuple(position for position, name in enumerate(axes) if name not in keep)
    if not gone:
        return cells
    summed: Any = cells.sum(axis=gone)
    if isinstance(summed, np.ndarray):
        return summed
    total = np.empty((), dtype=object)
    total[()] = summed
    return total
