"""Count rows into one tally per linkage of a plan, with NumPy alone: ``count_rows``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted, CountedShape
from kanab.counting.columns import MetricSteps, check_classes, fill_tally, group_sums, measure
from kanab.counting.dates import in_span
from kanab.counting.frames import Array, check_days, column_names, encode, get_columns, to_numbers
from kanab.counting.grids import (
    check_range,
    choose_metric,
    coarse_metrics,
    few_steps,
    profile_values,
    too_coarse,
    widen_range,
)
from kanab.counting.levels import (
    Bins,
    check_arms,
    check_levels,
    choose_bins,
    common_levels,
    declare_levels,
    not_numbers,
    place_arms,
    place_levels,
    quantile_shares,
)
from kanab.counting.relations import find_relations, residual_values
from kanab.counting.repeated_ids import id_columns, repeated_in
from kanab.counting.signature_groups import (
    Membership,
    NumbersInGroups,
    commonest_step,
    counts_things,
    make_signatures,
    values_of,
)
from kanab.errors import NobodyError, SourceError
from kanab.plan.joint_plan import counting_terms
from kanab.plan.model import CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.tally.cell_arrays import DROPPED
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric, grid_steps
from kanab.tally.tally import Tally


class CodedFactor(NamedTuple):
    """A factor, and everybody's place among its levels; ``DROPPED`` for people without one."""

    factor: Factor
    codes: NDArray[np.intp]


class MetricValues(NamedTuple):
    """A metric of everybody, how many people were clamped or had no value, and its range if it has no bounds."""

    steps: MetricSteps
    clamped: int
    missing: int
    range: tuple[int, int] | None


class PlanCount(NamedTuple):
    """The count of one plan without its signatures, the people it is about, their classes and their metrics."""

    counted: Counted
    inside: NDArray[np.bool_]
    membership: Membership
    steps: Mapping[str, MetricSteps]


def count_rows(
    data: Any, plan: Plan, earlier: Sequence[Plan] = (), span: Span | None = None, *, for_release: bool = True
) -> Counted:
    """Count people, one row each, into every table that the plan needs, and again by ``earlier`` plans.

    Without ``for_release`` nothing is counted that only the gate asks for.
    """
    table = get_columns(data, needed_columns(plan, *earlier, span=span))
    if span is not None:
        there = in_span(table[span.column], span)
        table = {name: values[there] for name, values in table.items()}
    plans = (plan, *earlier)
    by_terms: dict[str, PlanCount] = {}
    for each in plans:
        if counting_terms(each) not in by_terms:
            by_terms[counting_terms(each)] = _count_plan(table, each, for_release=for_release)
    counts = [by_terms[counting_terms(each)] for each in plans]
    anywhere = np.any([count.inside for count in counts], axis=0)
    first = _with_values(*counts) if for_release else counts[0].membership
    memberships = [first, *(count.membership for count in counts[1:])]
    signatures = make_signatures(
        [member.among(count.inside[anywhere]) for member, count in zip(memberships, counts, strict=True)]
    )
    counted, *again = (
        replace(count.counted, plan=each, signatures=signature)
        for each, count, signature in zip(plans, counts, signatures, strict=True)
    )
    ids = id_columns(column_names(data), needed_columns(*plans, span=span))
    repeated = tuple(name for name in ids if repeated_in(name, get_columns(data, [name])[name], plan.k))
    return replace(counted, earlier=tuple(again), repeats=repeated)


