"""Quantiles of metrics in bins: rows of a readout, and the bins that its pictures show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import plain_interval
from kanab.analysis.verdicts import family_verdicts
from kanab.arguments import check_arguments
from kanab.counting.bins import Bins
from kanab.errors import AnalysisError
from kanab.plan.model import ExperimentPlan, MetricPlan
from kanab.privacy.release import Release, Tables
from kanab.report.words import Kind
from kanab.stats.quantile import BinnedPeople, QuantileEffect, propose_edges, quantile_effect, without_noise
from kanab.tally.factor import Level, label
from kanab.tally.tally import Tally

_SURE_PEOPLE = 5
"""An arm in bins has people if they are more than so many standard deviations of their noise."""

_MERGED, _MISSING = " … ", " or missing"


@dataclass(frozen=True)
class QuantileRow:
    """One quantile of one metric, an arm against the control; ``intervals`` are of the control's and the arm's own."""

    metric: str
    arm: Level
    control: Level
    effect: QuantileEffect
    intervals: tuple[tuple[float, float], tuple[float, float]]
    better: str
    note: str = ""
    p_adjusted: float | None = None
    verdict: Kind = "untestable"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data; what lies in an open bin is None."""
        effect = self.effect
        control, arm = (value if math.isfinite(value) else None for value in effect.values)
        return {
            "metric": self.metric,
            "probability": effect.probability,
            "arm": label(self.arm),
            "control": label(self.control),
            "better": self.better,
            "quantile_control": control,
            "quantile_arm": arm,
            "interval_control": plain_interval(self.intervals[0]),
            "interval_arm": plain_interval(self.intervals[1]),
            "estimate": effect.estimate,
            "interval": None if effect.interval is None else plain_interval(effect.interval),
            "z": effect.z,
            "p": effect.p,
            "p_adjusted": self.p_adjusted,
            "verdict": self.verdict,
            "coarse": effect.coarse,
            "note": self.note or None,
        }


@dataclass(frozen=True)
class Distribution:
    """People of every arm in the bins of a metric, as they are published."""

    metric: str
    people: Mapping[Level, BinnedPeople]

    def to_dict(self) -> dict[str, Any]:
        """Return the bins as plain data: people below the first edge, between two, from the last one on."""
        edges = next(iter(self.people.values())).edges
        people = {label(arm): list(binned.people) for arm, binned in self.people.items()}
        return {"metric": self.metric, "edges": list(edges), "people": people}


def binned_people(table: Tally, metric: MetricPlan) -> dict[Level, BinnedPeople]:
    """Return the people of every arm in the bins that are left after merging; none where fewer than two edges are.

    People without a value are left out, unless they are too few for a level of their own. So is an arm that has hardly
    more people than noise.
    """
    labels, edges = Bins(metric.name, metric.edges).labels, metric.edges
    spans: list[tuple[int, int, int]] = []
    for position, level in enumerate(table.factors[1].levels):
        if level is not None:
            parts = str(level).removesuffix(_MISSING).split(_MERGED)
            spans.append((labels.index(parts[0]), labels.index(parts[-1]), position))
    kept = [place for place in range(len(edges)) if not any(first <= place < last for first, last, _ in spans)]
    if len(kept) < 2:
        return {}
    low, high = metric.bounds or (-math.inf, math.inf)
    people = {}
    for row, arm in enumerate(table.factors[0].levels):
        counts, noise = [0] * (len(kept) + 1), [0.0] * (len(kept) + 1)
        for first, _, position in spans:
            bin_of = sum(place < first for place in kept)
            counts[bin_of] += int(table.people[row, position])
            noise[bin_of] += 0.0 if table.noise is None else float(table.noise.people[row, position])
        if sum(counts) > _SURE_PEOPLE * math.sqrt(sum(noise)):
            told = tuple(counts) if table.noise is None else without_noise(counts)
            stated = () if table.noise is None else tuple(noise)
            people[arm] = BinnedPeople(tuple(edges[place] for place in kept), told, float(low), float(high), stated)
    return people


def distributions(
    released: Tables, plan: ExperimentPlan, pool: Mapping[Level, Sequence[Level]], notes: list[str]
) -> list[Distribution]:
    """Return the bins of every metric whose quantiles the plan asks for, where the release holds them."""
    read = []
    for name in plan.quantiles:
        table = released.tables.get(f"{plan.name}/{name}")
        if table is None:
            continue
        metric = released.plan.metrics_by_name[name]
        people = binned_people(table.pool_arms(pool, plan.name) if pool else table, metric)
        if len(people) > 1:
            read.append(Distribution(name, people))
        else:
            why = "to k people" if table.noise is None else "to k people and more, for the noise"
            notes.append(f"There are no quantiles of {name}: too few bins are left after merging {why}.")
    return read


def quantile_rows(
    plan: ExperimentPlan, read: Sequence[Distribution], options: ResolvedOptions, notes: list[str]
) -> list[QuantileRow]:
    """Compare every quantile of every arm with the control's; p-values of all of them are one family."""
    if read and options.looks is not None:
        notes.append("Quantiles are compared once, at the end: without looks.")
        return []
    rows = [
        _row(each, arm, probability, options)
        for each in read
        for probability in plan.quantiles[each.metric]
        for arm in each.people
        if arm != options.control and options.control in each.people
    ]
    family = family_verdicts([(row.effect.p, row.effect.estimate) for row in rows], options)
    return [replace(row, p_adjusted=p, verdict=verdict) for row, (p, verdict) in zip(rows, family, strict=True)]


def _row(each: Distribution, arm: Level, probability: float, options: ResolvedOptions) -> QuantileRow:
    sides = each.people[options.control], each.people[arm]
    effect = quantile_effect(
        sides[1], sides[0], probability,
        confidence=options.confidence, alternative=options.alternative_for(each.metric),
    )  # fmt: skip
    own = [side.quantile_interval(probability, options.confidence) for side in sides]
    note = _note(effect, sides, (options.control, arm))
    return QuantileRow(each.metric, arm, options.control, effect, (own[0], own[1]), options.better(each.metric), note)


def _note(effect: QuantileEffect, sides: tuple[BinnedPeople, BinnedPeople], arms: tuple[Level, Level]) -> str:
    """Say why there is no number, or why to be careful with it."""
    for value, side, arm in zip(effect.values, sides, arms, strict=True):
        if not math.isfinite(value):
            beyond, edge = ("above", side.edges[-1]) if value > 0 else ("below", side.edges[0])
            return (
                f"that of {label(arm)} lies {beyond} {edge:,.10g}, where the bins end; declare edges further out, "
                "or count more people where bins were merged"
            )
    return "the bins are coarse there; finer ones would move it" if effect.coarse else ""


@check_arguments()
def propose_bins(released: Release, metric: str, bins: int = 40, experiment: str | None = None) -> tuple[float, ...]:
    """Propose the edges of a metric's bins for the next experiment, from the bins of a release.

    Half of them are at equal steps of people, the others divide the tails. Raises `AnalysisError` where the release
    has no bins of the metric, or fewer than 8 are asked for.
    """
    plan = released.plan.experiment(experiment)
    read = [each for each in distributions(released, plan, {}, []) if each.metric == metric]
    if not read:
        raise AnalysisError(
            f"the release has no bins of {metric!r}", "Release people by bins of it first: quantiles={…}, bins={…}."
        )
    return propose_edges([*read[0].people.values()], bins)
