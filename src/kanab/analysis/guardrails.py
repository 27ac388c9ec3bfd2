"""Metrics read against margins: guardrails, which must not suffer, and the claims about primary metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import EffectRow, Plain, effect_place
from kanab.description import Role
from kanab.stats.margins import Margin, MarginTest
from kanab.tally.factor import Level, label

Reading = Literal["holds", "worse", "watch", "not shown"]


@dataclass(frozen=True)
class GuardrailRow:
    """One guardrail, or one claim about a primary metric, and arm: how it is read, and against which margin, if any.

    "holds": shown to be within its margin; without one, not clearly worse. "worse": clearly so, and not within the
    margin. "watch": worse by Welch's t alone, which skewness may mislead. "not shown": neither.
    """

    metric: str
    arm: Level
    reading: Reading
    margin: Margin | None = None
    role: Role = "guardrail"

    def to_dict(self) -> Plain:
        """Return the row as plain data."""
        claimed = {} if self.margin is None or self.role == "guardrail" else {"claim": self.margin.claim}
        return {
            "metric": self.metric,
            "arm": label(self.arm),
            **claimed,
            "reading": self.reading,
            "margin": None if self.margin is None else self.margin.size,
            "relative": None if self.margin is None else self.margin.relative,
        }


def guardrail_rows(
    rows: Iterable[EffectRow], tests: Sequence[MarginTest], options: ResolvedOptions
) -> list[GuardrailRow]:
    """Read every guardrail, and every claim about a primary metric, for every arm, from the rows with verdicts."""
    return [
        GuardrailRow(row.effect.metric, row.effect.arm, _reading(row, margin, tests), margin, row.role)
        for row in rows
        if row.role is not None and row.carries_verdict
        for margin in _margins(row, options)
    ]


def _margins(row: EffectRow, options: ResolvedOptions) -> Sequence[Margin | None]:
    """Return what a metric is read against: a guardrail without a margin against none, a primary metric's claims."""
    metric = row.effect.metric
    limit = options.limits.get(metric)
    if row.role == "guardrail":
        return [limit]
    if row.role != "primary":
        return []
    return options.margins.get(metric, ()) if row.look is None or limit is None else [limit]


def _reading(row: EffectRow, margin: Margin | None, tests: Sequence[MarginTest]) -> Reading:
    if row.role == "guardrail" and row.p is None and row.effect.estimate == 0:  # nothing happened in either arm
        return "holds"
    if margin is not None and _within(row, margin, tests):
        return "holds"
    if row.verdict == row.worse:
        return "worse"
    if row.verdict == "watch" and (row.effect.estimate > 0) == (row.worse == "up"):
        return "watch"
    return "holds" if margin is None and row.p is not None else "not shown"


def _within(row: EffectRow, margin: Margin, tests: Sequence[MarginTest]) -> bool:
    """Return whether the effect is shown to be within the margin: by its tests, over several looks by the interval."""
    if row.look is None:
        place = effect_place(row.effect)
        return any(test.shown for test in tests if test.margin == margin and effect_place(test.effect) == place)
    interval, ((limit, side), *_) = row.limit_interval, margin.tests
    return interval is not None and (interval[0] > limit if side == "greater" else interval[1] < limit)
