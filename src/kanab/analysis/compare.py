"""Compare the arms: choose and call the statistics of effects; no arithmetic here but shares of α."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from kanab.analysis.effect_rows import EffectRow
from kanab.analysis.options import ROLES, Looks, ResolvedOptions, Weights
from kanab.counting.clusters import PEOPLE
from kanab.description import SIZE, Reading, Role
from kanab.errors import AnalysisError, DesignError
from kanab.plan.model import ExperimentPlan
from kanab.plan.paired_covariates import Pair
from kanab.privacy.merging import LevelMap
from kanab.privacy.release import Tables
from kanab.report.words import Kind
from kanab.stats.additive import additive_means
from kanab.stats.adjust import adjusted_means
from kanab.stats.arms import joint_contrasts
from kanab.stats.cautions import count_nonmodal
from kanab.stats.effect import ArmMeans, Effect, contrast, plain_means
from kanab.stats.multiplicity import Simultaneous, correct, excludes, simultaneous_intervals
from kanab.stats.ratio import (
    additive_ratio_means,
    adjusted_ratio_means,
    between_clusters,
    effective_clusters,
    ratio_means,
)
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
        measured += _Metric((metric,), holding, analyzed, options).means(notes)
    for pair in ratios:
        holding = {name: tally for name, tally in tables.items() if pair in [cross.pair for cross in tally.crosses]}
        if holding:
            measured += _Metric(pair, holding, analyzed, options).means(notes)
        else:
            notes.append(f"{'/'.join(pair)} is not given: the products of its two parts are not in the release.")
    return measured


def by_role(measured: Sequence[MetricMeans], roles: Mapping[str, Role]) -> list[MetricMeans]:
    """Return primary metrics first, then guardrails: what was asked first is read first."""
    return sorted(measured, key=lambda metric: ROLES.index(roles.get(metric.means.metric, "primary")))


@dataclass(frozen=True)
class _Metric:
    """A metric, or the two parts of a ratio, with the tables that hold it, and how its means are made."""

    parts: tuple[str, ...]
    holding: Mapping[str, Tally]
    analyzed: AnalyzedTables
    options: Reading

    def means(self, notes: list[str]) -> list[MetricMeans]:
        """Return plain means, then those adjusted for all covariates together; what cannot be had is a note."""
        any_table, name = next(iter(self.holding.values())), "/".join(self.parts)
        measured: list[ArmMeans] = []
        try:
            measured.append(self._plain(any_table))
        except (DesignError, AnalysisError) as problem:  # a fit that cannot be done is a note, not a failure
            notes.append(f"An effect on {name} is not given: {problem.fact}.")
        numbers = self.analyzed.plan.numbers
        planned = sorted({*self.analyzed.plan.adjust, *numbers})
        covariates = [each for each in planned if each in numbers or self.analyzed.of(each) in self.holding]
        if len(planned) > 1:
            without = [each for each in planned if each not in covariates]
            notes += [f"The effect on {name} is not adjusted for {each}: there is no table of it." for each in without]
        try:
            adjusted = self._adjusted(covariates)
        except (DesignError, AnalysisError) as problem:
            if len(covariates) == 1 and not numbers:
                adjusted, noisy = None, any(table.noise is not None for table in self.holding.values())
                lost = f"The effect on {name} is not adjusted for {covariates[0]}"
                notes.append(f"{lost if noisy else f'An effect on {name} is not given'}: {problem.fact}.")
            else:
                adjusted, reasons = self._as_far_as_possible(covariates)
                notes += [f"The effect on {name} is not adjusted for {each}: {why}." for each, why in reasons.items()]
        measured += [] if adjusted is None else [adjusted]
        shape = self.analyzed.shapes.get(name)
        return [MetricMeans(replace(means, shape=shape), any_table.total) for means in measured]

    def _plain(self, tally: Tally) -> ArmMeans:
        if len(self.parts) == 2:
            return ratio_means(tally, *self.parts)
        return plain_means(tally, *self.parts, test=self.options.test)

    def _adjusted(self, covariates: Sequence[str]) -> ArmMeans | None:
        """Return means adjusted for one covariate, or for several and for numbers together; None for none."""
        if not covariates:
            return None
        numbers = [name for name in covariates if name in self.analyzed.plan.numbers]
        categories = [name for name in covariates if name not in numbers]
        alone: Callable[..., ArmMeans] = adjusted_means if len(self.parts) == 1 else adjusted_ratio_means
        joint: Callable[..., ArmMeans] = additive_means if len(self.parts) == 1 else additive_ratio_means
        how: dict[str, Any] = {"variance": self.options.variance, "totals": self.analyzed.totals(self.holding)}
        if len(covariates) == 1 and categories and self.options.slopes == "own":  # one table of classes is enough
            table = self.holding[self.analyzed.of(covariates[0])]
            return alone(table.as_categories(self.analyzed.categories), *self.parts, **how)
        tables = self.analyzed.crossed(categories, self.holding) or [next(iter(self.holding.values()))]
        means = joint(tables, *self.parts, categories, numbers=numbers, slopes=self.options.slopes, **how)
        return replace(means, covariates=tuple(covariates))

    def _as_far_as_possible(self, covariates: Sequence[str]) -> tuple[ArmMeans | None, dict[str, str]]:
        """Return means adjusted for as many covariates as can be, in the order of their names; why not for others."""
        means: ArmMeans | None = None
        kept: list[str] = []
        reasons: dict[str, str] = {}
        for name in covariates:
            try:
                means = self._adjusted([*kept, name])
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
    """Let nobody stop because an arm had no event yet; the score test of two rates has the variance of both arms."""
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


# ── arms of clusters ────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ClusterCounts:
    """By what arms were assigned, and per arm how many of these there are, and how many people in them.

    People are None where their number is withheld. ``rates`` are the metrics that lie between 0 and 1 for every person.
    """

    by: tuple[str, ...]
    clusters: Mapping[Level, int]
    people: Mapping[Level, int] | None
    rates: tuple[str, ...] = ()


def clusters_of(released: Tables, table: Tally, experiment: str) -> ClusterCounts | None:
    """Return what arms were assigned by, where that is no person; None for people."""
    by = (released.receipt.choices or {}).get("assigned_by")
    if by is None:
        return None
    clusters, people = table.people_by(experiment), None
    if PEOPLE in table.metric_names:
        people = dict(zip(clusters, map(int, table.keep().moments_of(PEOPLE).sums), strict=True))
    most = released.plan.metrics_by_name[PEOPLE].bounds
    bounded = [each.name for each in released.plan.counted_metrics if most is not None and each.bounds == most]
    rates = [name for name in (*bounded, *released.rates) if name != PEOPLE]
    return ClusterCounts(tuple(by.split(", ")), clusters, people, tuple(rates))


def hidden_metrics(released: Tables) -> tuple[str, ...]:
    """Return the metrics that are counted but not compared: the people of clusters."""
    return (PEOPLE,) if "assigned_by" in (released.receipt.choices or {}) else ()


def per_person(measured: Sequence[MetricMeans], table: Tally) -> list[MetricMeans]:
    """Return the means per person under the names of their metrics, and other ratios; not those per cluster."""
    end = f"/{PEOPLE}"
    ratios = [metric for metric in measured if "/" in metric.means.metric]
    if PEOPLE not in table.metric_names:
        return ratios
    effective = effective_clusters(table, PEOPLE)
    return [
        replace(metric, means=replace(between_clusters(metric.means, effective), metric=name.removesuffix(end)))
        if (name := metric.means.metric).endswith(end)
        else metric
        for metric in ratios
    ]


# ── what every effect amounts to, decided once: every text, page and picture reads it from here ─────

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
        leads = _is_adjusted(row) and name not in thin and row.effect.metric not in noisier
        if name not in leading or (leads and not _is_adjusted(rows[leading[name]])):
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
        if _is_adjusted(row) and effect.se_noise and beside is not None:
            more = effect.se_noise**2 - beside.se_noise**2 - MOST_ADDED_NOISE * beside.se_population**2
            added[effect.metric] = added.get(effect.metric, 0.0) + more
    return {metric for metric, more in added.items() if more > 0}


def _is_adjusted(row: EffectRow) -> bool:
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
