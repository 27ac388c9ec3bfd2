"""Compare the arms: choose and call the statistics of effects; no arithmetic here but shares of α."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from kanab.analysis.effect_rows import EffectRow
from kanab.analysis.options import ROLES, Looks, ResolvedOptions, Weights
from kanab.analysis.verdicts import carriers, verdict
from kanab.description import SIZE, Reading, Role
from kanab.errors import AnalysisError, DesignError
from kanab.plan.model import ExperimentPlan
from kanab.plan.paired_covariates import Pair
from kanab.privacy.merging import LevelMap
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.arms import joint_contrasts
from kanab.stats.cautions import count_nonmodal
from kanab.stats.effect import ArmMeans, Effect, contrast, plain_means
from kanab.stats.multiplicity import Simultaneous, correct, excludes, simultaneous_intervals
from kanab.stats.ratio import additive_ratio_means, adjusted_ratio_means, ratio_means
from kanab.stats.relative import odds_ratio, relative_delta, relative_effect
from kanab.stats.sequential import AnyTimeLook, Look, not_stopping
from kanab.stats.skewness import Shape
from kanab.tally.factor import Level
from kanab.tally.tally import Tally

_SUREST = 1 - 1e-12
"""A first look may allow almost nothing; beyond this no interval can be told from an infinite one."""


@dataclass(frozen=True)
class MetricMeans:
    """The arm means of one metric by one method, and how many people were counted for them.

    ``nonmodal`` are those of each arm who have another value than the commonest one, at least; ``worth`` is the
    size of an effect worth having.
    """

    means: ArmMeans
    people: int
    nonmodal: Mapping[Level, float] = field(default_factory=dict)
    worth: float | None = None

    def seen(self, effect: Effect, looks: Looks) -> Look:
        """Return an effect between these arms as it may be read at this look."""
        fewest = min((self.nonmodal.get(arm, math.inf) for arm, _ in effect.contrast), default=math.inf)
        return looks.at(effect, self.people, fewest, self.worth)


@dataclass(frozen=True)
class _Functions:
    """How the means of a metric or of a ratio are made: plain, adjusted, adjusted for several covariates and numbers.

    ``crossed`` says whether one table of classes is enough to adjust for one covariate.
    """

    plain: Callable[[Tally], ArmMeans]
    adjusted: Callable[[Tally], ArmMeans]
    joint: Callable[[list[Tally], list[str], list[str]], ArmMeans]
    crossed: bool


@dataclass(frozen=True)
class AnalyzedTables:
    """The tables of one experiment as they are analyzed, and how levels of tables of two covariates were merged.

    ``categories`` are covariates with scores that are adjusted for as categories: bins. ``shapes`` are what is known of
    the metrics' and ratios' values, so that tests reckon with it.
    """

    plan: ExperimentPlan
    tables: Mapping[str, Tally]
    maps: Mapping[str, LevelMap]
    categories: frozenset[str] = frozenset()
    shapes: Mapping[str, Shape] = field(default_factory=dict)

    def of(self, covariate: str) -> str:
        """Return the name of a covariate's table."""
        return f"{self.plan.name}/{covariate}"

    def totals(self, holding: Mapping[str, Tally]) -> Tally | None:
        """Return the table of the arms alone, if it has noise: adjusted means start from it."""
        arms = holding.get(self.plan.name)
        return None if arms is None or arms.noise is None else arms

    def crossed(self, covariates: Sequence[str], holding: Mapping[str, Tally]) -> list[Tally]:
        """Return the tables of the pairs that there are, and of each covariate with the levels that pairs have."""
        pairs = [Pair(self.plan.name, *two) for two in combinations(covariates, 2)]
        tables = [self.tables[pair.name] for pair in pairs if pair.name in self.tables]
        for covariate in covariates:
            single = holding[self.of(covariate)]
            names = [pair.map_name(covariate) for pair in pairs if covariate in pair.covariates]
            merged = next((self.maps[name] for name in names if name in self.maps), None)
            tables.append(single if merged is None else merged.apply(single))
        return [table.as_categories(self.categories) for table in tables]