def _with_values(count: PlanCount, *earlier: PlanCount) -> Membership:
    """Return how far everybody is off the commonest values of a plan's metrics, and what relations leave of them.

    A metric may also follow from those of earlier plans, which are 0 for people whom these are not about.
    """
    counted, steps = count.counted, count.steps
    values = {}
    for metric in counted.plan.counted_metrics:
        part = steps[metric.name]
        ends = part.metric.grid_bounds or counted.ranges[metric.name]
        if metric.sensitive != "no" or not counts_things(part.metric, *ends):
            values[metric.name] = values_of(part)
    together = dict(steps)
    for other in earlier:
        place, there = np.cumsum(other.inside)[count.inside] - 1, other.inside[count.inside]
        for name, part in other.steps.items():
            if name not in together:  # who is not among theirs has no value
                together[name] = MetricSteps(part.metric, part.steps[place], part.has[place] & there)
    left = dict(residual_values(find_relations([*together.values()]), together))
    return count.membership._replace(values=values, left=left)


def _count_plan(table: Mapping[str, Array], plan: Plan, *, for_release: bool) -> PlanCount:
    arms = {experiment.name: _arms(table[experiment.name], experiment) for experiment in plan.experiments}
    inside = np.any([coded.codes != DROPPED for coded in arms.values()], axis=0)
    if not inside.any():
        raise NobodyError
    if not inside.all():
        table = {name: table[name][inside] for name in needed_columns(plan)}
        arms = {name: CodedFactor(coded.factor, coded.codes[inside]) for name, coded in arms.items()}
    factors = arms | {name: _levels(table[name], plan.covariate(name), plan) for name in plan.covariates_in_use}
    factors |= {name: _cut(table[name], plan.metrics_by_name[name]) for name in plan.binned_metrics}
    values = {metric.name: _values(table[metric.name], metric) for metric in plan.counted_metrics}
    steps = {name: value.steps for name, value in values.items()}
    tallies: dict[str, Tally] = {}
    cells: dict[str, NDArray[np.intp]] = {}
    for linkage in plan.linkages:
        axes = [factors[name] for name in linkage.axes]
        cells[linkage.name] = _cells(axes, linkage.name)
        own = [steps[metric.name] for metric in plan.metrics_of(linkage)]
        tallies[linkage.name] = _tally(axes, cells[linkage.name], own, linkage, plan)
    for name, metric in coarse_metrics(plan, tallies.values()).items():
        if _rounded_visibly(table[name], metric):
            raise too_coarse(metric)
    ranges = {name: value.range for name, value in values.items() if value.range is not None}
    counted = Counted(
        plan,
        tallies,
        None,
        all(metric.declared or steps[metric.name].metric.binary for metric in plan.counted_metrics),
        {name: value.clamped for name, value in values.items()},
        {name: value.missing for name, value in values.items()},
        outside=int(np.count_nonzero(~inside)),
        ranges=ranges,
        for_release=for_release,
        shapes={name: shapes_of_rows(steps, plan.ratios, coded.codes) for name, coded in arms.items()},
    )
    sizes = {name: tally.people.size for name, tally in tallies.items()}
    if not for_release:
        return PlanCount(counted, inside, Membership(cells, sizes, {}), steps)
    present = {name: column.has for name, column in steps.items() if column.metric.missing == "exclude"}
    multiplying = {name for pair in plan.products for name in pair}
    true_or_false = {name for name in multiplying if np.isin(steps[name].steps, (0, steps[name].metric.scale)).all()}
    weights = tuple(name for name in plan.weights if name not in true_or_false)
    numbers = None
    if weights:
        columns = np.stack([steps[name].steps.astype(np.float64) for name in weights], axis=1)
        numbers = NumbersInGroups(weights, columns, columns, columns)
    cut = {name: steps[name].has & (steps[name].steps != 0) for name in sorted(true_or_false)}
    return PlanCount(counted, inside, Membership(cells, sizes, present, numbers=numbers, cut=cut), steps)


def needed_columns(*plans: Plan, span: Span | None = None) -> list[str]:
    """Return the columns that plans count: arms, metrics but for ratios, covariates in use, and the cohorts' column."""
    arms = (name for plan in plans for name in plan.experiment_names)
    metrics = (metric.name for plan in plans for metric in plan.counted_metrics)
    levels = (name for plan in plans for name in plan.covariates_in_use)
    return list(dict.fromkeys(chain(arms, metrics, levels, [] if span is None else [span.column])))


