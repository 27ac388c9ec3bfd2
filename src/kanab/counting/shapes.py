"""The shape of metrics: how skewed they are, and how many people are off the commonest value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kanab.counted import CountedShape
from kanab.counting.columns import MetricSteps
from kanab.counting.commonest import commonest_step

Floats = NDArray[np.float64]


def shapes_of_rows(
    steps: Mapping[str, MetricSteps], ratios: Iterable[tuple[str, str]], arm: NDArray[np.intp]
) -> dict[str, CountedShape]:
    """Return the shapes of metrics and ratios of one experiment, given everybody's arm; −1 is in none.

    A ratio has the shape of y − R z, with the R of each arm. Of 0/1 metrics sums tell everything.

    >>> from kanab.tally.metric import Metric
    >>> spend = MetricSteps(Metric("spend"), np.array([0, 0, 0, 0, 9, 1]), np.ones(6, dtype=bool))
    >>> shapes_of_rows({"spend": spend}, [], np.array([0, 0, 0, 1, 1, 1]))
    {'spend': CountedShape(skewness=0.95..., unusual=2, people=6)}
    """
    amounts = [name for name, part in steps.items() if not part.metric.binary]
    shapes = {name: _of_metric(steps[name], arm) for name in amounts}
    shapes |= {"/".join(pair): _of_ratio(steps[pair[0]], steps[pair[1]], arm) for pair in ratios}
    return shapes


def _of_metric(part: MetricSteps, arm: NDArray[np.intp]) -> CountedShape:
    there = part.has & (arm >= 0)
    # from the commonest value: doubles of large integers have no digits left for small differences
    steps, arm = part.steps[there] - commonest_step(part.metric, part.steps[there]), arm[there]
    away = steps - np.asarray(_by_arm(steps, arm) / np.maximum(_by_arm(None, arm), 1))[arm]
    return CountedShape(skewness_of(away), _unusual(part, there), len(steps))


def _of_ratio(y: MetricSteps, z: MetricSteps, arm: NDArray[np.intp]) -> CountedShape:
    there = y.has & z.has & (arm >= 0)
    above, below, arm = y.steps[there], z.steps[there], arm[there]
    totals = _by_arm(below, arm)
    ratios = np.divide(_by_arm(above, arm), totals, out=np.zeros(len(totals)), where=totals != 0)
    # a denominator that is the same for everybody says nothing about who is unusual
    unusual = [count for count in (_unusual(part, there) for part in (y, z)) if count]
    return CountedShape(skewness_of(above - ratios[arm] * below), min(unusual, default=0), len(above))


def _by_arm(values: NDArray[np.int64] | None, arm: NDArray[np.intp]) -> Floats:
    weights = None if values is None else values.astype(np.float64)
    return np.bincount(arm, weights, minlength=1).astype(np.float64)


def _unusual(part: MetricSteps, there: NDArray[np.bool_]) -> int:
    steps = part.steps[there]
    return int(np.count_nonzero(steps != commonest_step(part.metric, steps)))


def skewness_of(away: Floats) -> float:
    """Return the skewness of distances from the mean of one's own arm; 0 where nothing varies."""
    squares = float(np.mean(away**2)) if len(away) else 0.0
    return float(np.mean(away**3)) / squares**1.5 if squares > 0 else 0.0
