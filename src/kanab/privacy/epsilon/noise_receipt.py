"""What a receipt says of noise: the promise, the account, and the scale of the noise in every statistic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from kanab.privacy.epsilon.mechanism import MECHANISM


@dataclass(frozen=True)
class NoiseReceipt:
    """The ε and δ of one release, what its ledger has spent and has left after it, and standard deviations.

    ``scales`` has, by table and statistic, the standard deviation of the noise, in units of the metrics. ``total`` is
    the ε that all releases of the ledger may spend together.
    """

    epsilon: float
    delta: float
    total: float
    spent: float
    left: float
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    mechanism: str = MECHANISM


def noise_dict(noise: NoiseReceipt) -> dict[str, Any]:
    """Return what a receipt says of noise as plain data."""
    return asdict(noise)
