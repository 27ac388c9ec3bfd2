"""The effect of receiving, beside that of being assigned: rows of a readout, and when to be careful with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanab.analysis.compare import AnalyzedTables, MetricMeans
from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import plain_interval
from kanab.description import Reading
from kanab.errors import AnalysisError, DesignError, listed
from kanab.stats.cautions import Caution
from kanab.stats.designs.received import (
    WEAK_BELOW,
    ReceivedEffect,
    Together,
    means_together,
    received_effect,
    received_from_means,
)
from kanab.tally.factor import label


@dataclass(frozen=True)
class ReceivedRow:
    """The effect of receiving on one metric, of those who received because of one arm."""

    effect: ReceivedEffect

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data; what is infinite is None."""
        effect = self.effect
        without, having = effect.means or (None, None)
        (people_control, people_arm), (received_control, received_arm) = effect.people, effect.shares
        return {
            "metric": effect.metric,
            "received": effect.received,
            "arm": label(effect.arm),
            "control": label(effect.control),
            "people_control": people_control,
            "people_arm": people_arm,
            "received_control": received_control,
            "received_arm": received_arm,
            "difference": effect.difference,
            "f": effect.f if math.isfinite(effect.f) else None,
            "weak": effect.weak,
            "one_sided": effect.one_sided,
            "assignment": effect.assignment,
            "estimate": effect.estimate,
            "se": effect.se,
            "df": effect.df,
            "ranges": None if effect.ranges is None else [plain_interval(ends) for ends in effect.ranges],
            "interval_delta": plain_interval(effect.interval),
            "mean_without": without,
            "mean_with": having,
            "covariates": list(effect.covariates),
            "dose": effect.dose,
        }


def received_rows(
    analyzed: AnalyzedTables,
    measured: Sequence[MetricMeans],
    resolved: ResolvedOptions,
    options: Reading,
    notes: list[str],
) -> list[ReceivedRow]:
    """Return the effect of receiving for every metric and arm, plain and adjusted; one that cannot be had is a note.

    It is adjusted for what the effects of being assigned are adjusted for, on the metric and on what was received.
    """
    received = analyzed.plan.received
    if received is None:
        return []
    if resolved.looks is not None:
        notes.append("The effect of receiving is read once, at the end: without looks.")
        return []
    known = {name for table in analyzed.tables.values() for name in table.metric_names}
    adjusted = {m.means.metric: m.means.covariates for m in measured if m.means.method == "adjusted"}
    rows: list[ReceivedRow] = []
    for metric in dict.fromkeys(m.means.metric for m in measured if m.means.metric in known - {received}):
        holding = {
            name: table
            for name, table in analyzed.tables.items()
            if any({*cross.pair} == {metric, received} for cross in table.crosses)
        }
        if not holding:
            notes.append(
                f"The effect of receiving on {metric} is not given: "
                f"its products with {received} are not in the release; wait until more people have received it."
            )
            continue
        table = next(iter(holding.values()))
        numbers = [name for name in adjusted.get(metric, ()) if name in analyzed.plan.numbers]
        covariates = [
            name
            for name in adjusted.get(metric, ())
            if name in adjusted.get(received, ()) and (name in numbers or analyzed.of(name) in holding)
        ]
        without = [name for name in adjusted.get(metric, ()) if name not in covariates]
        if without:
            notes.append(f"The effect of receiving on {metric} is not adjusted for {listed(without)}.")
        numbers = [name for name in numbers if name in covariates]
        categories = [name for name in covariates if name not in numbers]
        tables = analyzed.crossed(categories, holding) if categories else [table]
        means: Together | None = None
        try:
            for arm in (level for level in table.experiment.levels if level != resolved.control):
                sides: dict[str, Any] = {"arm": arm, "control": resolved.control, "confidence": resolved.confidence}
                plain = received_effect(table, metric, received, **sides)
                rows.append(ReceivedRow(plain))
                if covariates:
                    means = means or means_together(
                        tables, metric, received, variance=options.variance, numbers=numbers, slopes=options.slopes
                    )
                    effect = received_from_means(plain, table, means)
                    rows.append(ReceivedRow(replace(effect, covariates=tuple(covariates))))
        except (AnalysisError, DesignError) as problem:
            notes.append(f"An effect of receiving on {metric} is not given: {problem.fact}.")
    return rows


def received_cautions(rows: Sequence[ReceivedRow]) -> list[Caution]:
    """Warn where assignment hardly changes what is received, once for each arm."""
    weak = {row.effect.arm: row.effect for row in rows if row.effect.weak}
    return [
        Caution(
            "weak-assignment",
            f"Being assigned to {label(arm)} hardly changes {effect.received} (F below {WEAK_BELOW:g}): do not use the "
            "delta method's interval of the effect of receiving; Fieller's holds, however wide it is.",
        )
        for arm, effect in weak.items()
    ]
