"""Rows to one tally per linkage of a plan, with NumPy alone: ``count_rows``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kanab.counted import Counted
from kanab.counting.bins import (
    MOST_LEVELS,
    check_levels,
    common_levels,
    declare_levels,
    declared_bins,
    quantile_bins,
    quantile_shares,
)
from kanab.counting.columns import MetricSteps, Squares, fill_tally, group_sums, measure
from kanab.counting.dates import in_span
from kanab.counting.frames import Array, encode, get_columns, to_numbers
from kanab.counting.grids import check_range, choose_metric, profile_values, widen_range
from kanab.counting.largest import find_largest, metrics_with_small_sums
from kanab.counting.levels import place_arms, place_levels
from kanab.counting.signatures import Membership, make_signatures
from kanab.errors import NobodyError, SourceError
from kanab.plan.joint import counting_terms
from kanab.plan.model import MOST_CLASSES, CovariatePlan, ExperimentPlan, Linkage, MetricPlan, Plan
from kanab.plan.periods import Span
from kanab.tally.cells import DROPPED
from kanab.tally.factor import Factor
from kanab.tally.metric import Metric
from kanab.tally.tally import Tally


class CodedFactor(NamedTuple):
    """A factor, and everybody's place among its levels; ``DROPPED`` for people without one."""

    factor: Factor
    codes: NDArray[np.intp]


class MetricValues(NamedTuple):
    """A metric of everybody, how many people were clamped or had no value, and its range if it has no bounds."""

    measured: MetricSteps
    clamped: int
    missing: int
    range: tuple[int, int] | None


class PlanCount(NamedTuple):
    """What one plan makes of the rows: everything but signatures, whom it is about, and their classes."""

    counted: Counted
    inside: NDArray[np.bool_]
    seen: Membership


def count_rows(data: Any, plan: Plan, earlier: Sequence[Plan] = (), span: Span | None = None) -> Counted:
    """Count people, one row each, into every table that the plan needs.

    ``data`` is a dict of columns or a pandas, polars or Arrow table. People whose arm is missing
    or not declared are not in that experiment; who is in none is counted as outside. ``earlier``
    plans are counted again over the same people, whose signatures then go row by row with these.
    With a ``span`` only the people of those cohorts are counted.

    >>> from kanab.plan.model import make_plan
    >>> rows = {"variant": ["A", "A", "B", "B"], "tier": [1, 2, 1, 2], "spend": [0.5, 2.0, 1.5, 0.0]}
    >>> count_rows(rows, make_plan("variant", ["spend"], adjust=["tier"]))
    Counted, not yet released:
      variant/tier: Tally of variant (A, B) × tier (1, 2): spend in steps of 0.1, squares by variant
    """
    table = get_columns(data, needed_columns(plan, *earlier, span=span))
    if span is not None:
        there = in_span(table[span.column], span)
        table = {name: values[there] for name, values in table.items()}
    done: dict[str, PlanCount] = {}
    for one in (plan, *earlier):
        if counting_terms(one) not in done:
            done[counting_terms(one)] = _count_plan(table, one)
    parts = [(one, done[counting_terms(one)]) for one in (plan, *earlier)]
    anywhere = np.any([part.inside for part in done.values()], axis=0)
    signed = make_signatures([part.seen.among(part.inside[anywhere]) for _, part in parts])
    own, *others = (
        replace(part.counted, plan=one, signatures=signatures)
        for (one, part), signatures in zip(parts, signed, strict=True)
    )
    return replace(own, earlier=tuple(others))


def _count_plan(table: Mapping[str, Array], plan: Plan) -> PlanCount:
    arms = {one.name: _arms(table[one.name], one) for one in plan.experiments}
    inside = np.any([coded.codes != DROPPED for coded in arms.values()], axis=0)
    if not inside.any():
        raise NobodyError
    if not inside.all():
        table = {name: table[name][inside] for name in needed_columns(plan)}
        arms = {name: CodedFactor(coded.factor, coded.codes[inside]) for name, coded in arms.items()}
    factors = arms | {name: _levels(table[name], plan.covariate(name)) for name in plan.covariates_in_use}
    values = {metric.name: _values(table[metric.name], metric) for metric in plan.counted_metrics}
    tallies: dict[str, Tally] = {}
    cells: dict[str, NDArray[np.intp]] = {}
    for linkage in plan.linkages:
        own = [factors[name] for name in linkage.axes]
        cells[linkage.name] = _cells(own, linkage.name)
        tallies[linkage.name] = _tally(
            own, cells[linkage.name], [one.measured for one in values.values()], linkage, plan
        )
    counted = Counted(
        plan,
        tallies,
        None,
        all(metric.declared or values[metric.name].measured.metric.binary for metric in plan.counted_metrics),
        {name: one.clamped for name, one in values.items()},
        {name: one.missing for name, one in values.items()},
        outside=int(np.count_nonzero(~inside)),
        ranges={name: one.range for name, one in values.items() if one.range is not None},
    )
    largest = {
        name: {metric: find_largest(values[metric].measured, cells[name], tallies[name].shape) for metric in metrics}
        for name, metrics in metrics_with_small_sums(tallies, counted.ranges).items()
    }
    counted = replace(counted, largest=largest)
    present = {name: one.measured.has for name, one in values.items() if one.measured.metric.missing == "exclude"}
    return PlanCount(
        counted, inside, Membership(cells, {name: tally.people.size for name, tally in tallies.items()}, present)
    )


