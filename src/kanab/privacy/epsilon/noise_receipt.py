"""What a receipt says of noise: the promise, the account, and the scale of the noise in every statistic."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

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


def add_noises(noises: Sequence[NoiseReceipt], tables: Collection[str], epsilon: float) -> NoiseReceipt:
    """Return what is to be said of the noise in the sum of some tables, which cost one person ``epsilon`` together.

    Variances add up.

    >>> june = NoiseReceipt(0.5, 1e-6, 1, 0.5, 0.8, {"checkout": {"people by checkout": 3.0}})
    >>> july = NoiseReceipt(0.4, 1e-6, 1, 0.5, 0.8, {"checkout": {"people by checkout": 4.0}})
    >>> add_noises([june, july], ["checkout"], 0.5).scales["checkout"]["people by checkout"]
    5.0
    """
    scales: dict[str, dict[str, float]] = {}
    for name in tables:
        holding = [noise.scales[name] for noise in noises if name in noise.scales]
        labels = [label for label in holding[0] if all(label in table for table in holding)] if holding else []
        scales[name] = {label: float(f"{math.hypot(*(t[label] for t in holding)):.6g}") for label in labels}
    return NoiseReceipt(
        epsilon,
        max(noise.delta for noise in noises),
        max(noise.total for noise in noises),
        max(noise.spent for noise in noises),
        min(noise.left for noise in noises),
        scales,
    )


def promise(noise: NoiseReceipt) -> str:
    """Say what a release with noise promises.

    >>> promise(NoiseReceipt(0.5, 1e-6, 1, 0.5, 0.8))
    'noise in every number: ε = 0.5 at δ = 1e-06'
    """
    return f"noise in every number: ε = {noise.epsilon:g} at δ = {noise.delta:g}"


def spent_sentence(noise: NoiseReceipt, *, chained: bool, batch: bool = False) -> str:
    """Say what has been spent with a release, and what is left; alone, nobody knows. A batch is about its cohorts.

    >>> spent_sentence(NoiseReceipt(0.5, 1e-6, 1, 0.5, 0.827), chained=True)
    'Spent in all: ε = 0.5 of 1. A further release about these people may spend up to ε = 0.827'
    """
    if not chained:
        return f"Spent: ε = {noise.epsilon:g}, and nobody adds up what else was spent about these people"
    left = math.floor(1000 * noise.left) / 1000
    rest = f"A further release about these people may spend up to ε = {left:g}" if left else "Nothing is left"
    if batch and not left:
        rest = "Nothing is left for these people; further cohorts are others, and may spend as much"
    return f"Spent in all: ε = {noise.spent:.3g} of {noise.total:g}. {rest}"
