"""From a release to a readout: chooses and calls statistics; no arithmetic here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from kanab.errors import AnalysisError, DesignError, PrivacyError
from kanab.factor import Level, label
from kanab.plan import ExperimentPlan
from kanab.privacy.gate import release
from kanab.privacy.released import Receipt, Release
from kanab.readouts import EffectRow, Readout, SegmentRow
from kanab.sources.dispatch import count
from kanab.stats.adjust import adjusted_means
from kanab.stats.distributions import Alternative, check_sides
from kanab.stats.effect import ArmMeans, Effect, against_control, plain_means
from kanab.stats.ftest import pooled_f, robust_f
from kanab.stats.multiplicity import Correction, correct
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.stats.relative import relative_effect
from kanab.stats.segments import FollowUp, follow_ups
from kanab.stats.sequential import (
    TUNED_AT,
    AnyTimeLook,
    PlannedLook,
    any_time_look,
    planned_look,
    sample_ratio_any_time,
)
from kanab.stats.spending import Spending
from kanab.stats.srm import sample_ratio
from kanab.tally import Tally

SEGMENT_CORRECTION: Correction = "bh"
"""Segments are searched for discoveries that a later test will confirm, so the false ones' share is bounded."""


_SUREST = 1 - 1e-12
"""A first look may allow almost nothing; beyond this no interval can be told from an infinite one."""


@dataclass(frozen=True)
class Looks:
    """How an effect that is looked at more than once is read.

    "spending": so many looks, or so many people (``planned``), were fixed beforehand; ``last`` ends
    the design here. "always": every moment may be the last; intervals are narrowest at ``tuned_at``
    people. ``earlier`` are the people counted up to each earlier look.
    """

    method: Literal["spending", "always"]
    looks: int | None = None
    planned: int | None = None
    spending: Spending = "obrien-fleming"
    tuned_at: int = TUNED_AT
    last: bool = False
    earlier: tuple[int, ...] = ()

    def at(self, effect: Effect, people: int) -> PlannedLook | AnyTimeLook:
        """The effect as it may be read at this look."""
        if self.method == "always":
            return any_time_look(effect, people, tuned_at=self.tuned_at)
        if self.looks is None and self.planned is None:
            raise AnalysisError(
                "how many looks are planned is not said", "Give looks=… or planned=… (--looks 5, --planned 100000)."
            )
        seen = [*self.earlier, people]
        return planned_look(
            effect, seen, looks=self.looks, planned=self.planned, spending=self.spending, last=self.last
        )


@dataclass(frozen=True)
class Choices:
    """How an analysis is read: who is the control, how sure, which side, which correction, which looks."""

    control: Level = None
    confidence: float = 0.95
    alternative: Alternative = "two-sided"
    correction: Correction = "holm"
    looks: Looks | None = None


def analyze(
    released: Release,
    experiment: str | None = None,
    *,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
    correction: Correction = "holm",
    looks: Looks | None = None,
) -> Readout:
    """The whole answer for one experiment of a release.

    Sample ratio first; then plain and adjusted effects of every metric and arm, corrected over
    metrics × arms; then whether they differ by segment, where the robust F decides.
    """
    if not isinstance(released, Release):
        raise PrivacyError("only a Release can be analyzed", "Call release() on what count() returned.")
    check_sides(confidence, alternative)
    plan = released.plan.experiment(experiment)
    tables = _own_tables(released, plan)
    arms = next(iter(tables.values())).factor(plan.name)
    base = arms.levels[arms.index(control)] if control is not None else plan.control
    if looks is not None and looks.method == "spending" and looks.looks is None and looks.planned is None:
        looks = replace(looks, looks=plan.looks)
    choices = Choices(arms.control if base is None else base, confidence, alternative, correction, looks)
    notes = _notes(released, plan, choices, said=control is not None or plan.control is not None)
    ratios = [metric.ratio for metric in released.plan.metrics if metric.ratio is not None]
    effects = _effects(plan, tables, ratios, choices, notes)
    segments, found = _segments(plan, tables, choices, notes)
    first = next(iter(tables.values()))
    shares = dict(plan.shares) if plan.shares else None
    any_time = None if looks is None else sample_ratio_any_time(first, shares, plan.name, tuned_at=looks.tuned_at)
    return Readout(
        plan.name, first.people_by(plan.name), choices.control, confidence, alternative, correction,
        sample_ratio(first, shares, plan.name), tuple(effects), tuple(segments), tuple(found), released.receipt,
        tuple(notes), released.chained, any_time,
    )  # fmt: skip


