"""What a release knows of the shape of its metrics, so that tests reckon with few and large values."""

import math
from collections.abc import Mapping

from kanab.privacy.release import Tables
from kanab.stats.skewness import Shape, skewness_class
from kanab.tally.moments import Moments
from kanab.tally.tally import Tally

UNKNOWN: tuple[float | None, float] = (None, 0.0)


def shapes_of(released: Tables, experiment: str, tables: Mapping[str, Tally]) -> dict[str, Shape]:
    """Return the shapes of the metrics and ratios of an experiment.

    Of 0/1 metrics sums tell everything; of others a receipt says it, unless nobody counted it (a collector, a release
    with noise or one of before).
    """
    stated = dict(released.receipt.shapes.get(experiment, {}))
    moments = {part.metric.name: part for table in tables.values() for part in table.moments}
    if released.receipt.noise is None:
        stated |= {name: _of_rate(part) for name, part in moments.items() if part.metric.binary}
    shapes: dict[str, Shape] = {}
    for name, part in moments.items():
        low = released.ranges[name][0] if name in released.ranges else (part.metric.bounds or (-1, 0))[0]
        shapes[name] = Shape(*stated.get(name, UNKNOWN), nonnegative=low >= 0)
    for y, z in {cross.pair for table in tables.values() for cross in table.crosses}:
        nonnegative = all(name in shapes and shapes[name].nonnegative for name in (y, z))
        shapes[f"{y}/{z}"] = Shape(*stated.get(f"{y}/{z}", UNKNOWN), nonnegative=nonnegative)
    return shapes


def _of_rate(part: Moments) -> tuple[float, float]:
    rate = float(part.sums.sum()) / max(1, int(part.counts.sum()))
    varies = rate * (1 - rate)
    return skewness_class((1 - 2 * rate) / math.sqrt(varies)) if varies > 0 else 0.0, min(rate, 1 - rate)
