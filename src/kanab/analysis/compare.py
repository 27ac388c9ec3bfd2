"""What do the arms change? Chooses and calls the statistics of effects; no arithmetic of its own but shares of α."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kanab.analysis.options import Choices, Weights
from kanab.analysis.rows import BayesRow, EffectRow, OmnibusRow
from kanab.errors import AnalysisError, DesignError
from kanab.plan.model import ExperimentPlan
from kanab.stats.adjust import adjusted_means
from kanab.stats.arms import joint_contrasts, omnibus
from kanab.stats.bayes import best_arm, posterior
from kanab.stats.effect import ArmMeans, Effect, contrast, plain_means
from kanab.stats.margins import Better, MarginTest, against_margin
from kanab.stats.multiplicity import Simultaneous, excludes, simultaneous_intervals
from kanab.stats.ratio import adjusted_ratio_means, ratio_means
from kanab.stats.relative import relative_delta, relative_effect
from kanab.stats.sequential import AnyTimeLook, PlannedLook
from kanab.tally.tally import Tally

_SUREST = 1 - 1e-12
"""A first look may allow almost nothing; beyond this no interval can be told from an infinite one."""


@dataclass(frozen=True)
class Measured:
    """The arm means of one metric by one method, and how many people were counted for them."""

    means: ArmMeans
    people: int

    @property
    def family(self) -> tuple[str, tuple[str, ...]]:
        """Plain effects are corrected together, and each adjustment by itself."""
        return self.means.method, self.means.covariates


def measured_means(
    plan: ExperimentPlan, tables: Mapping[str, Tally], ratios: Iterable[tuple[str, str]], notes: list[str]
) -> list[Measured]:
    """Plain means from any table that has the metric; adjusted ones from the covariate's table."""
    found: list[Measured] = []
    for metric in dict.fromkeys(m.name for tally in tables.values() for m in tally.metrics):
        holding = {name: tally for name, tally in tables.items() if metric in [m.name for m in tally.metrics]}
        found += _both(plan, holding, metric, (plain_means, adjusted_means), notes)
    for y, z in ratios:
        holding = {name: tally for name, tally in tables.items() if (y, z) in [cross.pair for cross in tally.crosses]}
        if not holding:
            notes.append(f"{y}/{z} is not given: the products of its two parts are not in the release.")
            continue
        ways = _of_ratio(ratio_means, y, z), _of_ratio(adjusted_ratio_means, y, z)
        found += _both(plan, holding, f"{y}/{z}", ways, notes)
    return found


Means = Callable[[Tally, str], ArmMeans]


def _of_ratio(means: Callable[[Tally, str, str], ArmMeans], y: str, z: str) -> Means:
    return lambda tally, _: means(tally, y, z)


def _both(
    plan: ExperimentPlan, holding: Mapping[str, Tally], metric: str, ways: tuple[Means, Means], notes: list[str]
) -> list[Measured]:
    """The metric from any table that has it, then adjusted from the covariates' own."""
    plain, adjusted = ways
    found = _measured(plain, next(iter(holding.values())), metric, notes)
    for covariate in plan.adjust:
        table = holding.get(f"{plan.name}/{covariate}")
        if table is not None:
            found += _measured(adjusted, table, metric, notes)
    return found


def _measured(means: Means, tally: Tally, metric: str, notes: list[str]) -> list[Measured]:
    """A fit that cannot be done is a note, not a failure."""
    try:
        return [Measured(means(tally, metric), tally.total)]
    except (DesignError, AnalysisError) as problem:
        notes.append(f"An effect on {metric} is not given: {problem.fact}.")
        return []


def effect_rows(measured: Sequence[Measured], choices: Choices) -> list[EffectRow]:
    """Every arm against the control, corrected over metrics × arms."""
    return _rows(measured, lambda means: _against(means, choices), choices)


def contrast_rows(measured: Sequence[Measured], choices: Choices) -> list[EffectRow]:
    """The contrasts that were asked for, corrected over metrics × contrasts, apart from the effects."""
    return _rows(measured, lambda _: list(choices.contrasts), choices) if choices.contrasts else []


def _against(means: ArmMeans, choices: Choices) -> list[Weights]:
    return [{arm: 1.0, choices.control: -1.0} for arm in means.arms if arm != choices.control]


def _rows(
    measured: Sequence[Measured], contrasts: Callable[[ArmMeans], list[Weights]], choices: Choices
) -> list[EffectRow]:
    found = [[_row(one, weights, choices) for weights in contrasts(one.means)] for one in measured]
    for family in dict.fromkeys(one.family for one in measured):
        places = [place for place, one in enumerate(measured) if one.family == family]
        own = [(measured[place], found[place]) for place in places]
        together = _dunnett(own, choices) if choices.correction == "dunnett" else _corrected(own, choices)
        for place in places:
            found[place] = [replace(row, together=next(together)) for row in found[place]]
    return [row for rows in found for row in rows]


