"""Scans of many experiments: which pairs interfere, and which effects differ between which segments.

Chooses and calls counting, the gate and statistics; no arithmetic here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kanab.arguments import check_arguments
from kanab.counted import floor_to_k
from kanab.counting.dispatch import count
from kanab.errors import AnalysisError, PlanError
from kanab.plan.model import DEFAULT_K
from kanab.privacy.gate import release
from kanab.privacy.release import Release
from kanab.scan.count.counting import count_pairs
from kanab.scan.gate import ReleasedPairs, release_pairs, shown_pairs
from kanab.scan.readout import PairReadout, SegmentReadout, Shown
from kanab.scan.stats.effects import PairEffects, effects_within
from kanab.scan.stats.pairs import PairScan, scan_pairs
from kanab.scan.stats.segments import segment_scan
from kanab.scan.stats.verdicts import Family
from kanab.stats.multiplicity import Correction
from kanab.tally.metric import Missing
from kanab.tally.tally import Tally

MOST_SHOWN = 20
"""So many flagged pairs are shown with their tables; more than that is read as a list."""


@check_arguments()
def scan_interactions(
    source: Any,
    experiments: Sequence[str] | str = (),
    metrics: Sequence[str] | str = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = "holm",
    alpha: float = 0.05,
    tolerance: Mapping[str, float] | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
    assignments: Any = None,
) -> PairReadout:
    """Which pairs of concurrent experiments interfere? All of them, tested and corrected together.

    ``source`` is anything that ``count`` takes, with the experiments' columns (patterns such as
    "test_*" are fine) and metrics; or one or more releases with pair tables. ``bounds`` to
    ``assignments`` say how the source is counted, as for ``count_pairs``.
    """
    rules: dict[str, Any] = {"family": family, "correction": correction, "alpha": alpha, "tolerance": tolerance}
    counting: dict[str, Any] = {
        "bounds": bounds, "resolution": resolution, "missing": missing, "where": where, "table": table, "sql": sql,
        "unit": unit, "aggregate": aggregate, "assignments": assignments,
    }  # fmt: skip
    stored = _stored(source)
    if stored is not None:
        if experiments or any(choice is not None for choice in counting.values()):
            raise PlanError("releases already say what was counted", "Leave out experiments and choices of counting.")
        return _from_releases(stored, list(metrics) or None, rules)
    counted = count_pairs(source, experiments, metrics, progress=progress, **counting)
    released = release_pairs(counted, k, override=override)
    found = scan_pairs(released.pairs, k=released.k, **rules)
    return PairReadout(
        found, _effects(found, released), floor_to_k(released.pairs.total, released.k), released.k,
        released.open_metrics, (*released.left_out, *released.deviations), chained=False,
    )  # fmt: skip


@check_arguments()
def scan_segments(
    source: Any,
    experiments: Sequence[str] = (),
    metrics: Sequence[str] = (),
    covariates: Sequence[str] = (),
    *,
    k: int = DEFAULT_K,
    override: str = "",
    family: Family = "metric",
    correction: Correction = "bh",
    alpha: float = 0.05,
    tolerance: Mapping[str, float] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    resolution: Mapping[str, float] | None = None,
    missing: Mapping[str, Missing] | None = None,
    bins: Mapping[str, int | Sequence[float]] | None = None,
    top: Mapping[str, int] | None = None,
    where: str | None = None,
    table: str | None = None,
    sql: str | None = None,
    unit: str | None = None,
    aggregate: Mapping[str, str] | str | None = None,
) -> SegmentReadout:
    """Which effects differ between which levels? Every experiment × covariate × metric together.

    ``source`` as for ``scan_interactions``; each experiment goes through the gate by itself.
    """
    rules: dict[str, Any] = {"family": family, "correction": correction, "alpha": alpha, "tolerance": tolerance}
    releases = _stored(source)
    if releases is None:
        if not experiments or not metrics or not covariates:
            raise PlanError("what to compare is not said", "Name experiments, metrics and covariates.")
        releases = [
            release(
                count(
                    source, arm=name, metrics=list(metrics), segments=list(covariates), k=k, bounds=bounds,
                    resolution=resolution, missing=missing, bins=bins, top=top, where=where, table=table, sql=sql,
                    unit=unit, aggregate=aggregate,
                ),
                override=override,
            )
            for name in experiments
        ]  # fmt: skip
    tables = {
        (at, name): tally
        for at, one in enumerate(releases)
        for name, tally in one.tables.items()
        if len(tally.arms) == 1 and tally.covariates
    }
    if not tables:
        raise AnalysisError("no table by a covariate is left to compare", "Release with covariates, and more people.")
    rule = min(one.receipt.k for one in releases)
    found = segment_scan(list(tables.values()), k=rule, metrics=list(metrics) or None, **rules)
    lost = tuple(sentence for one in releases for sentence in one.receipt.left_out.values())
    return SegmentReadout(found, rule, lost, chained=all(one.chained for one in releases))


def _stored(source: Any) -> list[Release] | None:
    """Releases, if that is what the source is."""
    if isinstance(source, Release):
        return [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(one, Release) for one in source):
        return list(source)
    return None


def _from_releases(releases: Sequence[Release], metrics: list[str] | None, rules: Mapping[str, Any]) -> PairReadout:
    """From stored pair tables, all of which are published already."""
    pairs: dict[tuple[str, str], Tally] = {}
    alone: dict[str, Tally] = {}
    for one in releases:
        for table in one.tables.values():
            names = table.experiment_names
            if len(names) == 2:
                pairs[names[0], names[1]] = table
        for experiment in one.plan.experiment_names:
            alone.setdefault(experiment, one.totals(experiment))
    if not pairs:
        raise AnalysisError(
            "these releases hold no table of two experiments",
            'Declare interactions = ["…"] in the plan and release again.',
        )
    k = min(one.receipt.k for one in releases)
    found = scan_pairs(pairs, k=k, metrics=metrics, alone=alone, **rules)
    shown = [
        Shown(row.a, row.b, effects)
        for row in found.flagged[:MOST_SHOWN]
        if (effects := _within(pairs.get((row.a, row.b)) or pairs[row.b, row.a], row.metric)) is not None
    ]
    people = max(table.total for table in alone.values())
    lost = tuple(sentence for one in releases for sentence in one.receipt.left_out.values())
    names_of = frozenset(metric.name for metric in found.metrics)
    return PairReadout(
        found, tuple(shown), floor_to_k(people, k), k, names_of, lost, chained=all(one.chained for one in releases)
    )


def _effects(found: PairScan, released: ReleasedPairs) -> tuple[Shown, ...]:
    """The tables of flagged pairs that the gate lets through, most urgent first."""
    shown: list[Shown] = []
    place = {factor.name: at for at, factor in enumerate(released.pairs.experiments)}
    for metric in found.metrics:
        flagged = [(place[row.a], place[row.b]) for row in found.flagged if row.metric == metric.name]
        for first, second in shown_pairs(released, flagged[:MOST_SHOWN], metric.name):
            effects = _within(released.pairs.tally(first, second, [metric.name]), metric.name)
            if effects is not None:
                shown.append(Shown(*effects.experiments, effects))
    return tuple(shown)


def _within(table: Tally, metric: str) -> PairEffects | None:
    try:
        return effects_within(table, metric)
    except AnalysisError:
        return None
