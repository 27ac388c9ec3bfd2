"""How what a release may spend is shared out: over tables, and in a table over its people, sums, squares and products.

Everything here follows from the plan alone, so that whoever reads a release can work it out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kanab.plan.model import Linkage, MetricPlan, Plan
from kanab.privacy.epsilon.mechanism import Scale, scale_for
from kanab.tally.metric import Metric
from kanab.tally.moments import By

_PEOPLE, _SUMS, _SQUARES, _PRODUCTS = 1.0, 1.0, 0.5, 0.5
"""How much of a table's share goes to each kind of statistic, before they are made to add up."""


@dataclass(frozen=True)
class Statistic:
    """One array of whole numbers that noise is added to: people, or counts, sums, squares or products of metrics.

    Values are measured about the middle of their bounds, in half steps: 2y − (low + high).
    """

    kind: str
    metrics: tuple[str, ...] = ()
    by: By = ()

    @property
    def label(self) -> str:
        """What it is called in receipts.

        >>> Statistic("squares", ("spend",), ("tier",)).label
        'squares of spend by tier'
        """
        of = f" of {' and '.join(self.metrics)}" if self.metrics else ""
        return f"{self.kind}{of} by {' and '.join(self.by)}"


TableScales = Mapping[Statistic, Scale]


def arm_tables(plan: Plan) -> tuple[Linkage, ...]:
    """Return the tables of arms alone: every experiment has one, from which its plain effects are read."""
    return tuple(Linkage((experiment.name,)) for experiment in plan.experiments)


def noisy_tables(plan: Plan) -> tuple[Linkage, ...]:
    """Return all tables of a release with noise: arms alone, and what else the plan needs."""
    arms = arm_tables(plan)
    return (*arms, *(linkage for linkage in plan.linkages if linkage not in arms))


def split_budget(plan: Plan, rho: float) -> dict[str, TableScales]:
    """Return the scale of every statistic of every table, for ρ in all."""
    linkages = noisy_tables(plan)
    weights = {} if plan.budget is None else plan.budget.weights
    shares = {linkage.name: weights.get(linkage.name, 1.0) for linkage in linkages}
    whole = sum(shares.values())
    return {linkage.name: _table_scales(plan, linkage, rho * shares[linkage.name] / whole) for linkage in linkages}


def _table_scales(plan: Plan, linkage: Linkage, rho: float) -> TableScales:
    metrics = {metric.name: metric.metric() for metric in plan.metrics_of(linkage)}
    weights = dict(_statistics(plan, linkage, metrics))
    whole = sum(weights.values())
    return {
        statistic: scale_for(_influence(statistic, metrics), rho * weight / whole)
        for statistic, weight in weights.items()
    }


def _statistics(plan: Plan, linkage: Linkage, metrics: Mapping[str, Metric]) -> Iterator[tuple[Statistic, float]]:
    """Yield what is measured in a table, with its weight.

    Squares and products by arm are measured once, in the table of arms alone.
    """
    yield Statistic("people", by=linkage.axes), _PEOPLE
    alone = linkage.axes == linkage.experiments and len(linkage.experiments) == 1
    for name, metric in metrics.items():
        if metric.missing == "exclude":
            yield Statistic("counts", (name,), linkage.axes), _PEOPLE
        yield Statistic("sums", (name,), linkage.axes), _SUMS
        if not metric.binary:
            for by in _marginals(linkage, plan.metrics_by_name[name]):
                yield Statistic("squares", (name,), by), _SQUARES
    if alone:
        for pair in plan.products_of(linkage):
            yield Statistic("products", pair, linkage.axes), _PRODUCTS


def _marginals(linkage: Linkage, metric: MetricPlan) -> list[By]:
    """Return the marginals of squares that a table measures itself."""
    if linkage.after:
        return []
    if len(linkage.axes) == 1 or metric.squares == "class":
        return [linkage.axes]
    if len(linkage.experiments) > 1:
        return [(name,) for name in linkage.experiments]
    return [(str(linkage.covariate),)] if linkage.squares == "marginals" else []


def _influence(statistic: Statistic, metrics: Mapping[str, Metric]) -> int:
    """Return by how much one person can move a statistic, at most, in half steps."""
    widths = []
    for name in statistic.metrics:
        bounds = metrics[name].grid_bounds
        assert bounds is not None
        widths.append(bounds[1] - bounds[0])
    if statistic.kind in ("people", "counts"):
        return 1
    if statistic.kind == "squares":
        return int(widths[0] ** 2)
    return int(widths[0] if statistic.kind == "sums" else widths[0] * widths[1])
