"""From a source or a release to a readout: choose and call the statistics; no arithmetic here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanab.analysis import methods
from kanab.analysis.compare import (
    AnalyzedTables,
    by_role,
    clusters_of,
    effect_rows,
    hidden_metrics,
    metric_means,
    per_person,
    with_off_commonest,
    with_worth,
)
from kanab.analysis.looks import current_look
from kanab.analysis.methods.base import Facts, read_methods
from kanab.analysis.metric_shapes import shapes_of
from kanab.analysis.options import (
    Looks,
    ResolvedOptions,
    named_arm,
    read_contrast,
    read_lower,
    read_margins,
    read_pool,
    read_priors,
    read_roles,
    read_rule,
)
from kanab.analysis.readout import Readout
from kanab.arguments import check_arguments
from kanab.choices import Claim
from kanab.counting.clipping import clipped_metrics
from kanab.description import Reading, Role
from kanab.errors import AnalysisError, PrivacyError, flag, listed
from kanab.plan.declared import control_of
from kanab.plan.joint_shares import are_independent
from kanab.plan.model import DecisionRule, ExperimentPlan
from kanab.privacy.costs import experiment_costs, merging_costs
from kanab.privacy.release import OwnRows, Receipt, Release, Tables, concerns, refuse_own_rows
from kanab.stats.balance import BalanceCheck, check_balance, check_balance_any_time
from kanab.stats.cautions import (
    Caution,
    assigned_jointly,
    changed_shares,
    clamped_values,
    forged_messages,
    looked_early,
    metric_cautions,
    rows_not_people,
    small_arms,
)
from kanab.stats.distributions import check_sides
from kanab.stats.margins import Margin
from kanab.stats.posteriors import Prior
from kanab.stats.ratio import few_clusters
from kanab.stats.sequential import sample_ratio_any_time
from kanab.stats.srm import sample_ratio
from kanab.tally.factor import Factor, Level, label
from kanab.tally.metric import Missing
from kanab.tally.tally import Tally

NON_INFERIORITY: Claim = "non-inferiority"

BATCHES = (
    "{batches} batches are added here. If results were looked at before the last of them, p-values and intervals "
    "promise too much, because they hold for one look: read them over several looks (--sequential)."
)
CLIPPING = (
    "Values of {metric} above {bound:,.6g} (the {point} point of all arms together) count as {bound:,.6g}: this is the "
    "effect on clipped {metric}, usually smaller than on {metric}, and says nothing about the largest values."
)
UNPLANNED = "The planned looks cannot be read: {fact}. P-values and intervals hold at any time instead."


@check_arguments(skip=("released",))
def analyze(released: Tables, experiment: str | None = None, reading: Reading | None = None) -> Readout:
    """Analyze one experiment of a release: sample ratio, effects, segments, and what else is asked for.

    released: a release.
    experiment: the experiment, where it holds several.
    reading: how results are read: `Reading`; roles and looks of the plan hold where it says nothing.

    Effects of every metric and arm are plain and adjusted, corrected over metrics × arms; whether they differ by
    segment is decided by the robust F. Plain effects of 0/1 metrics are tested by the score test of Miettinen and
    Nurminen.

    Raises `PrivacyError` for anything but a release, `AnalysisError` for a question that it cannot
    answer, `LevelError` and `PlanError` for an arm or an experiment that it does not hold.
    """
    return analyze_release(released, experiment, reading or Reading())


def analyze_release(released: Tables, experiment: str | None, options: Reading) -> Readout:
    """Analyze as ``analyze`` does; where nothing is said of looks, a release is read over those of its plan."""
    if not isinstance(released, Tables):
        refuse_own_rows(released)
        raise PrivacyError("only a Release can be analyzed", "Call release() on what count() returned.")
    if options.looks is not None or isinstance(released, OwnRows) or not released.plan.experiment(experiment).looks:
        return _analyzed(released, experiment, options)
    try:
        return _analyzed(released, experiment, replace(options, looks=Looks("spending")))
    except AnalysisError as problem:  # for example a release that does not say which look it is
        readout = _analyzed(released, experiment, replace(options, looks=Looks("always-valid")))
        return replace(readout, notes=(*readout.notes, UNPLANNED.format(fact=problem.fact)))


def _analyzed(released: Tables, experiment: str | None, options: Reading) -> Readout:
    check_sides(options.confidence, options.alternative)
    current = current_look(released, experiment, options)
    released, options = current.released, replace(options, looks=current.looks)
    plan, tables, pools = _pooled(_tables_of(released, experiment), options.pool)
    _check_adjusting(options, plan)
    analyzed = AnalyzedTables(
        plan, tables, released.receipt.maps, released.plan.categories, shapes_of(released, plan.name, tables)
    )
    everything = next(iter(tables.values()))
    tables = _outcomes(tables, [*plan.numbers, *hidden_metrics(released)])
    first = next(iter(tables.values()))
    arms = first.factor(plan.name)
    resolved = _resolved(options, released, plan, tables, pools)
    notes = _notes(released, plan, resolved, arms)
    notes += [*pools.notes, *current.notes]
    means = metric_means(analyzed, released.plan.ratios, options, notes)
    clusters = clusters_of(released, everything, plan.name)
    if clusters is not None:
        means = per_person(means, everything)
    if options.looks is not None and options.looks.method == "always-valid":
        means = with_off_commonest(means, tables, released.ranges)
    means = with_worth(by_role(means, resolved.roles), resolved)
    effects = effect_rows(means, resolved)
    facts = Facts(released, analyzed, options, resolved, pools.groups, tables, means, effects)
    results = read_methods(methods.METHODS, facts)
    notes += [note for result in results.values() for note in result.notes]
    shares = pools.shares(plan, arms)
    ratio = replace(sample_ratio(first, shares, plan.name), declared=plan.shares is not None)
    looks = options.looks
    answer = Readout(
        plan.name, first.people_by(plan.name), resolved.control, options.confidence, options.alternative,
        options.correction, ratio, tuple(effects),
        replace(released.receipt, left_out=released.why_left_out(plan.name)),
        results=results,
        own_rows=isinstance(released, OwnRows),
        costs=tuple(experiment_costs(released, released.plan.experiment(plan.name))),
        cautions=(
            *current.cautions,
            *_cautions(released, plan, tables, sequential=looks is not None),
            *(caution for result in results.values() for caution in result.cautions),
            *([] if clusters is None else few_clusters(clusters.clusters, clusters.by)),
        ),
        pooled=pools.groups,
        missing=_missing(released, tables),
        notes=tuple(notes),
        chained=released.chained,
        any_time=looks and sample_ratio_any_time(first, shares, plan.name, optimal_at=looks.optimal_at),
        variance=options.variance,
        slopes=options.slopes,
        balance=tuple(_balance(analyzed, shares, resolved)),
        control_chosen=resolved.control_chosen,
        rule=resolved.rule,
        clusters=clusters,
        rates=tuple(sorted({metric.name for table in tables.values() for metric in table.metrics if metric.binary})),
    )  # fmt: skip
    current.record()
    return answer


def _check_adjusting(options: Reading, plan: ExperimentPlan) -> None:
    asked = {"slopes": options.slopes != "own", "the paper's variance": options.variance != "exact"}
    for words in [words for words, said in asked.items() if said and not (plan.adjust or plan.numbers)]:
        verb = "are" if words.endswith("s") else "is"
        raise AnalysisError(
            f"{words} {verb} of adjusted effects, and {plan.name} is adjusted for nothing",
            "Name covariates or numbers to adjust for where people are counted (--adjust), or leave it out.",
        )
    if all(asked.values()):
        raise AnalysisError(
            "one slope for all arms has Welch's variance, not the paper's", "Leave out --slopes or --variance."
        )


def _outcomes(tables: Mapping[str, Tally], others: Sequence[str]) -> dict[str, Tally]:
    """Return the tables without what is no result: numbers that effects are adjusted for, people of clusters."""
    if not others:
        return dict(tables)
    return {
        name: tally.select_metrics(metric for metric in tally.metric_names if metric not in others)
        for name, tally in tables.items()
    }


def _balance(
    analyzed: AnalyzedTables, shares: Mapping[Level, float] | None, options: ResolvedOptions
) -> list[BalanceCheck]:
    """Check whether the arms hold alike people, by a rule that allows several looks where there are several."""
    of, plan = list(analyzed.tables.values()), analyzed.plan
    if options.looks is None:
        return check_balance(of, plan.name, control=options.control, numbers=plan.numbers)
    return check_balance_any_time(
        of, shares, plan.name, control=options.control, optimal_at=options.looks.optimal_at, numbers=plan.numbers
    )


def _resolved(
    options: Reading, released: Tables, plan: ExperimentPlan, tables: Mapping[str, Tally], pools: _Pools
) -> ResolvedOptions:
    """Return the options in the arms and metrics of the release."""
    arms = next(iter(tables.values())).factor(plan.name)
    named = None if options.control is None else named_arm(arms, pools.place(options.control))
    control, chosen = control_of(plan, arms, named)
    ratios = (f"{y}/{z}" for y, z in released.plan.ratios if z not in hidden_metrics(released))
    metrics = list(dict.fromkeys([*_metric_names(tables), *ratios]))
    _check_outcomes(options, plan.numbers, metrics)
    called = {metric.name: "/".join(metric.ratio or (metric.name,)) for metric in released.plan.metrics}
    primary, guardrails, less = (
        [called.get(name, name) for name in names] for names in (plan.primary, plan.guardrails, plan.lower_is_better)
    )
    roles = read_roles(options.primary, options.guardrails, metrics, primary, guardrails)
    lower = read_lower(options.lower_is_better, metrics, options.margins) | {*less} & {*metrics}
    asked = read_margins(options.margins, metrics, lower)
    limits: dict[str, Margin] = {}
    for planned, (size, relative) in plan.non_inferiority.items():
        if (name := called.get(planned, planned)) in metrics:
            limits[name] = Margin(NON_INFERIORITY, size, "lower" if name in lower else "higher", relative=relative)
    limits |= {name: margin for name, claims in asked.items() for margin in claims if margin.claim == NON_INFERIORITY}
    margins = dict(asked)
    if options.looks is None:  # over several looks, their interval decides
        margins |= {name: tuple(dict.fromkeys((*asked.get(name, ()), margin))) for name, margin in limits.items()}
    rule = read_rule(plan.decision, options.decision)
    _check_limits(rule, roles, limits)
    return ResolvedOptions(
        control, options.confidence, options.alternative, options.correction,
        options.looks, tuple(read_contrast(arms, contrast) for contrast in options.contrasts),
        margins, read_priors(options.prior, metrics), lower, roles, limits, rule, chosen,
    )  # fmt: skip


def _check_outcomes(options: Reading, numbers: Sequence[str], metrics: Sequence[str]) -> None:
    lists = (options.primary, options.guardrails, options.lower_is_better)
    named = [name for names in lists for name in ([names] if isinstance(names, str) else names)]
    named += [*(options.margins or ()), *(() if isinstance(options.prior, Prior) else options.prior or ())]
    for name in numbers:
        if name in named:
            raise AnalysisError(
                f"{name} was measured before the experiment and is adjusted for, so there is no effect on it",
                f"Name a metric: {listed(metrics)}.",
            )


def _check_limits(rule: DecisionRule, roles: Mapping[str, Role], limits: Mapping[str, Margin]) -> None:
    bare = [name for name, role in roles.items() if role == "guardrail" and name not in limits]
    if rule.guardrails == "non-inferior" and bare:
        raise AnalysisError(
            f"the decision demands a margin of every guardrail, and {listed(bare)} has none",
            f"For example {flag('--non-inferiority', f'{bare[0]}=2%')}.",
        )


def _metric_names(tables: Mapping[str, Tally]) -> list[str]:
    return list(dict.fromkeys(metric.name for tally in tables.values() for metric in tally.metrics))


def _tables_of(released: Tables, experiment: str | None) -> tuple[ExperimentPlan, dict[str, Tally]]:
    """Return the plan and the tables of one experiment, but for those of its metrics in bins."""
    plan = released.plan.experiment(experiment)
    others = {link.name for link in released.plan.linkages_of(plan.name) if link.people_only}
    tables = {name: table for name, table in released.tables_of(plan.name).items() if name not in others}
    if released.receipt.noise is not None and plan.name in tables:
        tables[plan.name] = released.totals(plan.name)
    if not tables:
        raise AnalysisError(f"the release holds no table of {plan.name}", "Release it with more people.")
    return plan, tables


@dataclass(frozen=True)
class _Pools:
    """Which arms are taken as one."""

    groups: Mapping[Level, Sequence[Level]]

    def place(self, arm: Any) -> Any:
        """Return the pool that an arm is in, else the arm."""
        return next((new for new, olds in self.groups.items() if arm in olds or arm in map(label, olds)), arm)

    def shares(self, plan: ExperimentPlan, arms: Factor) -> dict[Level, float] | None:
        """Return the planned shares; of arms without declared ones, a pool has as many equal ones as it has arms."""
        if plan.shares:
            return dict(plan.shares)
        return {arm: float(len(self.groups.get(arm, (arm,)))) for arm in arms.levels} if self.groups else None

    @property
    def notes(self) -> list[str]:
        """What was pooled, in words."""
        return [f"{label(new)}: arms {listed(map(label, olds))} taken as one." for new, olds in self.groups.items()]


def _pooled(
    experiment: tuple[ExperimentPlan, dict[str, Tally]], pool: Mapping[Any, Sequence[Any]] | None
) -> tuple[ExperimentPlan, dict[str, Tally], _Pools]:
    """Take some arms as one, in plan and tables; the planned share of a pool is the sum of theirs."""
    plan, tables = experiment
    arms = next(iter(tables.values())).factor(plan.name)
    pools = _Pools(read_pool(arms, pool))
    if not pools.groups:
        return plan, tables, pools
    tables = {name: tally.pool_arms(pools.groups, plan.name) for name, tally in tables.items()}
    shares: dict[Level, float] = {}
    for arm, share in plan.shares or ():
        shares[pools.place(arm)] = shares.get(pools.place(arm), 0.0) + share
    control = None if plan.control is None else pools.place(plan.control)
    only = None if plan.only is None else tuple(dict.fromkeys(map(pools.place, plan.only)))
    return replace(plan, shares=tuple(shares.items()) or None, control=control, only=only), tables, pools


def _cautions(
    released: Tables, plan: ExperimentPlan, tables: Mapping[str, Tally], *, sequential: bool
) -> list[Caution]:
    """Collect what numbers alone do not say: about batches, about bounds, about each metric."""
    joined = [part for part in released.parts if plan.name in part.plan.experiment_names]  # others came later, or ended
    batches = [part.totals(plan.name) for part in joined]
    cautions = [*map(rows_not_people, released.receipt.repeats), *changed_shares(batches, plan.name)]
    units = "clusters" if "assigned_by" in (released.receipt.choices or {}) else "people"
    cautions += small_arms(next(iter(tables.values())).people_by(plan.name), released.receipt.k, units)
    joint = {name: released.plan.joint_shares(plan.name, name) for name in released.plan.experiment_names}
    others = [name for name, shares in joint.items() if shares is not None and not are_independent(shares)]
    cautions += [assigned_jointly(plan.name, others)] if others else []
    cautions += [
        replace(caution, sentence=BATCHES.format(batches=len(batches)))
        for caution in looked_early(len(batches), sequential)
    ]
    about = [name.partition(": ") for name in released.receipt.forged if concerns(name, plan.name)]
    cautions += map(forged_messages, dict.fromkeys(metric for _, _, metric in about if metric))
    by_metric = {metric.name: tally for tally in reversed([*tables.values()]) for metric in tally.metrics}
    # several experiments may be about different people: taking them all errs on the side of a smaller share
    by_experiment = {tally.arms[0].name: tally for tally in released.tables.values() if len(tally.arms) == 1}
    everyone = sum(tally.total for tally in by_experiment.values())
    cautions += clamped_values({name: released.receipt.clamped.get(name, 0) for name in by_metric}, everyone)
    for metric in _metric_names(tables):
        cautions += metric_cautions(by_metric[metric], metric, released.ranges.get(metric))
    return cautions


def _notes(released: Tables, plan: ExperimentPlan, options: ResolvedOptions, arms: Factor) -> list[str]:
    """Write what a reader has to know before the numbers."""
    receipt: Receipt = released.receipt
    notes = []
    if options.control_chosen == "word":
        notes.append(f"Control is {label(options.control)} (not named; name another if that is wrong).")
    if options.control_chosen == "declared" and arms.control_by_name not in (None, options.control):
        by_name = f"{label(options.control)} (the first declared arm), not {label(arms.control_by_name)}"
        notes.append(f"Control is {by_name}; name another if that is wrong.")
    if isinstance(released, Release) and not released.bounds_declared:
        notes.append(f"{_bounds_of_data(released, plan)}; this can be read here but not saved.")
    notes += [f"{sentence}." for name, sentence in receipt.left_out.items() if concerns(name, plan.name)]
    notes += [f"{sentence}." for sentence in released.fewer_bins([plan.name])]
    costs = merging_costs(released, released.plan.experiment(plan.name))
    notes += [f"{sentence[:1].upper()}{sentence[1:]}." for sentence in costs]
    exact = isinstance(released, OwnRows)
    least, steps = ("", "") if exact else ("At least ", f" (in steps of {receipt.k})")
    for metric, people in receipt.clamped.items():
        if people:
            notes.append(f"{least}{people:,} people were clamped to the bounds of {metric}{steps}.")
    for metric, (point, bound) in clipped_metrics(receipt.choices, released.plan).items():
        notes.append(CLIPPING.format(metric=metric, bound=bound, point=point.replace("%", " %")))
    if receipt.excluded:
        notes.append(f"{least}{receipt.excluded:,} people were seen in two arms and are excluded.")
    if receipt.outside:
        notes.append(f"{least}{receipt.outside:,} people are in no arm of the plan and are left out.")
    if receipt.where:
        notes.append(f"Only people where {receipt.where}.")
    choices = receipt.choices or {}
    if "sql" in choices:
        notes.append(f"Rows are those of the query {choices['sql']}.")
    if "join" in choices:
        notes.append(f"Columns were joined from {choices['join']} by {choices['on']}.")
    return [*notes, *receipt.deviations]


def _bounds_of_data(released: Tables, plan: ExperimentPlan) -> str:
    names = list(dict.fromkeys(m.name for table in released.tables_of(plan.name).values() for m in table.metrics))
    open_ended = [name for name in names if not released.plan.metrics_by_name[name].declared]
    whose = "" if len(open_ended) == len(names) else f" of {listed(open_ended)}"
    return f"Bounds{whose} were taken from the data, and nobody is beyond them"


def _missing(released: Tables, tables: Mapping[str, Tally]) -> dict[str, tuple[Missing, int]]:
    """Return what became of missing values, and of how many people at least, for metrics that k people lack."""
    rules = {metric.name: metric.missing for tally in tables.values() for metric in tally.metrics}
    people = released.receipt.missing
    return {name: (rule, people[name]) for name, rule in rules.items() if people.get(name)}
