"""What every effect amounts to, decided once: every text, page and picture reads it from here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kanab.analysis.rows import EffectRow
from kanab.report.words import Kind
from kanab.tally.factor import Level


def with_verdicts(rows: Sequence[EffectRow], alpha: float) -> list[EffectRow]:
    """Return the rows with their verdicts, and which carry them: of each arm the adjusted one, else the plain one."""
    leading: dict[tuple[str, Level], int] = {}
    for place, row in enumerate(rows):
        name = row.effect.metric, row.effect.arm
        if name not in leading or (_adjusted(row) and not _adjusted(rows[leading[name]])):
            leading[name] = place
    chosen = set(leading.values())
    return [
        replace(row, verdict=verdict(row, alpha), carries_verdict=place in chosen) for place, row in enumerate(rows)
    ]


def verdict(row: EffectRow, alpha: float) -> Kind:
    """Return what the corrected p-value decides; a hint is clear only before the correction."""
    if row.p is None:
        return "untestable"
    if (row.p if row.p_adjusted is None else row.p_adjusted) < alpha:
        return "up" if row.effect.estimate > 0 else "down"
    return "hint" if row.p < alpha else "unclear"


def _adjusted(row: EffectRow) -> bool:
    return row.effect.method == "adjusted" and row.p is not None