def readout(source: Any, **choices: Any) -> Readout:
    """From people to an answer in one call: count, release, analyze.

    Takes what ``count`` takes (arm, metrics, adjust, segments, bounds, k, …) and how to read the
    result (confidence, alternative, correction, looks).

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
    >>> readout(people, arm="variant", metrics=["bought"]).arms
    {'A': 462, 'B': 438}
    """
    reading = {
        name: choices.pop(name) for name in ("confidence", "alternative", "correction", "looks") if name in choices
    }
    return analyze(release_alone(source, **choices), **reading)


def release_alone(source: Any, *, override: str = "", **choices: Any) -> Release:
    """Count a source and take it through the gate by itself, in no ledger: for the curator's own eyes."""
    return release(count(source, **choices), override=override)


def _own_tables(released: Release, plan: ExperimentPlan) -> dict[str, Tally]:
    """The tables of one experiment, the ones with covariates first."""
    own = {
        name: tally for name, tally in released.tables.items() if [factor.name for factor in tally.arms] == [plan.name]
    }
    if not own:
        raise AnalysisError(f"the release holds no table of {plan.name}", "Release it with more people.")
    return own


def _effects(
    plan: ExperimentPlan,
    tables: Mapping[str, Tally],
    ratios: Iterable[tuple[str, str]],
    choices: Choices,
    notes: list[str],
) -> list[EffectRow]:
    """Plain effects from any table that has the metric; adjusted ones from the covariate's table."""
    found: list[EffectRow] = []
    for metric in dict.fromkeys(m.name for tally in tables.values() for m in tally.metrics):
        source = next(tally for tally in tables.values() if metric in [m.name for m in tally.metrics])
        found += _compared(plain_means, source, metric, choices, notes)
        for covariate in plan.adjust:
            table = tables.get(f"{plan.name}/{covariate}")
            if table is not None and metric in [m.name for m in table.metrics]:
                found += _compared(adjusted_means, table, metric, choices, notes)
    for pair in ratios:
        found += _ratio(plan, tables, pair, choices, notes)
    return _corrected(found, choices.correction)


def _ratio(
    plan: ExperimentPlan, tables: Mapping[str, Tally], pair: tuple[str, str], choices: Choices, notes: list[str]
) -> list[EffectRow]:
    """A ratio of two metrics from any table that has their products; adjusted from the covariates' tables."""
    holding = {name: table for name, table in tables.items() if any(cross.pair == pair for cross in table.crosses)}
    if not holding:
        notes.append(f"{'/'.join(pair)} is not given: the products of its two parts are not in the release.")
        return []
    plain = next(iter(holding.values()))
    found = _compared(lambda tally, _: ratio_means(tally, *pair), plain, "/".join(pair), choices, notes)
    for covariate in plan.adjust:
        table = holding.get(f"{plan.name}/{covariate}")
        if table is not None:
            found += _compared(
                lambda tally, _: adjusted_ratio_means(tally, *pair), table, "/".join(pair), choices, notes
            )
    return found