def _arms(values: Array, plan: ExperimentPlan) -> CodedFactor:
    codes, arms = encode(values, plan.name)
    if plan.arms is None:
        check_arms(plan.name, len(arms))
    factor, into = place_arms(arms, plan)
    return CodedFactor(factor, np.array(into, dtype=np.intp)[codes])


def _levels(values: Array, covariate: CovariatePlan, plan: Plan) -> CodedFactor:
    if covariate.bins is not None:
        return _binned(values, covariate)
    codes, levels = encode(values, covariate.name)
    if covariate.top is not None:
        counts = dict(zip(levels, np.bincount(codes, minlength=len(levels)).tolist(), strict=True))
        common = common_levels(counts, covariate.top)
        covariate = declare_levels(covariate.name, common, rest=len(common) < len(counts.keys() - {None}))
    if covariate.levels is None:
        check_days(covariate.name, levels)
        check_levels(covariate.name, len(levels), plan)
    factor, into = place_levels(levels, covariate)
    return CodedFactor(factor, np.array(into, dtype=np.intp)[codes])


def _binned(column: Array, plan: CovariatePlan) -> CodedFactor:
    """Cut a number at declared edges or at quantiles of everybody; score each bin by its exact mean."""
    try:
        values, gone = to_numbers(column, plan.name)
    except SourceError:
        raise not_numbers(plan.name) from None
    present = values[~gone]
    profile = profile_values(present)
    quantiles = np.quantile(present, quantile_shares(plan)).tolist() if len(present) else []
    bins = choose_bins(plan, quantiles, profile.low, profile.high)
    grid = Metric(plan.name, profile.scale)
    check_range(grid, profile)
    place, size = bins.place(present), len(bins.labels)
    people = np.bincount(place, minlength=size)
    sums = group_sums(grid.to_grid(present), place, size)
    factor = bins.factor(people.tolist(), sums.tolist(), grid.scale, missing=bool(gone.any()))
    codes = np.full(len(values), len(factor.levels) - 1, dtype=np.intp)  # missing comes last
    codes[~gone] = (np.cumsum(people > 0) - 1)[place]
    return CodedFactor(factor, codes)


def _cut(column: Array, plan: MetricPlan) -> CodedFactor:
    """Cut a metric at its declared edges; who has no value has 0, or else a level of their own."""
    values, gone = to_numbers(column, plan.name)
    if plan.missing == "zero":
        values, gone = np.where(gone, 0.0, values), np.zeros_like(gone)
    bins = Bins(plan.name, plan.edges)
    place = bins.place(values)
    factor, into = bins.outcome(np.unique(place[~gone]).tolist(), missing=bool(gone.any()))
    codes = np.full(len(bins.labels), len(factor.levels) - 1, dtype=np.intp)
    codes[list(into)] = list(into.values())
    return CodedFactor(factor, np.where(gone, len(factor.levels) - 1, codes[place]))


def _values(column: Array, declared: MetricPlan) -> MetricValues:
    values, gone = to_numbers(column, declared.name)
    profile = replace(profile_values(values[~gone]), gaps=bool(gone.any()))
    metric = choose_metric(declared, profile)
    check_range(metric, profile)
    clamped = int(np.count_nonzero(metric.beyond_bounds(values) & ~gone))
    part = measure(metric, values, gone)
    steps = part.steps[part.has]
    ends = None
    if metric.bounds is None:
        ends = widen_range(int(steps.min()), int(steps.max()), metric.scale) if len(steps) else (0, 0)
    return MetricValues(part, clamped, int(np.count_nonzero(gone)), ends)


