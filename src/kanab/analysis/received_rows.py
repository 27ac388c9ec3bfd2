"""The effect of receiving, beside that of being assigned: rows of a readout, and when to be careful with them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import plain_interval
from kanab.errors import AnalysisError
from kanab.plan.model import ExperimentPlan
from kanab.stats.cautions import Caution
from kanab.stats.designs.received import WEAK_BELOW, ReceivedEffect, received_effect
from kanab.tally.factor import label
from kanab.tally.tally import Tally


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
        }


def received_rows(
    plan: ExperimentPlan,
    tables: Mapping[str, Tally],
    outcomes: Sequence[str],
    options: ResolvedOptions,
    notes: list[str],
) -> list[ReceivedRow]:
    """Return the effect of receiving for every metric and arm; one that cannot be had is a note."""
    if plan.received is None:
        return []
    if options.looks is not None:
        notes.append("The effect of receiving is read once, at the end: without looks.")
        return []
    rows: list[ReceivedRow] = []
    for metric in outcomes:
        if metric == plan.received:
            continue
        pair = {metric, plan.received}
        table = next((table for table in tables.values() if any({*c.pair} == pair for c in table.crosses)), None)
        if table is None:
            notes.append(
                f"The effect of receiving on {metric} is not given: "
                f"its products with {plan.received} are not in the release; wait until more people have received it."
            )
            continue
        for arm in table.experiment.levels:
            if arm != options.control:
                try:
                    effect = received_effect(
                        table, metric, plan.received, arm=arm, control=options.control, confidence=options.confidence
                    )
                except AnalysisError as problem:
                    notes.append(f"The effect of receiving on {metric} is not given: {problem.fact}.")
                else:
                    rows.append(ReceivedRow(effect))
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
