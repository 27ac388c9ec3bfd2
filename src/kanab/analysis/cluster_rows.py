"""Experiments whose arms were assigned to clusters: means per person, and how many clusters and people there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kanab.analysis.compare import MetricMeans
from kanab.counting.clusters import PEOPLE
from kanab.privacy.release import Tables
from kanab.stats.cluster_robust import between_clusters, effective_clusters
from kanab.tally.factor import Level
from kanab.tally.tally import Tally


@dataclass(frozen=True)
class ClusterCounts:
    """By what arms were assigned, and per arm how many of these there are, and how many people in them.

    People are None where their number is withheld. ``rates`` are the metrics that lie between 0 and 1 for every person.
    """

    by: tuple[str, ...]
    clusters: Mapping[Level, int]
    people: Mapping[Level, int] | None
    rates: tuple[str, ...] = ()


def clusters_of(released: Tables, table: Tally, experiment: str) -> ClusterCounts | None:
    """Return what arms were assigned by, where that is no person; None for people."""
    by = (released.receipt.choices or {}).get("assigned_by")
    if by is None:
        return None
    clusters, people = table.people_by(experiment), None
    if PEOPLE in table.metric_names:
        people = dict(zip(clusters, map(int, table.keep().moments_of(PEOPLE).sums), strict=True))
    most = released.plan.metrics_by_name[PEOPLE].bounds
    bounded = [each.name for each in released.plan.counted_metrics if most is not None and each.bounds == most]
    rates = [name for name in (*bounded, *released.rates) if name != PEOPLE]
    return ClusterCounts(tuple(by.split(", ")), clusters, people, tuple(rates))


def hidden_metrics(released: Tables) -> tuple[str, ...]:
    """Return the metrics that are counted but not compared: the people of clusters."""
    return (PEOPLE,) if "assigned_by" in (released.receipt.choices or {}) else ()


def per_person(measured: Sequence[MetricMeans], table: Tally) -> list[MetricMeans]:
    """Return the means per person under the names of their metrics, and other ratios; not those per cluster."""
    end = f"/{PEOPLE}"
    ratios = [metric for metric in measured if "/" in metric.means.metric]
    if PEOPLE not in table.metric_names:
        return ratios
    effective = effective_clusters(table, PEOPLE)
    return [
        replace(metric, means=replace(between_clusters(metric.means, effective), metric=name.removesuffix(end)))
        if (name := metric.means.metric).endswith(end)
        else metric
        for metric in ratios
    ]
