"""The names of the paper's numbers, the same for classes and rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def entries(name: str, matrix: Floats) -> dict[str, float]:
    """Name the upper triangle of a matrix."""
    return {f"{name} {i},{j}": float(matrix[i, j]) for i in range(len(matrix)) for j in range(i, len(matrix))}


def numbered(name: str, values: Floats) -> dict[str, float]:
    """Name the elements of a vector."""
    return {f"{name}{i}": float(value) for i, value in enumerate(values)}


def arm_numbers(arm: str, xtx: Floats, xty: Floats, b: Floats, rss: float) -> dict[str, float]:
    """Name the numbers of one arm's regression on the demeaned covariate."""
    values = (xtx[0, 0], xtx[0, 1], xtx[1, 1], xty[0], xty[1], b[0], b[1], b @ xtx @ b, rss)
    names = ("n", "x", "xx", "y", "xy", "b0", "b1", "explained", "rss")
    return {f"{arm} {name}": float(value) for name, value in zip(names, values, strict=True)}


def adjusted_numbers(estimate: float, sample: float, population: float) -> dict[str, float]:
    """Name the adjusted effect and its variances for these people and for the population."""
    return {
        "ate": estimate,
        "var sate": sample,
        "se sate": sample**0.5,
        "t sate": estimate / sample**0.5,
        "v tau": population - sample,
        "var pate": population,
        "se pate": population**0.5,
        "t pate": estimate / population**0.5,
    }