def _rounded_visibly(column: Array, metric: Metric) -> bool:
    """Return whether values within the bounds lie between the steps of a grid, and differ or are few steps from 0."""
    values, gone = to_numbers(column, metric.name)
    inside = values[~gone & ~metric.beyond_bounds(values)]
    if not np.any(grid_steps(inside, metric.scale) / metric.scale != inside):
        return False
    return few_steps(float(inside.min()), float(inside.max()), metric)


def _cells(axes: Sequence[CodedFactor], name: str) -> NDArray[np.intp]:
    """Return everybody's class in one table, as a flat index; ``DROPPED`` for people who are not in it."""
    check_classes(name, [len(coded.factor.levels) for coded in axes])
    cell = axes[0].codes
    for coded in axes[1:]:
        both = (cell != DROPPED) & (coded.codes != DROPPED)
        cell = np.where(both, cell * len(coded.factor.levels) + coded.codes, DROPPED)
    return cell


def _tally(
    axes: Sequence[CodedFactor], cell: NDArray[np.intp], metrics: Sequence[MetricSteps], linkage: Linkage, plan: Plan
) -> Tally:
    inside = cell != DROPPED
    everyone = bool(inside.all())
    squares = {metric.name: plan.squares_of(linkage, metric.name) for metric in plan.counted_metrics}
    return fill_tally(
        tuple(coded.factor for coded in axes),
        cell if everyone else cell[inside],
        metrics if everyone else [values.of(inside) for values in metrics],
        squares,
        plan.products_of(linkage),
    )


# ── the shape of metrics ────────────────────────────────────────────────────────────────────────

Floats = NDArray[np.float64]


def shapes_of_rows(
    steps: Mapping[str, MetricSteps], ratios: Iterable[tuple[str, str]], arm: NDArray[np.intp]
) -> dict[str, CountedShape]:
    """Return the shapes of amounts, and of ratios as y − R z with the R of each arm; arm −1 is in no experiment."""
    amounts = [name for name, part in steps.items() if not part.metric.binary]
    shapes = {name: _of_metric(steps[name], arm) for name in amounts}
    shapes |= {"/".join(pair): _of_ratio(steps[pair[0]], steps[pair[1]], arm) for pair in ratios}
    return shapes


def _of_metric(part: MetricSteps, arm: NDArray[np.intp]) -> CountedShape:
    there = part.has & (arm >= 0)
    # from the commonest value: doubles of large integers have no digits left for small differences
    steps, arm = part.steps[there] - commonest_step(part.metric, part.steps[there]), arm[there]
    away = steps - np.asarray(_by_arm(steps, arm) / np.maximum(_by_arm(None, arm), 1))[arm]
    return CountedShape(skewness_of(away), _unusual(part, there), len(steps))


def _of_ratio(y: MetricSteps, z: MetricSteps, arm: NDArray[np.intp]) -> CountedShape:
    there = y.has & z.has & (arm >= 0)
    above, below, arm = y.steps[there], z.steps[there], arm[there]
    totals = _by_arm(below, arm)
    ratios = np.divide(_by_arm(above, arm), totals, out=np.zeros(len(totals)), where=totals != 0)
    # a denominator that is the same for everybody says nothing about who is unusual
    unusual = [count for count in (_unusual(part, there) for part in (y, z)) if count]
    return CountedShape(skewness_of(above - ratios[arm] * below), min(unusual, default=0), len(above))


def _by_arm(values: NDArray[np.int64] | None, arm: NDArray[np.intp]) -> Floats:
    weights = None if values is None else values.astype(np.float64)
    return np.bincount(arm, weights, minlength=1).astype(np.float64)


def _unusual(part: MetricSteps, there: NDArray[np.bool_]) -> int:
    steps = part.steps[there]
    return int(np.count_nonzero(steps != commonest_step(part.metric, steps)))


def skewness_of(away: Floats) -> float:
    """Return the skewness of distances from the mean of one's own arm; 0 where nothing varies."""
    squares = float(np.mean(away**2)) if len(away) else 0.0
    return float(np.mean(away**3)) / squares**1.5 if squares > 0 else 0.0
