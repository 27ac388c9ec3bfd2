"""What every effect amounts to, decided once: every text, page and picture reads it from here."""

from __future__ import annotations

from collections.abc import Sequence

from kanab.analysis.effect_rows import EffectRow
from kanab.analysis.options import ResolvedOptions
from kanab.report.words import Kind
from kanab.stats.multiplicity import correct

MOST_ADDED_NOISE = 0.05
"""Adjusted effects carry verdicts if they have at most so much more noise, as a share of the plain one's variance."""


def carriers(rows: Sequence[EffectRow]) -> list[int]:
    """Return the places of the rows that carry verdicts: of each comparison the adjusted one, else the plain one.

    Where two rates have so few events that the exact test is needed, a regression cannot decide: the plain one does.
    So it does where adjusting adds more noise than `MOST_ADDED_NOISE`.
    """
    leading: dict[tuple[object, ...], int] = {}
    thin = {_comparison(row) for row in rows if row.effect.rates is not None and row.effect.rates.thin}
    noisier = _noisier(rows)
    for place, row in enumerate(rows):
        name = _comparison(row)
        leads = _adjusted(row) and name not in thin and row.effect.metric not in noisier
        if name not in leading or (leads and not _adjusted(rows[leading[name]])):
            leading[name] = place
    return sorted(leading.values())


def verdict(row: EffectRow, alpha: float) -> Kind:
    """Return what the corrected p decides; a hint is clear only before the correction.

    A guardrail that is worse by the usual test alone is to be watched: to miss harm is the costlier mistake.
    """
    if row.p is None:
        return "untestable"
    side: Kind = "up" if row.effect.estimate > 0 else "down"
    if (row.p if row.p_adjusted is None else row.p_adjusted) < alpha:
        return side
    usual = row.p_usual_adjusted
    if row.role == "guardrail" and side == row.worse and usual is not None and usual < alpha:
        return "watch"
    return "hint" if row.p < alpha else "unclear"


def _comparison(row: EffectRow) -> tuple[object, ...]:
    return row.effect.metric, row.effect.contrast


def _noisier(rows: Sequence[EffectRow]) -> set[str]:
    """Return the metrics to whose effects adjusting adds more noise than it may, over all arms together.

    The noise is known, so that nothing that chance makes of an effect or of its error decides, least of all p.
    """
    plain = {_comparison(row): row.effect for row in rows if row.effect.method == "difference"}
    added: dict[str, float] = {}
    for row in rows:
        effect, beside = row.effect, plain.get(_comparison(row))
        if _adjusted(row) and effect.se_noise and beside is not None:
            more = effect.se_noise**2 - beside.se_noise**2 - MOST_ADDED_NOISE * beside.se_population**2
            added[effect.metric] = added.get(effect.metric, 0.0) + more
    return {metric for metric, more in added.items() if more > 0}


def _adjusted(row: EffectRow) -> bool:
    return row.effect.method == "adjusted" and row.p is not None


def family_verdicts(
    tests: Sequence[tuple[float | None, float | None]], options: ResolvedOptions
) -> list[tuple[float | None, Kind]]:
    """Return corrected p-values and verdicts of tests that are a family by themselves, from p and what has its sign."""
    adjusted = correct([p for p, _ in tests], options.stepwise)
    verdicts: list[tuple[float | None, Kind]] = []
    for (_, sign), p in zip(tests, adjusted, strict=True):
        if p is None or sign is None:
            verdicts.append((p, "untestable"))
        else:
            verdicts.append((p, "unclear" if p > 1 - options.confidence else "up" if sign > 0 else "down"))
    return verdicts
