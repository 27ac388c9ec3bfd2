"""Segments that are looked at more than once: tests and intervals that hold over all looks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kanab.analysis.compare import MetricMeans
from kanab.analysis.options import ResolvedOptions
from kanab.analysis.rows import SegmentRow
from kanab.stats.cautions import FEWEST_CARRIERS
from kanab.stats.effect import Effect
from kanab.stats.multiplicity import correct
from kanab.stats.segments import FollowUp, SegmentEffect, with_watch_note


@dataclass(frozen=True)
class SegmentLooks:
    """How segments are read at this look. ``fewest`` are the people of any arm off each metric's commonest value."""

    options: ResolvedOptions
    fewest: Mapping[str, float]

    @classmethod
    def of(cls, options: ResolvedOptions, measured: Iterable[MetricMeans]) -> SegmentLooks:
        """Return how segments are read, by the metrics of the whole experiment."""
        return cls(
            options, {metric.means.metric: min(metric.off_commonest.values(), default=math.inf) for metric in measured}
        )

    def test(self, row: SegmentRow, people: int) -> SegmentRow:
        """Return a test with its p over all looks; before any-time reading begins, that is 1."""
        if self.options.looks is None or row.test.p is None or row.test.df is None:
            return row
        if self.fewest.get(row.test.metric, math.inf) < FEWEST_CARRIERS:
            return replace(row, p_over_looks=1.0)
        return replace(row, p_over_looks=self._p(row.test.p, row.test.df[0], people))

    def follow_ups(self, rows: Sequence[FollowUp], people: int) -> list[FollowUp]:
        """Return comparisons of levels with the rest, with p-values over all looks."""
        if self.options.looks is None:
            return list(rows)
        p = [self._p(row.p, 1, people) for row in rows]
        return [
            replace(row, p=alone, p_adjusted=corrected or 0.0)
            for row, alone, corrected in zip(rows, p, correct(p, "holm"), strict=True)
        ]

    def _p(self, p: float, df: float, people: int) -> float:
        assert self.options.looks is not None
        return self.options.looks.p_of_f(p, df, people, self.options.confidence)

    def effects(self, effects: Sequence[SegmentEffect], people: int) -> list[SegmentEffect]:
        """Return the effects at levels, with p-values and intervals over all looks."""
        if self.options.looks is None:
            return list(effects)
        tested = sum(effect.p is not None for effect in effects)
        each = self.options.confidence ** (1 / max(1, tested))
        alone = [self._effect(effect, people, self.options.confidence) for effect in effects]
        joint = [self._effect(effect, people, each) for effect in effects]
        corrected, second = (
            correct(p, "sidak") for p in ([effect.p for effect in alone], [effect.p_null for effect in alone])
        )
        together = (
            replace(effect, p_adjusted=p, p_null_adjusted=p_null, interval_adjusted=wide.interval)
            for effect, wide, p, p_null in zip(alone, joint, corrected, second, strict=True)
        )
        return [with_watch_note(effect, self.options.confidence) for effect in together]

    def _effect(self, effect: SegmentEffect, people: int, confidence: float) -> SegmentEffect:
        """Return the effect at one level as it may be read at this look."""
        if effect.p is None or self.options.looks is None:
            return effect
        plain = _AtLevel(
            effect.metric, effect.arm, effect.control, (), "difference", (), effect.estimate, effect.se or 0.0,
            effect.se or 0.0, effect.df, effect.t, effect.p, effect.interval, confidence, self.options.alternative,
            segment=effect,
        )  # fmt: skip
        look, second = (
            self.options.looks.at(tested, people, self._fewest(effect))
            for tested in (plain, replace(plain, p=effect.p_null))
        )
        return replace(effect, p=look.p, p_null=second.p, interval=look.interval)

    def _fewest(self, effect: SegmentEffect) -> float:
        """Return the people off the commonest value: at this level where events are known, else in the whole arm."""
        rates = effect.rates
        if rates is None:
            return self.fewest.get(effect.metric, math.inf)
        sides = (rates.events, rates.people), (rates.control_events, rates.control_people)
        return float(min(min(events, people - events) for events, people in sides))


@dataclass(frozen=True)
class _AtLevel(Effect):
    """The effect at one level, with the interval of its own test."""

    segment: SegmentEffect | None = None

    def interval_at(self, alpha: float) -> tuple[float, float]:
        """Return the values that the level's test does not reject at ``alpha``."""
        assert self.segment is not None
        interval = self.segment.interval_at(alpha, self.alternative)
        assert interval is not None
        return interval
