"""The two loops in which all pairs of experiments are counted, with NumPy alone.

``pairfast`` has the same loops compiled. Both give the same integers; ``kernels`` takes the compiled
ones where the [fast] extra is installed.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kanab.scan.count.layout import Codes, Counts

Bits = NDArray[np.uint64]

ROWS = 1 << 17
"""So many people are counted at once: their codes stay near the processor."""

_BITS_AT_ONCE = 1 << 18  # bytes of bits that are compared with each other
_EXACT = 1 << 53  # doubles hold every whole number up to this


@dataclass(frozen=True)
class Kernels:
    """One version of the loops. Weights below ``widest`` can be added for ``ROWS`` people."""

    name: str
    widest: int
    count_bits: Callable[[Bits, Bits, Counts], None]
    add_weights: Callable[[Codes, NDArray[np.int32], Counts, Counts, int], None]


@cache
def kernels(name: str | None = None) -> Kernels:
    """The compiled loops if they are there, else those of NumPy; or those of a name.

    >>> kernels("numpy").name
    'numpy'
    """
    if name is None:
        name = "numba" if importlib.util.find_spec("numba") is not None else "numpy"
    if name == "numpy":
        return Kernels(name, 1 << 36, count_bits, add_weights)
    from kanab.scan.count import kernel_numba  # noqa: PLC0415 - imports numba, an extra

    return Kernels(name, 1 << 44, kernel_numba.count_bits, kernel_numba.add_weights)


def count_bits(left: Bits, right: Bits, found: Counts) -> None:
    """Add to ``found[i, j]``, j ≥ i, how many bits row i of the left and row j of the right share."""
    rows, words = left.shape
    step = max(64, _BITS_AT_ONCE // (8 * rows))
    for start in range(0, words, step):
        mine, theirs = left[:, start : start + step], right[:, start : start + step]
        for row in range(rows):
            found[row, row:] += _set_bits(mine[row] & theirs[row:])


def _set_bits(words: Bits) -> Counts:
    """How many bits are set in each row."""
    counted: Any = getattr(np, "bitwise_count", _bitwise_count)(words)  # since NumPy 2
    total: Counts = np.add.reduce(counted, axis=1, dtype=np.int64)
    return total


def _bitwise_count(words: Bits) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = _table_of_bits()[words.view(np.uint16)]
    return found


@cache
def _table_of_bits() -> NDArray[np.uint8]:
    numbers = np.arange(1 << 16, dtype=np.uint16)
    found: NDArray[np.uint8] = np.unpackbits(numbers.view(np.uint8).reshape(-1, 2), axis=1).sum(axis=1, dtype=np.uint8)
    return found


def add_weights(groups: Codes, pairs: NDArray[np.int32], weights: Counts, tables: Counts, shift: int) -> None:
    """Add everybody's weight to their cell in the table of each pair of groups.

    ``bincount`` adds doubles, which is exact while no partial sum reaches 2^53.
    """
    heaviest = int(np.abs(weights).max()) if len(weights) else 0
    step = max(1, min(len(weights), (_EXACT - 1) // max(1, heaviest)))
    cells = 1 << 2 * shift
    for start in range(0, len(weights), step):
        part = weights[start : start + step].astype(np.float64)
        for row, (one, two) in enumerate(pairs.tolist()):
            first = groups[one, start : start + step].astype(np.intp)
            place = (first << shift) | groups[two, start : start + step]
            tables[row] += np.bincount(place, weights=part, minlength=cells).astype(np.int64)
