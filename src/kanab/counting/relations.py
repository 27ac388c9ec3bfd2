"""Find metrics that follow from others for most people: what is left over is about the few for whom they do not.

Gross and net, raw and capped, a total and its parts, 9.99 each: a reader subtracts the sums of one from those of the
other, and sees the people who returned something. So every amount is fitted on the other metrics by least absolute
deviations, in a sample of people. A fit that is exact for most of them is a relation, and what it leaves of everybody
is counted as an amount of its own, which is not published.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kanab.counted import MOST_STEPS, Relation, SignatureValues
from kanab.counting.columns import MetricSteps

Floats = NDArray[np.float64]

MOST_PEOPLE = 20_000
"""So many people with something of the metrics show a relation."""
MOST = {"amounts": 0.5, "counts": 0.9}
"""The share of people for whom a fit is exact, from which on it is a relation: on amounts, or on counts alone."""

_ROUNDS = 30
_FIRST_LOOK = 500  # so many people show that metrics are unrelated, which most are
_MANY = 0.3
_NOTHING = 1e-3  # a weight that changes an amount by less than this share of its usual size is none


def find_relations(metrics: Sequence[MetricSteps]) -> tuple[Relation, ...]:
    """Return the relations between metrics of the same people, given everybody's steps or those of a sample."""
    values = {part.metric.name: np.where(part.has, part.steps, 0) / part.metric.scale for part in metrics}
    counts = {part.metric.name for part in metrics if _counts_things(part)}
    scales = {part.metric.name: part.metric.scale for part in metrics}
    relations: dict[frozenset[str], Relation] = {}
    for target in (name for name in values if name not in counts):
        others = [name for name in values if name != target and values[name].any()]
        for chosen in (*([name] for name in others), *([others] if len(others) > 1 else [])):
            relation = _fit(target, chosen, values, scales, counts)
            if relation is not None:
                relations.setdefault(relation.metrics, relation)
    return tuple(relations.values())


def _counts_things(part: MetricSteps) -> bool:
    if not len(part.steps):
        return True
    whole = bool(np.all(part.steps % part.metric.scale == 0))
    return part.metric.binary or (whole and int(np.abs(part.steps).max()) <= MOST_STEPS * part.metric.scale)


def _fit(
    target: str, others: Sequence[str], values: Mapping[str, Floats], scales: Mapping[str, int], counts: set[str]
) -> Relation | None:
    """Return the relation of an amount to other metrics, if a fit is exact for most people who have any of them."""
    y = values[target]
    x = np.stack([values[name] for name in others], axis=1)
    active = np.flatnonzero((y != 0) & x.any(axis=1))[:MOST_PEOPLE]
    if len(active) <= len(others):
        return None
    few = active[:: 1 + len(active) // _FIRST_LOOK]
    steps = [0 if name in counts else 1 / scales[name] for name in others]
    guess = _least_deviations(x[few], y[few])
    near = 2 * (1 / scales[target] + float(np.abs(guess) @ np.array(steps)))
    if float(np.mean(np.abs(y[few] - x[few] @ guess) <= near)) < _MANY:  # unrelated metrics never nearly fit
        return None
    weights = _least_deviations(x[active], y[active])
    short = np.round(weights, 4)
    weights = np.where(np.abs(short - weights) < 1e-5 * np.abs(short), short, weights)  # 1.19 rather than 1.1900003
    usual = float(np.median(np.abs(y[active])))
    sizes = np.abs(x[active]).max(axis=0)
    kept = [place for place, name in enumerate(others) if abs(weights[place]) * sizes[place] > _NOTHING * usual]
    names = tuple(others[place] for place in kept)
    if not names:
        return None
    slack = float(1 / scales[target] + sum(abs(weights[place]) * steps[place] for place in kept)) / 2
    relation = Relation(target, tuple((others[place], float(weights[place])) for place in kept), slack)
    some = np.flatnonzero((y != 0) | x[:, kept].any(axis=1))[:MOST_PEOPLE]
    left = np.abs(residuals(relation, {name: values[name][some] for name in (target, *names)}))
    share = float(np.mean(left == 0))
    return relation if share >= MOST["counts" if counts.issuperset(names) else "amounts"] else None


def _least_deviations(x: Floats, y: Floats) -> Floats:
    """Return the weights of least absolute deviations: exact where a relation is exact for most people."""
    if x.shape[1] == 1:
        return np.array([_median_ratio(x[:, 0], y)])
    scale = np.abs(x).max(axis=0)
    x = x / scale
    size = float(np.abs(y).max())
    weights = np.linalg.lstsq(x, y, rcond=None)[0]
    small = size
    for _ in range(_ROUNDS):  # least squares, ever heavier where a fit is close
        small = max(small / 3, 1e-12 * size)
        root = 1 / np.sqrt(np.maximum(np.abs(y - x @ weights), small))
        weights = np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
    fitted: Floats = weights / scale
    return fitted


def _median_ratio(x: Floats, y: Floats) -> float:
    """Return the one weight of least absolute deviations: the median of y/x, where everybody weighs |x|."""
    some = x != 0
    ratios, heavy = y[some] / x[some], np.abs(x[some])
    order = np.argsort(ratios)
    below = np.cumsum(heavy[order])
    return float(ratios[order[np.searchsorted(below, below[-1] / 2)]])


def residuals(relation: Relation, values: Mapping[str, Floats]) -> Floats:
    """Return what a relation leaves of everybody's amount, in units; 0 within the rounding of the grids."""
    left = values[relation.target].astype(np.float64)
    for name, weight in relation.weights:
        left = left - weight * values[name]
    exact: Floats = np.where(np.abs(left) <= relation.slack * (1 + 1e-9), 0.0, left)
    return exact


def residual_values(
    relations: Sequence[Relation], metrics: Mapping[str, MetricSteps]
) -> Iterator[tuple[Relation, SignatureValues]]:
    """Yield what relations leave of everybody."""
    values = {
        name: np.where(part.has, part.steps, 0) / part.metric.scale
        for name, part in metrics.items()
        if any(name in relation.metrics for relation in relations)
    }
    for relation in relations:
        left = np.abs(residuals(relation, values))
        yield relation, SignatureValues(0, (left > 0).astype(np.int64), left**2, left, np.zeros(len(left)))