def metric_means(
    analyzed: AnalyzedTables, ratios: Iterable[tuple[str, str]], options: Reading, notes: list[str]
) -> list[MetricMeans]:
    """Return plain means from any table that has the metric, and adjusted ones from the covariates' tables."""
    measured: list[MetricMeans] = []
    tables = analyzed.tables
    known = dict.fromkeys(m.name for tally in tables.values() for m in tally.metrics)
    for metric in [name for name in known if name not in analyzed.plan.numbers]:
        holding = {name: tally for name, tally in tables.items() if metric in tally.metric_names}
        functions = _of_metric(metric, options, analyzed.totals(holding))
        measured += _plain_and_adjusted(analyzed, holding, metric, functions, notes)
    for y, z in ratios:
        holding = {name: tally for name, tally in tables.items() if (y, z) in [cross.pair for cross in tally.crosses]}
        if not holding:
            notes.append(f"{y}/{z} is not given: the products of its two parts are not in the release.")
            continue
        functions = _of_ratio(y, z, options, analyzed.totals(holding))
        measured += _plain_and_adjusted(analyzed, holding, f"{y}/{z}", functions, notes)
    return measured


def by_role(measured: Sequence[MetricMeans], roles: Mapping[str, Role]) -> list[MetricMeans]:
    """Return primary metrics first, then guardrails: what was asked first is read first."""
    return sorted(measured, key=lambda metric: ROLES.index(roles.get(metric.means.metric, "primary")))


def _of_metric(metric: str, options: Reading, totals: Tally | None) -> _Functions:
    """Return how means of a metric are made; ``totals`` are what adjusted ones start from where there is noise."""
    return _Functions(
        lambda tally: plain_means(tally, metric, test=options.test),
        lambda tally: adjusted_means(tally, metric, variance=options.variance, totals=totals),
        lambda tables, covariates, numbers: additive_means(
            tables,
            metric,
            covariates,
            variance=options.variance,
            numbers=numbers,
            slopes=options.slopes,
            totals=totals,
        ),
        options.slopes == "own",
    )


def _of_ratio(y: str, z: str, options: Reading, totals: Tally | None) -> _Functions:
    return _Functions(
        lambda tally: ratio_means(tally, y, z),
        lambda tally: adjusted_ratio_means(tally, y, z, variance=options.variance, totals=totals),
        lambda tables, covariates, numbers: additive_ratio_means(
            tables, y, z, covariates, variance=options.variance, numbers=numbers, slopes=options.slopes, totals=totals
        ),
        options.slopes == "own",
    )


def _plain_and_adjusted(
    analyzed: AnalyzedTables, holding: Mapping[str, Tally], metric: str, functions: _Functions, notes: list[str]
) -> list[MetricMeans]:
    """Return the means from any table that has the metric, then those adjusted for all covariates together."""
    any_table = next(iter(holding.values()))
    measured: list[MetricMeans] = []
    shape = analyzed.shapes.get(metric)
    try:
        measured.append(MetricMeans(replace(functions.plain(any_table), shape=shape), any_table.total))
    except (DesignError, AnalysisError) as problem:  # a fit that cannot be done is a note, not a failure
        notes.append(f"An effect on {metric} is not given: {problem.fact}.")
    numbers = analyzed.plan.numbers
    planned = sorted({*analyzed.plan.adjust, *numbers})
    covariates = [name for name in planned if name in numbers or analyzed.of(name) in holding]
    if len(planned) > 1:
        without = [name for name in planned if name not in covariates]
        notes += [f"The effect on {metric} is not adjusted for {name}: there is no table of it." for name in without]
    try:
        adjusted = _adjusted(analyzed, holding, covariates, functions)
    except (DesignError, AnalysisError) as problem:
        if len(covariates) == 1 and not numbers:
            noisy = any(table.noise is not None for table in holding.values())
            what = (
                f"The effect on {metric} is not adjusted for {covariates[0]}"
                if noisy
                else f"An effect on {metric} is not given"
            )
            notes.append(f"{what}: {problem.fact}.")
            return measured
        adjusted, reasons = _as_far_as_possible(analyzed, holding, covariates, functions)
        notes += [f"The effect on {metric} is not adjusted for {name}: {reason}." for name, reason in reasons.items()]
    if adjusted is not None:
        measured.append(MetricMeans(replace(adjusted, shape=shape), any_table.total))
    return measured


