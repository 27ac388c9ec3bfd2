"""Discrete Gaussian noise on whole numbers, drawn by OpenDP: samplers, like ciphers, are not written at home."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kanab.errors import MissingExtraError
from kanab.tally.cells import Cells, zeros

MECHANISM = "discrete Gaussian"
_WIDEST = 2**40
"""One person moves a sum by at most so many units: larger ones would not fit into 64 bits with the noise."""


@dataclass(frozen=True)
class Scale:
    """How noise is added to a statistic: in units of so many steps, of which one person moves ``influence``."""

    unit: int
    influence: int
    deviation: float

    @property
    def variance(self) -> float:
        """The variance of the noise, in steps; rounding to units is in it."""
        rounding = 0.0 if self.unit == 1 else 1.0
        return (self.deviation**2 + rounding) * self.unit**2

    @property
    def rho(self) -> float:
        """What it costs."""
        return (self.influence / self.deviation) ** 2 / 2


def scale_for(influence: int, rho: float) -> Scale:
    """Return the scale at which a statistic that one person moves by at most ``influence`` costs ρ.

    >>> scale = scale_for(1, 0.02)
    >>> scale.deviation, round(scale.rho, 12)
    (5.0, 0.02)
    """
    unit = 1 << max(0, influence.bit_length() - _WIDEST.bit_length())
    moved = influence if unit == 1 else -(-influence // unit) + 1  # rounding down may add a unit
    return Scale(unit, moved, moved / math.sqrt(2 * rho))


def add_noise(cells: Cells, scale: Scale) -> Cells:
    """Return the whole numbers with noise; no float touches them before."""
    values = [value // scale.unit for value in cells.ravel().tolist()]
    noisy = zeros(cells.shape)
    noisy.reshape(-1)[:] = [value * scale.unit for value in _measure(values, scale)]
    return noisy


def random_bits(shape: tuple[int, ...]) -> Cells:
    """Return zeros and ones of the operating system's randomness, to round halves without a bias."""
    size = math.prod(shape)
    bits = secrets.randbits(size) if size else 0
    cells = zeros(shape)
    cells.reshape(-1)[:] = [bits >> place & 1 for place in range(size)]
    return cells


def _measure(values: Sequence[int], scale: Scale) -> list[int]:
    if not values:
        return []
    measurement = _measurement(scale.deviation)
    assert measurement.map(float(scale.influence)) <= scale.rho * (1 + 1e-9)
    return list(measurement(list(values)))


@lru_cache(maxsize=256)
def _measurement(deviation: float) -> Any:
    try:
        import opendp.prelude as dp  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a release with ε", "dp") from None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    return dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=deviation)