def _row(one: Measured, weights: Weights, choices: Choices) -> EffectRow:
    """One contrast of the means; two arms also relative to the second."""
    means = one.means
    effect = contrast(means, weights, confidence=choices.confidence, alternative=choices.alternative)
    look = None if choices.looks is None else _careful(choices.looks.at(effect, one.people), means, weights)
    if effect.arm is None:
        return EffectRow(effect, None, None, look=look)
    sure = effect if look is None else replace(effect, confidence=min(1 - look.nominal, _SUREST))
    base, other = (float(means.means[means.arms.index(side)]) for side in (effect.control, effect.arm))
    return EffectRow(effect, relative_effect(means, sure), (base, other), relative_delta(means, sure), look=look)


Family = Sequence[tuple[Measured, Sequence[EffectRow]]]


def _corrected(family: Family, choices: Choices) -> Iterator[Simultaneous]:
    """One family with corrected p-values and intervals; over several looks, intervals hold over all of them."""
    assert choices.correction != "dunnett"
    rows = [(one, row) for one, own in family for row in own]
    found = simultaneous_intervals([replace(row.effect, p=row.p) for _, row in rows], choices.correction)
    return iter([_over_looks(one, row.effect, this, choices) for (one, row), this in zip(rows, found, strict=True)])


def _careful(look: PlannedLook | AnyTimeLook, means: ArmMeans, weights: Weights) -> PlannedLook | AnyTimeLook:
    """Nobody stops because an arm has had no event yet: without a variance of its own it looks surer than it is."""
    still = [arm for arm, spread in zip(means.arms, means.sample, strict=True) if spread <= 0]
    if look.verdict != "may stop" or not any(weights.get(arm) for arm in still):
        return look
    if isinstance(look, PlannedLook):
        return replace(look, verdict="ended" if look.fraction >= 1 else "keep going")
    return replace(look, verdict="keep going")


def _over_looks(one: Measured, effect: Effect, this: Simultaneous, choices: Choices) -> Simultaneous:
    """The interval at its own level as the look allows it; its p is already that over all looks."""
    if choices.looks is None or this.level is None or this.p_adjusted is None:
        return replace(this, effect=effect)
    interval = choices.looks.at(replace(effect, confidence=min(this.level, _SUREST)), one.people).interval
    assert interval is not None
    agrees = excludes(interval) == (this.p_adjusted <= 1 - choices.confidence)
    return replace(this, effect=effect, interval=interval, agrees=agrees)


def _dunnett(family: Family, choices: Choices) -> Iterator[Simultaneous]:
    """The joint t over the arms of each metric, Bonferroni over metrics."""
    metrics = max(1, sum(any(row.effect.testable for row in rows) for _, rows in family))
    confidence = 1 - (1 - choices.confidence) / metrics
    found: list[Simultaneous] = []
    for one, rows in family:
        weights = [dict(row.effect.contrast) for row in rows]
        joined = joint_contrasts(one.means, weights, confidence=confidence, alternative=choices.alternative)
        for this, row in zip(joined, rows, strict=True):
            p = None if this.p_adjusted is None else min(1.0, metrics * this.p_adjusted)
            found.append(replace(this, effect=row.effect, p_adjusted=p))
    return iter(found)


def omnibus_rows(measured: Sequence[Measured], choices: Choices) -> list[OmnibusRow]:
    """Do any arms differ? Asked where there are more than two, and for one look only."""
    if choices.looks is not None:
        return []
    return [
        OmnibusRow(one.means.method, one.means.covariates, omnibus(one.means))
        for one in measured
        if len(one.means.arms) > 2
    ]


def margin_tests(measured: Sequence[Measured], choices: Choices, notes: list[str]) -> list[MarginTest]:
    """Every claim for every arm; one that cannot be tested is a note."""
    found: list[MarginTest] = []
    for one in measured:
        for margin in choices.margins.get(one.means.metric, ()):
            try:
                for weights in _against(one.means, choices):
                    effect = contrast(one.means, weights, confidence=choices.confidence)
                    found.append(against_margin(effect, margin, means=one.means))
            except AnalysisError as problem:
                notes.append(
                    f"The {margin.claim} of {one.means.metric} is not tested: {problem.fact}. {problem.remedy}"
                )
    return found


def bayes_rows(measured: Sequence[Measured], choices: Choices, notes: list[str]) -> list[BayesRow]:
    """The same estimates with a prior, for the metrics that have one."""
    found: list[BayesRow] = []
    for one in measured:
        means, prior = one.means, choices.priors.get(one.means.metric)
        if prior is None:
            continue
        better: Better = "lower" if means.metric in choices.lower else "higher"
        try:
            effects = [contrast(means, weights, confidence=choices.confidence) for weights in _against(means, choices)]
            candidates = best_arm(means, prior, control=choices.control, better=better)
            believed = tuple(posterior(effect, prior) for effect in effects)
        except AnalysisError as problem:
            notes.append(f"{means.metric} is not read with its prior: {problem.fact}.")
            continue
        found.append(BayesRow(means.metric, means.method, means.covariates, prior, better, believed, candidates))
    return found