def _adjusted(
    analyzed: AnalyzedTables, holding: Mapping[str, Tally], covariates: Sequence[str], functions: _Functions
) -> ArmMeans | None:
    """Return means adjusted for one covariate, or for several and for numbers together; None for none."""
    if not covariates:
        return None
    numbers = [name for name in covariates if name in analyzed.plan.numbers]
    categories = [name for name in covariates if name not in numbers]
    if len(covariates) == 1 and categories and functions.crossed:
        return functions.adjusted(holding[analyzed.of(covariates[0])].as_categories(analyzed.categories))
    tables = analyzed.crossed(categories, holding) if categories else [next(iter(holding.values()))]
    return replace(functions.joint(tables, categories, numbers), covariates=tuple(covariates))


def _as_far_as_possible(
    analyzed: AnalyzedTables, holding: Mapping[str, Tally], covariates: Sequence[str], functions: _Functions
) -> tuple[ArmMeans | None, dict[str, str]]:
    """Return means adjusted for as many covariates as can be, and why not for the others.

    They are tried in the order of their names: neither the order in which they were written nor any
    result decides.
    """
    means: ArmMeans | None = None
    kept: list[str] = []
    reasons: dict[str, str] = {}
    for name in covariates:
        try:
            means = _adjusted(analyzed, holding, [*kept, name], functions)
            kept.append(name)
        except (DesignError, AnalysisError) as problem:
            reasons[name] = problem.fact
    return means, reasons


def with_off_commonest(
    measured: Sequence[MetricMeans], tables: Mapping[str, Tally], ranges: Mapping[str, tuple[float, float]]
) -> list[MetricMeans]:
    """Add how many people of each arm have another value than the commonest one, at least.

    Of a ratio, these are of the part that has fewer; a denominator that is the same for everybody does not count.
    """
    tally_of = {metric.name: tally for tally in tables.values() for metric in tally.metrics}
    pairs = {"/".join(cross.pair): cross.pair for tally in tables.values() for cross in tally.crosses}

    def of(metric: str) -> dict[Level, float]:
        if metric in tally_of:
            return count_nonmodal(tally_of[metric], metric, ranges.get(metric))
        above, below = (of(part) for part in pairs[metric])
        return {arm: min(n, below[arm]) for arm, n in above.items()} if any(below.values()) else above

    return [replace(metric, nonmodal=of(metric.means.metric)) for metric in measured]


def with_worth(measured: Sequence[MetricMeans], options: ResolvedOptions) -> list[MetricMeans]:
    """Add to primary metrics the size of an effect worth having, in their units, where one is declared."""
    if options.rule.worth is None:
        return list(measured)
    amount, relative = SIZE.read(options.rule.worth)

    def with_size(of: MetricMeans) -> MetricMeans:
        mean = abs(float(of.means.means[of.means.arms.index(options.control)]))
        return replace(of, worth=amount * mean or None if relative else amount)

    return [with_size(of) if options.roles.get(of.means.metric) == "primary" else of for of in measured]


def effect_rows(measured: Sequence[MetricMeans], options: ResolvedOptions) -> list[EffectRow]:
    """Compare every arm with the control, corrected over metrics × arms."""
    return _rows(measured, lambda means: against_control(means, options), options)


def contrast_rows(measured: Sequence[MetricMeans], options: ResolvedOptions) -> list[EffectRow]:
    """Compare the arms of each contrast, corrected over metrics × contrasts, apart from the effects."""
    return _rows(measured, lambda _: list(options.contrasts), options)


