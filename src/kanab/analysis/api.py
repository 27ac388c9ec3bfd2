"""From a release to a readout: chooses and calls statistics; no arithmetic here."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any

from kanab.analysis.compare import (
    bayes_rows,
    contrast_rows,
    effect_rows,
    margin_tests,
    measured_means,
    omnibus_rows,
)
from kanab.analysis.options import (
    AnyCorrection,
    Choices,
    Looks,
    named_arm,
    read_contrast,
    read_lower,
    read_margins,
    read_pool,
    read_priors,
)
from kanab.analysis.readout import Readout
from kanab.analysis.rows import SegmentRow
from kanab.counting.dispatch import Reading, count
from kanab.counting.shared_assignment import people_share
from kanab.errors import AnalysisError, PrivacyError, listed
from kanab.plan.model import ExperimentPlan
from kanab.privacy.gate import release
from kanab.privacy.release import Receipt, Release
from kanab.stats.bayes import Prior
from kanab.stats.cautions import (
    Caution,
    assigned_together,
    changed_shares,
    clamped_values,
    looked_early,
    metric_cautions,
)
from kanab.stats.distributions import Alternative, check_sides
from kanab.stats.ftest import pooled_f, robust_f
from kanab.stats.margins import Margin
from kanab.stats.multiplicity import Correction, correct
from kanab.stats.segments import FollowUp, follow_ups
from kanab.stats.sequential import sample_ratio_any_time
from kanab.stats.srm import sample_ratio
from kanab.tally.factor import Factor, Level, label
from kanab.tally.tally import Tally

SEGMENT_CORRECTION: Correction = "bh"
"""Segments are searched for discoveries that a later test will confirm, so the false ones' share is bounded."""

BATCHES = (
    "{batches} batches are added here. If results were looked at before the last of them, p-values and intervals "
    "promise too much, because they hold for one look: read them over several looks (--sequential)."
)


def analyze(
    released: Release,
    experiment: str | None = None,
    *,
    control: Any = None,
    confidence: float = 0.95,
    alternative: Alternative = "two-sided",
    correction: AnyCorrection = "holm",
    looks: Looks | None = None,
    pool: Mapping[Any, Sequence[Any]] | None = None,
    contrasts: Sequence[str | Mapping[Any, float]] = (),
    margins: Mapping[str, Margin | Sequence[Margin]] | None = None,
    lower_is_better: Sequence[str] = (),
    prior: Prior | Mapping[str, Prior] | None = None,
) -> Readout:
    """The whole answer for one experiment of a release.

    Sample ratio first; then plain and adjusted effects of every metric and arm, corrected over
    metrics × arms; then whether they differ by segment, where the robust F decides. ``pool`` takes
    several arms as one ({"any": ["B", "C"]}); ``contrasts`` compare arms among themselves ("B - C");
    ``margins`` are claims by metric, ``lower_is_better`` the metrics where less is better; with a
    ``prior``, for all metrics or by metric, the estimates are read as beliefs, too.
    """
    if not isinstance(released, Release):
        raise PrivacyError("only a Release can be analyzed", "Call release() on what count() returned.")
    check_sides(confidence, alternative)
    plan, tables, pooled = _pooled(_own_tables(released, experiment), pool)
    first = next(iter(tables.values()))
    arms = first.factor(plan.name)
    base = named_arm(arms, pooled.place(control)) if control is not None else plan.control
    metrics = list(
        dict.fromkeys(
            [*(m.name for tally in tables.values() for m in tally.metrics), *map("/".join, released.plan.ratios)]
        )
    )
    lower = read_lower(lower_is_better, metrics, margins)
    choices = Choices(
        arms.control if base is None else base, confidence, alternative, correction,
        _looks(looks, released, plan), tuple(read_contrast(arms, one) for one in contrasts),
        read_margins(margins, metrics, lower), read_priors(prior, metrics), lower,
    )  # fmt: skip
    notes = _notes(released, plan, choices, said=control is not None or plan.control is not None)
    notes += pooled.notes
    measured = measured_means(plan, tables, released.plan.ratios, notes)
    segments, found = _segments(plan, tables, choices, notes)
    shares = pooled.shares(plan, arms)
    ratio = replace(sample_ratio(first, shares, plan.name), declared=plan.shares is not None)
    return Readout(
        plan.name, first.people_by(plan.name), choices.control, confidence, alternative, correction,
        ratio, tuple(effect_rows(measured, choices)), tuple(segments), tuple(found),
        released.receipt,
        omnibus=tuple(omnibus_rows(measured, choices)),
        contrasts=tuple(contrast_rows(measured, choices)),
        margins=tuple(margin_tests(measured, choices, notes)),
        bayes=tuple(bayes_rows(measured, choices, notes)),
        cautions=tuple(_cautions(released, plan, tables, sequential=looks is not None)),
        pooled=pooled.groups,
        notes=tuple(notes),
        chained=released.chained,
        any_time=None if looks is None else sample_ratio_any_time(first, shares, plan.name, tuned_at=looks.tuned_at),
    )  # fmt: skip


_READING = tuple(
    name for name in inspect.signature(analyze).parameters if name not in ("released", "experiment", "control")
)