def needed_columns(*plans: Plan, span: Span | None = None) -> list[str]:
    """The columns that plans count: arms, covariates in use, and metrics but for ratios; and the cohorts' column."""
    arms = (name for plan in plans for name in plan.experiment_names)
    metrics = (one.name for plan in plans for one in plan.counted_metrics)
    levels = (name for plan in plans for name in plan.covariates_in_use)
    return list(dict.fromkeys(chain(arms, metrics, levels, [] if span is None else [span.column])))


def _arms(values: Array, plan: ExperimentPlan) -> CodedFactor:
    codes, found = encode(values, plan.name)
    if plan.arms is None and len(found) > MOST_LEVELS:
        raise SourceError(
            f"arm column {plan.name!r} has {len(found):,} arms; the limit is {MOST_LEVELS:,}",
            "Name the column that holds the arm, not the person.",
        )
    factor, into = place_arms(found, plan)
    return CodedFactor(factor, np.array(into, dtype=np.intp)[codes])


def _levels(values: Array, plan: CovariatePlan) -> CodedFactor:
    if plan.bins is not None:
        return _binned(values, plan)
    codes, found = encode(values, plan.name)
    if plan.top is not None:
        counts = dict(zip(found, np.bincount(codes, minlength=len(found)).tolist(), strict=True))
        kept = common_levels(counts, plan.top)
        plan = declare_levels(plan.name, kept, rest=len(kept) < len(counts.keys() - {None}))
    if plan.levels is None:
        check_levels(plan.name, len(found))
    factor, into = place_levels(found, plan)
    return CodedFactor(factor, np.array(into, dtype=np.intp)[codes])


def _binned(column: Array, plan: CovariatePlan) -> CodedFactor:
    """A number cut at given edges or at quantiles of everybody; each bin is scored by its exact mean."""
    try:
        values, gone = to_numbers(column, plan.name)
    except SourceError:
        raise SourceError(
            f"covariate {plan.name!r} cannot be cut into bins: it holds something other than finite numbers",
            f"Keep its most frequent levels instead (--top {plan.name}=20).",
        ) from None
    present = values[~gone]
    profile = profile_values(present)
    bins = declared_bins(plan)
    if bins is None:
        shares = quantile_shares(plan.bins if isinstance(plan.bins, int) else 1)
        quantiles = np.quantile(present, shares).tolist() if len(present) else []
        bins = quantile_bins(plan.name, quantiles, profile.low, profile.high)
    grid = Metric(plan.name, profile.scale)
    check_range(grid, profile)
    place, size = bins.place(present), len(bins.labels)
    people = np.bincount(place, minlength=size)
    sums = group_sums(grid.to_grid(present), place, size)
    factor = bins.factor(people.tolist(), sums.tolist(), grid.scale, missing=bool(gone.any()))
    codes = np.full(len(values), len(factor.levels) - 1, dtype=np.intp)  # missing comes last
    codes[~gone] = (np.cumsum(people > 0) - 1)[place]
    return CodedFactor(factor, codes)


def _values(column: Array, declared: MetricPlan) -> MetricValues:
    values, gone = to_numbers(column, declared.name)
    profile = profile_values(values[~gone])
    metric = choose_metric(declared, profile)
    check_range(metric, profile)
    clamped = int(np.count_nonzero(metric.beyond_bounds(values) & ~gone))
    measured = measure(metric, values, gone)
    return MetricValues(measured, clamped, int(np.count_nonzero(gone)), _range(measured))


def _range(one: MetricSteps) -> tuple[int, int] | None:
    if one.metric.bounds is not None:
        return None
    steps = one.steps[one.has]
    return widen_range(int(steps.min()), int(steps.max()), one.metric.scale) if len(steps) else (0, 0)


def _cells(own: Sequence[CodedFactor], name: str) -> NDArray[np.intp]:
    """Everybody's class in one table, as a flat index; ``DROPPED`` for people who are not in it."""
    size = math.prod(len(coded.factor.levels) for coded in own)
    if size > MOST_CLASSES:
        raise SourceError(
            f"{name} would have {size:,} classes; the limit is {MOST_CLASSES:,}",
            "Cut numbers into bins (--bin), keep the most frequent levels (--top), or declare fewer levels.",
        )
    cell = own[0].codes
    for coded in own[1:]:
        both = (cell != DROPPED) & (coded.codes != DROPPED)
        cell = np.where(both, cell * len(coded.factor.levels) + coded.codes, DROPPED)
    return cell


def _tally(
    own: Sequence[CodedFactor], cell: NDArray[np.intp], measured: Sequence[MetricSteps], linkage: Linkage, plan: Plan
) -> Tally:
    inside = cell != DROPPED
    everyone = bool(inside.all())
    squares: dict[str, Squares] = {
        metric.name: "class" if metric.squares == "class" else linkage.squares for metric in plan.metrics
    }
    products = dict.fromkeys(plan.ratios)
    return fill_tally(
        tuple(coded.factor for coded in own),
        cell if everyone else cell[inside],
        measured if everyone else [one.of(inside) for one in measured],
        squares,
        products,
    )