def against_control(means: ArmMeans, options: ResolvedOptions) -> list[Weights]:
    """Return the contrast of every arm with the control."""
    return [{arm: 1.0, options.control: -1.0} for arm in means.arms if arm != options.control]


def _rows(
    measured: Sequence[MetricMeans], contrasts: Callable[[ArmMeans], list[Weights]], options: ResolvedOptions
) -> list[EffectRow]:
    """Compare by every method; the rows of one role that carry verdicts are a family, those beside are uncorrected."""
    rows = [(metric, _row(metric, weights, options)) for metric in measured for weights in contrasts(metric.means)]
    rows = [(metric, _with_saved(row, [other for _, other in rows])) for metric, row in rows]
    carrying = carriers([row for _, row in rows])
    for role in dict.fromkeys(rows[place][1].role for place in carrying):
        places = [place for place in carrying if rows[place][1].role == role]
        by_metric = [(metric, [rows[place][1] for place in places if rows[place][0] is metric]) for metric in measured]
        family = [(metric, of_metric) for metric, of_metric in by_metric if of_metric]
        joint = _dunnett(family, options) if options.correction == "dunnett" else _corrected(family, options)
        for place in places:
            metric, row = rows[place]
            row = replace(row, simultaneous=next(joint), carries_verdict=True)
            rows[place] = metric, row
        usual = correct([_p_usual(*rows[place], options) for place in places], options.stepwise)
        for place, p in zip(places, usual, strict=True):
            metric, row = rows[place]
            row = replace(row, p_usual_adjusted=p, limit_interval=_limit_interval(metric, row, len(places), options))
            rows[place] = metric, replace(row, verdict=verdict(row, 1 - options.confidence))
    return [_stopping(metric, row, options.looks) for metric, row in rows]


def _p_usual(metric: MetricMeans, row: EffectRow, options: ResolvedOptions) -> float | None:
    effect = row.effect
    return effect.p_usual if options.looks is None else metric.seen(replace(effect, p=effect.p_usual), options.looks).p


def _row(metric: MetricMeans, weights: Weights, options: ResolvedOptions) -> EffectRow:
    """Compare the means by one contrast; two arms also relative to the second."""
    means = metric.means
    alternative = options.alternative_for(means.metric)
    effect = contrast(means, weights, confidence=options.confidence, alternative=alternative)
    role, better = options.roles.get(means.metric), options.better(means.metric)
    look = None if options.looks is None else _careful(metric.seen(effect, options.looks), means, effect)
    early = look is None and metric.people < (options.rule.people or 0)
    row = EffectRow(effect, None, None, look=look, role=role, better=better, early=early)
    if effect.arm is None:
        return row
    sure = effect if look is None else replace(effect, confidence=min(1 - look.nominal, _SUREST))
    base, other = (float(means.means[means.arms.index(side)]) for side in (effect.control, effect.arm))
    relative = relative_effect(means, sure)
    delta = None if relative.estimate is None else relative_delta(means, sure)
    odds = odds_ratio(sure)
    if isinstance(look, AnyTimeLook) and not look.begun:
        relative, delta = replace(relative, interval=None), None
        odds = None if odds is None else replace(odds, interval=None)
    return replace(row, relative=relative, means=(base, other), delta=delta, odds=odds)


def _with_saved(row: EffectRow, rows: Sequence[EffectRow]) -> EffectRow:
    """Add how many more people would have made the plain effect as precise as this adjusted one, as a share."""
    effect = row.effect
    if effect.method != "adjusted" or not effect.se_population or effect.too_noisy:
        return row
    same = (effect.metric, effect.contrast)
    plain = [other.effect for other in rows if (other.effect.metric, other.effect.contrast) == same]
    error = next((other.se_population for other in plain if other.method == "difference"), None)
    return row if error is None else replace(row, sample_size_gain=(error / effect.se_population) ** 2 - 1)


