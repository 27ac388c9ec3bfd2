"""Discrete Gaussian noise on whole numbers, drawn by OpenDP: samplers, like ciphers, are not written at home."""

import math
import secrets
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from kanab.errors import MissingExtraError
from kanab.tally.cell_arrays import Cells, zeros

MECHANISM = "discrete Gaussian"
_LARGEST_DEVIATION = 2.0**55
"""Noise has to fit into 64 bits; larger numbers are rounded to units that are nothing beside their noise."""


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
    """Return the scale at which a statistic that one person moves by at most ``influence`` costs ρ."""
    unit = 1 << max(0, math.ceil(math.log2(influence / math.sqrt(2 * rho) / _LARGEST_DEVIATION)))
    moved = influence if unit == 1 else -(-influence // unit) + 1  # rounding down may add a unit
    return Scale(unit, moved, moved / math.sqrt(2 * rho))


def add_noise(cells: Cells, scale: Scale) -> Cells:
    """Return the whole numbers with noise; neither a float nor 64 bits touch them.

    Noise is drawn without them, so that no number, however large, can make drawing fail or take longer.
    """
    noise = draw(cells.size, scale)
    noisy = zeros(cells.shape)
    noisy.reshape(-1)[:] = [
        (value // scale.unit + added) * scale.unit for value, added in zip(cells.ravel().tolist(), noise, strict=True)
    ]
    return noisy


def draw(size: int, scale: Scale) -> list[int]:
    """Return so many draws of noise, in units. Raises `MissingExtraError` where OpenDP is not installed."""
    if not size:
        return []
    return list(_measurement(scale)(np.zeros(size, dtype=np.int64)))


def check_installed() -> None:
    """Raise `MissingExtraError` where OpenDP is not installed."""
    _measurement(Scale(1, 1, 1.0))


def random_bits(shape: tuple[int, ...], bits: int = 1) -> Cells:
    """Return numbers of so many random bits: added before a shift, they round without a bias."""
    size = math.prod(shape)
    mask, cells = (1 << bits) - 1, zeros(shape)
    cells.reshape(-1)[:] = [byte & mask for byte in secrets.token_bytes(size)]
    return cells


@lru_cache(maxsize=256)
def _measurement(scale: Scale) -> Any:
    try:
        import opendp.prelude as dp  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("a release with ε", "dp") from None
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    measurement: Any = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=scale.deviation)
    assert measurement.map(float(scale.influence)) <= scale.rho * (1 + 1e-9)
    return measurement
