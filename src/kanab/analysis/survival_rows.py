"""Survival in a readout: the curves of the tables of days, and every arm against the control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanab.analysis.options import ResolvedOptions
from kanab.analysis.verdicts import family_verdicts
from kanab.errors import flag
from kanab.plan.model import ExperimentPlan
from kanab.privacy.release import Release
from kanab.report.words import Kind
from kanab.stats.counts.survival import Survival, SurvivalCurve, SurvivalEffect, survival, survival_effect
from kanab.tally.factor import Level, label

NO_SURVIVAL = "every day of its curve would carry noise, and no interval here knows how that adds up"
"""Why a release with ε has no survival."""


@dataclass(frozen=True)
class SurvivalRow:
    """How long it is until an event, an arm against the control; the verdict "up" says that it comes sooner."""

    metric: str
    days: str
    curves: tuple[SurvivalCurve, SurvivalCurve]
    effect: SurvivalEffect
    better: str
    p_adjusted: float | None = None
    verdict: Kind = "untestable"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data; a median is None where more than half stay without the event."""
        effect, (control, arm) = self.effect, self.curves
        return {
            "metric": self.metric,
            "days": self.days,
            "arm": label(effect.arm),
            "control": label(effect.control),
            "better": self.better,
            "median_control": control.median,
            "median_arm": arm.median,
            "median_interval_control": list(control.median_interval),
            "median_interval_arm": list(arm.median_interval),
            "day": effect.day,
            "share_control": effect.shares[0],
            "share_arm": effect.shares[1],
            "difference": effect.difference,
            "interval": list(effect.interval),
            "mean_days_control": effect.means[0],
            "mean_days_arm": effect.means[1],
            "mean_days_difference": effect.mean_difference,
            "mean_days_interval": list(effect.mean_interval),
            "z": effect.z,
            "p": effect.p,
            "p_adjusted": self.p_adjusted,
            "verdict": self.verdict,
        }


def survival_curves(
    released: Release,
    plan: ExperimentPlan,
    pool: Mapping[Level, Sequence[Level]],
    confidence: float,
    notes: list[str],
) -> list[Survival]:
    """Return the curves of every event that the plan asks for, where the release holds its days."""
    read = []
    for event, days in plan.survival.items():
        table = released.tables.get(f"{plan.name}/{days}")
        if table is None or event not in table.metric_names:
            notes.append(
                f"There is no survival until {event}: people by {days} did not pass the gate. "
                f"Wider bins ({flag('--bin', f'{days}=7:14:21:28')}) or more people may."
            )
        elif table.noise is not None:
            notes.append(f"There is no survival until {event}: {NO_SURVIVAL}.")
        else:
            pooled = table.pool_arms(pool, plan.name) if pool else table
            read.append(survival(pooled, days, event, confidence=confidence))
    return read


def survival_rows(read: Sequence[Survival], options: ResolvedOptions, notes: list[str]) -> list[SurvivalRow]:
    """Compare the curve of every arm with the control's; p-values of all of them are one family."""
    if read and options.looks is not None:
        notes.append("Survival is compared once, at the end: without looks.")
        return []
    rows = []
    for each in read:
        by_arm = {curve.arm: curve for curve in each.curves}
        control = by_arm.get(options.control)
        for curve in each.curves:
            if control is not None and curve is not control:
                effect = survival_effect(
                    curve, control, confidence=options.confidence, alternative=options.alternative_for(each.metric)
                )
                better = options.better(each.metric)
                rows.append(SurvivalRow(each.metric, each.covariate, (control, curve), effect, better))
    family = family_verdicts([(row.effect.p, row.effect.z) for row in rows], options)
    return [replace(row, p_adjusted=p, verdict=verdict) for row, (p, verdict) in zip(rows, family, strict=True)]