def _stopping(metric: MetricMeans, row: EffectRow, looks: Looks | None) -> EffectRow:
    """Let one stop only where the verdict is clear: after the correction over metrics and arms, too."""
    if looks is None or row.look is None or row.verdict in ("up", "down"):
        return row
    look = not_stopping(row.look)
    if row.simultaneous and row.simultaneous.level is not None:
        corrected = metric.seen(replace(row.effect, confidence=min(row.simultaneous.level, _SUREST)), looks)
        look = replace(look, chance=corrected.chance)
        if isinstance(look, AnyTimeLook) and isinstance(corrected, AnyTimeLook):
            look = replace(look, until=corrected.until)
    return replace(row, look=look)


Family = Sequence[tuple[MetricMeans, Sequence[EffectRow]]]


def _corrected(family: Family, options: ResolvedOptions) -> Iterator[Simultaneous]:
    """Correct the p-values and intervals of one family; over several looks, intervals hold over all of them."""
    assert options.correction != "dunnett"
    rows = [(metric, row) for metric, of_metric in family for row in of_metric]
    joint = simultaneous_intervals([replace(row.effect, p=row.p) for _, row in rows], options.correction)
    return iter(
        [
            _over_looks(metric, row.effect, simultaneous, options)
            for (metric, row), simultaneous in zip(rows, joint, strict=True)
        ]
    )


def _careful(look: Look, means: ArmMeans, effect: Effect) -> Look:
    """Let nobody stop because an arm has had no event yet: without a variance of its own it looks surer than it is.

    The score test of two rates knows better: it takes the variance from both arms.
    """
    still = [arm for arm, spread in zip(means.arms, means.sample, strict=True) if spread <= 0]
    return not_stopping(look) if effect.test != "score" and any(arm in still for arm, _ in effect.contrast) else look


def _over_looks(
    metric: MetricMeans, effect: Effect, simultaneous: Simultaneous, options: ResolvedOptions
) -> Simultaneous:
    """Widen the interval to what the look allows, where there are several; p is already that over all looks."""
    simultaneous = replace(simultaneous, effect=effect)
    if options.looks is None or simultaneous.level is None or simultaneous.p_adjusted is None:
        return simultaneous
    sure = replace(effect, confidence=min(simultaneous.level, _SUREST))
    interval = metric.seen(sure, options.looks).interval
    agrees = interval is None or excludes(interval) == (simultaneous.p_adjusted < 1 - options.confidence)
    return replace(simultaneous, interval=interval, agrees=agrees)


def _limit_interval(
    metric: MetricMeans, row: EffectRow, family: int, options: ResolvedOptions
) -> tuple[float, float] | None:
    """Return the interval over all looks that a margin is read against; guardrails all have to hold, uncorrected."""
    limit = options.limits.get(row.effect.metric)
    if limit is None or options.looks is None:
        return None
    alpha = (1 - options.confidence) / (1 if row.role == "guardrail" or options.correction == "none" else family)
    look = metric.seen(replace(row.effect, confidence=min(1 - alpha, _SUREST)), options.looks)
    if not limit.relative or look.interval is None:
        return look.interval
    return relative_effect(metric.means, replace(row.effect, confidence=min(1 - look.nominal, _SUREST))).interval


def _dunnett(family: Family, options: ResolvedOptions) -> Iterator[Simultaneous]:
    """Correct by the joint t over the arms of each metric, and by Bonferroni over metrics."""
    metrics = max(1, sum(any(row.effect.testable for row in rows) for _, rows in family))
    confidence = 1 - (1 - options.confidence) / metrics
    for metric, rows in family:
        weights = [dict(row.effect.contrast) for row in rows]
        joint = joint_contrasts(metric.means, weights, confidence=confidence, alternative=rows[0].effect.alternative)
        for simultaneous, row in zip(joint, rows, strict=True):
            p = simultaneous.p_adjusted
            yield replace(simultaneous, effect=row.effect, p_adjusted=None if p is None else min(1.0, metrics * p))