def _compared(
    means: Callable[[Tally, str], ArmMeans], tally: Tally, metric: str, choices: Choices, notes: list[str]
) -> list[EffectRow]:
    """Every arm against the control; a fit that cannot be done is a note, not a failure."""
    try:
        found = means(tally, metric)
    except (DesignError, AnalysisError) as problem:
        notes.append(f"An effect on {metric} is not given: {problem.fact}.")
        return []
    rows = []
    for arm in found.arms:
        if arm != choices.control:
            effect = against_control(
                found, arm, choices.control, confidence=choices.confidence, alternative=choices.alternative
            )
            base, other = (float(found.means[found.arms.index(side)]) for side in (choices.control, arm))
            look = None if choices.looks is None else choices.looks.at(effect, tally.total)
            sure = effect if look is None else replace(effect, confidence=min(1 - look.nominal, _SUREST))
            rows.append(EffectRow(effect, relative_effect(found, sure), (base, other), look=look))
    return rows


def _corrected(rows: list[EffectRow], correction: Correction) -> list[EffectRow]:
    """Adjust p over metrics × arms, for plain effects and for each adjustment by itself."""
    result = list(rows)
    for family in dict.fromkeys((row.effect.method, row.effect.covariates) for row in rows):
        places = [i for i, row in enumerate(rows) if (row.effect.method, row.effect.covariates) == family]
        for place, p in zip(places, correct([rows[i].p for i in places], correction), strict=True):
            result[place] = replace(rows[place], p_adjusted=p)
    return result


def _segments(
    plan: ExperimentPlan, tables: Mapping[str, Tally], choices: Choices, notes: list[str]
) -> tuple[list[SegmentRow], list[FollowUp]]:
    """For every segment and metric the pooled and the robust F; follow-ups where the latter alarms."""
    rows: list[SegmentRow] = []
    for covariate in plan.segments:
        table = tables.get(f"{plan.name}/{covariate}")
        if table is not None:
            for metric in table.metrics:
                pooled, robust = (test(table, covariate, metric.name) for test in (pooled_f, robust_f))
                rows += [SegmentRow(covariate, pooled), SegmentRow(covariate, robust, decides=True)]
    for decides in (False, True):
        places = [place for place, row in enumerate(rows) if row.decides == decides]
        adjusted = correct([rows[place].test.p for place in places], SEGMENT_CORRECTION)
        for place, p in zip(places, adjusted, strict=True):
            rows[place] = replace(rows[place], p_adjusted=p)
    found: list[FollowUp] = []
    for row in rows:
        if row.decides and row.p_adjusted is not None and row.p_adjusted < 1 - choices.confidence:
            table = tables[f"{plan.name}/{row.covariate}"]
            found += follow_ups(table, row.covariate, row.test.metric, control=choices.control)
        if row.decides and row.test.F is None:
            notes.append(f"{row.test.metric} by {row.covariate} is not testable: {row.test.note}.")
    return rows, found


def _notes(released: Release, plan: ExperimentPlan, choices: Choices, *, said: bool) -> list[str]:
    """What a reader has to know before the numbers."""
    receipt: Receipt = released.receipt
    notes = [] if said else [f"Control is {label(choices.control)} (not named; name another if that is wrong)."]
    if not released.bounds_declared:
        notes.append("Bounds were taken from the data, nothing was clamped; this can be read here but not saved.")
    notes += [f"{sentence}." for name, sentence in receipt.left_out.items() if name.startswith(plan.name)]
    notes += _counted("were clamped to the bounds of", receipt.clamped, receipt.k)
    notes += _counted("have no value of", receipt.missing, receipt.k)
    if receipt.excluded:
        notes.append(f"At least {receipt.excluded:,} people were seen in two arms and are excluded.")
    if receipt.outside:
        notes.append(f"At least {receipt.outside:,} people are in no arm and are left out.")
    if receipt.where:
        notes.append(f"Only people where {receipt.where}.")
    return [*notes, *receipt.deviations]


def _counted(words: str, counts: Mapping[str, int], k: int) -> Iterable[str]:
    for metric, people in counts.items():
        if people:
            yield f"At least {people:,} people {words} {metric} (in steps of {k})."