def readout(source: Any, **choices: Any) -> Readout:
    """From people to an answer in one call: count, release, analyze.

    Takes what ``count`` takes (arm, metrics, adjust, segments, bounds, k, …) and how to read the
    result, as ``analyze`` does (confidence, correction, looks, margins, …). ``assigned_by`` names the
    column by which arms were assigned, if not person by person: where several people share a value of
    it, the readout says so.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> people = {"variant": rng.choice(["A", "B"], 900), "bought": rng.random(900) < 0.2}
    >>> readout(people, arm="variant", metrics=["bought"]).arms
    {'A': 462, 'B': 438}
    """
    reading = {name: choices.pop(name) for name in _READING if name in choices}
    if "pool" in reading and "control" in choices:  # a pool may be the control
        reading["control"] = choices.pop("control")
    by = choices.pop("assigned_by", None)
    released = release_alone(source, **choices)
    found = analyze(released, **reading)
    rows = Reading(**{one.name: choices[one.name] for one in fields(Reading) if one.name in choices})
    return found if by is None else with_assignment(found, source, by, rows)


def with_assignment(found: Readout, source: Any, by: str, rows: Reading) -> Readout:
    """The readout with a caution, if arms were assigned by a column of the source that several people share."""
    if not people_share(source, by, [found.experiment], rows, found.receipt.k):
        return found
    return replace(found, cautions=(assigned_together(by), *found.cautions))


def release_alone(source: Any, *, override: str = "", **choices: Any) -> Release:
    """Count a source and take it through the gate by itself, in no ledger: for the curator's own eyes."""
    return release(count(source, **choices), override=override)


def _looks(looks: Looks | None, released: Release, plan: ExperimentPlan) -> Looks | None:
    """The looks with what the plan and the batches know: how many there are, and when."""
    if looks is None:
        return None
    if looks.method == "spending" and looks.looks is None and looks.planned is None:
        looks = replace(looks, looks=plan.looks)
    if released.parts and not looks.earlier:
        people = accumulate(one.total for one in _batches(released, plan))
        looks = replace(looks, earlier=tuple(people)[:-1])
    return looks


def _own_tables(released: Release, experiment: str | None) -> tuple[ExperimentPlan, dict[str, Tally]]:
    """The tables of one experiment, the ones with covariates first."""
    plan = released.plan.experiment(experiment)
    own = {
        name: tally for name, tally in released.tables.items() if [factor.name for factor in tally.arms] == [plan.name]
    }
    if not own:
        raise AnalysisError(f"the release holds no table of {plan.name}", "Release it with more people.")
    return plan, own


@dataclass(frozen=True)
class _Pools:
    """Which arms are taken as one."""

    groups: Mapping[Level, Sequence[Level]]

    def place(self, arm: Any) -> Any:
        """The pool that an arm is in, else the arm."""
        return next((new for new, olds in self.groups.items() if arm in olds or arm in map(label, olds)), arm)

    def shares(self, plan: ExperimentPlan, arms: Factor) -> dict[Level, float] | None:
        """The planned shares; of arms that nobody declared, a pool has as many equal ones as it has arms."""
        if plan.shares:
            return dict(plan.shares)
        return {arm: float(len(self.groups.get(arm, (arm,)))) for arm in arms.levels} if self.groups else None

    @property
    def notes(self) -> list[str]:
        """What was pooled, in words."""
        return [f"{label(new)}: arms {listed(map(label, olds))} taken as one." for new, olds in self.groups.items()]


def _pooled(
    own: tuple[ExperimentPlan, dict[str, Tally]], pool: Mapping[Any, Sequence[Any]] | None
) -> tuple[ExperimentPlan, dict[str, Tally], _Pools]:
    """Plan and tables with some arms as one; its planned share is the sum of theirs."""
    plan, tables = own
    arms = next(iter(tables.values())).factor(plan.name)
    pools = _Pools(read_pool(arms, pool))
    if not pools.groups:
        return plan, tables, pools
    tables = {name: tally.pool_arms(pools.groups, plan.name) for name, tally in tables.items()}
    shares: dict[Level, float] = {}
    for arm, share in plan.shares or ():
        shares[pools.place(arm)] = shares.get(pools.place(arm), 0.0) + share
    control = None if plan.control is None else pools.place(plan.control)
    return replace(plan, shares=tuple(shares.items()) or None, control=control), tables, pools


def _cautions(
    released: Release, plan: ExperimentPlan, tables: Mapping[str, Tally], *, sequential: bool
) -> list[Caution]:
    """What numbers alone do not say: about batches, about bounds, about each metric."""
    batches = _batches(released, plan)
    found = changed_shares(batches, plan.name)
    found += [
        replace(one, sentence=BATCHES.format(batches=len(batches))) for one in looked_early(len(batches), sequential)
    ]
    own = {metric.name: tally for tally in reversed([*tables.values()]) for metric in tally.metrics}
    # several experiments may be about different people: taking them all errs on the side of a smaller share
    everyone = sum(tally.total for tally in _one_per_experiment(released))
    found += clamped_values({name: released.receipt.clamped.get(name, 0) for name in own}, everyone)
    for metric in dict.fromkeys(m.name for tally in tables.values() for m in tally.metrics):
        found += metric_cautions(own[metric], metric)
    return found


def _one_per_experiment(released: Release) -> Iterable[Tally]:
    return {tally.arms[0].name: tally for tally in released.tables.values() if len(tally.arms) == 1}.values()


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


def _batches(released: Release, plan: ExperimentPlan) -> list[Tally]:
    """The arms of one experiment in every batch that it took part in: it may have joined later, or ended earlier."""
    own = [one for one in released.parts if plan.name in one.plan.experiment_names]
    return [one.totals(plan.name) for one in own]
